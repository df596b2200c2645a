"""The evidence on each benchmark: the processes that count or the reason why they prove nothing, the effect of the
machine, and the tests.

A process is one observation. Its logarithms of the median and of the lower quartile are tested by a moderated t test
(G. Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3): a busy neighbour delays many rounds, a change of the code delays
all of them, so the larger p value counts. docs/ci.md has the recordings behind the constants.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import geometric_mean, median
from typing import NamedTuple

from ..statistics import inference, intervals
from ..statistics.inference import Change
from .samples import CONFIRM, CaseKey, Cases, Observation, busy_processes

THRESHOLD = 0.05  # the smallest change that matters, if no option says otherwise
STUCK, SLICE_S = 3.0, 5e-4
"""A process all of whose rounds took STUCK times as long as the fastest of another process of the same code waited
for something else. If its rounds are uneven, waiting explains such a difference between the sides too, from SLICE_S on:
a scheduler lets another program run for longer than that."""
FAR = 2.0  # a median so many times its fastest round shows that rounds waited, if it is longer by SLICE_S too
MANY = 6
"""With so many processes a side, it isn't by chance that all of one side waited, and processes with a median of
STUCK times as long as another's are left out if most remain; fewer would show too little of the noise."""
LEAST_SPREAD = 0.003  # lower bound on the spread between processes; the smallest measured in any benchmark
RUN_DRIFT = 0.05  # standard deviation, from run to run, of the change that all benchmarks of a run share
MOST_DRIFT = 3.0  # a shared change of more than this many standard deviations is a change and not drift
LEAST_CASES = 5  # the fewest benchmarks that show drift: with fewer, a change of one can't be distinguished from drift
STEADIER = 4.0
"""A benchmark doesn't follow the machine's speed, for example because it waits, if its processes agree better by this
factor as they are than corrected for drift: by chance in one comparison of a hundred (F test, 4 and 4 degrees)."""
FALSE_DISCOVERIES = 0.025  # the false discovery rate that is asked for
SUSPICION, SUSPICION_OF_LEAST = 0.1, 0.05
"""One-sided p values, for the medians and for the fastest rounds. Either makes a benchmark suspect if that summary
changed by half the threshold. On a busy machine the fastest rounds alone may show a change; only fresh runs decide."""
POWER = 0.8
SINGLE_SPREAD = 0.25
"""Spread assumed for a single process a side: the noisiest of 11 benchmarks over 24 processes, idle machine."""
_BUSY, _USE_QUIETER = "the machine was busy: measure again, or use --interleave", "use a quieter machine"
_QUIETER, _MORE = "a quieter machine", "more runs"
_SUMMARIES = ("median_s", True), ("quartile_s", True), ("median_s", False), ("least_s", True)
"""Each summary of the changes of an evidence, and whether the drift is subtracted."""


class Cause(Enum):
    """Why a benchmark has no verdict: the head, the text after a colon with gaps for figures, advice that doesn't
    depend on figures, and the need of a benchmark with this cause. Programs read the cause, people the words."""

    SMOKE = (
        "smoke run", "too few rounds", "smoke runs take too few rounds to prove anything: use --preset quick",
        "--preset quick",
    )  # fmt: skip
    HELD_UP = "machine busy", "something held up {} processes of base and {} of new", _BUSY, _QUIETER
    SLOW_THREADS = "machine busy", "all threads were slower than one", f"{_BUSY}, or --threads 1", "--threads 1"
    BESIDE = "machine busy", "other programs ran beside each process of {}, and none of the other side", _BUSY, _QUIETER
    WAITED = "one run a side on a busy machine", "its rounds may have waited", _BUSY, _QUIETER
    UNKNOWN_CPU = "the CPU is unknown", "no model in {}", "--allow machine compares anyway", "--allow machine"
    ONE_PROCESS = "one process per side", "its noise is unknown", "more processes of each side would show it", _MORE
    SHARED = (
        "all benchmarks changed alike", "perhaps the machine did", "use --interleave, which tells them apart",
        "--interleave",
    )  # fmt: skip
    UNCONFIRMED = "may have changed, not confirmed", "", "fresh pairs can confirm it: run again", "fresh pairs"
    NEAR = "near the threshold", "the interval has smaller and larger changes", "", _MORE
    DRIFT = "too noisy", "that whole runs drifted by about {} can't be ruled out", "", _MORE
    NOISY = "too noisy", "processes vary by {}", "", _MORE
    HIDDEN = "too noisy", "even {} could have gone unnoticed", _USE_QUIETER, _QUIETER
    UNSEEN = "", "a change of {} would have been noticed 4 times out of 5", "", ""

    def __init__(self, head: str, text: str, advice: str, need: str) -> None:
        self.head, self.text, self.advice, self.need = head, text, advice, need

    def remedy(self, in_turn: bool, has_threads: bool) -> str:
        """The advice to a benchmark that was measured in turn already, or not, and with work that may have threads."""
        eased = has_threads and self in (Cause.HELD_UP, Cause.BESIDE, Cause.HIDDEN)
        words = self.advice.replace(_BUSY, _USE_QUIETER) if in_turn else self.advice
        return words + ", or fewer --threads" * eased


HELD_UP = frozenset({Cause.HELD_UP, Cause.SLOW_THREADS, Cause.BESIDE, Cause.WAITED})
"""Causes for which too few processes could be used."""


class Reason(NamedTuple):
    """A cause, and the figures of one benchmark."""

    cause: Cause
    figures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.cause.head, self.cause.text.format(*self.figures))))


@dataclass(frozen=True, slots=True)
class Terms:
    """How to judge. ``in_turn`` means, for the runs and for the fresh ones, that base and new were measured in
    turn; ``moved`` means that they come from different machines. The sides of ``unknown`` don't name their CPU, so that
    they prove nothing."""

    threshold: float = THRESHOLD
    in_turn: tuple[bool, bool] = (False, False)
    moved: bool = False
    unknown: str = ""

    @property
    def least(self) -> float:
        """The logarithm of a change as large as the threshold, however logarithms are rounded."""
        return math.log(1 + self.threshold) - 1e-9


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

    @property
    def hidden_variance(self) -> float:
        """Variance of the logarithm of a change that the drift adds without showing in the spread of the processes."""
        total = 0.0
        for side in self.sides:
            count, runs = len(side), len({one.process[0] for one in side})
            total += self.drift.hidden**2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)
        return total

    @property
    def suspicions(self) -> list[tuple[Change, float]]:
        """The changes that may make the benchmark suspect, each with its level."""
        return list(zip(self.changes[::3], (SUSPICION, SUSPICION_OF_LEAST), strict=True))

    def larger_p(self, slower: bool, least: float) -> float:
        """The one-sided p value of ``slower`` or of faster, the larger one of both summaries; 1 where the logarithms of
        the medians changed by less than ``least``."""
        if self.unfit:
            return 1.0
        if not self.changes:  # the fastest round of the slower side must be slower than the other side's median
            slow, fast = self.sides[::-1] if slower else self.sides
            ratio = min(one.least_s for one in slow) / max(one.median_s for one in fast)
            return inference.larger_p_of_one(ratio, SINGLE_SPREAD)
        changes = self.changes[:2] if slower else [change.inverse() for change in self.changes[:2]]
        return max(change.larger_p() for change in changes) if changes[0].log >= least else 1.0


def evidence_of(all_runs: tuple[Cases, Cases], fresh: bool, terms: Terms) -> dict[CaseKey, Evidence]:
    """The evidence on each benchmark of both sides with the drift of the machine, from the ``fresh`` runs or from the
    others.

    No drift is subtracted where base and new were measured in turn, since drift affects both, nor between machines,
    where the change that all benchmarks share is the answer.
    """
    in_turn, moved = terms.in_turn[fresh], terms.moved
    stage = [
        {key: kept for key, seen in cases.items() if (kept := [one for one in seen if (one.stage == CONFIRM) == fresh])}
        for cases in all_runs
    ]
    base, new = stage
    busy = [busy_processes(side) for side in stage]
    unknown_cpu = Reason(Cause.UNKNOWN_CPU, (terms.unknown,)) if terms.unknown else None
    evidence = {}
    for key in (key for key in new if key in base):
        fastest = [min((one.least_s for one in side[key] if not one.smoke), default=math.inf) for side in all_runs]
        sides, unfit = _counting((base[key], new[key]), fastest, busy, in_turn)
        evidence[key] = Evidence(sides, Drift(hidden=RUN_DRIFT * (moved and not in_turn)), unknown_cpu or unfit)
    observations = [one for side in stage for processes in side.values() for one in processes]
    waited = any(one.median_s >= max(FAR * one.least_s, one.least_s + SLICE_S) for one in observations)
    if waited or any(item.unfit and item.unfit.cause in HELD_UP for item in evidence.values()):
        evidence = {key: replace(item, unfit=item.unfit or _may_wait(item)) for key, item in evidence.items()}
    if in_turn or moved:
        return evidence
    processes = ({one.process for seen in side.values() for one in seen} for side in stage)
    return _with_drift(evidence, any(2 * len(some) > len(all_) for some, all_ in zip(busy, processes, strict=True)))


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


def _with_drift(evidence: Mapping[CaseKey, Evidence], crowded: bool) -> dict[CaseKey, Evidence]:
    """The same evidence, each with its drift: steady benchmarks have one of their own."""
    fit = {key: item for key, item in evidence.items() if not item.unfit}
    drift = own = _shared_drift(list(fit.values()), crowded)
    steady = {key: item for key, item in fit.items() if _is_steady(replace(item, drift=drift))}
    if len(steady) >= LEAST_CASES:
        drift = _shared_drift([item for key, item in fit.items() if key not in steady], crowded)
        own = _shared_drift(list(steady.values()), crowded)
    return {key: replace(item, drift=own if key in steady else drift) for key, item in evidence.items()}


def _is_steady(evidence: Evidence) -> bool:
    """Whether dividing by the speed of the benchmark's process would only add the noise of the other benchmarks."""
    if not evidence.drift.speed or sum(map(len, evidence.sides)) < 3:
        return False
    before, after = (inference.pooled_variance(*evidence.logs("median_s", corrected))[0] for corrected in (False, True))
    return max(before, LEAST_SPREAD**2) * STEADIER**2 < after


def _shared_drift(cases: Sequence[Evidence], crowded: bool) -> Drift:
    """The drift of benchmarks that drift alike: for each process, the median over benchmarks of its logarithm minus the
    benchmark's usual one.

    A change that all benchmarks share counts as a change only if it exceeds any drift, otherwise it is subtracted. On a
    ``crowded`` machine, where other programs used the cores during most processes of a side, any drift is possible.
    """
    if len(cases) < LEAST_CASES:
        return Drift(hidden=RUN_DRIFT)
    excess: list[defaultdict[ProcessKey, list[float]]] = [defaultdict(list), defaultdict(list)]
    for item in cases:
        logs = item.logs("median_s")
        usual = sum(map(median, logs)) / 2
        for processes, side, values in zip(excess, item.sides, logs, strict=True):
            for one, value in zip(side, values, strict=True):
                processes[one.process].append(value - usual)
    speeds = [{process: median(values) for process, values in side.items()} for side in excess]
    before, after = (median(side.values()) for side in speeds)
    runs = [len({run for run, _ in side}) for side in speeds]
    limit = MOST_DRIFT * RUN_DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1])
    return Drift(speeds) if crowded or abs(after - before) <= limit else Drift()


def tested(evidence: Mapping[CaseKey, Evidence]) -> dict[CaseKey, Evidence]:
    """The same evidence, with the ``changes`` of benchmarks if their processes show how they vary."""
    cases = {key: item for key, item in evidence.items() if not item.unfit and sum(map(len, item.sides)) > 3}
    columns = [_moderated(list(cases.values()), *summary) for summary in _SUMMARIES]
    rows = zip(cases.items(), zip(*columns, strict=True), strict=True)
    return {**evidence, **{key: replace(item, changes=changes) for (key, item), changes in rows}}


def _moderated(cases: Sequence[Evidence], summary: str, corrected: bool) -> list[Change]:
    """The moderated t statistics. The known variance of a hidden drift, which the processes of a run share and so don't
    show, is added to that of the difference (degrees of freedom after F. E. Satterthwaite, 1946)."""
    sides = [item.logs(summary, corrected) for item in cases]
    pooled = [(max(variance, LEAST_SPREAD**2), n) for variance, n in (inference.pooled_variance(*it) for it in sides)]
    variances, prior = inference.moderated([variance for variance, _ in pooled], [n for _, n in pooled])
    changes = []
    for item, (base, new), variance, (_, own) in zip(cases, sides, variances, pooled, strict=True):
        within = max(variance, LEAST_SPREAD**2) * (1 / len(base) + 1 / len(new))
        total = within + item.hidden_variance
        freedom = min((own + prior) * (total / within) ** 2, 1e6)
        changes.append(Change(sum(new) / len(new) - sum(base) / len(base), math.sqrt(total), freedom))
    return changes


def tail(adjusted: Sequence[float], level: float) -> float:
    """The probability that an interval leaves out on one side so that it excludes 1 just where the adjusted p value
    reaches the level: with r discoveries among m benchmarks, r / m of the level, or 1 / m without any.

    Source: Y. Benjamini, D. Yekutieli, J. Am. Stat. Assoc. 100 (2005) 71-81.
    """
    return level * max(1, sum(p <= level for p in adjusted)) / max(1, len(adjusted))
