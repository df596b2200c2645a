"""What is measured of a case besides its wall time, on an accelerator whose every cost is scripted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
pytestmark = pytest.mark.xdist_group("probes")  # they look at one run
NEG = """
import torch
def test_neg(gpubench):
    x, y = gpubench.randn(250_000), gpubench.empty(250_000)
    gpubench(torch.neg, x, out=y, nbytes=2 * x.nbytes, items=250_000)
"""
SCRIPTED = """
import pytest, torch

def neg(gpubench):
    x, y = gpubench.randn(250_000), gpubench.empty(250_000)
    gpubench(torch.neg, x, out=y, nbytes=2 * x.nbytes, items=250_000)

@pytest.mark.costs(launch_s=2e-5, delay_s=2e-4, copy_byte_per_s=1e9, watts=200.0)
def test_all(gpubench):
    neg(gpubench)

@pytest.mark.costs(launch_s=2e-4, delay_s=1e-5)
def test_launch_bound(gpubench):
    neg(gpubench)

@pytest.mark.costs(launch_s=5e-5, delay_s=2e-4)
def test_cached(gpubench):
    neg(gpubench)

@pytest.mark.costs(launch_s=5e-5, delay_s=2e-4)
def test_item(gpubench):
    gpubench(lambda x: x.sum().item(), gpubench.randn(8), check=False)

@pytest.mark.costs(launch_s=5e-5, delay_s=2e-4, profiled=True)
def test_profiled(gpubench):
    gpubench(lambda x: x.neg().sum().item(), gpubench.randn(8), check=False)

@pytest.mark.costs(launch_s=5e-5, delay_s=2e-2)
def test_long(gpubench):
    gpubench(torch.neg, gpubench.randn(250_000))

@pytest.mark.costs(launch_s=5e-5, delay_s=0.0)
def test_nothing(gpubench):
    neg(gpubench)
"""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """All cases in one process on the scripted accelerator, hot and cold: benchmarks by (test, cache)."""
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "test_it.py").write_text(SCRIPTED)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "scripted", "--gpubench-no-ceilings", "--gpubench-device=fake",
            "--benchmark-json=run.json", "--gpubench-cache=both", "-q",
        ],
        cwd=folder, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": paths}, check=True,
    )  # fmt: skip
    benchmarks = json.loads((folder / "run.json").read_text())["benchmarks"]
    return {(each["name"].split("[")[0], each["extra_info"]["gpubench"]["cache"]): each for each in benchmarks}


def about(value):
    return pytest.approx(value, rel=0.02)


def test_wall_device_launch_and_transfer_times_come_back(scripted):
    benchmark = scripted["test_all", "hot"]
    record = benchmark["extra_info"]["gpubench"]
    assert benchmark["stats"]["median"] == about(2e-4)
    assert record["device_s"] == about(2e-4)
    assert record["launch_s"] == about(2e-5)
    assert record["latency_s"] == about(2.2e-4)
    moved = record["transfer"]
    assert (moved["in_bytes"], moved["out_bytes"]) == (1_000_000, 1_000_000)
    assert moved["in_s"] == moved["out_s"] == about(2e-3 + 2e-5)  # pageable: half the speed, and one launch
    assert record["energy_j"] == about(200.0 * 2e-4)
    assert record["memory_bytes"] == 2_000_000


def test_a_launch_bound_call_has_less_device_time_than_wall_time(scripted):
    benchmark = scripted["test_launch_bound", "hot"]
    record = benchmark["extra_info"]["gpubench"]
    assert benchmark["stats"]["median"] == about(2e-4)
    assert (record["device_s"], record["launch_s"]) == (about(1e-5), about(2e-4))


def test_cold_flushes_before_every_round_and_outside_the_device_time(scripted):
    assert {each["extra_info"]["gpubench"]["device"] for each in scripted.values()} == {"fake:0"}
    assert {cache for name, cache in scripted if name == "test_cached"} == {"hot", "cold"}
    cold = scripted["test_cached", "cold"]["extra_info"]["gpubench"]
    assert cold["id"] == "it.cached[float32-cold]"
    assert cold["device_s"] == about(2e-4)
    assert cold["processes"][0]["iterations"] == 1
    assert cold["memory_bytes"] == 2_000_000  # the flushed room is not the case's
    assert {each["options"]["timer"] for each in scripted.values()} == {"device_clock"}


def test_a_call_that_waits_for_the_device_has_no_device_time_but_a_reason(scripted):
    record = scripted["test_item", "hot"]["extra_info"]["gpubench"]
    assert record["device_s"] is None
    assert "waits for the device" in record["device_reason"]
    assert "no profiler shows its kernels" in record["device_reason"]


def test_a_call_that_can_t_be_held_has_the_sum_of_its_kernels_and_says_so(scripted):
    held, summed = (scripted[name, "hot"]["extra_info"]["gpubench"] for name in ("test_all", "test_profiled"))
    assert held["device_method"] == "held"
    assert summed["device_method"] == "kernels"
    assert summed["device_s"] == about(3 * 2e-4)  # the negation, the sum, and the copy of the number
    assert summed["device_reason"] is None


def test_memory_is_that_of_one_call_however_long_it_takes(scripted):
    """Rounds of one call each keep its result during the next one."""
    assert scripted["test_long", "hot"]["extra_info"]["gpubench"]["memory_bytes"] == 2_000_000


def test_a_device_time_of_zero_is_unknown_with_a_reason(scripted):
    record = scripted["test_nothing", "hot"]["extra_info"]["gpubench"]
    assert record["device_s"] is None
    assert record["device_reason"] == "the call took no time that the device's clock shows"


def test_a_cpu_has_neither_device_time_nor_transfers(pytester):
    pytester.makepyfile(test_it=NEG)
    pytester.runpytest_inprocess("--gpubench-preset=smoke", "--gpubench-device=cpu", "--benchmark-json=run.json")
    run = json.loads((pytester.path / "run.json").read_text())
    record = run["benchmarks"][0]["extra_info"]["gpubench"]
    assert [record[key] for key in ("device_s", "launch_s", "transfer", "energy_j")] == [None] * 4
    assert record["memory_bytes"] == 2_000_000
    assert record["precision"]["tf32"] is False
    assert "cpu" in run["gpubench"]["ceilings"]
