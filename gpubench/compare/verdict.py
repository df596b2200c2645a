"""Faster, slower, same or inconclusive: a verdict for each case, with false alarms controlled over all cases.

A process is one observation, and logarithms of times are compared. ``slower`` takes two things: the slowdown is proven
against no change at all, and its estimate reaches the threshold. Proven means that the medians differ and the fastest
tenths of the rounds differ too: a busy neighbour delays many rounds, a change of the code delays all of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

from .. import statistics
from ..format import counted
from ..statistics import Interval
from .samples import CaseKey, Cases, Observation

FASTER, SLOWER, SAME, INCONCLUSIVE = "faster", "slower", "same", "inconclusive"
THRESHOLD = 0.05
FALSE_DISCOVERIES = 0.025
"""The false discovery rate: one comparison of unchanged code in forty may say slower."""
LEAST_SPREAD = 0.003
"""Lower bound on the spread between processes; the smallest measured in any case."""
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
TRIED_ONLY = "smoke runs take too few rounds to prove anything: use --preset quick"
BUSY = "the machine was busy: measure again, use fewer --threads, or use --interleave"

_Processes = Sequence[Observation]
_Process = tuple[int, int]


class Conditions:
    """What the machine did to each process: delayed its rounds, or ran slower than at other times. Sides are 0 for base
    and 1 for new; ``moved`` means that they are different machines."""

    def __init__(self, base: Cases, new: Cases, moved: bool = False) -> None:
        self._late = [_late(side) for side in (base, new)]
        base, new = _calm(base), _calm(new)
        keys = [key for key in new if key in base]
        self._speed: list[dict[_Process, float]] = []
        """Logarithms by side and process; empty where no drift is subtracted."""
        self.shared = 0.0
        """Logarithm of the drift that all cases share between the sides."""
        self.drift = 0.0
        """Standard deviation from run to run of a drift that can't be told from a change of a case."""
        if moved or len(keys) < LEAST_CASES:
            self.drift = RUN_DRIFT
            return
        speeds = _speeds(keys, (base, new))
        shared = [median(side.values()) for side in speeds]
        runs = [len({run for run, _ in side}) for side in speeds]
        # A change that all cases share is a change only if it exceeds any drift; otherwise it is subtracted.
        if abs(shared[1] - shared[0]) <= MOST_DRIFT * RUN_DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1]):
            self._speed, self.shared = speeds, shared[1] - shared[0]

    def disturbed(self, side: int, observation: Observation) -> bool:
        """By the thread canary, or by delayed rounds of all other cases: a case that became bimodal doesn't show a
        busy machine. A case's flags don't count: work on another core raises them without delaying anything."""
        late = self._late[side][observation.process]
        others = (sum(late) - observation.late) / (len(late) - 1) if len(late) > 1 else 0.0
        return observation.contended or others > DISTURBED

    def uneven(self, key: CaseKey, base: Cases, new: Cases) -> bool:
        """Whether processes of just one side were disturbed."""
        before, after = (any(self.disturbed(i, each) for each in side[key]) for i, side in enumerate((base, new)))
        return before != after

    def speed(self, side: int, observation: Observation) -> float:
        """The factor by which that process was slower than usual in all cases."""
        return math.exp(self._speed[side][observation.process]) if self._speed else 1.0

    def hidden_variance(self, observations: _Processes) -> float:
        """Variance of the mean of their logarithms by the drift that they don't show: a run's processes share it."""
        count, runs = len(observations), _runs(observations)
        return self.drift**2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)


def _runs(processes: _Processes) -> int:
    return len({each.process[0] for each in processes})


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

    ``base_s`` and ``new_s`` come from the same evidence as the ratio, ``processes`` are those of base and new. For an
    inconclusive case ``advice`` says what makes it conclusive, and ``more`` how many more runs a side, if not too many.
    """

    key: CaseKey
    verdict: str
    ratio: Interval
    base_s: float
    new_s: float
    p: float | None
    processes: tuple[int, int]
    advice: str = ""
    more: int | None = None

    @property
    def bounded(self) -> bool:
        """Whether the ratio has an interval."""
        return self.ratio.low > 0 and math.isfinite(self.ratio.high)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A case before the others' p values are known.

    ``times`` are those of base and new, ``processes`` count what they rest on, and ``runs`` the runs on the side that
    has fewest. ``unfit`` says why they prove nothing; ``shared`` that the case changed as all cases did. ``drift`` is
    the standard deviation from run to run where the processes don't show it, ``spread`` NaN where it isn't known.
    """

    ratio: Interval
    slower_p: float
    faster_p: float
    spread: float
    times: tuple[float, float]
    processes: tuple[int, int]
    unfit: str = ""
    shared: bool = False
    runs: int = 0
    drift: float = 0.0


def judge(
    base: Cases, new: Cases, threshold: float = THRESHOLD, per_run: float = 1.0, conditions: Conditions | None = None
) -> list[Verdict]:
    """Verdicts on the cases of both sides, in the order of the new. One more run would add ``per_run`` processes."""
    keys = [key for key in new if key in base]
    conditions = conditions or Conditions(base, new)
    evidence = [_evidence((base[key], new[key]), conditions, threshold) for key in keys]
    slower = statistics.benjamini_hochberg([each.slower_p for each in evidence])
    faster = statistics.benjamini_hochberg([each.faster_p for each in evidence])
    verdicts = []
    for key, each, slower_p, faster_p in zip(keys, evidence, slower, faster, strict=True):
        word = decide(each.ratio, slower_p, faster_p, threshold)
        p = None if math.isnan(each.spread) and word == INCONCLUSIVE else slower_p
        more, advice = None, each.unfit
        if word == INCONCLUSIVE and each.shared:
            advice = "all benchmarks changed alike, which may be drift of the machine: use --interleave"
        elif word == INCONCLUSIVE and not each.unfit:
            more, advice = _advice(each, threshold, len(keys), per_run)
        verdicts.append(Verdict(key, word, each.ratio, *each.times, p, each.processes, advice, more))
    return verdicts


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


def _evidence(sides: tuple[_Processes, _Processes], conditions: Conditions, threshold: float) -> _Evidence:
    """From the processes that count; none where fewer than two a side are left of more."""
    disturbed = conditions.disturbed
    base, new = ([each for each in side if not each.smoke and not disturbed(i, each)] for i, side in enumerate(sides))
    counts = len(base), len(new)
    if min(counts) < min(2, *map(len, sides)):
        reason = TRIED_ONLY if any(each.smoke for side in sides for each in side) else BUSY
        return _unproven(*sides, (1.0, 1.0), reason)
    if min(counts) < 2 and sum(counts) < 4:
        return _single_evidence(base, new)
    return _pooled_evidence(base, new, conditions, threshold)


def _pooled_evidence(base: _Processes, new: _Processes, conditions: Conditions, threshold: float) -> _Evidence:
    """The ratio is of measured times; the tests are of times divided by the speed of their process."""
    sides = (base, new)
    hidden = conditions.hidden_variance(base) + conditions.hidden_variance(new)
    medians = [[each.median_s for each in side] for side in sides]
    at_usual_speed = [
        [[seconds(each) / conditions.speed(i, each) for each in side] for i, side in enumerate(sides)]
        for seconds in (attrgetter("median_s"), attrgetter("fast_s"))
    ]
    slower_p, faster_p = (
        max(statistics.larger_p(pair[i], pair[1 - i], LEAST_SPREAD, hidden) for pair in at_usual_speed) for i in (1, 0)
    )
    before, after = map(statistics.geometric_mean, at_usual_speed[0])
    change, least = after / before, _least_change(threshold)
    ratio = statistics.pooled_ratio(medians[1], medians[0], least=LEAST_SPREAD, shared=hidden)
    return _Evidence(
        ratio,
        slower_p if change >= least else 1.0,
        faster_p if change <= 1 / least else 1.0,
        max(statistics.pooled_spread(*medians), LEAST_SPREAD),
        mean_times(base, new),
        (len(base), len(new)),
        shared=not 1 / least < ratio.value < least and 1 / least < change < least,
        runs=min(map(_runs, sides)),
        drift=conditions.drift if hidden else 0.0,
    )


def _single_evidence(base: _Processes, new: _Processes) -> _Evidence:
    """From a process or two a side: their noise isn't known, so the largest measured anywhere is assumed, and the
    fastest round of the slower side must be slower than the other side's median."""
    slower = min(each.least_s for each in new) / max(each.median_s for each in base)
    faster = min(each.least_s for each in base) / max(each.median_s for each in new)
    slower_p, faster_p = (statistics.larger_p_of_one(ratio, SINGLE_SPREAD) for ratio in (slower, faster))
    return _unproven(base, new, (slower_p, faster_p))


def _unproven(base: _Processes, new: _Processes, ps: tuple[float, float], unfit: str = "") -> _Evidence:
    """The times of processes whose spread isn't known."""
    times = mean_times(base, new)
    ratio = Interval(times[1] / times[0], 0.0, math.inf, statistics.SPREAD)
    return _Evidence(ratio, *ps, math.nan, times, (len(base), len(new)), unfit)


def mean_times(base: _Processes, new: _Processes) -> tuple[float, float]:
    """Seconds per call of base and of new: the geometric means of their processes' medians."""
    before, after = (statistics.geometric_mean([each.median_s for each in side]) for side in (base, new))
    return before, after


def _advice(each: _Evidence, threshold: float, cases: int, per_run: float) -> tuple[int | None, str]:
    """How many more runs a side would prove a change as large as the threshold."""
    known = not math.isnan(each.spread)
    spread, noun, count = each.spread if known else USUAL_SPREAD, "processes", min(each.processes)
    if each.drift:
        spread, noun, count, per_run = math.hypot(spread / math.sqrt(per_run), each.drift), "runs", each.runs, 1.0
    needed = statistics.needed_values(spread, 1 + threshold, FALSE_DISCOVERIES / cases, most=MOST_NEEDED)
    if needed is None:
        return None, f"{noun} vary by {percent(spread)}: use a quieter machine or --interleave"
    more = max(1, math.ceil((needed - count) / per_run))
    text = f"about {counted(more, 'more run')} per side would detect a change of {percent(threshold)}"
    return more, text if known else f"{text} (assuming {percent(spread)} variation between processes)"
