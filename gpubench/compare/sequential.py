"""Verdicts from pairs of runs measured in turn, looked at while more come in.

The two runs of a pair share what the machine was doing, so their ratio is the observation. Looking again and again
would raise false alarms: each look may spend only its part of the level, which adds up to the whole however many
there are. By a share f of the pairs the part f² is spent (a power family, see K. Kim, D. L. DeMets, Biometrika 74
(1987) 149-154; K. K. G. Lan, D. L. DeMets, Biometrika 70 (1983) 659-663), and parts are added up as if looks were
exclusive, which is safe whatever their dependence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import statistics
from ..statistics import Estimate
from .drift import Conditions
from .samples import Key, Observation
from .verdict import AMBIGUOUS, FASTER, MOST_NEEDED, SLOWER, TRIED_ONLY, Verdict, decide, percent

LEVEL = 0.01
"""Share of false discoveries; pairs afford less of it than runs apart, and still see a slowdown of 10 %."""
LOOKS = (0.3, 0.45, 0.6, 0.8, 1.0)
"""When to look, as shares of the greatest number of pairs."""
_UNCERTAIN = 0.05


def least_pairs(cases: int, share: float = 1.0) -> int:
    """Pairs below which none of so many cases can be proven slower by itself with that share of the level: the exact
    p of n pairs is 2 to the power of -n at least."""
    return math.ceil(math.log2(cases / (LEVEL * share)))


@dataclass(frozen=True, slots=True)
class _Pair:
    base_s: float
    new_s: float
    smoke: bool


class Sequential:
    """Takes pairs; what is proven stays proven."""

    def __init__(self, most: int, threshold: float) -> None:
        self.most, self.threshold = most, threshold
        self.count = 0
        self.looks = sorted({max(1, math.ceil(share * most)) for share in LOOKS})
        self.looked = 0
        """The number of pairs at the latest look."""
        self._pairs: dict[Key, list[_Pair]] = {}
        self._left_out: dict[Key, list[_Pair]] = {}
        self._proven: dict[Key, Verdict] = {}
        self._spent = 0.0

    def add(self, base: Mapping[Key, Sequence[Observation]], new: Mapping[Key, Sequence[Observation]]) -> None:
        """One run of either side; a process each, or the geometric mean of several. A pair of which a neighbour
        disturbed just one is left out, and so is any of a smoke run."""
        self.count += 1
        conditions = Conditions(base, new)
        for key in new:
            if key in base:
                smoke = any(one.smoke for one in (*base[key], *new[key]))
                kept = self._left_out if smoke or conditions.uneven(key, base, new) else self._pairs
                before, after = (statistics.geometric_mean([one.median_s for one in side[key]]) for side in (base, new))
                kept.setdefault(key, []).append(_Pair(before, after, smoke))

    @property
    def cases(self) -> int:
        return len(self._pairs.keys() | self._left_out.keys())

    @property
    def due(self) -> bool:
        """Not where too few pairs were left to prove anything: what such a look would spend is left to the next."""
        pairs = max(map(len, self._pairs.values()), default=0)
        share = (self.count / self.most) ** 2 - self._spent
        return self.count in self.looks and pairs > 0 and pairs >= least_pairs(self.cases, share)

    def look(self, last: bool = False) -> list[Verdict]:
        """Judge what there is. The ``last`` look, when time is up, may spend all that is left."""
        reached = 1.0 if last else min(1.0, self.count / self.most) ** 2
        share, self._spent, self.looked = reached - self._spent, reached, self.count
        differences = {key: [math.log(each.new_s / each.base_s) for each in own] for key, own in self._pairs.items()}
        ps = [
            [statistics.signed_rank_p([sign * value for value in values]) for values in differences.values()]
            for sign in (1, -1)
        ]
        # p values at the level of the whole: this look may use but its share of it
        slower, faster = (
            [min(1.0, p / share) if share > 0 else 1.0 for p in statistics.benjamini_hochberg(side)] for side in ps
        )
        found = []
        for (key, values), worse, better in zip(differences.items(), slower, faster, strict=True):
            verdict = self._judge(key, values, worse, better, share)
            if verdict.verdict in (SLOWER, FASTER):
                self._proven.setdefault(key, verdict)
            found.append(self._proven.get(key, verdict))
        return [*found, *(_unknown(key, pairs) for key, pairs in self._left_out.items() if key not in self._pairs)]

    def _judge(self, key: Key, values: Sequence[float], worse: float, better: float, share: float) -> Verdict:
        ratio = statistics.paired_ratio(values, 1 - _UNCERTAIN * share)
        word = decide(ratio, worse, better, self.threshold, LEVEL)
        base_s, new_s = _typical(self._pairs[key], ratio.value)
        more = self._more(values) if word == AMBIGUOUS else None
        if word != AMBIGUOUS:
            advice = ""
        elif more is None:
            advice = f"more than {MOST_NEEDED} pairs would resolve {percent(self.threshold)}: use a quieter machine"
        else:
            advice = f"{more} more {'pair' if more == 1 else 'pairs'} would resolve {percent(self.threshold)}"
        count = len(values)
        return Verdict(key, word, ratio, base_s, new_s, worse, (count, count), advice, more)

    def _more(self, values: Sequence[float]) -> int | None:
        """From how far the pairs scatter, outliers aside: 1.4826 median absolute deviations are a standard one."""
        spread = 1.4826 * float(np.median(np.abs(np.asarray(values) - np.median(values))))
        level = LEVEL * (1 - LOOKS[-2] ** 2) / len(self._pairs)
        needed = statistics.needed_values(max(spread, 1e-6) / math.sqrt(2), 1 + self.threshold, level, most=MOST_NEEDED)
        return None if needed is None else max(1, max(needed, least_pairs(self.cases)) - len(values))


def _typical(pairs: Sequence[_Pair], ratio: float) -> tuple[float, float]:
    """Seconds of either side: the median pair's, set apart by the ratio. Each side's own mean would contradict it, as
    one pair that something held up moves a mean and not the estimate."""
    middle = float(np.median([math.sqrt(pair.base_s * pair.new_s) for pair in pairs]))
    return middle / math.sqrt(ratio), middle * math.sqrt(ratio)


def _unknown(key: Key, pairs: Sequence[_Pair]) -> Verdict:
    """Of a case all of whose pairs were left out."""
    ratio = Estimate(float(np.median([pair.new_s / pair.base_s for pair in pairs])), 0.0, math.inf, statistics.SPREAD)
    base_s, new_s = _typical(pairs, ratio.value)
    busy = "something else ran beside just one side of each pair: use fewer --threads, or a quieter machine"
    advice = TRIED_ONLY if any(pair.smoke for pair in pairs) else busy
    return Verdict(key, AMBIGUOUS, ratio, base_s, new_s, None, (0, 0), advice)
