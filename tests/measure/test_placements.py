"""Copies of a call at other addresses take a part of its rounds."""

import itertools
import math

import numpy as np
import pytest

import gpubench
from gpubench.commands.time import _times_alone
from gpubench.measure import budget, ceilings
from gpubench.measure.rounds import (
    MOST_BLOCKS,
    PLACEMENTS,
    Share,
    count_blocks,
    levelled,
    medians,
    place_of,
    take_turns,
)
from gpubench.report.results import Results
from gpubench.report.rows import interval_of
from gpubench.runfile.schema import Process
from gpubench.statistics.intervals import median_interval
from gpubench.testing import VirtualMachine

CALLS = """
import itertools, pytest, torch

def test_sum(gpubench):
    x = gpubench.randn(1000)
    seen = set()
    def call(x):
        seen.add(x.data_ptr())
        return x.sum()
    gpubench(call, x)
    print(f"{len(seen)} addresses")

def test_product(gpubench):
    gpubench(torch.mm, gpubench.randn(64, 64), gpubench.randn(64, 64))

def test_state(gpubench):
    gpubench.declare(check=False)(lambda x: x.mul_(1.0001), gpubench.randn(1000))

def test_generator(gpubench):
    numbers = (each for each in iter(int, 1))
    gpubench.declare(check=False)(lambda x: x + 1 if numbers else x, gpubench.randn(1000))

def test_setup(gpubench):
    gpubench.declare(check=False, setup=lambda: ((torch.ones(3),), {}))(torch.neg)

def test_large(gpubench, monkeypatch):
    monkeypatch.setattr("gpubench.measure.prepare.cache_sizes", lambda: {"l3": 1000})
    gpubench(torch.neg, gpubench.randn(1000))
"""
OPTIONS = (
    "--gpubench-preset=glance",
    "--gpubench-no-ceilings",
    "--benchmark-json=run.json",
    "--benchmark-max-time=0.02",
    "--benchmark-min-rounds=9",
)


def test_a_call_is_timed_at_four_placements_unless_it_cannot_be_copied(bench):
    ran = bench(CALLS, usual=OPTIONS, passed=6)
    found = {}
    for mark in ran.records:
        (process,) = mark["processes"]
        found[mark["workload"]] = len(process["placements"]), (process["unplaced"] or "")[:14]
    assert found == {
        "it.sum": (0, "the call chang"),
        "it.product": (PLACEMENTS, ""),
        "it.state": (0, "the call chang"),
        "it.generator": (0, "the call reads"),
        "it.setup": (0, "its data are p"),
        "it.large": (0, "a copy needs 4"),
    }


def test_the_time_is_that_of_all_placements_and_its_range_their_interval(bench):
    ran = bench(CALLS, "-k", "product or state", usual=OPTIONS, passed=2)
    results = Results.load(ran.path)
    rows = {row.result.workload: row for row in results.study.measured}
    placements = rows["it.product"].times.processes[0].placements
    assert rows["it.product"].interval == median_interval(placements)
    assert rows["it.product"].time_s == median_interval(placements).value
    assert rows["it.state"].interval is None
    assert "one place in memory, so the next run may differ by more: the call changes" in _times_alone(results)


@pytest.mark.parametrize(
    ("rounds", "terms", "blocks"),
    [
        (8, {}, 4),
        (79, {}, 16),
        (1001, {}, 20),
        (5, {"alone": False}, 4),
        (3, {"alone": False}, 4),
        (30, {"alone": False}, 20),
    ],
)
def test_each_placement_has_as_many_blocks_early_and_late(rounds, terms, blocks):
    assert count_blocks(rounds, placed=True, **{"alone": True, **terms}) == blocks
    places = [place_of(block) for block in range(blocks)]
    assert {places.count(place) for place in range(PLACEMENTS)} == {blocks // PLACEMENTS}
    assert places[:8] == [0, 1, 2, 3, 3, 2, 1, 0][:blocks]


def test_a_placement_is_warmed_whenever_it_takes_over():
    now, made = itertools.count(0, 0.001), []
    calls = [(lambda place=place: made.append(place), (), {}) for place in range(PLACEMENTS)]
    share = Share(lambda: (lambda: None, (), {}), lambda: next(now), 16, places=calls)
    take_turns([share])
    assert share.blocks == [4] * PLACEMENTS
    assert made == [place for place in range(PLACEMENTS) for _ in range(2 + 4)]


def test_a_block_at_the_placement_of_the_one_before_needs_no_calls_between():
    made, now = [], itertools.count(0, 0.001)
    calls = [(lambda place=place: made.append(place), (), {}) for place in range(PLACEMENTS)]
    take_turns([Share(lambda: (lambda: None, (), {}), lambda: next(now), 32, places=calls)])
    assert [(place, len([*run])) for place, run in itertools.groupby(made)] == [
        (0, 6), (1, 6), (2, 6), (3, 10), (2, 6), (1, 6), (0, 6)
    ]  # fmt: skip


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


def test_differences_between_placements_are_neither_noise_nor_drift():
    blocks = [50, 50, 50, 50]
    times = [1.0 + index // 50 + index / 1000 for index in range(200)]
    assert np.ptp(levelled(times, blocks)) < 0.8
    assert len(medians(times, blocks)) == 4
    assert medians([1.0, 2.0, 6.0, 4.0, 5.0], [1, 0, 1, 1, 2], place_of) == [1.0, 2.0, 5.0]
    assert medians([1.0, 2.0, 6.0, 4.0, 5.0], [1, 0, 1, 1, 2], int) == [1.0, 2.0, 6.0, 4.5]


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
    process = Process(0, 200, 1.0, placements=tuple(medians(times, blocks)), blocks=tuple(medians(times, blocks, int)))
    return interval_of([process])


@pytest.mark.parametrize(
    ("place_sd", "phase_sd", "phase_s", "least"),
    [
        (0.15, 0.03, 0.3, 0.95),
        (0.05, 0.1, 0.1, 0.97),
        (0.05, 0.1, 0.3, 0.95),
        (0.02, 0.25, 0.3, 0.95),
        (0.1, 0.1, 0.5, 0.95),
        (0.05, 0.1, 1.0, 0.85),
    ],
)
def test_the_range_of_a_single_expression_holds_the_time_of_other_runs(place_sd, phase_sd, phase_s, least):
    """The speed of a shared machine changes in phases, as an autoregressive process. Phases half as long as the rounds
    and longer are seen too rarely."""
    random = np.random.default_rng(5)
    ranges = [printed(random, place_sd, phase_sd, phase_s) for _ in range(400)]
    middle = float(np.median([each.value for each in ranges]))
    assert middle == pytest.approx(1.0, rel=0.05)
    assert np.mean([each.low <= middle <= each.high for each in ranges]) >= least


def test_a_single_expression_is_spread_over_blocks_and_several_are_not(monkeypatch):
    monkeypatch.setattr(budget, "SPREAD_S", 0.1)
    monkeypatch.setitem(ceilings.EFFORTS, "brief", ceilings.EFFORTS["smoke"])
    counts = []
    for texts in (["a @ a"], ["a @ a", "a.sum()"]):
        row = gpubench.time(texts, setup="a = randn(64, 64)", devices="cpu", threads=1).study.measured[0]
        (process,) = row.times.processes
        counts.append(len(process.blocks))
        assert [low for low in process.blocks if not row.interval.low <= low <= row.interval.high] == []
        assert row.time_s == median_interval(process.placements).value
    assert counts[0] > 0 == counts[1]
