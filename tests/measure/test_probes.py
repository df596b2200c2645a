"""What is measured of a case besides its wall time, on an accelerator whose every cost is scripted."""

import json
import os
import time
from pathlib import Path

import forked
import pytest
import torch

from gpubench.errors import Unmeasurable
from gpubench.measure import ceilings, data, probes
from gpubench.measure.clock import DeviceClock
from gpubench.testing import VirtualDevice, VirtualMachine

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

@pytest.mark.costs(launch_s=5e-5, delay_s=0.5)
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
    options = ["--gpubench-no-ceilings", "--gpubench-device=fake", "--benchmark-json=run.json", "--gpubench-cache=both"]
    options += ["--benchmark-max-time=0.05"]  # of a clock that only moves as scripted; less has no energy
    done = forked.pytest("-p", "scripted", *options, "-q", cwd=folder, PYTHONPATH=paths)
    assert done.returncode == 0, done.stdout
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


def test_a_cpu_has_no_device_time_and_of_transfers_the_bytes_alone(pytester):
    pytester.makepyfile(test_it=NEG)
    pytester.runpytest_inprocess("--gpubench-preset=smoke", "--gpubench-device=cpu", "--benchmark-json=run.json")
    run = json.loads((pytester.path / "run.json").read_text())
    record = run["benchmarks"][0]["extra_info"]["gpubench"]
    assert [record[key] for key in ("device_s", "launch_s", "energy_j")] == [None] * 3
    sizes = {"in_bytes": 1_000_000, "out_bytes": 1_000_000}
    assert record["transfer"] == sizes | dict.fromkeys(("in_s", "out_s", "in_pinned_s", "out_pinned_s"))
    assert record["memory_bytes"] == 2_000_000
    assert record["precision"]["tf32"] is False
    assert "cpu" in run["gpubench"]["ceilings"]


class Moment:
    """A moment on a virtual device's clock."""

    def __init__(self, at):
        self.at = at

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)


def timed(machine, watts=200.0, step_s=0.1):
    """A virtual device with events and an energy counter that moves every ``step_s`` seconds; it can't be held."""

    class Timed(VirtualDevice.on(machine)):
        def energy_j(self):
            return watts * step_s * int(machine.time_s / step_s)

        def record_event(self):
            return Moment(max(machine.time_s, machine.busy_until_s.get(self.index, 0.0)))

    return Timed()


class Calls:
    """Calls that cost the host and the device so many seconds; ``count`` of them were made."""

    def __init__(self, machine, device_s, host_s=0.0):
        self.machine, self.device_s, self.host_s, self.count = machine, device_s, host_s, 0

    def __call__(self):
        self.count += 1
        self.machine.time_s += self.host_s
        self.machine.launch(self.device_s)


@pytest.mark.parametrize("start_s", [0.0, 0.013, 0.099])
def test_energy_is_counted_from_step_to_step_for_a_second(start_s):
    """Wherever between two steps it begins. A difference over 0.3 s would be off by a third."""
    machine = VirtualMachine(time_s=start_s)
    device, call = timed(machine), Calls(machine, 3e-3)
    counted = probes.energy(call, device, DeviceClock([device]), 3e-3)
    assert counted.energy_j == pytest.approx(200.0 * 3e-3, rel=0.01)
    assert counted.energy_error_j == pytest.approx(counted.energy_j / 10, rel=0.2)
    assert 1.0 <= machine.time_s - start_s < 1.3


def test_a_counter_that_moves_often_needs_no_second():
    machine = VirtualMachine()
    device, call = timed(machine, step_s=1e-3), Calls(machine, 1e-3)
    counted = probes.energy(call, device, DeviceClock([device]), 1e-3)
    assert counted.energy_j == pytest.approx(200.0 * 1e-3, rel=0.01)
    assert counted.energy_error_j < 0.03 * counted.energy_j
    assert machine.time_s < 0.3


@pytest.mark.parametrize("watts", [0.0, None])
def test_a_counter_that_stands_still_or_is_none_gives_no_energy(watts):
    machine = VirtualMachine()
    device, call = timed(machine, watts=watts or 0.0), Calls(machine, 3e-3)
    if watts is None:
        type(device).energy_j = lambda self: None
    assert probes.energy(call, device, DeviceClock([device]), 3e-3) is None
    assert machine.time_s < 1.1


def test_probes_make_few_calls_of_a_long_one():
    """Of ten seconds each: eleven more of them would double what a benchmark takes."""
    machine = VirtualMachine()
    device, call = timed(machine), Calls(machine, 10.0, host_s=1e-3)
    found = probes.device_time(call, device, 10.0, None)
    assert (found.device_s, found.launch_s) == (about(10.0), about(1e-3))
    assert call.count == 1
    counted = probes.energy(call, device, DeviceClock([device]), 10.0)
    assert counted.energy_j == about(2000.0)
    assert call.count == 3


def test_a_device_that_cannot_be_held_is_timed_by_its_events_where_it_lags_behind():
    machine = VirtualMachine()
    device = timed(machine)
    busy = probes.device_time(Calls(machine, 2e-4, host_s=1e-5), device, 2e-4, None)
    assert (busy.device_s, busy.launch_s, busy.device_reason) == (about(2e-4), about(1e-5), None)
    waits = probes.device_time(Calls(machine, 1e-5, host_s=2e-4), device, 2e-4, None)
    assert (waits.device_s, waits.launch_s) == (None, about(2e-4))
    assert waits.device_reason == "launching takes as long as the work itself; device time unknown"


def test_without_events_there_is_no_device_time_but_a_reason():
    machine = VirtualMachine()
    device = VirtualDevice.on(machine)()
    found = probes.device_time(Calls(machine, 2e-4), device, 2e-4, None)
    assert (found.device_s, found.device_reason) == (None, "virtual can neither be made to wait nor time itself")


@pytest.fixture
def pinning(monkeypatch):
    """A kind whose memory is the host's; its list grows with each return of pinned memory to the system."""

    class Host(VirtualDevice):
        kind, indexed, returned = "cpu", False, []
        now = staticmethod(time.perf_counter)

        @classmethod
        def release_pinned_memory(cls):
            cls.returned.append(True)

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    return Host()


def test_copies_return_the_pinned_memory_that_they_took(pinning):
    moved = probes.transfer([torch.ones(100)], [torch.ones(10)], pinning)
    assert moved.in_pinned_s is not None
    assert pinning.returned == [True]
    ceilings.measure_ceilings({pinning: []}, "smoke")
    assert pinning.returned == [True, True]


def test_memory_that_torch_calls_pinned_and_is_not_is_no_pinned_memory(pinning, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: False)
    with pytest.raises(Unmeasurable, match="no pinned memory: torch returned ordinary memory"):
        data.pinned_copy(torch.ones(1))
    moved = probes.transfer([torch.ones(100)], [], pinning)
    assert (moved.in_s is None, moved.in_pinned_s) == (False, None)
