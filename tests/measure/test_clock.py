"""The clock waits for the device; on a virtual clock every figure is exact. Rounds are taken in blocks: calls take
turns, and copies of a call at other addresses take a part of its rounds."""

from __future__ import annotations

import gc
import itertools
import math
import subprocess
import sys
import weakref

import numpy as np
import pytest

import gpubench
from gpubench.commands.time import _times_alone
from gpubench.devices import CPU
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.measure import budget, clock as measured_clock, probes
from gpubench.measure.clock import (
    MIN_ROUND,
    MIN_WAITS,
    MOST_BLOCKS,
    PLACEMENTS,
    DeviceClock,
    Share,
    count_blocks,
    levelled,
    medians,
    place_of,
    repeat,
    settle_clocks,
    take_turns,
    warm_up,
)
from gpubench.report.results import Results
from gpubench.report.rows import interval_of
from gpubench.runfile.schema import Process
from gpubench.statistics.intervals import median_interval


def test_a_wait_of_ones_own_comes_before_every_reading(monkeypatch):
    waited = []
    monkeypatch.setattr("gpubench.measure.clock._own_waits", [lambda: waited.append("wait")])
    DeviceClock([CPU])()
    assert waited == ["wait"]


def virtual_clock(**machine):
    """A virtual device's clock, and its machine."""
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

    times = warm_up(lambda: (call, (), {}), clock, seconds=0.05, first_s=13e-6)
    assert times == (pytest.approx(5e-6, rel=1e-2),) * 2
    assert clock() - begin - 60e-3 * len(stalls) >= 0.05  # it was warm for that long besides


def test_what_is_always_slow_is_no_stall():
    """The first call was fast, all others are slow: three are doubted."""
    clock, machine = virtual_clock()
    call_s, _ = warm_up(lambda: (machine.launch, (0.5,), {}), clock, seconds=0.05, first_s=1e-3)
    assert call_s == pytest.approx(0.5, rel=1e-6)
    assert clock() == pytest.approx(4 * 0.5, rel=1e-6)


def test_a_warm_up_with_a_setup_has_one_call_in_each_block():
    clock, machine = virtual_clock()

    def next_call():
        machine.launch(9e-3)
        return machine.launch, (1e-3,), {}

    times = warm_up(next_call, clock, seconds=0.05, first_s=1e-3, single=True)
    assert times == pytest.approx((1e-3, 1e-2), rel=1e-5)


FROZEN = """
import itertools, sys, time, pytest
REAL, frozen = time.perf_counter, itertools.repeat(1.0, 100_000).__next__
@pytest.fixture(autouse=True)
def freeze(monkeypatch):
    for place, module in list(sys.modules.items()):
        for name, value in list(vars(module).items()) if place.startswith(("gpubench", "time")) else ():
            if value is REAL:
                monkeypatch.setattr(module, name, frozen)
def test_ours(gpubench): gpubench(sorted, [2, 1])
def test_plain(benchmark): benchmark(sorted, [2, 1])
"""


def test_the_clock_goes_on_in_a_test_that_freezes_time(bench):
    """As freezegun does, by replacing all names of the function. A case was timed for ever."""
    bench(FROZEN, "--gpubench-ledger=it.jsonl", usual=["--gpubench-preset=glance", "--gpubench-no-ceilings"], passed=2)


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


@pytest.mark.parametrize(
    ("share", "slope", "call_s"), [(0.97, 0.0, 1.12e-3), (0.97, 2.0, 2.72e-3), (0.5, 0.0, 1e-3), (None, 0.0, 1e-3)]
)
def test_warm_up_lasts_until_the_power_limit_acts_under_heavy_load(share, slope, call_s):
    """A controller that lowers the clocks by 12 % after 0.3 s of load, and perhaps further until 0.8 s."""
    clock, machine = virtual_clock()
    device = clock.devices[0]
    type(device).power_share = lambda self: share

    def launch():
        held_down = 0.12 * (machine.time_s > 0.3) + slope * min(machine.time_s, 0.8)
        machine.launch(1e-3 * (1 + held_down))

    def warm():
        for _ in range(50):
            launch()
        clock()
        return warm_up(lambda: (launch, (), {}), clock, seconds=0, first_s=1)

    warmed, _ = settle_clocks(warm, clock, [device])
    assert warmed == pytest.approx(call_s, rel=1e-3)
    assert machine.time_s < 1.5


# Rounds ---------------------------------------------------------------------------------------------------------------


def share_of(made, name, rounds, calls=1):
    """A share with calls that add its name to a list."""
    return Share(lambda: (made.append, (name,), {}), itertools.count().__next__, rounds, calls)


def runs_of(made):
    return [(name, len([*calls])) for name, calls in itertools.groupby(made)]


def test_a_long_call_has_few_rounds_and_the_other_takes_all_of_its_own_between_them():
    made: list[str] = []
    shares = [share_of(made, "s", 101, calls=10), share_of(made, "l", 3)]
    take_turns(shares)
    assert [len(each.times) for each in shares] == [101, 3]
    assert runs_of(made) == [("s", 331), ("l", 2), ("s", 682), ("l", 1)]  # an untimed call before short ones
    assert len({id(each.flags) for each in shares}) == 1


def test_a_call_can_have_the_memory_of_the_last_ones_result():
    """A normalisation took half as long again where two results were held."""
    results: weakref.WeakValueDictionary[int, VirtualMachine] = weakref.WeakValueDictionary()
    held = []

    def call():
        held.append(len(results))
        result = results[len(held)] = VirtualMachine()
        return result

    share = Share(lambda: (call, (), {}), itertools.count().__next__, rounds=3)
    take_turns([share])
    assert held == [0, 0, 0]
    assert share.result is results[3]


def test_the_least_time_on_a_core_is_that_of_a_call_in_any_round(monkeypatch):
    on_core = iter([0.0, 12.0, 20.0, 24.0, 30.0, 40.0])
    monkeypatch.setattr(measured_clock, "thread_time", lambda: next(on_core))
    share = share_of([], "a", 3, calls=2)
    take_turns([share])
    assert share.cpu_s == 2.0


def test_turns_are_many_and_garbage_waits():
    made: list[str] = []
    one, other = (share_of(made, name, 1000) for name in "ab")
    one.next_call = lambda: (lambda: made.append("collected" if gc.isenabled() else "a"), (), {})
    take_turns([one, other])
    assert gc.isenabled()
    assert (len(runs_of(made)) - 1, {*made}) == (MOST_BLOCKS, {"a", "b"})


@pytest.mark.parametrize(
    ("rounds", "blocks", "made"),
    [
        (16, [4] * PLACEMENTS, [(0, 6), (1, 6), (2, 6), (3, 6)]),  # each is warmed by two calls when it takes over
        (32, [4] * 2 * PLACEMENTS, [(0, 6), (1, 6), (2, 6), (3, 10), (2, 6), (1, 6), (0, 6)]),  # unless it goes on
    ],
)
def test_a_placement_is_warmed_whenever_it_takes_over(rounds, blocks, made):
    called, now = [], itertools.count(0, 0.001)
    places = [(lambda place=place: called.append(place), (), {}) for place in range(PLACEMENTS)]
    share = Share(lambda: (lambda: None, (), {}), lambda: next(now), rounds, places=places)
    take_turns([share])
    assert (share.blocks, runs_of(called)) == (blocks, made)


def test_a_result_of_each_placement_is_kept_so_that_each_writes_to_its_own_address():
    results, now = weakref.WeakValueDictionary[int, VirtualMachine](), itertools.count(0, 0.001)

    def call():
        result = VirtualMachine()
        results[id(result)] = result
        return result

    share = Share(lambda: (call, (), {}), lambda: next(now), 16, places=[(call, (), {})] * PLACEMENTS)
    take_turns([share])
    share.result = None
    assert len(results) == PLACEMENTS
    share.release()
    assert not results


def test_spread_rounds_fill_their_time_whatever_a_call_takes():
    """The calls get ten times as slow halfway, where other work comes between two blocks."""
    machine, pauses = VirtualMachine(), []

    def call():
        machine.launch(0.001 if machine.time_s < 1.0 else 0.01)
        machine.synchronize(0)

    share = Share(lambda: (call, (), {}), machine.now, 2000, seconds=2.0)
    share.halfway = lambda: pauses.append(machine.time_s)
    take_turns([share])
    assert len(share.blocks) == MOST_BLOCKS
    assert sum(share.blocks) == len(share.times) == pytest.approx(1100, rel=0.05)
    assert pauses == [pytest.approx(1.0, rel=0.05)]
    assert machine.time_s == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(
    ("rounds", "alone", "blocks"),
    [(8, True, 4), (79, True, 16), (1001, True, 20), (5, False, 4), (3, False, 4), (30, False, 20)],
)
def test_each_placement_has_as_many_blocks_early_and_late(rounds, alone, blocks):
    assert count_blocks(rounds, placed=True, alone=alone) == blocks
    places = [place_of(block) for block in range(blocks)]
    assert {places.count(place) for place in range(PLACEMENTS)} == {blocks // PLACEMENTS}
    assert places[:8] == [0, 1, 2, 3, 3, 2, 1, 0][:blocks]


def test_differences_between_placements_are_neither_noise_nor_drift():
    blocks, times = [50] * 4, [1.0 + index // 50 + index / 1000 for index in range(200)]
    assert np.ptp(levelled(times, blocks)) < 0.8
    assert len(medians(times, blocks)) == 4
    assert medians([1.0, 2.0, 6.0, 4.0, 5.0], [1, 0, 1, 1, 2]) == {0: 1.0, 2: 2.0, 3: 5.0}
    assert medians([1.0, 2.0, 6.0, 4.0, 5.0], [1, 0, 1, 1, 2], int) == {0: 1.0, 2: 2.0, 3: 6.0, 4: 4.5}


ONE = """
import pytest
from gpubench.devices.virtual import VirtualDevice
machine = VirtualDevice.machine
@pytest.mark.parametrize("kind", ["several", "single", "long"])
def test_it(gpubench, kind):
    given = {"setup": lambda: ((1e-4,), {})} if kind == "single" else {}
    gpubench.declare(check=False, **given)(machine.launch, *[0.8 if kind == "long" else 1e-4][: not given])
"""


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ([], {"several": 100, "single": 1000, "long": 3}),
        (["--benchmark-min-rounds=300"], {"several": 300, "single": 1000, "long": 3}),
        (["--benchmark-max-time=0.05"], {"several": 25, "single": 500, "long": 3}),
        (["--benchmark-min-time=0.004"], {"several": 50, "single": 1000, "long": 3}),
    ],
)
def test_pytest_benchmarks_options_choose_the_rounds(virtual, options, rounds):
    _, run = virtual(ONE, *options, passed=3)
    stats = {mark["params"]["kind"]: mark["stats"] for mark in run["benchmarks"]}
    assert {kind: each["rounds"] for kind, each in stats.items()} == rounds
    assert [stats[kind]["iterations"] for kind in rounds] == [40 if "min-time" in str(options) else 20, 1, 1]
    assert stats["several"]["median"] == pytest.approx(1e-4, rel=1e-3)
    assert {mark["options"]["timer"] for mark in run["benchmarks"]} == {"device_clock"}


SLOWER = """
from itertools import count
from gpubench.devices.virtual import VirtualDevice
calls = count()
def test_it(gpubench):
    gpubench.declare(check=False)(lambda: VirtualDevice.machine.launch(1e-4 if next(calls) < 2000 else 1.0))
"""


def test_rounds_end_early_if_calls_get_slow(virtual):
    """As of list.insert(0, x), whose list grew to millions: the result was lost after ten minutes."""
    _, run = virtual(SLOWER, passed=1)
    assert 5 <= run["benchmarks"][0]["stats"]["rounds"] < 100
    assert VirtualDevice.machine.time_s < 200


CALLS = """
import itertools, pytest, torch
@pytest.fixture(autouse=True)
def copies_may_take_long(monkeypatch): monkeypatch.setattr("gpubench.measure.prepare._COPYING_SHARE", float("inf"))
def test_sum(gpubench):
    seen = set()
    def call(x):
        seen.add(x.data_ptr())
        return x.sum()
    gpubench(call, gpubench.randn(1000))
def test_product(gpubench): gpubench(torch.mm, gpubench.randn(64, 64), gpubench.randn(64, 64))
def test_state(gpubench): gpubench.declare(check=False)(lambda x: x.mul_(1.0001), gpubench.randn(1000))
def test_generator(gpubench):
    numbers = (each for each in iter(int, 1))
    gpubench.declare(check=False)(lambda x: x + 1 if numbers else x, gpubench.randn(1000))
def test_setup(gpubench): gpubench.declare(check=False, setup=lambda: ((torch.ones(3),), {}))(torch.neg)
def test_large(gpubench, monkeypatch):
    monkeypatch.setattr("gpubench.measure.prepare.cache_sizes", lambda: {"l3": 1000})
    gpubench(torch.neg, gpubench.randn(1000))
def test_slow(gpubench, monkeypatch):
    monkeypatch.setattr("gpubench.measure.prepare._COPYING_SHARE", 0.0)
    gpubench(torch.neg, gpubench.randn(1000))
"""
UNPLACED = {
    "it.sum": (0, "the call chang"), "it.product": (PLACEMENTS, ""), "it.state": (0, "the call chang"),
    "it.generator": (0, "the call reads"), "it.setup": (0, "its data are p"), "it.large": (0, "a copy needs 4"),
    "it.slow": (0, "copying it tak"),
}  # fmt: skip


def test_a_call_is_timed_at_four_placements_unless_it_cannot_be_copied_and_its_range_is_their_interval(bench):
    usual = ["--gpubench-preset=glance", "--gpubench-no-ceilings", "--benchmark-json=run.json"]
    ran = bench(CALLS, usual=[*usual, "--benchmark-max-time=0.02", "--benchmark-min-rounds=9"], passed=7)
    processes = {mark["workload"]: mark["processes"][0] for mark in ran.records}
    found = {name: (len(each["placements"]), (each["unplaced"] or "")[:14]) for name, each in processes.items()}
    assert found == UNPLACED
    results = Results.load(ran.path)
    rows = {row.result.workload: row for row in results.study.measured}
    interval = median_interval(rows["it.product"].times.processes[0].placements)
    assert (rows["it.product"].interval, rows["it.product"].time_s) == (interval, interval.value)
    assert rows["it.state"].interval is None
    assert "one place in memory, so the next run may differ by more: the call changes" in _times_alone(results)


def printed(random, place_sd, phase_sd, phase_s):
    """A run's time and range: places, and phases of the machine that end at random. Rounds last a hundredth second."""
    places, blocks, times = random.normal(0, place_sd, PLACEMENTS), [10] * MOST_BLOCKS, []
    phase, noise = random.normal(0, phase_sd), 0.0
    share = math.exp(-0.01 / phase_s)
    for block, count in enumerate(blocks):
        for _ in range(count):
            phase = share * phase + random.normal(0, phase_sd * math.sqrt(1 - share**2))
            noise = 0.5 * noise + random.normal(0, 0.02)
            times.append(float(np.exp(places[place_of(block)] + phase + noise)))
    grouped = {
        "placements": tuple(medians(times, blocks).values()),
        "blocks": tuple(medians(times, blocks, int).values()),
    }
    return interval_of([Process(0, 200, 1.0, **grouped)])


@pytest.mark.parametrize(
    ("place_sd", "phase_sd", "phase_s", "least"),
    [(0.15, 0.03, 0.3, 0.95), (0.05, 0.1, 0.1, 0.97), (0.05, 0.1, 0.3, 0.95), (0.02, 0.25, 0.3, 0.95),
     (0.1, 0.1, 0.5, 0.95), (0.05, 0.1, 1.0, 0.95), (0.05, 0.1, 3.0, 0.9)],
)  # fmt: skip
def test_the_range_of_a_single_expression_holds_the_time_of_other_runs(place_sd, phase_sd, phase_s, least):
    """The speed of a shared machine changes in phases, as an autoregressive process; its phases
    may last as long as the rounds, or longer."""
    random = np.random.default_rng(5)
    ranges = [printed(random, place_sd, phase_sd, phase_s) for _ in range(400)]
    middle = float(np.median([each.value for each in ranges]))
    assert middle == pytest.approx(1.0, rel=0.05)
    assert np.mean([each.low <= middle <= each.high for each in ranges]) >= least


def test_a_single_expression_is_spread_over_blocks_and_several_are_not(monkeypatch):
    monkeypatch.setattr(budget, "SPREAD_S", 0.1)
    monkeypatch.setitem(probes.EFFORTS, "brief", probes.EFFORTS["smoke"])
    counts = []
    for texts in (["a @ a"], ["a @ a", "a.sum()"]):
        row = gpubench.time(texts, setup="a = randn(64, 64)", devices="cpu", threads=1).study.measured[0]
        (process,) = row.times.processes
        counts.append(len(process.blocks))
        assert [low for low in process.blocks if not row.interval.low <= low <= row.interval.high] == []
        assert row.time_s == median_interval(process.placements).value
    assert counts[0] > 0 == counts[1]
