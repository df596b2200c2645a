"""On a real CUDA GPU: facts that no simulation can show. Skips, with the reason, where there is none."""

import math
import subprocess
import sys
import time

import pytest
import torch

from benchmarks.distributed import Training
from gpubench import devices
from gpubench.measure import disturbance, probes
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.clock import DeviceClock
from gpubench.measure.precision import apply, matmul_precision
from gpubench.measure.probes import device_time, flush
from gpubench.measure.ranks import Rank, join_process_group, measure_rank
from gpubench.runfile.schema import Work
from gpubench.supervise.process import suite

CUDA = devices.kinds()["cuda"]
PLUGIN = ("-p", "gpubench.plugin")  # of a package that may not be installed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA.count() == 0, reason=f"no CUDA GPU: {CUDA.why_absent() if not CUDA.count() else ''}"),
]


@pytest.fixture
def gpu():
    torch.cuda.init()  # torch's memory statistics can't be reset before
    return CUDA(0)


def sleep_cycles(seconds):
    """Cycles of the device-side sleep that last so long, by events, once its clock has risen."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    took = math.inf
    for _ in range(20):
        before = took
        begin.record()
        torch.cuda._sleep(10**8)
        end.record()
        torch.cuda.synchronize()
        took = begin.elapsed_time(end) / 1e3
        if abs(took - before) < 0.002 * took:
            break
    return int(10**8 * seconds / took)


def test_a_device_side_sleep_reads_as_long_as_events_say(gpu):
    cycles = sleep_cycles(0.02)
    clock = DeviceClock([gpu])
    ratios = []
    for _ in range(3):  # a host that is late adds to one
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start = clock()
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        ratios.append((clock() - start) / (begin.elapsed_time(end) / 1e3))
    assert min(ratios) == pytest.approx(1, rel=0.02)


def test_tf32_is_off_for_float32_and_on_for_tf32(gpu):
    if lacking := gpu.lacks("tf32"):
        pytest.skip(lacking)
    a = torch.randn(1024, 1024, device="cuda:0")
    expected = a.double() @ a.double()
    error = {}
    for dtype in ("float32", "tf32"):
        with matmul_precision(dtype):
            error[dtype] = ((a @ a).double() - expected).abs().max().item() / expected.abs().max().item()
    assert error["float32"] < 1e-5 < error["tf32"]


def test_facts_come_from_the_driver_by_uuid(gpu):
    pytest.importorskip("pynvml")
    facts = gpu.facts()
    assert facts["driver"]
    assert facts["memory_bytes"] == torch.cuda.get_device_properties(0).total_memory
    clocks = gpu.clocks()
    assert clocks is not None
    assert 1e8 < clocks["sm"] < 5e9


OUT_OF_MEMORY = """
import torch
def test_much(gpubench):
    gpubench.declare(check=False)(lambda x: x.is_meta or torch.empty(2**50, device=x.device), gpubench.randn(4))
def test_neg(gpubench): gpubench(torch.neg, gpubench.randn(1000))
"""


def test_out_of_memory_is_a_status_and_the_next_case_runs(bench):
    ran = bench(OUT_OF_MEMORY, *PLUGIN, "--gpubench-device=cuda", apart=True)
    assert [row["status"] for row in ran.rows] == ["oom"]
    assert len(ran.marks) == 1


@pytest.mark.parametrize("path", sorted(suite().glob("test_*.py")), ids=lambda path: path.stem.removeprefix("test_"))
def test_the_suite_runs_on_the_gpu(pytester, path):
    """Every case's code on tiny sizes, answers checked."""
    options = (f"--rootdir={suite().parent}", "--gpubench-device=cuda", "--gpubench-preset=smoke", "--benchmark-quiet")
    assert pytester.runpytest_subprocess(*PLUGIN, path, *options).ret == 0


def test_device_time_of_a_sleep_is_its_own_and_not_the_launch(gpu):
    cycles = sleep_cycles(0.002)
    timed = device_time(lambda: torch.cuda._sleep(cycles), gpu, 0.002, None)
    assert timed.device_s == pytest.approx(0.002, rel=0.02)
    assert timed.launch_s < 2e-4


def test_a_tiny_kernel_is_launch_bound_and_a_large_one_is_not(gpu):
    clock = DeviceClock([gpu])
    for count, bound in ((1, True), (1 << 28, False)):
        x = torch.randn(count, device="cuda")
        x.neg_()
        start = clock()
        for _ in range(200):
            x.neg_()
        wall = (clock() - start) / 200
        timed = device_time(x.neg_, gpu, wall, None)
        assert (timed.launch_s > timed.device_s) is bound
        assert timed.device_s < 1.05 * wall


def test_a_call_that_waits_for_the_device_has_a_reason_instead_of_a_device_time(gpu):
    x = torch.randn(1000, device="cuda")
    timed = device_time(lambda: x.sum().item(), gpu, 1e-4, None)
    assert timed.device_s is None
    assert "waits for the device" in timed.device_reason


def test_a_graph_replays_the_launches_with_less_wall_time(gpu):
    clock = DeviceClock([gpu])
    x = torch.randn(64, 64, device="cuda")

    def many(x):
        for _ in range(50):
            x = x @ x.softmax(-1)
        return x

    expected, graph = many(x), apply("graph", many, gpu)
    assert torch.allclose(graph(x), expected, rtol=1e-4, atol=1e-5)
    times = {}
    for name, call in (("eager", many), ("graph", graph)):
        call(x)
        start = clock()
        for _ in range(20):
            call(x)
        times[name] = clock() - start
    assert times["graph"] < times["eager"]


def test_a_call_that_cannot_be_captured_leaves_the_stream_as_it_was(gpu):
    code = """
import torch
from gpubench import devices
from gpubench.errors import Unmeasurable
from gpubench.measure.precision import apply
x, before = torch.randn(64, device="cuda"), torch.cuda.current_stream()
try:
    apply("graph", lambda x: x.sum().item(), devices.find_device("cuda").device)(x)
except Unmeasurable as error:
    print(torch.cuda.current_stream() == before, (x - x).abs().sum().item(), error, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("True 0.0 "), done.stderr
    assert "can't be captured" in done.stdout


def test_a_cold_cache_is_slower_than_a_hot_one(gpu):
    x = torch.randn(gpu.cache_bytes() // 4 // 3, device="cuda")  # of two halves of a cache, each may hold a copy
    hot, cold = (device_time(x.sum, gpu, 2e-5, before).device_s for before in (lambda: None, flush(gpu)))
    # By cache at 5.5 TB/s, memory at 4 TB/s and 3 us of launching, a sixth at least; half of that is asked for.
    assert cold > 1.08 * hot


ADD = """
import torch
def test_add(gpubench):
    a, b, out = gpubench.randn(4096, 4096), gpubench.randn(4096, 4096), gpubench.empty(4096, 4096)
    gpubench.declare(nbytes=3 * a.nbytes, items=a.numel())(torch.add, a, b, out=out)
"""


def test_a_case_on_the_gpu_has_all_its_numbers(bench):
    ran = bench(ADD, *PLUGIN, "--gpubench-device=cuda", usual=("--benchmark-json=run.json",), apart=True)
    (mark,), (record,), size = ran.marks, ran.records, 4 * 4096**2
    assert record["device_s"] == pytest.approx(mark["stats"]["median"], rel=0.1)
    assert record["memory_bytes"] == 3 * size
    assert (record["transfer"]["in_bytes"], record["transfer"]["out_bytes"]) == (2 * size, size)
    assert record["transfer"]["in_pinned_s"] < record["transfer"]["in_s"]
    assert record["energy_j"] is None or record["energy_j"] > 0
    peaks = ran.data["gpubench"]["ceilings"]["cuda:0"]
    assert max(entry["byte_per_s"] for entry in peaks["bandwidth"]) > 1e11
    assert peaks["launch_floor_s"] < 1e-4


def test_a_missing_wait_beats_every_ceiling(gpu):
    """A clock that doesn't wait reads the launch: far beyond the card's peak."""
    found = probes.measure_ceilings({gpu: ["float32"]}, "quick", print)["cuda:0"]
    a = torch.randn(4096, 4096, device="cuda")
    a @ a
    gpu.synchronize()
    start = time.perf_counter()
    a @ a
    unwaited = time.perf_counter() - start
    gpu.synchronize()
    raised = disturbance.impossible(Work(flops=2 * 4096**3), unwaited, "float32", found, True, 0.0)
    assert [flag.name for flag in raised] == ["implausible"]


def test_ddp_over_nccl_with_one_rank():
    """The whole path with a communicator of one: set_device, device_id, NCCL's initialisation, a collective."""
    rank = Rank(0, 1, "cuda:0", torch.get_num_threads())
    join_process_group(rank, 120.0, torch.distributed.HashStore())
    found = measure_rank(rank, Training("lenet", "ddp", 64), PRESET_SETTINGS["smoke"])
    torch.distributed.destroy_process_group()
    assert found.check.status == "passed"
    assert min(found.durations) > 0
