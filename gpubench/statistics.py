"""Intervals, means and crossovers of positive quantities; knows nothing of benchmarks.

Times are compared as ratios, so everything works on logarithms: a factor of two up and one down weigh alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

INTERVAL = "95% interval"
SPREAD = "within-process spread"
CONFIDENCE = 0.95
CROSSES, ALWAYS, NEVER, ABSENT = "crosses", "always", "never", "not in this range"
ENUMERATED, DRAWS = 4096, 4000
"""Resamples: all of them up to so many (five processes have 3,125), else so many drawn."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its range; ``kind`` says what the range is: INTERVAL covers the truth, SPREAD only the samples."""

    value: float
    low: float
    high: float
    kind: str


@dataclass(frozen=True, slots=True)
class Crossover:
    """The smallest size from which a ratio stays at 1 or above.

    ``size`` is None unless ``kind`` is CROSSES. ALWAYS: there from the smallest size on. NEVER: below 1 at all sizes
    and not rising. ABSENT: below 1 at the largest size, though it rises or was above before; larger sizes may tell.
    ``low`` and ``high`` are the interval's ends: 0 and infinity where it goes beyond all sizes, None without one.
    """

    size: float | None
    kind: str
    low: float | None = None
    high: float | None = None


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
    """Of a single value itself, to the last digit."""
    return float(np.exp(_logs(values).mean())) if len(values) > 1 else float(values[0])


def crossover(sizes: Sequence[float], ratios: Sequence[float]) -> Crossover:
    """Between measured sizes: straight lines in log-log."""
    points = sorted(zip(sizes, ratios, strict=True))
    if not points:
        return Crossover(None, ABSENT)
    x, y = (_logs(values) for values in zip(*points, strict=True))
    place = float(_crossings(x, y[np.newaxis])[0])
    if place == -math.inf:
        return Crossover(None, ALWAYS)
    if place == math.inf:
        sinking = len(points) > 1 and y.max() < 0 and y[-1] <= y[0]
        return Crossover(None, NEVER if sinking else ABSENT)
    return Crossover(math.exp(place), CROSSES)


def crossover_interval(
    sizes: Sequence[float],
    tops: Sequence[Sequence[float]],
    bottoms: Sequence[Sequence[float]],
    *,
    paired: bool,
    confidence: float = CONFIDENCE,
) -> Crossover:
    """Of the ratio of two sides' geometric means, with an interval by resampling processes.

    ``tops[i][j]`` is what process ``j`` saw at ``sizes[i]``: a process is drawn with all its sizes, and with both
    sides where they are ``paired``, so what it did to all of them alike counts as that. All resamples are enumerated
    where they are few, else drawn with a fixed seed. How far a resample lies from the mean is widened by
    ``t / z * sqrt(n / (n - 1))``, or a percentile interval of three processes would cover 75 % where it claims 95
    (T. Hesterberg, *What Teachers Should Know About the Bootstrap*, The American Statistician 69, 2015).
    """
    order = np.argsort(np.asarray(sizes, float), kind="stable")
    x = _logs([sizes[i] for i in order])
    top, bottom = (np.log(np.array([side[i] for i in order], float)) for side in (tops, bottoms))
    samples = [top - bottom] if paired else [top, -bottom]
    if min(sample.shape[1] for sample in samples) < 2:
        raise ValueError("an interval needs two processes or more")
    centre = sum(sample.mean(axis=1) for sample in samples)
    found = crossover(np.exp(x).tolist(), np.exp(np.clip(centre, -500, 500)).tolist())
    moved = _resampled(samples, confidence)
    places = np.sort(_crossings(x, np.clip(centre + moved, -500, 500)))
    tail = (1 - confidence) / 2
    low, high = (places[max(0, math.ceil(share * len(places)) - 1)] for share in (tail, 1 - tail))
    return Crossover(found.size, found.kind, math.exp(low), math.exp(high))


def _crossings(x: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """For each row of logarithms of ratios at ``x``: where it comes to stay at 0 or above; infinite where it doesn't
    (``inf``) or always is (``-inf``)."""
    below = logs < 0
    last = len(x) - 1 - np.argmax(below[:, ::-1], axis=1)
    found = np.where(below.any(axis=1), np.inf, -np.inf)
    rows = np.flatnonzero(below.any(axis=1) & (last < len(x) - 1))
    at = last[rows]
    y0, y1 = logs[rows, at], logs[rows, at + 1]
    found[rows] = x[at] + y0 / (y0 - y1) * (x[at + 1] - x[at])
    return found


def _resampled(samples: Sequence[np.ndarray], confidence: float) -> np.ndarray:
    """How far resampled means lie from the mean, widened: a row a resample, a column a size; sides are added up."""
    counts = [sample.shape[1] for sample in samples]
    enumerated = math.prod(min(count, 99) ** min(count, 99) for count in counts) <= ENUMERATED
    random = np.random.default_rng(0)
    parts: list[np.ndarray] = []
    for sample, count in zip(samples, counts, strict=True):
        if enumerated:
            drawn = np.array(list(itertools.product(range(count), repeat=count)))
            weights = np.stack([(drawn == i).sum(axis=1) for i in range(count)], axis=1) / count
        else:
            draws = min(DRAWS, max(DRAWS // 10, 4_000_000 // count))
            weights = random.multinomial(count, np.full(count, 1 / count), size=draws) / count
        wide = _quantile(count - 1, confidence) / float(ndtri((1 + confidence) / 2)) * math.sqrt(count / (count - 1))
        parts.append(wide * np.asarray(weights @ (sample - sample.mean(axis=1, keepdims=True)).T))
    if len(parts) == 1:
        return parts[0]
    if not enumerated:
        least = min(map(len, parts))
        drawn_together: np.ndarray = parts[0][:least] + parts[1][:least]
        return drawn_together
    combined: np.ndarray = parts[0][:, np.newaxis] + parts[1][np.newaxis]
    return combined.reshape(-1, parts[0].shape[1])


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
    logs: np.ndarray = np.log(np.array(values, float))
    return logs


def _exp(log: float, half: float) -> Estimate:
    value, half = math.exp(log), min(half, 150.0)  # beyond that nothing is known, and charts end
    return Estimate(value, value * math.exp(-half), value * math.exp(half), INTERVAL)
