"""Runs of one machine in time: each case's series, and where its level changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from ..runfile.schema import Run
from ..statistics import intervals
from .rows import Measured, grouped

LEAST_RUNS = 6
"""This many runs of one machine or more are a trend; fewer are compared with each other."""
CHANGE_LEVEL = 0.01
"""The significance level of the test for a change, over all benchmarks together."""
LEAST_CHANGE = 0.05
MOST_UNCHANGED = 12
"""Workloads without a change are drawn only where there are no more workloads than that."""


@dataclass(frozen=True, slots=True)
class Series:
    """A benchmark's times in the order of its runs, the ``last`` of them. ``changes`` are indices at which a new level
    begins, ``levels`` the medians in between, one more of them."""

    last: Measured
    dates: tuple[str, ...]
    times: tuple[float, ...]
    changes: tuple[int, ...] = ()
    levels: tuple[float, ...] = ()

    @property
    def change(self) -> float:
        """The greatest step between two successive levels, as the absolute logarithm of their ratio."""
        return max(_steps(self.levels), default=0.0)


@dataclass(frozen=True, slots=True)
class Trend:
    """A workload on one machine: the benchmarks that changed, or all of them where none did."""

    series: tuple[Series, ...]

    @property
    def last(self) -> Measured:
        """A benchmark of the last run, for what all have in common."""
        return self.series[0].last


def in_time(runs: Sequence[Run]) -> list[Run]:
    """The runs of machines that have enough of them, in time; those whose start isn't known are left out."""
    dated = [run for run in runs if run.started]
    counts = Counter(run.machine.label for run in dated)
    return sorted((run for run in dated if counts[run.machine.label] >= LEAST_RUNS), key=_moment)


def latest(runs: Sequence[Run]) -> list[Run]:
    """Return all runs, but only the last run of each machine whose runs are a trend: other charts show only that
    one."""
    ordered = in_time(runs)
    dropped = {id(run) for run in ordered} - {id(run) for run in {run.machine.label: run for run in ordered}.values()}
    return [run for run in runs if id(run) not in dropped]


def trends(runs: Sequence[Run], measured: Sequence[Measured]) -> list[Trend]:
    """The workloads whose benchmarks changed, the greatest change first; then those without, unless there are many."""
    order = {id(run): i for i, run in enumerate(in_time(runs))}
    rows = sorted((row for row in measured if id(row.run) in order), key=lambda row: order[id(row.run)])
    cases = grouped(
        rows, lambda row: (row.result.workload, row.run.machine.label, row.source[1:], row.setting_without(None))
    )
    series: dict[tuple[str, str], list[Series]] = {}
    for (workload, machine, *_), members in cases.items():
        if len(members) > 1:
            series.setdefault((workload, machine), []).append(_series(members, CHANGE_LEVEL / len(cases)))
    changed: list[Trend] = []
    unchanged: list[Trend] = []
    for every in series.values():
        stepped = sorted((each for each in every if each.changes), key=lambda each: -each.change)
        (changed if stepped else unchanged).append(Trend(tuple(stepped or every)))
    changed.sort(key=lambda each: -each.series[0].change)
    return [*changed, *(unchanged if len(changed) + len(unchanged) <= MOST_UNCHANGED else [])]


def _series(rows: Sequence[Measured], level: float) -> Series:
    times = [intervals.median([each.median_s for each in row.times.processes]) for row in rows]
    dates = [row.run.date or "" for row in rows]
    if len(set(dates)) < len(dates):  # runs of one day are told apart by the time of day
        dates = [f"{_moment(row.run):%Y-%m-%d %H:%M}" for row in rows]
    from ..statistics.inference import change_points

    changes = change_points(times, level)
    while changes:  # a step too small to matter is none
        steps = _steps(_levels(times, changes))
        if min(steps) >= math.log(1 + LEAST_CHANGE):
            break
        del changes[steps.index(min(steps))]
    return Series(rows[-1], tuple(dates), tuple(times), tuple(changes), tuple(_levels(times, changes)))


def _levels(times: Sequence[float], changes: Sequence[int]) -> list[float]:
    return [median(times[a:b]) for a, b in pairwise([0, *changes, len(times)])]


def _steps(levels: Sequence[float]) -> list[float]:
    return [abs(math.log(b / a)) for a, b in pairwise(levels)]


def _moment(run: Run) -> datetime:
    moment = datetime.fromisoformat(run.started or "")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
