"""On a real CUDA GPU: what no simulation can show. Skips, with the reason, where there is none."""

import json
import os
import subprocess
import sys

import pytest
import torch

from gpubench import devices
from gpubench.measure.clock import DeviceClock
from gpubench.measure.precision import matmul_precision

CUDA = devices.kinds()["cuda"]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA.count() == 0, reason=f"no CUDA GPU: {CUDA.why_absent() if not CUDA.count() else ''}"),
]


@pytest.fixture
def gpu():
    return devices.Device(CUDA, 0)


def sleep_cycles(seconds):
    """Cycles of the device-side sleep that last so long, by events."""
    torch.cuda._sleep(10**6)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(10**8)
    end.record()
    torch.cuda.synchronize()
    return int(10**8 * seconds / (begin.elapsed_time(end) / 1e3))


def test_a_device_side_sleep_reads_as_long_as_events_say(gpu):
    cycles = sleep_cycles(0.02)
    clock = DeviceClock([gpu])
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start = clock()
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    wall = clock() - start
    assert wall == pytest.approx(begin.elapsed_time(end) / 1e3, rel=0.02)


def test_without_the_wait_it_would_read_as_nearly_nothing(gpu):
    import time

    cycles = sleep_cycles(0.02)
    gpu.synchronize()
    start = time.perf_counter()
    torch.cuda._sleep(cycles)
    unwaited = time.perf_counter() - start
    gpu.synchronize()
    assert unwaited < 0.002


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
    assert facts["max_sm_hz"] > 1e8
    assert facts["memory_bytes"] == torch.cuda.get_device_properties(0).total_memory
    clocks = CUDA.clocks(0)
    assert clocks is not None
    assert 0 < clocks["sm"] <= facts["max_sm_hz"] * 1.01


def test_peak_memory_is_that_of_the_case(gpu):
    CUDA.reset_peak_memory(0)
    before = CUDA.peak_memory(0)
    tensor = torch.empty(10**7, device="cuda:0")
    assert CUDA.peak_memory(0) - before >= tensor.nbytes


def test_hidden_devices_are_absent_with_the_reason():
    code = "from gpubench import devices; k = devices.kinds()['cuda']; print(k.count(), k.why_absent())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    assert done.stdout.startswith("0 ")
    assert "CUDA_VISIBLE_DEVICES" in done.stdout


def test_out_of_memory_is_a_status_and_the_next_case_runs(pytester):
    pytester.makepyfile(
        test_it="""
        import torch

        def test_much(gpubench):
            gpubench(lambda x: x.is_meta or torch.empty(2**50, device=x.device), gpubench.randn(4), check=False)

        def test_neg(gpubench):
            gpubench(torch.neg, gpubench.randn(1000))
        """
    )
    pytester.runpytest_subprocess("--gpubench-preset=smoke", "--gpubench-device=cuda", "--benchmark-json=run.json")
    data = json.loads((pytester.path / "run.json").read_text())
    (row,) = data["gpubench"]["unmeasured"]
    assert row["status"] == "oom"
    assert len(data["benchmarks"]) == 1


def test_the_suite_runs_on_the_gpu(pytester):
    """Every case's code on tiny sizes, answers checked."""
    from gpubench.supervise.process import suite

    result = pytester.runpytest_subprocess(
        suite(), f"--rootdir={suite().parent}", "--gpubench-device=cuda", "--gpubench-preset=smoke", "--benchmark-quiet"
    )
    assert result.ret == 0
