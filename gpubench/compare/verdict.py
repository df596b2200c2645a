"""Faster, slower, same or inconclusive: a verdict for each case, with false alarms controlled over all cases.

A process is one observation, and logarithms of times are compared. ``slower`` takes two things: the slowdown is proven
against no change at all, and its estimate reaches the threshold. Proven means that the medians differ and the fastest
tenths of the rounds differ too: a busy neighbour delays many rounds, a change of the code delays all of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import mean, median

from .. import intervals, statistics
from ..format import counted
from ..intervals import Interval
from ..statistics import Change
from .samples import CaseKey, Cases, Observation, busy_processes

FASTER, SLOWER, SAME, INCONCLUSIVE = "faster", "slower", "same", "inconclusive"
THRESHOLD = 0.05
FALSE_DISCOVERIES = 0.025
"""The false discovery rate: one comparison of unchanged code in forty may say slower."""
LEAST_SPREAD = 0.003
"""Lower bound on the spread between processes; the smallest measured in any case."""
PAIR_SPREAD = math.sqrt(2) * LEAST_SPREAD
"""The same of the ratios of pairs."""
SINGLE_SPREAD = 0.25
"""Spread assumed for a single process a side: that of the noisiest case over 24 processes on an idle machine."""
USUAL_SPREAD = 0.03
"""Spread of most cases' processes on an idle machine; used for advice where none was measured, not for verdicts."""
MOST_NEEDED = 100
DISTURBED = 0.1
"""A process counts as disturbed when more than this share of its rounds in all other cases was delayed."""
RUN_DRIFT = 0.05
"""Standard deviation from run to run of what all cases of a run share: clocks, memory, other guests of the host."""
MOST_DRIFT = 3.0
"""More than this many standard deviations is a change and not drift."""
LEAST_CASES = 5
"""With fewer cases, a change of one can't be told from drift."""
STEADIER = 4.0
"""By this factor the processes of a case that doesn't follow the machine's speed agree better as they are than at usual
speed. Chance does that in one comparison of a hundred (F test of two spreads with 4 degrees of freedom each)."""
SMOKE_RUN = "smoke run: too few rounds"
FEW_PAIRS = "machine busy: too few undisturbed pairs of runs"
ONE_PROCESS = "one process per side: its noise is unknown"
SHARED = "changed as the others did: perhaps drift"
TRIED_ONLY = "smoke runs take too few rounds to prove anything: use --preset quick"
BUSY = "the machine was busy: measure again, use fewer --threads, or use --interleave"
BUSY_IN_TURN = "the machine was busy: measure again on a quieter one, or use fewer --threads"

_Processes = Sequence[Observation]
_Process = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Drift:
    """What the machine did to some cases. ``speed`` is subtracted, logarithms by side and process; empty where nothing
    is. ``shared`` is the logarithm of what they share between the sides, ``hidden`` the standard deviation from run to
    run of a drift that can't be told from a change of a case."""

    speed: Sequence[Mapping[_Process, float]] = ()
    shared: float = 0.0
    hidden: float = 0.0


class Conditions:
    """What the machine did to each process: delayed its rounds, or ran slower than at other times. Sides are 0 for base
    and 1 for new; ``moved`` means that they are different machines. ``pairs`` are the numbers of the runs of base and
    new that were made one after the other."""

    def __init__(self, base: Cases, new: Cases, moved: bool = False, pairs: Sequence[tuple[int, int]] = ()) -> None:
        self._late = [_late(side) for side in (base, new)]
        self._accompanied = [busy_processes(side) for side in (base, new)]
        base, new = _calm(base), _calm(new)
        keys = [key for key in new if key in base]
        self._drift = self._steady_drift = _Drift()
        self._steady: frozenset[CaseKey] = frozenset()
        """Cases that don't follow the machine's speed, as those that wait: they drift by themselves."""
        self.pairs = pairs
        self.common: Change | None = None
        """The change that all cases share in pairs of runs: a change of the code unless it is ``shared`` drift."""
        if moved or len(keys) < LEAST_CASES:
            self._drift = _Drift(hidden=0.0 if pairs else RUN_DRIFT)
            return
        if pairs:
            speeds = _speeds(keys, (base, new))
            changes = self.in_pairs(*map(_run_means, speeds))
            if len(changes) > 1:
                self.common = statistics.paired_change(changes, PAIR_SPREAD)
                proven = min(self.common.larger_p(), self.common.inverse().larger_p()) <= FALSE_DISCOVERIES
                self._drift = _Drift(speeds, 0.0 if proven else self.common.log)
            return
        crowded = any(2 * len(busy) > len(late) for busy, late in zip(self._accompanied, self._late, strict=True))
        self._drift = _drift(keys, (base, new), crowded)
        steady = [key for key in keys if self._is_steady(key, (base[key], new[key]))]
        if len(steady) >= LEAST_CASES:
            self._steady, self._steady_drift = frozenset(steady), _drift(steady, (base, new), crowded)
            self._drift = _drift([key for key in keys if key not in self._steady], (base, new), crowded)

    @property
    def shared(self) -> float:
        """Logarithm of the drift that the cases share between the sides."""
        return self._drift.shared

    def _is_steady(self, key: CaseKey, sides: tuple[_Processes, _Processes]) -> bool:
        """Divided by the speed of its process it would only get the noise of the other cases."""
        times = [[each.median_s for each in side] for side in sides]
        divided = [[each.median_s / self.speed(key, i, each) for each in side] for i, side in enumerate(sides)]
        before, after = (statistics.pooled_spread(*each) for each in (times, divided))
        return max(before, LEAST_SPREAD) * STEADIER < after

    def _drift_of(self, key: CaseKey) -> _Drift:
        return self._steady_drift if key in self._steady else self._drift

    def disturbed(self, side: int, observation: Observation) -> bool:
        """By the thread canary, or by delayed rounds of all other cases: a case that became bimodal doesn't show a
        busy machine. Work on another core delays nothing: see :meth:`counting`."""
        late = self._late[side][observation.process]
        others = (sum(late) - observation.late) / (len(late) - 1) if len(late) > 1 else 0.0
        return observation.contended or others > DISTURBED

    def accompanied(self, side: int, observation: Observation) -> bool:
        """Whether other programs used the cores during this case, or during most cases of its process."""
        return observation.busy or observation.process in self._accompanied[side]

    def counting(self, sides: tuple[_Processes, _Processes]) -> tuple[list[Observation], list[Observation]]:
        """The processes of a case that are evidence: undisturbed, and equally accompanied on both sides.

        Other programs that use the cores may delay all rounds alike, or none. So where they did in a larger share of
        one side's processes than of the other's, only the processes without them count.
        """
        kept = [
            [each for each in side if not each.smoke and not self.disturbed(i, each)] for i, side in enumerate(sides)
        ]
        alone = [[each for each in side if not self.accompanied(i, each)] for i, side in enumerate(kept)]
        shares = {len(few) / len(every) for few, every in zip(alone, kept, strict=True) if every}
        base, new = kept if len(shares) < 2 else alone
        return base, new

    def unequal(self, sides: tuple[_Processes, _Processes], kept: tuple[_Processes, _Processes]) -> bool:
        """Whether a larger share of one side's processes was left out because the machine was busy."""
        timed = [[each for each in side if not each.smoke] for side in sides]
        return len({len(few) / len(every) for few, every in zip(kept, timed, strict=True) if every}) > 1

    def company(self, sides: tuple[_Processes, _Processes]) -> str:
        """In how many processes of a case the machine was busy."""
        busy = [
            sum(self.disturbed(i, each) or self.accompanied(i, each) for each in side) for i, side in enumerate(sides)
        ]
        return f"in {busy[0]} of {len(sides[0])} processes of base and {busy[1]} of {len(sides[1])} of new"

    def uneven(self, key: CaseKey, base: Cases, new: Cases) -> bool:
        """Whether processes of just one side were disturbed."""
        before, after = (any(self.disturbed(i, each) for each in side[key]) for i, side in enumerate((base, new)))
        return before != after

    def speed(self, key: CaseKey, side: int, observation: Observation) -> float:
        """The factor by which that process was slower than usual, in all cases that drift as this one does."""
        speeds = self._drift_of(key).speed
        return math.exp(speeds[side][observation.process]) if speeds else 1.0

    def in_pairs(self, before: Mapping[int, float], after: Mapping[int, float]) -> list[float]:
        """The difference of each pair, from what each run of base and of new has."""
        return [after[late] - before[early] for early, late in self.pairs if early in before and late in after]

    def hidden_variance(self, key: CaseKey, observations: _Processes) -> float:
        """Variance of the mean of their logarithms by the drift that they don't show: a run's processes share it."""
        count, runs = len(observations), _runs(observations)
        return self.hidden(key) ** 2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)

    def hidden(self, key: CaseKey) -> float:
        """Standard deviation from run to run of a drift that can't be told from a change of this case."""
        return self._drift_of(key).hidden


def _run_means(values: Mapping[_Process, float]) -> dict[int, float]:
    """By run, the mean over its processes."""
    runs: defaultdict[int, list[float]] = defaultdict(list)
    for (run, _), value in values.items():
        runs[run].append(value)
    return {run: mean(each) for run, each in runs.items()}


def _runs(processes: _Processes) -> int:
    return len({each.process[0] for each in processes})


def _processes_per_run(processes: _Processes) -> float:
    """How many one more run would add of this case: a merged file counts the processes of all its parts."""
    return len(processes) / _runs(processes)


def _late(side: Cases) -> dict[_Process, list[float]]:
    late: defaultdict[_Process, list[float]] = defaultdict(list)
    for observations in side.values():
        for each in observations:
            late[each.process].append(each.late)
    return late


def _calm(side: Cases) -> Cases:
    """Without smoke runs, whose rounds are few, and without processes whose threads waited for each other."""
    kept = {key: [each for each in cases if not each.smoke and not each.contended] for key, cases in side.items()}
    return {key: cases for key, cases in kept.items() if cases}


def _drift(keys: Sequence[CaseKey], sides: tuple[Cases, Cases], crowded: bool) -> _Drift:
    """Of cases that drift alike. What all share is a change only if it exceeds any drift, else it is subtracted; on a
    ``crowded`` machine, where other programs used the cores during most processes of a side, any drift is possible."""
    if len(keys) < LEAST_CASES:
        return _Drift(hidden=RUN_DRIFT)
    speeds = _speeds(keys, sides)
    before, after = (median(side.values()) for side in speeds)
    runs = [len({run for run, _ in side}) for side in speeds]
    limit = MOST_DRIFT * RUN_DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1])
    return _Drift(speeds, after - before) if crowded or abs(after - before) <= limit else _Drift()


def _speeds(keys: Sequence[CaseKey], sides: tuple[Cases, Cases]) -> list[dict[_Process, float]]:
    """For each process the median over the cases of the logarithm of its time over the case's usual time."""
    excess: list[defaultdict[_Process, list[float]]] = [defaultdict(list), defaultdict(list)]
    for key in keys:
        usual = sum(median(math.log(each.median_s) for each in side[key]) for side in sides) / 2
        for processes, side in zip(excess, sides, strict=True):
            for each in side[key]:
                processes[each.process].append(math.log(each.median_s) - usual)
    return [{process: median(values) for process, values in side.items()} for side in excess]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ratio`` is new time / base time; ``p`` one-sided, for slower, adjusted over all cases, None without evidence.

    The interval of ``same`` is that of the case alone, at 95 %; any other accounts for all cases of the comparison and
    for drift, and so it excludes 1 where the change is proven. ``base_s`` and ``new_s`` come from the same evidence as
    the ratio, ``processes`` are those of base and new. For an inconclusive case ``reason`` says why, up to a colon in
    the same words for all such cases; ``advice`` what makes it conclusive; ``more`` how many more runs a side, if not
    too many.
    """

    key: CaseKey
    verdict: str
    ratio: Interval
    base_s: float
    new_s: float
    p: float | None
    processes: tuple[int, int]
    reason: str = ""
    advice: str = ""
    more: int | None = None

    @property
    def bounded(self) -> bool:
        """Whether the ratio has an interval."""
        return self.ratio.low > 0 and math.isfinite(self.ratio.high)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A case before the others' p values are known.

    ``measured`` is the change of the times as they are; all ``tests`` must be significant. Both
    are empty for processes whose spread isn't known. ``times`` are those of base and new, ``processes`` count what
    they rest on, and ``runs`` the runs on the side that has fewest. ``unfit`` says why they prove nothing, and
    ``remedy`` what to do; ``shared`` that the case changed as all cases did. ``drift`` is the standard deviation from
    run to run where the processes don't show it, ``spread`` that of what ``noun`` names, NaN where it isn't known.
    ``strict`` are further tests for slower and for faster, where ``busy`` says how unequally the sides were disturbed.
    """

    ratio: Interval
    slower_p: float
    faster_p: float
    spread: float
    times: tuple[float, float]
    processes: tuple[int, int]
    unfit: str = ""
    remedy: str = ""
    shared: bool = False
    runs: int = 0
    drift: float = 0.0
    noun: str = "processes"
    measured: Change | None = None
    tests: tuple[Change, ...] = ()
    strict: tuple[Change, ...] = ()
    busy: str = ""


def judge(base: Cases, new: Cases, threshold: float = THRESHOLD, conditions: Conditions | None = None) -> list[Verdict]:
    """Verdicts on the cases of both sides, in the order of the new."""
    keys = [key for key in new if key in base]
    conditions = conditions or Conditions(base, new)
    evidence = [_evidence(key, (base[key], new[key]), conditions, threshold) for key in keys]
    slower = statistics.benjamini_hochberg([each.slower_p for each in evidence])
    faster = statistics.benjamini_hochberg([each.faster_p for each in evidence])
    tails = tail(slower, FALSE_DISCOVERIES), tail(faster, FALSE_DISCOVERIES)
    verdicts = []
    for key, each, slower_p, faster_p in zip(keys, evidence, slower, faster, strict=True):
        word = decide(each.ratio, slower_p, faster_p, threshold)
        ratio = each.ratio if word == SAME else _agreeing(each, word, tails)
        p = None if math.isnan(each.spread) and word == INCONCLUSIVE else slower_p
        reason, advice, more = each.unfit, each.remedy, None
        if word == INCONCLUSIVE and not each.unfit:
            per_run = min(map(_processes_per_run, (base[key], new[key])))
            reason, advice, more = _explain(each, ratio, threshold, len(keys), per_run)
        words = (reason, advice, more) if word == INCONCLUSIVE else ()
        verdicts.append(Verdict(key, word, ratio, *each.times, p, each.processes, *words))
    return verdicts


def tail(adjusted: Sequence[float], level: float) -> float:
    """The probability that an interval leaves out on one side so that it excludes 1 just where the adjusted p value
    reaches the level: with r discoveries among m cases, r / m of the level, or 1 / m without any.

    Source: Y. Benjamini, D. Yekutieli, J. Am. Stat. Assoc. 100 (2005) 71-81.
    """
    return level * max(1, sum(p <= level for p in adjusted)) / max(1, len(adjusted))


def _agreeing(each: _Evidence, word: str, tails: tuple[float, float]) -> Interval:
    """The interval that says what the verdict says: the estimate and the intervals of all tests lie in it; where
    nothing is proven, that of the measured times too."""
    if each.measured is None:
        return each.ratio
    strict = {SLOWER: each.strict[:1], FASTER: each.strict[1:]}.get(word, (*each.strict, each.measured))
    inside = [change.interval(*tails) for change in (*each.tests, *strict)]
    low, high = min(span.low for span in inside), max(span.high for span in inside)
    return replace(each.ratio, low=min(low, each.ratio.value), high=max(high, each.ratio.value))


def decide(
    ratio: Interval, slower_p: float, faster_p: float, threshold: float, level: float = FALSE_DISCOVERIES
) -> str:
    """A case's verdict from its estimate and the p values adjusted over all cases."""
    if slower_p <= level and ratio.value >= _least_change(threshold):
        return SLOWER
    if faster_p <= level and ratio.value <= 1 / _least_change(threshold):
        return FASTER
    return SAME if 1 / (1 + threshold) < ratio.low and ratio.high < 1 + threshold else INCONCLUSIVE


def percent(share: float) -> str:
    """``5 %`` of 0.05."""
    return f"{100 * share:.2g} %"


def overall(verdicts: Sequence[Verdict]) -> str:
    """The verdict on all cases: slower before inconclusive before faster before same."""
    words = {each.verdict for each in verdicts}
    return next((word for word in (SLOWER, INCONCLUSIVE, FASTER) if word in words), SAME)


def _least_change(threshold: float) -> float:
    """The ratio that reaches the threshold, in spite of rounding: 1.05 / 1 does reach 5 %."""
    return (1 + threshold) * (1 - 1e-9)


def _evidence(
    key: CaseKey, sides: tuple[_Processes, _Processes], conditions: Conditions, threshold: float
) -> _Evidence:
    """From the processes that count; none where fewer than two a side are left of more."""
    base, new = conditions.counting(sides)
    counts = len(base), len(new)
    busy = f"machine busy: {conditions.company(sides)}"
    if min(counts) < min(2, *map(len, sides)):
        if any(each.smoke for side in sides for each in side):
            return _unproven(*sides, (1.0, 1.0), SMOKE_RUN, TRIED_ONLY)
        return _unproven(*sides, (1.0, 1.0), busy, BUSY_IN_TURN if conditions.pairs else BUSY)
    if min(counts) < 2 and sum(counts) < 4:
        return _single_evidence(base, new)
    if conditions.pairs:
        return _paired_evidence(key, (base, new), conditions, threshold)
    evidence = _pooled_evidence(key, (base, new), conditions, threshold)
    if conditions.unequal(sides, (base, new)):
        return _stricter(key, evidence, (base, new), conditions, busy)
    return evidence


def _stricter(
    key: CaseKey, evidence: _Evidence, sides: tuple[_Processes, _Processes], conditions: Conditions, busy: str
) -> _Evidence:
    """Where more processes of one side were disturbed, what disturbed them may have delayed most rounds of the others
    too, but not all. So the fastest rounds of the slower side must be slower than the other side's medians as well."""
    hidden = sum(conditions.hidden_variance(key, side) for side in sides)
    medians, fastest = (
        [[seconds(each) / conditions.speed(key, i, each) for each in side] for i, side in enumerate(sides)]
        for seconds in (attrgetter("median_s"), attrgetter("least_s"))
    )
    slower = statistics.pooled_change(fastest[1], medians[0], LEAST_SPREAD, hidden)
    faster = statistics.pooled_change(medians[1], fastest[0], LEAST_SPREAD, hidden)
    return replace(
        evidence,
        slower_p=max(evidence.slower_p, slower.larger_p()),
        faster_p=max(evidence.faster_p, faster.inverse().larger_p()),
        strict=(slower, faster),
        busy=busy,
    )


def _paired_evidence(
    key: CaseKey, sides: tuple[_Processes, _Processes], conditions: Conditions, threshold: float
) -> _Evidence:
    """From runs of both sides in turn, each the mean of its processes, which share the machine's state.

    With enough cases the change is what this case changed more than all did, plus what all changed from run to run of
    the pairs, if that is proven; with fewer it is that of the pairs' ratios.
    """
    tests, measured = [], []
    for seconds in (attrgetter("median_s"), attrgetter("fast_s")):
        before, after = (
            _run_means({each.process: math.log(seconds(each) / conditions.speed(key, i, each)) for each in side})
            for i, side in enumerate(sides)
        )
        changes = conditions.in_pairs(before, after)
        if len(changes) < 2:
            return _unproven(*sides, (1.0, 1.0), FEW_PAIRS, BUSY_IN_TURN)
        if conditions.common:
            base_s, new_s = ([math.exp(value) for value in side.values()] for side in (before, after))
            apart = statistics.pooled_change(new_s, base_s, LEAST_SPREAD)
            measured.append(apart.plus(conditions.common))
            tests.append(apart if conditions.shared else measured[-1])
        else:
            measured.append(statistics.paired_change(changes, PAIR_SPREAD))
            tests.append(measured[-1])
    ratio, least = measured[0].interval(), _least_change(threshold)
    middle = math.exp(mean(math.log(each.median_s) for side in sides for each in side))
    return _Evidence(
        ratio,
        _worst_p(tests, SLOWER, least),
        _worst_p(tests, FASTER, least),
        measured[0].error * math.sqrt(len(conditions.pairs) / 2),
        (middle / math.sqrt(ratio.value), middle * math.sqrt(ratio.value)),
        (len(sides[0]), len(sides[1])),
        shared=_hides_change(ratio, tests[0], least),
        runs=min(map(_runs, sides)),
        noun="runs",
        measured=measured[0],
        tests=tuple(tests),
    )


def _hides_change(ratio: Interval, test: Change, least: float) -> bool:
    """Whether a case changed enough, but no more than all did."""
    return not 1 / least < ratio.value < least and 1 / least < math.exp(test.log) < least


def _pooled_evidence(
    key: CaseKey, sides: tuple[_Processes, _Processes], conditions: Conditions, threshold: float
) -> _Evidence:
    """The ratio is of measured times; the tests are of times divided by the speed of their process."""
    base, new = sides
    hidden = conditions.hidden_variance(key, base) + conditions.hidden_variance(key, new)
    medians = [[each.median_s for each in side] for side in sides]
    at_usual_speed = [
        [[seconds(each) / conditions.speed(key, i, each) for each in side] for i, side in enumerate(sides)]
        for seconds in (attrgetter("median_s"), attrgetter("fast_s"))
    ]
    tests = tuple(statistics.pooled_change(new_s, base_s, LEAST_SPREAD, hidden) for base_s, new_s in at_usual_speed)
    measured = statistics.pooled_change(medians[1], medians[0], LEAST_SPREAD, hidden)
    ratio, least = measured.interval(), _least_change(threshold)
    return _Evidence(
        ratio,
        _worst_p(tests, SLOWER, least),
        _worst_p(tests, FASTER, least),
        max(statistics.pooled_spread(*medians), LEAST_SPREAD),
        mean_times(base, new),
        (len(base), len(new)),
        shared=_hides_change(ratio, tests[0], least),
        runs=min(map(_runs, sides)),
        drift=conditions.hidden(key) if hidden else 0.0,
        measured=measured,
        tests=tests,
    )


def _worst_p(tests: Sequence[Change], word: str, least: float) -> float:
    """Of all tests, which must all be significant; 1 where the change of the medians is less than the least."""
    changes = tests if word == SLOWER else [test.inverse() for test in tests]
    return max(change.larger_p() for change in changes) if changes[0].log >= math.log(least) else 1.0


def _single_evidence(base: _Processes, new: _Processes) -> _Evidence:
    """From a process or two a side: their noise isn't known, so the largest measured anywhere is assumed, and the
    fastest round of the slower side must be slower than the other side's median."""
    slower = min(each.least_s for each in new) / max(each.median_s for each in base)
    faster = min(each.least_s for each in base) / max(each.median_s for each in new)
    slower_p, faster_p = (statistics.larger_p_of_one(ratio, SINGLE_SPREAD) for ratio in (slower, faster))
    return _unproven(base, new, (slower_p, faster_p))


def _unproven(
    base: _Processes, new: _Processes, ps: tuple[float, float], unfit: str = "", remedy: str = ""
) -> _Evidence:
    """The times of processes whose spread isn't known."""
    times = mean_times(base, new)
    ratio = Interval(times[1] / times[0], 0.0, math.inf, intervals.SPREAD)
    return _Evidence(ratio, *ps, math.nan, times, (len(base), len(new)), unfit, remedy)


def mean_times(base: _Processes, new: _Processes) -> tuple[float, float]:
    """Seconds per call of base and of new: the geometric means of their processes' medians."""
    before, after = (intervals.geometric_mean([each.median_s for each in side]) for side in (base, new))
    return before, after


def _explain(
    each: _Evidence, ratio: Interval, threshold: float, cases: int, per_run: float
) -> tuple[str, str, int | None]:
    """Why a case is inconclusive; how many more runs a side would prove a change as large as the threshold, in words
    and as a number."""
    if each.shared:
        return SHARED, "what all benchmarks share may be drift of the machine: use --interleave", None
    if each.busy and not each.ratio.low <= 1 <= each.ratio.high:
        return each.busy, BUSY, None
    known = not math.isnan(each.spread)
    spread, noun, count = each.spread if known else USUAL_SPREAD, each.noun, min(each.processes)
    reason = doubt(ratio, spread, noun) if known else ONE_PROCESS
    if noun == "runs":
        count, per_run = each.runs, 1.0
    if each.drift:
        if each.drift > spread and ratio.low <= 1 <= ratio.high:
            reason = f"too noisy: that whole runs drifted by about {percent(each.drift)} can't be ruled out"
        spread, noun, count, per_run = math.hypot(spread / math.sqrt(per_run), each.drift), "runs", each.runs, 1.0
    needed = statistics.needed_values(spread, 1 + threshold, FALSE_DISCOVERIES / cases, most=MOST_NEEDED)
    if needed is None:
        return reason, "no number of runs would be conclusive: use a quieter machine or --interleave", None
    more = max(1, math.ceil((needed - count) / per_run))
    text = f"about {counted(more, 'more run')} per side would detect a change of {percent(threshold)}"
    return reason, text if known else f"{text} (assuming {percent(spread)} variation between processes)", more


def doubt(ratio: Interval, spread: float, noun: str) -> str:
    """Why an interval decides nothing."""
    if ratio.low <= 1 <= ratio.high:
        return f"too noisy: {noun} vary by {percent(spread)}"
    return "near the threshold: the interval has smaller and larger changes"
