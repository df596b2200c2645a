"""Runs made in turn: known by their time stamps, and what is then told from a drift of the machine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gpubench.compare.samples import LEAST_PAIRS, CaseKey, Observation, Side, alternating_pairs
from gpubench.compare.verdict import INCONCLUSIVE, SAME, SLOWER, Conditions, judge

CASES = [CaseKey(f"a.b[n={n}]", "cpu", "torch") for n in range(10)]
PAIRS = [(i, i) for i in range(LEAST_PAIRS)]


def pairs(order, stamp="2026-01-31T12:{:02d}:00+00:00"):
    sides = {"a": Side("base"), "b": Side("new")}
    for turn, letter in enumerate(order):
        sides[letter].runs.append(SimpleNamespace(started=stamp.format(turn)))  # type: ignore[arg-type]
    return alternating_pairs(sides["a"], sides["b"])


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("ab" * 5, PAIRS),
        ("ba" * 5, PAIRS),
        ("abba" * 3, [(i, i) for i in range(6)]),
        ("ab" * 4, []),
        ("aaaaabbbbb", []),
        ("aabb" * 3, []),
        ("ab" * 5 + "a", []),
    ],
)
def test_pairs_are_neighbours_in_time(order, found):
    assert pairs(order) == found


@pytest.mark.parametrize("stamp", ["2026-01-31T12:00:00", "", "noon {}", "2026-01-31"])
def test_without_time_stamps_that_differ_there_are_no_pairs(stamp):
    assert pairs("ab" * 6, stamp) == []


def test_time_stamps_are_compared_across_zones_and_not_in_the_order_of_files():
    base, new = Side("base"), Side("new")
    for i in (3, 0, 2, 1, 4):
        base.runs.append(SimpleNamespace(started=f"2026-01-31T1{i}:00:00+00:00"))  # type: ignore[arg-type]
        new.runs.append(SimpleNamespace(started=f"2026-01-31T1{i + 2}:30:00+02:00"))  # type: ignore[arg-type]
    assert alternating_pairs(base, new) == [(1, 1), (3, 3), (2, 2), (0, 0), (4, 4)]


def drifting_pairs(random, keys, slower, processes=3, count=LEAST_PAIRS):
    """Runs in turn on a machine whose speed wanders; ``slower`` are the factors of the cases."""
    walk, sides = 0.0, ({key: [] for key in keys}, {key: [] for key in keys})
    for run in range(count):
        for side, factors in zip(sides, ([1.0] * len(keys), slower), strict=True):
            walk += random.normal(0, 0.04)
            for key, factor in zip(keys, factors, strict=True):
                for i in range(processes):
                    time = factor * np.exp(walk + random.normal(0, 0.02))
                    side[key].append(Observation(time, 0.97 * time, 0.96 * time, 0.0, (run, i)))
    return sides


def judged(base, new, pairs):
    return {each.key: each for each in judge(base, new, conditions=Conditions(base, new, pairs=pairs))}


@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("processes", [1, 3])
def test_a_drift_is_no_change_and_a_change_of_all_cases_is_no_drift(count, processes):
    random = np.random.default_rng(count)
    keys = CASES[:count]
    alarms = named = apart = 0
    for _ in range(60):
        base, new = drifting_pairs(random, keys, [1.0] * count, processes)
        alarms += any(each.verdict == SLOWER for each in judged(base, new, PAIRS).values())
        base, new = drifting_pairs(random, keys, [1.2] * count, processes)
        named += all(each.verdict == SLOWER for each in judged(base, new, PAIRS).values())
        apart += all(each.verdict == SLOWER for each in judged(base, new, ()).values())
    assert alarms <= 3
    assert named >= 54 if count == 10 else named > 30


def test_one_case_that_is_slower_is_named_alone():
    random = np.random.default_rng(1)
    named = 0
    for _ in range(40):
        base, new = drifting_pairs(random, CASES, [1.13, *[1.0] * 9])
        named += [key for key, each in judged(base, new, PAIRS).items() if each.verdict == SLOWER] == [CASES[0]]
    assert named >= 36


def test_times_say_what_the_change_says():
    random = np.random.default_rng(1)
    for each in judged(*drifting_pairs(random, CASES, [1.13] * 10), PAIRS).values():
        assert each.new_s / each.base_s == pytest.approx(each.ratio.value)
        assert each.processes == (15, 15)
        assert each.ratio.low < each.ratio.value < each.ratio.high


def test_of_disturbed_runs_too_few_pairs_are_left():
    random = np.random.default_rng(1)
    base, new = drifting_pairs(random, CASES[:2], [1.2, 1.2])
    new = {key: [replace(one, contended=one.process[0] > 0) for one in seen] for key, seen in new.items()}
    found = judged(base, new, PAIRS)
    assert {each.verdict for each in found.values()} == {INCONCLUSIVE}
    assert found[CASES[0]].reason == "machine busy: too few undisturbed pairs of runs"


def test_nothing_changed_is_the_same():
    random = np.random.default_rng(3)
    base, new = drifting_pairs(random, CASES, [1.0] * 10)
    quiet = [{key: [replace(one, median_s=1 + 1e-3 * one.process[0], fast_s=1.0) for one in seen]
              for key, seen in each.items()} for each in (base, new)]  # fmt: skip
    assert {each.verdict for each in judged(*quiet, PAIRS).values()} == {SAME}
