"""Verdicts from interleaved pairs of runs, judged repeatedly while more pairs come in.

The two runs of a pair share the machine's state, so their ratio is the observation. Judging repeatedly would raise
false alarms, so each look spends a part of the level, and the parts add up to the level. After a share f of the pairs
the part f² is spent (a power family: K. Kim, D. L. DeMets, Biometrika 74 (1987) 149-154; K. K. G. Lan, D. L. DeMets,
Biometrika 70 (1983) 659-663). Parts are added up as if looks were exclusive, which is safe for dependent looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import statistics
from ..statistics import Interval
from .drift import Conditions
from .samples import CaseKey, Observation
from .verdict import FASTER, INCONCLUSIVE, MOST_NEEDED, SLOWER, TRIED_ONLY, Verdict, decide, percent

PAIRED_FALSE_DISCOVERIES = 0.01
"""The false discovery rate; lower than for separate runs, since pairs still show a slowdown of 10 %."""
LOOKS = (0.3, 0.45, 0.6, 0.8, 1.0)
"""When to judge, as shares of the greatest number of pairs."""
_UNCERTAIN = 0.05


def least_pairs(cases: int, share: float = 1.0) -> int:
    """Pairs below which a slowdown of one in so many cases can't be proven with that share of the level: the exact p
    of n pairs is at least 2 to the power of -n."""
    return math.ceil(math.log2(cases / (PAIRED_FALSE_DISCOVERIES * share)))


@dataclass(frozen=True, slots=True)
class _Pair:
    base_s: float
    new_s: float
    smoke: bool

    @property
    def change(self) -> float:
        return math.log(self.new_s / self.base_s)


class Sequential:
    """Collects up to ``most`` pairs; a change that is proven once stays proven."""

    def __init__(self, most: int, threshold: float) -> None:
        self.most, self.threshold = most, threshold
        self.count = 0
        self.looks = sorted({max(1, math.ceil(share * most)) for share in LOOKS})
        self.looked = 0
        """The number of pairs at the latest look."""
        self._pairs: dict[CaseKey, list[_Pair]] = {}
        self._left_out: dict[CaseKey, list[_Pair]] = {}
        self._proven: dict[CaseKey, Verdict] = {}
        self._spent = 0.0

    def add(self, base: Mapping[CaseKey, Sequence[Observation]], new: Mapping[CaseKey, Sequence[Observation]]) -> None:
        """A run of each side, of one process or several. A pair is left out if a neighbour disturbed just one side,
        or if it is of a smoke run."""
        self.count += 1
        conditions = Conditions(base, new)
        for key in new:
            if key in base:
                smoke = any(each.smoke for each in (*base[key], *new[key]))
                kept = self._left_out if smoke or conditions.uneven(key, base, new) else self._pairs
                before, after = (
                    statistics.geometric_mean([each.median_s for each in side[key]]) for side in (base, new)
                )
                kept.setdefault(key, []).append(_Pair(before, after, smoke))

    @property
    def cases(self) -> int:
        """How many cases any pair measured."""
        return len(self._pairs.keys() | self._left_out.keys())

    @property
    def due(self) -> bool:
        """Whether to judge now. A look that too few pairs are left for is skipped, and the next one spends its part."""
        pairs = max(map(len, self._pairs.values()), default=0)
        share = (self.count / self.most) ** 2 - self._spent
        return self.count in self.looks and pairs > 0 and pairs >= least_pairs(self.cases, share)

    def look(self, last: bool = False) -> list[Verdict]:
        """Judge the pairs so far. The ``last`` look, when time is up, spends all that is left of the level."""
        reached = 1.0 if last else min(1.0, self.count / self.most) ** 2
        share, self._spent, self.looked = reached - self._spent, reached, self.count
        differences = {key: [each.change for each in pairs] for key, pairs in self._pairs.items()}
        slower, faster = (self._adjusted(differences.values(), sign, share) for sign in (1, -1))
        verdicts = []
        for (key, values), slower_p, faster_p in zip(differences.items(), slower, faster, strict=True):
            verdict = self._judge(key, values, slower_p, faster_p, share)
            if verdict.verdict in (SLOWER, FASTER):
                self._proven.setdefault(key, verdict)
            verdicts.append(self._proven.get(key, verdict))
        return [*verdicts, *(_unknown(key, pairs) for key, pairs in self._left_out.items() if key not in self._pairs)]

    @staticmethod
    def _adjusted(differences: Iterable[Sequence[float]], sign: int, share: float) -> list[float]:
        """p values to be held against the whole level, of which this look may spend a share."""
        ps = [statistics.signed_rank_p([sign * value for value in values]) for values in differences]
        return [min(1.0, p / share) if share > 0 else 1.0 for p in statistics.benjamini_hochberg(ps)]

    def _judge(self, key: CaseKey, values: Sequence[float], slower_p: float, faster_p: float, share: float) -> Verdict:
        ratio = statistics.paired_ratio(values, 1 - _UNCERTAIN * share)
        word = decide(ratio, slower_p, faster_p, self.threshold, PAIRED_FALSE_DISCOVERIES)
        more, advice = self._advice(values) if word == INCONCLUSIVE else (None, "")
        times, count = _median_times(self._pairs[key], ratio.value), len(values)
        return Verdict(key, word, ratio, *times, slower_p, (count, count), advice, more)

    def _advice(self, values: Sequence[float]) -> tuple[int | None, str]:
        """How many more pairs would tell, from their spread: 1.4826 median absolute deviations, a robust standard
        deviation."""
        spread = 1.4826 * float(np.median(np.abs(np.asarray(values) - np.median(values))))
        level = PAIRED_FALSE_DISCOVERIES * (1 - LOOKS[-2] ** 2) / len(self._pairs)
        needed = statistics.needed_values(max(spread, 1e-6) / math.sqrt(2), 1 + self.threshold, level, most=MOST_NEEDED)
        detected = f"would detect a change of {percent(self.threshold)}"
        if needed is None:
            return None, f"only more than {MOST_NEEDED} pairs {detected}: use a quieter machine"
        more = max(1, max(needed, least_pairs(self.cases)) - len(values))
        return more, f"about {more} more {'pair' if more == 1 else 'pairs'} {detected}"


def _median_times(pairs: Sequence[_Pair], ratio: float) -> tuple[float, float]:
    """Seconds of base and new: the median pair's, split by the ratio. The means of the sides could contradict the
    ratio, since one delayed pair moves a mean but not the estimate."""
    middle = float(np.median([math.sqrt(pair.base_s * pair.new_s) for pair in pairs]))
    return middle / math.sqrt(ratio), middle * math.sqrt(ratio)


def _unknown(key: CaseKey, pairs: Sequence[_Pair]) -> Verdict:
    """Of a case all of whose pairs were left out."""
    ratio = Interval(float(np.median([pair.new_s / pair.base_s for pair in pairs])), 0.0, math.inf, statistics.SPREAD)
    busy = "other work disturbed one side of every pair: use fewer --threads, or a quieter machine"
    advice = TRIED_ONLY if any(pair.smoke for pair in pairs) else busy
    return Verdict(key, INCONCLUSIVE, ratio, *_median_times(pairs, ratio.value), None, (0, 0), advice)
