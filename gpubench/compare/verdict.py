"""Faster, slower, same or ambiguous: one verdict a case, false alarms controlled over them all.

A process is one observation, its logarithm what is compared. ``slower`` takes two things: the slowdown is proven
against no change at all, and its estimate reaches the threshold. Proven means that both the medians and the fastest
tenths of the rounds differ: a neighbour delays many rounds, a change of the code delays every one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .. import statistics
from ..statistics import Estimate
from .drift import Conditions
from .samples import Key, Observation

Processes = Sequence[Observation]
FASTER, SLOWER, SAME, AMBIGUOUS = "faster", "slower", "same", "ambiguous"
THRESHOLD = 0.05
LEVEL = 0.025
"""Share of false discoveries: of unchanged code one comparison in forty may say slower."""
LEAST_SPREAD = 0.003
"""No two processes are taken to agree better than that, the least seen of any case: chance may have it so."""
SPREAD_OF_ONE = 0.25
"""Spread taken for a single process a side: what the worst case's medians differed by between 24 idle processes."""
TYPICAL_SPREAD = 0.03
"""What most cases' processes differ by on an idle machine: for advice where nothing is observed, not for verdicts."""
MOST_NEEDED = 100
TRIED_ONLY = "a smoke run takes too few rounds to prove anything: measure with the quick preset"
BUSY = "the machine was busy with something else: measure again, use fewer --threads, or --interleave"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ratio`` is new time / base time; ``p`` one-sided, for slower, adjusted over the suite, None without evidence.

    ``base_s`` and ``new_s`` come from the same evidence as the ratio. ``processes`` are those of base and new,
    ``advice`` says what would settle an ambiguous case, ``more`` how many more runs a side it takes; None where that
    is too many.
    """

    key: Key
    verdict: str
    ratio: Estimate
    base_s: float
    new_s: float
    p: float | None
    processes: tuple[int, int]
    advice: str = ""
    more: int | None = None


@dataclass(frozen=True, slots=True)
class _Evidence:
    """One case before it is known what the others say; ``ratio.low`` and ``high`` are endless without evidence.

    ``times`` are those of base and new, ``used`` the processes of either side that it rests on, of so many ``runs``;
    ``unfit`` says what keeps too many of them from counting for any proof, ``alike`` that it would be a change if the
    other cases hadn't changed as much. ``drift`` is that from run to run if the processes don't show it.
    """

    ratio: Estimate
    slower_p: float
    faster_p: float
    spread: float
    times: tuple[float, float]
    used: tuple[int, int] = (0, 0)
    unfit: str = ""
    alike: bool = False
    runs: tuple[int, int] = (0, 0)
    drift: float = 0.0


def judge(
    base: Mapping[Key, Sequence[Observation]],
    new: Mapping[Key, Sequence[Observation]],
    threshold: float = THRESHOLD,
    per_run: float = 1.0,
    conditions: Conditions | None = None,
) -> list[Verdict]:
    """Cases of both sides, in the order of the new. ``per_run`` processes are what one more run would add."""
    keys = [key for key in new if key in base]
    conditions = conditions or Conditions(base, new)
    evidence = [_evidence((base[key], new[key]), conditions, threshold) for key in keys]
    slower = statistics.benjamini_hochberg([each.slower_p for each in evidence])
    faster = statistics.benjamini_hochberg([each.faster_p for each in evidence])
    found = []
    for key, each, worse, better in zip(keys, evidence, slower, faster, strict=True):
        word = decide(each.ratio, worse, better, threshold)
        p = None if math.isnan(each.spread) and word == AMBIGUOUS else worse
        more, advice = None, each.unfit
        if word == AMBIGUOUS and each.alike:
            advice = "it changed as all cases did, which may be the machine's drift: --interleave would tell"
        elif word == AMBIGUOUS and not each.unfit:
            more, advice = _advice(each, threshold, len(keys), per_run)
        found.append(Verdict(key, word, each.ratio, *each.times, p, each.used, advice, more))
    return found


def decide(ratio: Estimate, slower_p: float, faster_p: float, threshold: float, level: float = LEVEL) -> str:
    """One case's word from its estimate and the p values adjusted over the suite."""
    # A threshold is a decimal: a slowdown of exactly 5 % reaches it, whatever the last bit says.
    most = (1 + threshold) * (1 - 1e-9)
    if slower_p <= level and ratio.value >= most:
        return SLOWER
    if faster_p <= level and ratio.value <= 1 / most:
        return FASTER
    return SAME if 1 / (1 + threshold) < ratio.low and ratio.high < 1 + threshold else AMBIGUOUS


def _evidence(sides: tuple[Processes, Processes], conditions: Conditions, threshold: float) -> _Evidence:
    """From the processes that count; where that leaves less than two a side, or than the one there was, no proof."""
    base, new = ([one for one in side if conditions.counts(i, one)] for i, side in enumerate(sides))
    counts = len(base), len(new)
    if min(counts) < min(2, *map(len, sides)):
        return _weigh_nothing(*sides)
    if min(counts) < 2 and sum(counts) < 4:
        return replace(_weigh_one(base, new), used=counts)
    return replace(_weigh(base, new, conditions, threshold), used=counts)


def _weigh(base: Processes, new: Processes, conditions: Conditions, threshold: float) -> _Evidence:
    """The ratio is that of the times as they were; the tests are of times with the process's own speed taken off."""
    speeds = [[conditions.speed(i, one) for one in side] for i, side in enumerate((base, new))]
    hidden = conditions.hidden(base) + conditions.hidden(new)
    medians = [[one.median_s for one in side] for side in (base, new)]
    fast = [[one.fast_s for one in side] for side in (base, new)]
    apart, apart_fast = (
        [[time / speed for time, speed in zip(*pair, strict=True)] for pair in zip(times, speeds, strict=True)]
        for times in (medians, fast)
    )
    slower, faster = (
        max(statistics.larger_p(pair[i], pair[1 - i], LEAST_SPREAD, hidden) for pair in (apart, apart_fast))
        for i in (1, 0)
    )
    alone = statistics.geometric_mean(apart[1]) / statistics.geometric_mean(apart[0])
    most = (1 + threshold) * (1 - 1e-9)
    ratio = statistics.pooled_ratio(medians[1], medians[0], least=LEAST_SPREAD, shared=hidden)
    spread = max(statistics.pooled_spread(*medians), LEAST_SPREAD)
    alike = not 1 / most < ratio.value < most and 1 / most < alone < most
    return _Evidence(
        ratio,
        slower if alone >= most else 1.0,
        faster if alone <= 1 / most else 1.0,
        spread,
        _times(base, new),
        alike=alike,
        runs=(_runs(base), _runs(new)),
        drift=conditions.drift if hidden else 0.0,
    )


def _runs(processes: Processes) -> int:
    return len({one.process[0] for one in processes})


def _weigh_one(base: Processes, new: Processes) -> _Evidence:
    """A process or two: their noise isn't known, so it is taken to be as bad as it was ever seen, and the fastest
    round of the slower side must still be slower than the other's median."""
    slower = min(one.least_s for one in new) / max(one.median_s for one in base)
    faster = min(one.least_s for one in base) / max(one.median_s for one in new)
    ps = [statistics.larger_p_of_one(ratio, SPREAD_OF_ONE) for ratio in (slower, faster)]
    times = _times(base, new)
    return _Evidence(_unbounded(times), ps[0], ps[1], math.nan, times)


def _weigh_nothing(base: Processes, new: Processes) -> _Evidence:
    """What was seen, by processes that prove nothing."""
    times = _times(base, new)
    why = TRIED_ONLY if any(one.smoke for one in (*base, *new)) else BUSY
    return _Evidence(_unbounded(times), 1.0, 1.0, math.nan, times, (len(base), len(new)), why)


def _times(base: Processes, new: Processes) -> tuple[float, float]:
    before, after = (statistics.geometric_mean([one.median_s for one in side]) for side in (base, new))
    return before, after


def _unbounded(times: tuple[float, float]) -> Estimate:
    return Estimate(times[1] / times[0], 0.0, math.inf, statistics.SPREAD)


def _advice(each: _Evidence, threshold: float, cases: int, per_run: float) -> tuple[int | None, str]:
    """How many more runs a side would tell a change as large as the threshold from none."""
    known = not math.isnan(each.spread)
    spread, what, counts = each.spread if known else TYPICAL_SPREAD, "processes", each.used
    if each.drift:
        spread, what, counts, per_run = math.hypot(spread / math.sqrt(per_run), each.drift), "runs", each.runs, 1.0
    needed = statistics.needed_values(spread, 1 + threshold, LEVEL / cases, most=MOST_NEEDED)
    if needed is None:
        return None, f"{what} differ by {percent(spread)}: a quieter machine or --interleave would resolve more"
    more = max(1, math.ceil((needed - min(counts)) / per_run))
    text = f"{more} more {'run' if more == 1 else 'runs'} a side would resolve {percent(threshold)}"
    return more, text if known else f"{text}, if its processes differ by {percent(spread)} as is usual"


def percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def overall(verdicts: Sequence[Verdict]) -> str:
    """One word for all: the worst that is proven, else what isn't known, else the best."""
    words = {each.verdict for each in verdicts}
    return next((word for word in (SLOWER, AMBIGUOUS, FASTER) if word in words), SAME)
