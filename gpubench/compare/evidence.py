"""Which processes are evidence for a benchmark, or the reason why they prove nothing.

A process is one observation, with the logarithms of two summaries: the median and the lower quartile of
its rounds. docs/ci.md has the recordings behind the exclusions and their constants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import NamedTuple

from ..statistics import intervals
from ..statistics.inference import Change
from .reasons import HELD_UP, Cause, Reason
from .samples import CONFIRM, CaseKey, Cases, Observation, busy_processes

STUCK, SLICE_S = 3.0, 5e-4
"""A process all of whose rounds took STUCK times as long as the fastest of another process of the same code waited
for something else. If its rounds are uneven, waiting explains such a difference between the sides too, from SLICE_S on:
a scheduler lets another program run for longer than that."""
FAR = 2.0  # a median so many times its fastest round shows that rounds waited, if it is longer by SLICE_S too
MANY = 6
"""With so many processes a side, it isn't by chance that all of one side waited, and processes with a median of
STUCK times as long as another's are left out if most remain; fewer would show too little of the noise."""

ProcessKey = tuple[int, int]
Sides = tuple[Sequence[Observation], Sequence[Observation]]


class Drift(NamedTuple):
    """The machine's effect on some benchmarks. ``speed`` is subtracted: logarithms by side and process, empty where
    there is nothing to subtract. ``hidden`` is the standard deviation from run to run of a drift that can't be
    distinguished from a change."""

    speed: Sequence[Mapping[ProcessKey, float]] = ()
    hidden: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """The processes of base and of new that count for a benchmark; ``unfit`` is the reason why they prove nothing.
    ``changes`` are of the median and of the lower quartile, without the drift, of the median as measured, and of
    the fastest round, without the drift."""

    sides: Sides
    drift: Drift
    unfit: Reason | None = None
    changes: tuple[Change, ...] = ()

    def logs(self, summary: str, corrected: bool = True) -> list[list[float]]:
        """Logarithms of the ``summary`` of each process of base and of new."""
        speeds = self.drift.speed if corrected and self.drift.speed else ({}, {})
        return [
            [math.log(getattr(process, summary)) - speed.get(process.process, 0.0) for process in side]
            for side, speed in zip(self.sides, speeds, strict=True)
        ]

    @property
    def times(self) -> tuple[float, float]:
        """Seconds of base and of new: the geometric means of their processes' medians, for the test of their ratio.
        Where nothing is tested, the times are the medians, which a process really measured: the mean of 1.64, 0.28 and
        1.68 ms would be 0.92."""
        middle = intervals.median if self.unfit else geometric_mean
        base, new = (middle([process.median_s for process in side]) for side in self.sides)
        return base, new


def evidence_of(all_runs: tuple[Cases, Cases], fresh: bool, in_turn: bool, unknown: str) -> dict[CaseKey, Evidence]:
    """The evidence for each benchmark of both sides, from the ``fresh`` runs or from the others; the sides of
    ``unknown`` don't name their CPU."""
    base, new = (of_stage(side, fresh) for side in all_runs)
    busy = [busy_processes(side) for side in (base, new)]
    unknown_cpu = Reason(Cause.UNKNOWN_CPU, (unknown,)) if unknown else None
    evidence = {}
    for key in (key for key in new if key in base):
        fastest = [min((one.least_s for one in side[key] if not one.smoke), default=math.inf) for side in all_runs]
        sides, unfit = _counting((base[key], new[key]), fastest, busy, in_turn)
        evidence[key] = Evidence(sides, Drift(), unknown_cpu or unfit)
    observations = [one for side in (base, new) for processes in side.values() for one in processes]
    waited = any(one.median_s >= max(FAR * one.least_s, one.least_s + SLICE_S) for one in observations)
    if waited or any(item.unfit and item.unfit.cause in HELD_UP for item in evidence.values()):
        evidence = {key: replace(item, unfit=item.unfit or _may_wait(item)) for key, item in evidence.items()}
    return evidence


def of_stage(cases: Cases, fresh: bool) -> Cases:
    """The observations of ``fresh`` runs, or of the others; without benchmarks that have none."""
    chosen = {key: [one for one in seen if (one.stage == CONFIRM) == fresh] for key, seen in cases.items()}
    return {key: seen for key, seen in chosen.items() if seen}


def _counting(
    sides: Sides, fastest: Sequence[float], busy: Sequence[set[ProcessKey]], in_turn: bool
) -> tuple[Sides, Reason | None]:
    """The processes that are evidence, and why the benchmark proves nothing, if so; ``fastest`` are the fastest rounds
    of all processes of a side, ``busy`` are the processes beside which other programs ran."""
    timed = [[one for one in side if not one.smoke] for side in sides]
    if any(len(own) < min(2, len(side)) for own, side in zip(timed, sides, strict=True)):
        return sides, Reason(Cause.SMOKE)
    many, quickest_s = min(map(len, timed)) >= MANY, min(fastest)

    def held_up(one: Observation, least_s: float) -> bool:
        waited = one.uneven and one.least_s >= STUCK * quickest_s and one.median_s - quickest_s >= SLICE_S
        return one.least_s >= STUCK * least_s or (waited and not many)

    base, new = ([one for one in side if not held_up(one, s)] for side, s in zip(timed, fastest, strict=True))
    if any(len(own) < min(2, len(side)) for own, side in zip((base, new), timed, strict=True)):
        return sides, _waited([len(side) - len(own) for own, side in zip((base, new), timed, strict=True)], timed)
    if len(base) == len(new) == 1 and (base[0].contended or new[0].contended):
        return sides, Reason(Cause.SLOW_THREADS)
    counting = _without_late_medians((base, new))
    beside = [{one.busy or one.process in busy[i] for one in side} for i, side in enumerate(counting)]
    if not in_turn and sorted(beside, key=str) == [{False}, {True}]:
        return sides, Reason(Cause.BESIDE, ("base" if beside[0] == {True} else "new",))
    return counting, None


def _without_late_medians(sides: Sides) -> Sides:
    """Drop processes if their median waited, if there are at least MANY per side and most didn't wait. The fastest
    always stays."""
    least = [min(one.median_s for one in side) for side in sides]
    quick = [[one for one in side if one.median_s < STUCK * s] for side, s in zip(sides, least, strict=True)]
    most = all(2 * len(own) > len(side) - 1 for own, side in zip(quick, sides, strict=True))
    return (quick[0], quick[1]) if most and min(map(len, sides)) >= MANY else sides


def _may_wait(evidence: Evidence) -> Reason | None:
    """Why a benchmark proves nothing where another waited by its rounds: each process of one side took STUCK times as
    long as one of the other, and longer by a scheduler's slice for another program."""
    least, counts = [min(one.least_s for one in side) for side in evidence.sides], [*map(len, evidence.sides)]
    slow = least.index(max(least))
    longer_s = min(one.median_s for one in evidence.sides[slow]) - min(least)
    if max(least) < STUCK * min(least) or longer_s < SLICE_S or min(counts) >= MANY:
        return None
    return _waited([count * (side == slow) for side, count in enumerate(counts)], evidence.sides)


def _waited(late: Sequence[int], sides: Sequence[Sequence[Observation]]) -> Reason:
    """The reason of a benchmark with so many ``late`` processes on each side."""
    counts = tuple(f"{count} of {len(side)}" for count, side in zip(late, sides, strict=True))
    return Reason(Cause.WAITED) if max(map(len, sides)) == 1 else Reason(Cause.HELD_UP, counts)
