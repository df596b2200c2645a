"""Faster, slower, same or inconclusive: a verdict for each benchmark, with false alarms controlled over all of them.

A process is one observation, of which the logarithms of two summaries are taken: the median and the lower quartile of
its rounds. Named exclusions come first. Then the difference of the sides is tested by a moderated t test (G. Smyth,
Stat. Appl. Genet. Mol. Biol. 3 (2004) 3), once for each summary: a busy neighbour delays many rounds, a change of the
code delays all of them, so the larger p value counts. ``slower`` takes two things: p, adjusted by the method of
Benjamini and Hochberg over all benchmarks, reaches 2.5 %, and the estimate reaches the threshold.

A set of runs may hold a screening and fresh runs of what it made suspect. If a benchmark has fresh runs on both sides,
these alone count; a benchmark without them is never called slower, so none is judged by the data that made it suspect.
docs/ci.md has what was recorded to set the exclusions and their constants, and how often verdicts are wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from ..runfile.quantities import counted
from ..statistics import inference, intervals
from ..statistics.inference import Change
from ..statistics.intervals import Interval
from .reasons import EASED, FEWER_THREADS, HELD_UP, Cause, Reason
from .samples import CONFIRM, SCREEN, CaseKey, Cases, Observation, busy_processes

FASTER, SLOWER, SAME, INCONCLUSIVE, NOT_SUSPECT = "faster", "slower", "same", "inconclusive", "not suspect"
THRESHOLD = 0.05
FALSE_DISCOVERIES = 0.025
"""The false discovery rate that is asked for."""
SUSPICION, SUSPICION_OF_LEAST = 0.1, 0.05
"""One-sided p values, for the medians and for the fastest rounds. Either makes a benchmark suspect if that summary
changed by half the threshold. On a busy machine the fastest rounds alone may show a change; only fresh runs decide."""
POWER = 0.8
LEAST_SPREAD = 0.003
"""Lower bound on the spread between processes; the smallest measured in any benchmark."""
SINGLE_SPREAD = 0.25
"""Spread assumed for a single process a side: that of the noisiest of 11 benchmarks over 24 processes, idle machine."""
USUAL_SPREAD = 0.03
"""Spread of most benchmarks' processes on an idle machine, for advice where none was measured."""
HIDES = 0.2
"""A benchmark in which a change of this share stays hidden isn't called not suspect, which sounds cleared."""
MOST_NEEDED = 100
STUCK, SLICE_S = 3.0, 5e-4
"""A process all of whose rounds took STUCK times as long as the fastest of another process of the same code waited
for something else. If its rounds are uneven, waiting explains such a difference between the sides too, from SLICE_S on:
a scheduler lets another program run for longer than that."""
FAR = 2.0
"""A median so many times its fastest round shows that rounds waited, if it is longer by SLICE_S too."""
MANY = 6
"""With so many processes a side, it isn't by chance that all those of one side waited, and processes whose median took
STUCK times as long as another's are left out if most remain; fewer would show too little of the noise."""
RUN_DRIFT = 0.05
"""Standard deviation, from run to run, of the change that all benchmarks of a run share: clocks, memory, other guests
of the host."""
MOST_DRIFT = 3.0
"""A shared change of more than this many standard deviations is a change and not drift."""
LEAST_CASES = 5
"""The fewest benchmarks that show drift: with fewer, a change of one can't be distinguished from drift."""
STEADIER = 4.0
"""A benchmark doesn't follow the machine's speed, for example because it waits, if its processes agree better by this
factor as they are than corrected for drift: by chance in one comparison of a hundred (F test, 4 and 4 degrees)."""

_Process = tuple[int, int]
_Sides = tuple[Sequence[Observation], Sequence[Observation]]


@dataclass(frozen=True, slots=True)
class Terms:
    """How to judge. ``in_turn`` means, for the runs and for the fresh ones, that base and new were measured in
    turn; ``moved`` means that they come from different machines. The sides of ``unknown`` don't name their CPU, so that
    they prove nothing."""

    threshold: float = THRESHOLD
    in_turn: tuple[bool, bool] = (False, False)
    moved: bool = False
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ratio`` is new time / base time; ``p`` one-sided, for slower, adjusted over all cases, None without evidence.

    The interval of ``same`` and of ``not suspect`` is that of the benchmark alone, at 95 %; any other accounts for all
    benchmarks of the comparison and for drift, and so it excludes 1 where the change is proven. ``base_s``, ``new_s``
    come from the same evidence as the ratio, ``processes`` are those of base and new. ``why`` a benchmark is
    inconclusive or not suspect; ``advice`` is what would make it conclusive; ``more`` is the number of further runs a
    side, if not too many. ``spread`` is the standard deviation between processes, NaN if unknown. A ``suspect`` has no
    fresh runs yet; a change by the share ``seen`` would make a benchmark suspect four times out of five, with as many
    runs.
    """

    key: CaseKey
    verdict: str
    ratio: Interval
    base_s: float
    new_s: float
    p: float | None
    processes: tuple[int, int]
    why: Reason | None = None
    advice: str = ""
    more: int | None = None
    spread: float = math.nan
    suspect: bool = False
    seen: float | None = None

    @property
    def reason(self) -> str:
        """``why`` in words."""
        return str(self.why or "")

    def sees(self, threshold: float) -> float:
        """The smallest change that counts and is detected four times out of five."""
        return max(self.seen or 0.0, threshold)

    @property
    def bounded(self) -> bool:
        """Whether the ratio has an interval."""
        return self.ratio.low > 0 and math.isfinite(self.ratio.high)

    @property
    def cause(self) -> Cause | None:
        """That of ``why``."""
        return self.why.cause if self.why else None

    @property
    def held_up(self) -> bool:
        """Whether too few processes of the benchmark could be used."""
        return self.cause in HELD_UP


@dataclass(frozen=True, slots=True)
class _Drift:
    """What the machine did to some benchmarks. ``speed`` is subtracted: logarithms by side and process, empty where
    there is nothing to subtract. ``hidden`` is the standard deviation from run to run of a drift that can't be
    distinguished from a change."""

    speed: Sequence[Mapping[_Process, float]] = ()
    hidden: float = 0.0


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The processes of base and of new that count for a benchmark; ``unfit`` is the reason why they prove nothing.
    ``changes`` are those of the median and of the lower quartile, without the drift, of the median as measured, and of
    the fastest round, without the drift."""

    sides: _Sides
    drift: _Drift
    unfit: Reason | None = None
    changes: tuple[Change, ...] = ()

    def logs(self, summary: str, corrected: bool = True) -> list[list[float]]:
        """Logarithms of the ``summary`` of each process of base and of new."""
        speeds = self.drift.speed if corrected and self.drift.speed else ({}, {})
        return [
            [math.log(getattr(each, summary)) - speed.get(each.process, 0.0) for each in side]
            for side, speed in zip(self.sides, speeds, strict=True)
        ]

    @property
    def suspicions(self) -> list[tuple[Change, float]]:
        """The changes that may make the benchmark suspect, each with its level."""
        return list(zip(self.changes[::3], (SUSPICION, SUSPICION_OF_LEAST), strict=True))

    @property
    def times(self) -> tuple[float, float]:
        """Seconds of base and of new: the geometric means of their processes' medians, whose ratio is tested. Where
        nothing is tested, the times are the medians, which a process really measured: the mean of 1.64, 0.28 and 1.68
        ms would be 0.92."""
        middle = intervals.median if self.unfit else geometric_mean
        base, new = (middle([each.median_s for each in side]) for side in self.sides)
        return base, new


# Before the test: exclusions, and the drift of the machine ------------------------------------------------------------


def _held_up(one: Observation, least_s: float, quickest_s: float, many: bool) -> bool:
    """Whether something held up all rounds of a process: ``least_s`` is the fastest round of any process of its side,
    ``quickest_s`` of both sides."""
    waited = one.uneven and one.least_s >= STUCK * quickest_s and one.median_s - quickest_s >= SLICE_S
    return one.least_s >= STUCK * least_s or (waited and not many)


def _punctual(sides: _Sides) -> _Sides:
    """Of many processes those whose rounds didn't wait, all but the fastest, unless most of a side did."""
    least = [min(each.median_s for each in side) for side in sides]
    kept = [[each for each in side if each.median_s < STUCK * s] for side, s in zip(sides, least, strict=True)]
    most = all(2 * len(own) > len(side) - 1 for own, side in zip(kept, sides, strict=True))
    return (kept[0], kept[1]) if most and min(map(len, sides)) >= MANY else sides


def _counting(
    sides: _Sides, fastest: tuple[float, float], busy: Sequence[set[_Process]], in_turn: bool
) -> tuple[_Sides, Reason | None]:
    """The processes that are evidence, and why the benchmark proves nothing, if so; ``fastest`` are the fastest rounds
    of all processes of a side, ``busy`` are the processes beside which other programs ran."""
    timed = [[each for each in side if not each.smoke] for side in sides]
    if any(len(own) < min(2, len(side)) for own, side in zip(timed, sides, strict=True)):
        return sides, Reason(Cause.SMOKE)
    many = min(map(len, timed)) >= MANY
    base, new = (
        [each for each in side if not _held_up(each, least_s, min(fastest), many)]
        for side, least_s in zip(timed, fastest, strict=True)
    )
    if any(len(own) < min(2, len(side)) for own, side in zip((base, new), timed, strict=True)):
        return sides, _waited([len(side) - len(own) for own, side in zip((base, new), timed, strict=True)], timed)
    if len(base) == len(new) == 1 and (base[0].contended or new[0].contended):
        return sides, Reason(Cause.SLOW_THREADS)
    counting = _punctual((base, new))
    beside = [{each.busy or each.process in busy[i] for each in side} for i, side in enumerate(counting)]
    if not in_turn and sorted(beside, key=str) == [{False}, {True}]:
        return sides, Reason(Cause.BESIDE, ("base" if beside[0] == {True} else "new",))
    return counting, None


def _may_wait(each: _Evidence) -> Reason | None:
    """Why a benchmark proves nothing where another waited by its rounds: each process of one side took STUCK times as
    long as one of the other, and longer by what a scheduler gives another program."""
    least, counts = [min(one.least_s for one in side) for side in each.sides], [*map(len, each.sides)]
    slow = least.index(max(least))
    longer_s = min(one.median_s for one in each.sides[slow]) - min(least)
    if max(least) < STUCK * min(least) or longer_s < SLICE_S or min(counts) >= MANY:
        return None
    return _waited([count * (side == slow) for side, count in enumerate(counts)], each.sides)


def _waited(late: Sequence[int], sides: Sequence[Sequence[Observation]]) -> Reason:
    """The reason of a benchmark of whose processes so many were late on each side."""
    held_up = tuple(f"{count} of {len(side)}" for count, side in zip(late, sides, strict=True))
    return Reason(Cause.WAITED) if max(map(len, sides)) == 1 else Reason(Cause.HELD_UP, held_up)


def _is_steady(each: _Evidence) -> bool:
    """Whether the benchmark doesn't follow the machine's speed: dividing by the speed of its process would only add the
    noise of the other benchmarks."""
    if not each.drift.speed or sum(map(len, each.sides)) < 3:
        return False
    before, after = (inference.pooled_variance(*each.logs("median_s", corrected))[0] for corrected in (False, True))
    return max(before, LEAST_SPREAD**2) * STEADIER**2 < after


def _drift(cases: Sequence[_Evidence], crowded: bool) -> _Drift:
    """The drift of benchmarks that drift alike: for each process, the median over benchmarks of its logarithm minus the
    benchmark's usual one.

    A change that all benchmarks share counts as a change only if it exceeds any drift, otherwise it is subtracted. On a
    ``crowded`` machine, where other programs used the cores during most processes of a side, any drift is possible.
    """
    if len(cases) < LEAST_CASES:
        return _Drift(hidden=RUN_DRIFT)
    excess: list[defaultdict[_Process, list[float]]] = [defaultdict(list), defaultdict(list)]
    for each in cases:
        logs = each.logs("median_s")
        usual = sum(map(median, logs)) / 2
        for processes, side, values in zip(excess, each.sides, logs, strict=True):
            for one, value in zip(side, values, strict=True):
                processes[one.process].append(value - usual)
    speeds = [{process: median(values) for process, values in side.items()} for side in excess]
    before, after = (median(side.values()) for side in speeds)
    runs = [len({run for run, _ in side}) for side in speeds]
    limit = MOST_DRIFT * RUN_DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1])
    return _Drift(speeds) if crowded or abs(after - before) <= limit else _Drift()


# The test -------------------------------------------------------------------------------------------------------------


def _tested(found: Mapping[CaseKey, _Evidence]) -> dict[CaseKey, _Evidence]:
    """The same evidence, with ``changes`` filled in for benchmarks whose processes show how they vary."""
    known = {key: each for key, each in found.items() if not each.unfit and sum(map(len, each.sides)) > 3}
    columns = [
        _moderated(list(known.values()), *view)
        for view in (("median_s", True), ("quartile_s", True), ("median_s", False), ("least_s", True))
    ]
    rows = zip(known.items(), zip(*columns, strict=True), strict=True)
    return {**found, **{key: replace(each, changes=changes) for (key, each), changes in rows}}


def _moderated(cases: Sequence[_Evidence], summary: str, corrected: bool) -> list[Change]:
    """The moderated t statistics. The known variance of a hidden drift, which the processes of a run share and so don't
    show, is added to that of the difference (degrees of freedom after F. E. Satterthwaite, 1946)."""
    sides = [each.logs(summary, corrected) for each in cases]
    pooled = [inference.pooled_variance(*each) for each in sides]
    floor = LEAST_SPREAD**2
    variances, prior = inference.moderated([max(each, floor) for each, _ in pooled], [n for _, n in pooled])
    found = []
    for each, (base, new), variance, (_, own) in zip(cases, sides, variances, pooled, strict=True):
        within = max(variance, floor) * (1 / len(base) + 1 / len(new))
        total = within + sum(_hidden_variance(each.drift, side) for side in each.sides)
        freedom = min((own + prior) * (total / within) ** 2, 1e6)
        found.append(Change(sum(new) / len(new) - sum(base) / len(base), math.sqrt(total), freedom))
    return found


def _hidden_variance(drift: _Drift, side: Sequence[Observation]) -> float:
    """Variance of the mean of a side's logarithms that the drift adds without showing in the spread of the
    processes."""
    count, runs = len(side), len({each.process[0] for each in side})
    return drift.hidden**2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)


def _of_stage(cases: Cases, fresh: bool) -> Cases:
    kept = {key: [one for one in each if (one.stage == CONFIRM) == fresh] for key, each in cases.items()}
    return {key: each for key, each in kept.items() if each}


def tail(adjusted: Sequence[float], level: float) -> float:
    """The probability that an interval leaves out on one side so that it excludes 1 just where the adjusted p value
    reaches the level: with r discoveries among m benchmarks, r / m of the level, or 1 / m without any.

    Source: Y. Benjamini, D. Yekutieli, J. Am. Stat. Assoc. 100 (2005) 71-81.
    """
    return level * max(1, sum(p <= level for p in adjusted)) / max(1, len(adjusted))


# From interval to verdict ---------------------------------------------------------------------------------------------


def judge(base: Cases, new: Cases, terms: Terms = Terms()) -> list[Verdict]:
    """Verdicts on the benchmarks of both sides, in the order of the new."""
    return _Judge(terms).verdicts(base, new)


class _Judge:
    """Judges benchmarks by some terms."""

    def __init__(self, terms: Terms) -> None:
        self._terms, self._least = terms, math.log(1 + terms.threshold) - 1e-9

    def verdicts(self, base: Cases, new: Cases) -> list[Verdict]:
        """Those on the benchmarks of both sides, in the order of the new."""
        first, fresh = (self._gathered((base, new), stage) for stage in (False, True))
        fresh = {key: each for key, each in fresh.items() if min(map(len, each.sides)) > 1}
        # What has no fresh runs stays as screening saw it: else fresh runs of others might make it suspect, too late.
        found = _tested(first) | {key: each for key, each in _tested(first | fresh).items() if key in fresh}
        screened = any(each.stage for side in (base, new) for case in side.values() for each in case)
        family = [key for key in found if key in fresh or not screened]
        ps = [inference.benjamini_hochberg([self._p(found[key], word) for key in family]) for word in (SLOWER, FASTER)]
        tails = tuple(tail(each, FALSE_DISCOVERIES) for each in ps)
        both = dict(zip(family, zip(*ps, strict=True), strict=True))
        return [
            self._decided(_plain(key, found[key]), found[key], both[key], tails, len(family))
            if key in both
            else self._screened(_plain(key, found[key]), found[key])
            for key in new
            if key in found
        ]

    def _gathered(self, all_runs: tuple[Cases, Cases], fresh: bool) -> dict[CaseKey, _Evidence]:
        """For each benchmark, the processes that count and the drift of the machine, from the fresh runs or from the
        others.

        No drift is subtracted where base and new were measured in turn, since drift affects both, nor between machines,
        where the change that all benchmarks share is the answer.
        """
        base, new = (_of_stage(side, fresh) for side in all_runs)
        in_turn, busy = self._terms.in_turn[fresh], [busy_processes(side) for side in (base, new)]
        unknown = Reason(Cause.UNKNOWN_CPU, (self._terms.unknown,)) if self._terms.unknown else None
        found = {}
        for key in [key for key in new if key in base]:
            before, after = (min((e.least_s for e in side[key] if not e.smoke), default=math.inf) for side in all_runs)
            sides, unfit = _counting((base[key], new[key]), (before, after), busy, in_turn)
            found[key] = _Evidence(sides, _Drift(), unknown or unfit)
        everything = [one for side in (base, new) for seen in side.values() for one in seen]
        waited = any(one.median_s >= max(FAR * one.least_s, one.least_s + SLICE_S) for one in everything)
        if waited or any(each.unfit and each.unfit.cause in HELD_UP for each in found.values()):
            found = {key: replace(each, unfit=each.unfit or _may_wait(each)) for key, each in found.items()}
        if in_turn:
            return found
        if self._terms.moved:
            return {key: replace(each, drift=_Drift(hidden=RUN_DRIFT)) for key, each in found.items()}
        crowded = any(
            2 * len(few) > len({one.process for seen in side.values() for one in seen})
            for few, side in zip(busy, (base, new), strict=True)
        )
        fit = {key: each for key, each in found.items() if not each.unfit}
        drift = own = _drift(list(fit.values()), crowded)
        steady = {key: each for key, each in fit.items() if _is_steady(replace(each, drift=drift))}
        if len(steady) >= LEAST_CASES:
            drift = _drift([each for key, each in fit.items() if key not in steady], crowded)
            own = _drift(list(steady.values()), crowded)
        return {key: replace(each, drift=own if key in steady else drift) for key, each in found.items()}

    def _p(self, each: _Evidence, word: str) -> float:
        """One-sided p value, the larger one of both summaries; 1 where the medians changed by less than what counts."""
        if each.unfit:
            return 1.0
        if not each.changes:  # the fastest round of the slower side must be slower than the other side's median
            slow, fast = each.sides[::-1] if word == SLOWER else each.sides
            ratio = min(one.least_s for one in slow) / max(one.median_s for one in fast)
            return inference.larger_p_of_one(ratio, SINGLE_SPREAD)
        changes = each.changes[:2] if word == SLOWER else [change.inverse() for change in each.changes[:2]]
        return max(change.larger_p() for change in changes) if changes[0].log >= self._least else 1.0

    def _decided(self, plain: Verdict, each: _Evidence, ps: Sequence[float], tails: Sequence[float], m: int) -> Verdict:
        """A benchmark that may be called slower, from its p values adjusted over all ``m`` of them."""
        log, word = math.log(plain.ratio.value), INCONCLUSIVE
        if ps[0] <= FALSE_DISCOVERIES and log >= self._least:
            word = SLOWER
        elif ps[1] <= FALSE_DISCOVERIES and -log >= self._least:
            word = FASTER
        elif self._is_same(plain):
            return replace(plain, verdict=SAME, p=ps[0])
        ratio = plain.ratio
        if each.changes:
            inside = [change.interval(*tails) for change in each.changes[: 2 if word != INCONCLUSIVE else 3]]
            low, high = min(span.low for span in inside), max(span.high for span in inside)
            ratio = replace(ratio, low=min(low, ratio.value), high=max(high, ratio.value))
        p = None if not each.changes and word == INCONCLUSIVE else ps[0]
        verdict = replace(plain, verdict=word, ratio=ratio, p=p)
        return verdict if word != INCONCLUSIVE else self._explained(verdict, each, FALSE_DISCOVERIES / m)

    def _screened(self, verdict: Verdict, each: _Evidence) -> Verdict:
        """The verdict on a benchmark without fresh runs."""
        least, seen = math.log(1 + self._terms.threshold), self._terms.threshold
        suspect = bool(each.unfit) or abs(math.log(verdict.ratio.value)) >= least
        if each.changes:
            suspect = any(
                min(change.larger_p(), change.inverse().larger_p()) <= level and abs(change.log) >= least / 2 - 1e-9
                for change, level in each.suspicions
            )
            seen = max(verdict.seen or 0.0, math.expm1(least / 2))
            if self._is_same(verdict):
                return replace(verdict, verdict=SAME)
        if suspect:
            return _because(replace(verdict, suspect=True), each.unfit or Reason(Cause.UNCONFIRMED))
        own = math.expm1(abs(math.log(verdict.ratio.value)))
        # The fastest rounds would show such a change, but the medians, which the ratio is of, don't.
        if each.changes and own > seen:
            seen = math.expm1(max(inference.detectable(change, level, POWER) for change, level in each.suspicions))
            verdict = replace(verdict, seen=max(own, seen))
        if own > seen or seen >= HIDES:
            return _because(verdict, Reason(Cause.HIDDEN, (percent(max(own, seen)),)))
        return replace(verdict, verdict=NOT_SUSPECT, why=Reason(Cause.UNSEEN, (percent(seen),)))

    def _explained(self, verdict: Verdict, each: _Evidence, level: float) -> Verdict:
        """The verdict with the reason why it is inconclusive, and how many more runs a side would prove a change by the
        threshold."""
        if each.unfit:
            return _because(verdict, each.unfit)
        if each.changes and abs(math.log(verdict.ratio.value)) >= self._least > abs(each.changes[0].log):
            return _because(verdict, Reason(Cause.SHARED))
        in_turn = self._terms.in_turn[0] or each.sides[0][0].stage == CONFIRM
        runs = [len({one.process[0] for one in side}) for side in each.sides]
        spread, why = verdict.spread, Reason(Cause.NOISY, (percent(verdict.spread),))
        if not each.changes:
            spread, why = USUAL_SPREAD, Reason(Cause.ONE_PROCESS)
        elif not verdict.ratio.low <= 1 <= verdict.ratio.high:
            why = Reason(Cause.NEAR)
        elif each.drift.hidden > spread:
            why = Reason(Cause.DRIFT, (percent(each.drift.hidden),))
        per_run = min(verdict.processes) / min(runs)
        spread = math.hypot(spread / math.sqrt(per_run), each.drift.hidden if each.changes else 0.0)
        needed = inference.needed_values(spread, 1 + self._terms.threshold, level, most=MOST_NEEDED)
        noun = "more pair" if in_turn else "more run"
        if needed is None:
            advice = f"only more than {MOST_NEEDED} {noun[5:]}s would be conclusive: use a quieter machine"
            return replace(verdict, why=why, advice=advice if in_turn else f"{advice} or --interleave")
        more = max(1, needed - min(runs))
        where = "" if in_turn else " per side"
        advice = f"about {counted(more, noun)}{where} would detect a change of {percent(self._terms.threshold)}"
        assumed = "" if each.changes else f" (assuming {percent(spread)} variation between processes)"
        return replace(verdict, why=why, advice=advice + assumed, more=more)

    def _is_same(self, each: Verdict) -> bool:
        """Whether the whole interval lies within the threshold."""
        most = 1 + self._terms.threshold
        return 1 / most < each.ratio.low and each.ratio.high < most


def _plain(key: CaseKey, each: _Evidence) -> Verdict:
    """A verdict with the 95 % interval of the benchmark alone; it stays inconclusive until it is decided."""
    base_s, new_s = each.times
    count = len(each.sides[0]), len(each.sides[1])
    if not each.changes:
        ratio = Interval(new_s / base_s, 0.0, math.inf, intervals.SPREAD)
        return Verdict(key, INCONCLUSIVE, ratio, base_s, new_s, None, count)
    hidden = sum(_hidden_variance(each.drift, side) for side in each.sides)
    screened = each.sides[0][0].stage == SCREEN
    error = min(change.error for change in (each.changes[::3] if screened else each.changes[:1]))
    spread = math.sqrt(max(0.0, error**2 - hidden) / (1 / count[0] + 1 / count[1]))
    seen = math.expm1(min(inference.detectable(change, level, POWER) for change, level in each.suspicions))
    return Verdict(key, INCONCLUSIVE, each.changes[2].interval(), base_s, new_s, None, count, spread=spread, seen=seen)


def _because(verdict: Verdict, why: Reason) -> Verdict:
    threads = why.cause in EASED and verdict.key.implementation  # unknown of a test without the fixture
    return replace(verdict, why=why, advice=why.cause.advice + FEWER_THREADS * bool(threads))


def percent(share: float) -> str:
    """``5 %`` for 0.05, also ``4.2 %`` and ``130 %``."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
