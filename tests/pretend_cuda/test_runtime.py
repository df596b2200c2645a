"""The pretend runtime keeps CUDA's rules, and gpubench's CUDA code runs on it: ``tox run -e pretend-cuda``."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

if "PRETEND_CUDA_DEVICES" not in os.environ:
    pytest.skip("needs the pretend CUDA runtime: tox run -e pretend-cuda", allow_module_level=True)

import torch

from gpubench.devices.cuda import Cuda

CYCLES_PER_S = 1.98e9
WAIT_S = 0.02


def queue(seconds: float, device: int = 0) -> None:
    with torch.cuda.device(device):
        torch.cuda._sleep(int(seconds * CYCLES_PER_S))


@pytest.fixture(autouse=True)
def idle():
    torch.cuda.synchronize(0)
    yield
    torch.cuda.synchronize(0)


def test_as_many_devices_as_asked_for():
    assert torch.cuda.device_count() == int(os.environ["PRETEND_CUDA_DEVICES"]) == 2
    assert torch.cuda.get_device_name(1) == "Pretend GPU 1"


def test_a_launch_returns_before_its_work_ends():
    before = time.perf_counter()
    queue(WAIT_S)
    launched = time.perf_counter() - before
    torch.cuda.synchronize()
    assert launched < WAIT_S / 2 < WAIT_S <= time.perf_counter() - before


def test_events_time_the_device():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    queue(WAIT_S)
    end.record()
    assert not end.query()
    end.synchronize()
    assert start.elapsed_time(end) / 1e3 == pytest.approx(WAIT_S, rel=0.2)


def test_streams_overlap_unless_one_waits():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()

    def both(wait: bool) -> float:
        torch.cuda.synchronize()
        before = time.perf_counter()
        with torch.cuda.stream(first):
            queue(WAIT_S)
        if wait:
            second.wait_stream(first)
        with torch.cuda.stream(second):
            queue(WAIT_S)
        torch.cuda.synchronize()
        return time.perf_counter() - before

    assert both(wait=True) >= 2 * WAIT_S
    assert min(both(wait=False) for _ in range(5)) < 2 * WAIT_S


def test_the_queue_is_bounded():
    x = torch.empty(1, device="cuda")
    queue(WAIT_S)
    before = time.perf_counter()
    for _ in range(1100):
        x.neg_()
    assert time.perf_counter() - before > WAIT_S / 2


def test_copies_move_bytes_both_ways():
    x = torch.arange(1000)
    assert torch.equal(x.cuda().cpu(), x)
    assert torch.equal(x.pin_memory().to("cuda:1", non_blocking=True).cpu(), x)
    assert x.pin_memory().is_pinned()


def test_memory_has_an_end():
    free, total = torch.cuda.mem_get_info()
    assert free <= total == 8 << 30
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")


def test_a_graph_replays_what_was_captured():
    x = torch.ones(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            x.neg_()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0.05


@pytest.mark.parametrize("forbidden", ["x.sum().item()", "torch.cuda.synchronize()", "x.cpu()"])
def test_what_a_capture_forbids(forbidden):
    """In a process of its own: a failed capture ruins its process."""
    script = f"""
import torch
x = torch.ones(10, device="cuda")
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.neg_()
        {forbidden}
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "capture" in done.stdout, done.stderr


def test_a_sticky_error_stays():
    script = """
import torch
x = torch.empty(10, device="cuda")
for _ in range(3):
    try:
        x.neg_()
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
    settings = {**os.environ, "PRETEND_CUDA_STICKY_AT": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=settings)
    assert done.stdout.count("illegal memory access") == 3, done.stderr


def test_each_device_captures_its_own_work():
    def replay_ms(device: Cuda) -> float:
        x = torch.ones(10, device=str(device))

        def call() -> torch.Tensor:
            for _ in range(100):
                x.neg_()
            return x

        replay, _ = device.capture_graph(call)
        start = device.record_event()
        replay()
        end = device.record_event()
        device.synchronize()
        return start.elapsed_time(end)

    assert min(replay_ms(Cuda(index)) for index in (0, 1)) > 0.1


def test_a_device_has_a_context_once_it_is_used():
    script = """
import torch
def contexts():
    return [torch._C._cuda_hasPrimaryContext(index) for index in (0, 1)]
print(contexts())
torch.ones(1, device="cuda:1")
print(contexts())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[False, False]", "[False, True]"], done.stderr
