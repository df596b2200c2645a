"""Means and ratios of positive quantities with their intervals, in plain Python: results are shown without NumPy.

Times are compared as ratios, so everything works on logarithms: twice as long and half as long weigh the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean as geometric_mean

INTERVAL = "95% interval"
SPREAD = "within-process spread"
CONFIDENCE = 0.95
WIDEST = 150.0
"""Distance of an interval's ends in logarithms: a wider one means the same, and charts end there."""
_QUANTILES = (
    12.706204736174694, 4.302652729749462, 3.1824463052837078, 2.7764451051977934, 2.5705818356363146,
    2.4469118511449786, 2.364624251592784, 2.306004135204166, 2.262157162798205, 2.228138851986274,
    2.200985160091639, 2.1788128296672284, 2.1603686564627913, 2.144786687917804, 2.131449545559776,
    2.1199052992212546, 2.1098155778333156, 2.1009220402410382, 2.0930240544083087, 2.085963447265864,
    2.0796138447276795, 2.0738730679040254, 2.0686576104190486, 2.0638985616280245, 2.0595385527532972,
    2.0555294386428735, 2.0518305164802846, 2.0484071417952454, 2.045229642132703, 2.0422724563012378,
)  # fmt: skip
"""Of Student's t, two-sided, at CONFIDENCE, for 1 to 30 degrees of freedom; a test compares them with SciPy's."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its range; a ``kind`` of INTERVAL covers the true value, SPREAD only the samples."""

    value: float
    low: float
    high: float
    kind: str


def mean_interval(values: Sequence[float]) -> Interval:
    """Geometric mean of two or more independent values, with Student's t interval on their logarithms."""
    mean, variance = _mean_and_variance(values)
    return _interval(mean, quantile(len(values) - 1) * math.sqrt(variance) / math.sqrt(len(values)))


def ratio_interval(top: Sequence[float], bottom: Sequence[float]) -> Interval:
    """Ratio of the geometric means of two independent sets, with the interval of Welch's t test on the logarithms.

    Not with the pooled variance: two devices rarely have the same spread, and then a pooled interval of two against
    two covers 85 % where it claims 95.
    Source: B. L. Welch, Biometrika 34 (1947) 28-35; degrees of freedom after F. E. Satterthwaite (1946).
    """
    (above, first), (below, second) = _mean_and_variance(top), _mean_and_variance(bottom)
    parts = first / len(top), second / len(bottom)
    total, difference = sum(parts), above - below
    if total == 0:
        return _interval(difference, 0.0)
    freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (top, bottom), strict=True))
    return _interval(difference, quantile(freedom) * math.sqrt(total))


def ratio_spread(top: tuple[float, float, float], bottom: tuple[float, float, float]) -> Interval:
    """Ratio of two medians, from the quartiles (q1, median, q3) of both sides, all above 0.

    The range is the widest that the quartiles give. It describes the samples' spread, and says nothing of another run.
    """
    return Interval(top[1] / bottom[1], top[0] / bottom[2], top[2] / bottom[0], SPREAD)


def quantile(freedom: float) -> float:
    """Of Student's t, two-sided, at CONFIDENCE."""
    if freedom == int(freedom) and freedom <= len(_QUANTILES):
        return _QUANTILES[int(freedom) - 1]
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def _mean_and_variance(values: Sequence[float]) -> tuple[float, float]:
    """Of the logarithms."""
    if len(values) < 2:
        raise ValueError("an interval needs two values or more")
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return mean, sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)


def _interval(log: float, half: float) -> Interval:
    value, half = math.exp(log), min(half, WIDEST)
    return Interval(value, value * math.exp(-half), value * math.exp(half), INTERVAL)
