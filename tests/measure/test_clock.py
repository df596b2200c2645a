"""The clock waits for the device. On a virtual clock every figure is exact."""

import itertools
import subprocess
import sys
import time
from functools import partial

import pytest

from gpubench.devices import CPU
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.measure.clock import MIN_ROUND, MIN_WAITS, DeviceClock, repeat, settle_clocks, warm_up


def test_a_wait_of_ones_own_comes_before_every_reading(monkeypatch):
    waited = []
    monkeypatch.setattr("gpubench.measure.clock._own_waits", [lambda: waited.append("wait")])
    DeviceClock([CPU])()
    assert waited == ["wait"]


def virtual_clock(**machine):
    """That of a virtual device, and its machine."""
    made = VirtualMachine(**machine)
    return DeviceClock([VirtualDevice.on(made)()]), made


def test_queued_work_of_all_devices_of_a_case_is_waited_for():
    machine = VirtualMachine()
    clock = DeviceClock([VirtualDevice.on(machine)(0), VirtualDevice.on(machine)(1), CPU])
    for longer in (0, 1):
        start, unwaited = clock(), machine.now()
        machine.launch(1e-3, 1 - longer)
        machine.launch(3e-3, longer)
        assert machine.now() - unwaited < 1e-8  # without the wait it would read as nothing
        assert clock() - start == pytest.approx(3e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("least", "most", "seconds", "timings"), [(3, 20, 1e-3, 3), (3, 20, 5.5e-3, 6), (3, 5, 1.0, 5), (1, 1, 0.0, 1)]
)
def test_repeats_until_the_time_is_spent_within_the_bounds(least, most, seconds, timings):
    clock, machine = virtual_clock()
    times = repeat(lambda: machine.launch(1e-3), clock, least=least, most=most, seconds=seconds)
    assert times == [pytest.approx(1e-3, rel=1e-6)] * timings


def test_repeated_calls_share_one_wait_and_what_comes_before_is_untimed():
    clock, machine = virtual_clock(wait_cost_s=1e-2)
    times = repeat(lambda: machine.launch(1e-3), clock, least=2, most=2, calls=4, before=lambda: machine.launch(5.0))
    assert times == [pytest.approx(4e-3 + 1e-2, rel=1e-6)] * 2


@pytest.mark.parametrize("stalls", [(), (1,), (2,), (3,), (4,), (2, 3), (1, 2, 4), (300,)])
def test_a_stall_is_not_taken_for_the_cost_of_a_call(stalls):
    """It is 60 ms long, in calls of 5 us with these numbers."""
    clock, machine = virtual_clock(wait_cost_s=8e-6)
    calls, begin = itertools.count(1), clock()

    def call():
        machine.launch(5e-6)
        machine.time_s += 60e-3 * (next(calls) in stalls)

    call_s, round_s = warm_up(call, clock, seconds=0.05, first_s=13e-6)
    assert call_s == round_s == pytest.approx(5e-6, rel=1e-2)
    assert clock() - begin - 60e-3 * len(stalls) >= 0.05  # it was warm for that long besides


def test_what_is_always_slow_is_no_stall():
    """The first call was fast, all others are slow: three are doubted."""
    clock, machine = virtual_clock()
    call_s, _ = warm_up(lambda: machine.launch(0.5), clock, seconds=0.05, first_s=1e-3)
    assert call_s == pytest.approx(0.5, rel=1e-6)
    assert clock() == pytest.approx(4 * 0.5, rel=1e-6)


def test_a_warm_up_with_a_setup_has_one_call_in_each_block():
    clock, machine = virtual_clock()
    call, before = (partial(machine.launch, seconds) for seconds in (1e-3, 9e-3))
    call_s, round_s = warm_up(call, clock, seconds=0.05, first_s=1e-3, before=before)
    assert [call_s, round_s] == pytest.approx([1e-3, 1e-2], rel=1e-5)


def test_a_cpu_keeps_real_time_by_a_clock_that_no_benchmark_patches(monkeypatch):
    before, now, after = time.perf_counter(), DeviceClock([CPU])(), time.perf_counter()
    assert before <= now <= after
    monkeypatch.setattr(time, "perf_counter", lambda: -1.0)
    assert DeviceClock([CPU])() > 0


QUEUED = """
def test_both(gpubench, machine):
    def both(machine):
        machine.launch(1e-3, 0)
        machine.launch(4e-3, 1)
    gpubench.declare(devices=["virtual:1"], check=False)(both, machine)
"""
SHORT = """
from gpubench.devices.virtual import VirtualDevice
VirtualDevice.machine.wait_cost_s = 8e-6
def test_short(gpubench, machine): gpubench.declare(check=False)(machine.launch, 5e-6)
"""


def test_queued_work_reads_as_long_as_it_is(virtual):
    _, run = virtual(QUEUED, passed=1)
    (both,) = run["benchmarks"]
    record = both["extra_info"]["gpubench"]
    assert [both["stats"]["median"], record["latency_s"]] == pytest.approx([4e-3, 4e-3], rel=1e-6)
    assert record["devices"] == ["virtual:0", "virtual:1"]


def test_a_short_kernel_shares_the_wait_with_its_round_and_has_its_own_latency(virtual):
    _, run = virtual(SHORT, passed=1)
    (bench,) = run["benchmarks"]
    record = bench["extra_info"]["gpubench"]
    assert 5.0e-6 <= bench["stats"]["median"] <= 5.1e-6
    assert record["latency_s"] == pytest.approx(13e-6, rel=1e-3)
    assert bench["stats"]["iterations"] * bench["stats"]["median"] >= max(MIN_ROUND, MIN_WAITS * 8e-6) * 0.99


def test_timer_does_not_import_torch():
    code = "import sys, gpubench; gpubench.timer(); sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("clock_share", "power", "warmed"), [(1.0, 0.5, 1), (1.0, 0.95, 1), (0.9, 0.5, 2), (None, None, 2)]
)
def test_a_second_warm_up_is_made_where_clocks_may_still_change(clock_share, power, warmed):
    clock, machine = virtual_clock()
    kind, made = type(clock.devices[0]), []
    kind.clock_share, kind.power_share = lambda self: clock_share, lambda self: power
    settle_clocks(lambda: made.append(machine.launch(0.1)) or (0.1, 0.1), clock, clock.devices)
    assert (len(made) == warmed) is (power != 0.95)  # heavy load lowers clocks after tenths of a second


@pytest.mark.parametrize(("share", "call_s"), [(0.97, 1.12e-3), (0.5, 1e-3), (None, 1e-3)])
def test_warm_up_lasts_until_the_power_limit_acts_under_heavy_load(share, call_s):
    """A controller that lowers the clocks by 12 % after 0.3 s of load."""
    clock, machine = virtual_clock()
    device = clock.devices[0]
    type(device).power_share = lambda self: share

    def warm():
        for _ in range(50):
            machine.launch(1e-3 if machine.time_s < 0.3 else 1.12e-3)
        clock()
        return warm_up(lambda: machine.launch(1e-3 if machine.time_s < 0.3 else 1.12e-3), clock, seconds=0, first_s=1)

    warmed, _ = settle_clocks(warm, clock, [device])
    assert warmed == pytest.approx(call_s, rel=1e-3)
    assert machine.time_s < 1.0
