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
