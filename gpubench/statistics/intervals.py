"""Medians and ratios of positive quantities with their intervals, in plain Python, so that results can be shown without
NumPy.

Times are compared as ratios, so everything works on logarithms: twice as long and half as long have the same weight.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

INTERVAL = "95% interval"
SPREAD = "within-process spread"
CONFIDENCE = 0.95
WIDEST = 150.0
"""Largest distance of an interval's ends from its value, in logarithms: a wider one means the same, and charts end
there."""
_WIDER = {2: 1.0, 3: 1.026, 4: 1.03, 5: 1.09}
"""Factor by which Student's interval must be wider around the median of this many normal values to cover 95 %, from
4,000,000 samples each, to within 0.003. The median of two values is their mean."""
_QUANTILES = (12.706204736174694, 4.302652729749462, 3.1824463052837078, 2.7764451051977934)
"""Two-sided quantiles of Student's t at CONFIDENCE for 1 to 4 degrees of freedom, for :func:`median_interval`; a
test compares them with SciPy's."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its range; a ``kind`` of INTERVAL covers the true value, SPREAD only the samples."""

    value: float
    low: float
    high: float
    kind: str


def median(values: Sequence[float]) -> float:
    """Return the median. For an even number of values it is the geometric mean of the middle two, since values are
    compared as ratios. A single value is returned unchanged, to the last digit."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else statistics.geometric_mean(ordered[half - 1 : half + 1])


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of two or more independent values with a 95 % interval, which a single outlier can't distort.

    From six values on, the interval is the sign test's, between two of the values themselves, which assumes
    nothing about their distribution (W. R. Thompson, Ann. Math. Statist. 7 (1936) 122-128). Fewer values don't reach 95
    % that way: three cover 75 % from the least to the greatest. Their interval is Student's t interval on the
    logarithms around the median, as wide as the median requires (:data:`_WIDER`). Raises ValueError for fewer than two
    values.
    """
    if (count := len(values)) > max(_WIDER):
        ordered, outer = sorted(values), _outside(count)
        return Interval(median(values), ordered[outer], ordered[-1 - outer], INTERVAL)
    return _interval(median(values), quantile(max(count - 1, 1)) * _median_error(values))


def ratio_interval(top: Sequence[float], bottom: Sequence[float]) -> Interval:
    """Return the ratio of the medians of two independent sets, with the interval of Welch's t test on the logarithms,
    in which each side has the standard error of its median.

    The variance isn't pooled: two devices rarely have the same spread, and then a pooled interval of two against two
    covers 85 % where it claims 95. Source: B. L. Welch, Biometrika 34 (1947) 28-35; degrees of freedom after F. E.
    Satterthwaite (1946).
    """
    one, other = (_median_error(side) ** 2 for side in (top, bottom))
    ratio, half = median(top) / median(bottom), 0.0
    if one + other:
        freedom = (one + other) ** 2 / (one**2 / (len(top) - 1) + other**2 / (len(bottom) - 1))
        half = quantile(freedom) * math.sqrt(one + other)
    return _interval(ratio, half)


def ratio_spread(top: tuple[float, float, float], bottom: tuple[float, float, float]) -> Interval:
    """Return the ratio of two medians from the quartiles (q1, median, q3) of both sides, all above 0.

    The range is the widest that the quartiles allow. It describes the spread of the samples and doesn't predict another
    run.
    """
    return Interval(top[1] / bottom[1], top[0] / bottom[2], top[2] / bottom[0], SPREAD)


def nearest_rank(samples: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of samples in ascending order; None of too few for one to lie beyond it."""
    rank = math.ceil(share * len(samples))
    return samples[rank - 1] if rank < len(samples) else None


def quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's t at CONFIDENCE."""
    if freedom == int(freedom) and freedom <= len(_QUANTILES):
        return _QUANTILES[int(freedom) - 1]
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def _median_error(values: Sequence[float]) -> float:
    """Return the standard error of the median of the logarithms, from which Student's quantile makes an interval."""
    if len(values) < 2:
        raise ValueError("an interval needs two values or more")
    wider = _WIDER.get(len(values), math.sqrt(math.pi / 2))  # the limit for many normal values
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)  # statistics.stdev takes twenty times as long, as it adds fractions
    deviation = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    return wider * deviation / math.sqrt(len(values))


@functools.cache
def _outside(count: int) -> int:
    """Return how many values may be left out at either end while the median still lies between the others with 95 %."""
    chance, left_out, all_orders = 0.0, -1, math.lgamma(count + 1) - count * math.log(2)
    while chance <= (1 - CONFIDENCE) / 2:  # that so many lie on one side, as exact binomials take the cube of the count
        left_out += 1
        chance += math.exp(all_orders - math.lgamma(left_out + 1) - math.lgamma(count - left_out + 1))
    return left_out - 1


def _interval(value: float, half: float) -> Interval:
    half = min(half, WIDEST)
    return Interval(value, value * math.exp(-half), value * math.exp(half), INTERVAL)
