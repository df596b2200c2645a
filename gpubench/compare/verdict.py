"""Faster, slower, same or inconclusive: a verdict for each case, with false alarms controlled over all cases.

A process is one observation, and logarithms of times are compared. ``slower`` takes two things: the slowdown is proven
against no change at all, and its estimate reaches the threshold. Proven means that the medians differ and the fastest
tenths of the rounds differ too: a busy neighbour delays many rounds, a change of the code delays all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .. import statistics
from ..statistics import Interval
from .drift import Conditions
from .samples import CaseKey, Observation

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
TRIED_ONLY = "smoke runs take too few rounds to prove anything: use --preset quick"
BUSY = "the machine was busy: measure again, use fewer --threads, or use --interleave"
_Processes = Sequence[Observation]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ratio`` is new time / base time; ``p`` one-sided, for slower, adjusted over all cases, None without evidence.

    ``base_s`` and ``new_s`` come from the same evidence as the ratio, ``processes`` are those of base and new. For an
    inconclusive case ``advice`` says what makes it conclusive, and ``more`` how many more runs per side; None if too
    many.
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

    ``times`` are those of base and new, ``processes`` and ``runs`` count what they rest on. ``unfit`` says why they
    prove nothing; ``shared`` that the case changed as all cases did. ``drift`` is the standard deviation from run to
    run where the processes don't show it, ``spread`` NaN where it isn't known.
    """

    ratio: Interval
    slower_p: float
    faster_p: float
    spread: float
    times: tuple[float, float]
    processes: tuple[int, int] = (0, 0)
    unfit: str = ""
    shared: bool = False
    runs: tuple[int, int] = (0, 0)
    drift: float = 0.0


def judge(
    base: Mapping[CaseKey, _Processes],
    new: Mapping[CaseKey, _Processes],
    threshold: float = THRESHOLD,
    per_run: float = 1.0,
    conditions: Conditions | None = None,
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
    base, new = ([each for each in side if conditions.counts(i, each)] for i, side in enumerate(sides))
    counts = len(base), len(new)
    if min(counts) < min(2, *map(len, sides)):
        return _no_evidence(*sides)
    if min(counts) < 2 and sum(counts) < 4:
        return replace(_single_evidence(base, new), processes=counts)
    return replace(_pooled_evidence(base, new, conditions, threshold), processes=counts)


def _pooled_evidence(base: _Processes, new: _Processes, conditions: Conditions, threshold: float) -> _Evidence:
    """The ratio is of measured times; the tests are of times divided by the speed of their process."""
    sides = (base, new)
    speeds = [[conditions.speed(i, each) for each in side] for i, side in enumerate(sides)]
    hidden = conditions.hidden_variance(base) + conditions.hidden_variance(new)
    medians = [[each.median_s for each in side] for side in sides]
    fast = [[each.fast_s for each in side] for side in sides]
    at_usual_speed = [
        [[time / speed for time, speed in zip(*pair, strict=True)] for pair in zip(times, speeds, strict=True)]
        for times in (medians, fast)
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
        _times(base, new),
        shared=not 1 / least < ratio.value < least and 1 / least < change < least,
        runs=(_runs(base), _runs(new)),
        drift=conditions.drift if hidden else 0.0,
    )


def _runs(processes: _Processes) -> int:
    return len({each.process[0] for each in processes})


def _single_evidence(base: _Processes, new: _Processes) -> _Evidence:
    """From a process or two a side: their noise isn't known, so the largest measured anywhere is assumed, and the
    fastest round of the slower side must be slower than the other side's median."""
    slower = min(each.least_s for each in new) / max(each.median_s for each in base)
    faster = min(each.least_s for each in base) / max(each.median_s for each in new)
    ps = [statistics.larger_p_of_one(ratio, SINGLE_SPREAD) for ratio in (slower, faster)]
    times = _times(base, new)
    return _Evidence(_unbounded(times), ps[0], ps[1], math.nan, times)


def _no_evidence(base: _Processes, new: _Processes) -> _Evidence:
    """The times of processes that prove nothing."""
    times = _times(base, new)
    reason = TRIED_ONLY if any(each.smoke for each in (*base, *new)) else BUSY
    return _Evidence(_unbounded(times), 1.0, 1.0, math.nan, times, (len(base), len(new)), reason)


def _times(base: _Processes, new: _Processes) -> tuple[float, float]:
    before, after = (statistics.geometric_mean([each.median_s for each in side]) for side in (base, new))
    return before, after


def _unbounded(times: tuple[float, float]) -> Interval:
    return Interval(times[1] / times[0], 0.0, math.inf, statistics.SPREAD)


def _advice(each: _Evidence, threshold: float, cases: int, per_run: float) -> tuple[int | None, str]:
    """How many more runs a side would prove a change as large as the threshold."""
    known = not math.isnan(each.spread)
    spread, noun, counts = each.spread if known else USUAL_SPREAD, "processes", each.processes
    if each.drift:
        spread, noun, counts, per_run = math.hypot(spread / math.sqrt(per_run), each.drift), "runs", each.runs, 1.0
    needed = statistics.needed_values(spread, 1 + threshold, FALSE_DISCOVERIES / cases, most=MOST_NEEDED)
    if needed is None:
        return None, f"{noun} vary by {percent(spread)}: use a quieter machine or --interleave"
    more = max(1, math.ceil((needed - min(counts)) / per_run))
    text = f"about {more} more {'run' if more == 1 else 'runs'} per side would detect a change of {percent(threshold)}"
    return more, text if known else f"{text} (assuming {percent(spread)} variation between processes)"
