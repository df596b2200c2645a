"""Intervals, means and crossovers of positive quantities; knows nothing of benchmarks.

Times are compared as ratios, so everything works on logarithms: a factor of two up and one down weigh alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

INTERVAL = "95% interval"
SPREAD = "within-process spread"
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its range; ``kind`` says what the range is: INTERVAL covers the truth, SPREAD only the samples."""

    value: float
    low: float
    high: float
    kind: str


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where a ratio comes to stay at 1 or above.

    ``size`` is None where it never does (``kind`` "below") and where it is there from the smallest size on
    ("above"); with ``kind`` "crosses" it is the size in between.
    """

    size: float | None
    kind: str


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Geometric mean and Student's t interval on the logarithms of independent values, two or more."""
    logs = _logs(values)
    if len(logs) < 2:
        raise ValueError("an interval needs two values or more")
    half = _quantile(len(logs) - 1, confidence) * logs.std(ddof=1) / math.sqrt(len(logs))
    return _exp(logs.mean(), half)


def ratio_interval(top: Sequence[float], bottom: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Ratio of the geometric means of two independent sets, with the interval of Welch's t test on the logarithms.

    Welch and not the pooled variance: two devices hardly ever scatter alike, and with unequal scatter a pooled
    interval of two against two covers 85 % where it claims 95.
    Source: B. L. Welch, Biometrika 34 (1947) 28-35; degrees of freedom after F. E. Satterthwaite (1946).
    """
    one, two = _logs(top), _logs(bottom)
    if min(len(one), len(two)) < 2:
        raise ValueError("an interval needs two values or more on either side")
    a, b = (logs.var(ddof=1) / len(logs) for logs in (one, two))
    difference = one.mean() - two.mean()
    if a + b == 0:
        return _exp(difference, 0.0)
    freedom = (a + b) ** 2 / (a**2 / (len(one) - 1) + b**2 / (len(two) - 1))
    return _exp(difference, _quantile(freedom, confidence) * math.sqrt(a + b))


def ratio_spread(top: tuple[float, float, float], bottom: tuple[float, float, float]) -> Estimate:
    """Ratio of two medians, from the quartiles (q1, median, q3) of either side; all above 0.

    The range sets the quartiles against each other in the way that makes it widest. It describes how samples
    scatter and promises nothing about another run.
    """
    return Estimate(top[1] / bottom[1], top[0] / bottom[2], top[2] / bottom[0], SPREAD)


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(_logs(values).mean()))


def crossover(sizes: Sequence[float], ratios: Sequence[float]) -> Crossover:
    """Smallest size from which the ratio stays at 1 or above: straight lines between the points in log-log."""
    points = sorted(zip(sizes, ratios, strict=True))
    below = [i for i, (_, ratio) in enumerate(points) if ratio < 1]
    if not points or (below and below[-1] == len(points) - 1):
        return Crossover(None, "below")
    if not below:
        return Crossover(None, "above")
    (x0, y0), (x1, y1) = points[below[-1]], points[below[-1] + 1]
    share = -math.log(y0) / (math.log(y1) - math.log(y0))
    return Crossover(math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0))), "crosses")


def trend(values: Sequence[float]) -> float:
    """How many standard deviations the order of the values is from a random one; above 0 when they rise.

    Spearman's rank correlation with time, times sqrt(n - 1): standard normal for values in random order
    (C. Spearman, 1904; the approximation is good from ten values on).
    """
    count = len(values)
    if count < 3:
        return 0.0
    ranks = np.argsort(np.argsort(np.asarray(values, dtype=float), kind="stable"))
    squares = float(((ranks - np.arange(count)) ** 2).sum())
    return (1 - 6 * squares / (count * (count**2 - 1))) * math.sqrt(count - 1)


def _quantile(freedom: float, confidence: float) -> float:
    """Of Student's t, two-sided. ``scipy.special`` and not ``scipy.stats``, which loads half a second longer."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def _logs(values: Sequence[float]) -> np.ndarray:
    return np.array([math.log(value) for value in values])


def _exp(log: float, half: float) -> Estimate:
    value, half = math.exp(log), min(half, 500.0)  # beyond that nothing is known, and floats end
    return Estimate(value, value * math.exp(-half), value * math.exp(half), INTERVAL)
