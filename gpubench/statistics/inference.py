"""Tests and crossovers of positive quantities, without any knowledge of benchmarks.

Times are compared as ratios, so everything works on logarithms: twice as long and half as long have the same weight.
The tests are written by hand, since ``scipy.stats`` takes half a second to import.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, ndtr, ndtri, polygamma, stdtr, stdtrit

from .intervals import CONFIDENCE, INTERVAL, WIDEST, Interval, quantile

_LEAST_SHARED, _CERTAIN = 5, 1e6
"""Fewest variances that show their common part, and degrees of freedom of a variance that is as good as known."""
CROSSES, ALWAYS, NEVER, ABSENT = "crosses", "always", "never", "not in this range"
_ENUMERATED, _DRAWS = 4096, 4000
"""Up to _ENUMERATED resamples are enumerated (five processes have 3,125); otherwise _DRAWS are drawn."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """The smallest size from which a ratio stays at 1 or above.

    ``size`` is None unless ``kind`` is CROSSES. ALWAYS: at 1 or above from the smallest size. NEVER: below 1 at all
    sizes and not rising. ABSENT: below 1 at the largest size, but rising or above 1 before, so that larger sizes may
    cross. ``low`` and ``high`` are the interval's ends: 0 and infinity beyond all sizes, None without an interval.
    """

    size: float | None
    kind: str
    low: float | None = None
    high: float | None = None

    @property
    def always(self) -> bool:
        """Whether the ratio is at 1 or above from the smallest size."""
        return self.kind == ALWAYS


def crossover(sizes: Sequence[float], ratios: Sequence[float]) -> Crossover:
    """Return where the ratio crosses 1, on straight lines in log-log between the measured sizes."""
    points = sorted(zip(sizes, ratios, strict=True))
    x, y = np.log(np.array(points, float)).T
    place = float(_crossings(x, y[np.newaxis])[0])
    if place == -math.inf:
        return Crossover(None, ALWAYS)
    if place == math.inf:
        sinking = len(points) > 1 and y.max() < 0 and y[-1] <= y[0]
        return Crossover(None, NEVER if sinking else ABSENT)
    return Crossover(math.exp(place), CROSSES)


def crossover_interval(
    sizes: Sequence[float], tops: Sequence[Sequence[float]], bottoms: Sequence[Sequence[float]], *, paired: bool
) -> Crossover:
    """Return the crossover of the ratio of two sides' medians, with an interval from resampled processes.

    ``tops[i][j]`` is the value of process ``j`` at ``sizes[i]``. A process is drawn with all its sizes, and with both
    sides where they are ``paired``, so that whatever slowed all of them is drawn together. Few resamples are
    enumerated, many are drawn with a fixed seed. The distances of their means from the mean are placed around the
    medians, widened by ``t / z * sqrt(n / (n - 1))``: a percentile interval of three processes would cover 75 % where
    it claims 95 (T. Hesterberg, *What Teachers Should Know About the Bootstrap*, The American Statistician 69, 2015).
    There are two processes or more.
    """
    order = np.argsort(sizes, kind="stable")
    x, top, bottom = (np.log(np.array([values[i] for i in order], float)) for values in (sizes, tops, bottoms))
    samples = [top - bottom] if paired else [top, -bottom]
    centre = np.median(top, axis=1) - np.median(bottom, axis=1)  # of logarithms, as intervals.median
    estimate = crossover(np.exp(x).tolist(), np.exp(np.clip(centre, -500, 500)).tolist())
    places = np.sort(_crossings(x, np.clip(centre + _resampled(samples), -500, 500)))
    shares = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    low, high = (math.exp(places[max(0, math.ceil(share * len(places)) - 1)]) for share in shares)
    return Crossover(estimate.size, estimate.kind, low, high)


def _crossings(x: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return, for each row of logarithms of ratios at ``x``, from where it stays at 0 or above; ``inf`` if from
    nowhere, ``-inf`` if everywhere."""
    below = logs < 0
    last = len(x) - 1 - np.argmax(below[:, ::-1], axis=1)
    places = np.where(below.any(axis=1), np.inf, -np.inf)
    rows = np.flatnonzero(below.any(axis=1) & (last < len(x) - 1))
    at = last[rows]
    y0, y1 = logs[rows, at], logs[rows, at + 1]
    places[rows] = x[at] + y0 / (y0 - y1) * (x[at + 1] - x[at])
    return places


def _resampled(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Return widened distances of resampled means from the mean: rows are resamples, columns sizes; both sides are
    added."""
    counts = [sample.shape[1] for sample in samples]
    enumerated = math.prod(min(count, 99) ** min(count, 99) for count in counts) <= _ENUMERATED
    random = np.random.default_rng(0)
    parts: list[np.ndarray] = []
    for sample, count in zip(samples, counts, strict=True):
        if enumerated:
            drawn = np.array(list(itertools.product(range(count), repeat=count)))
            weights = np.stack([(drawn == i).sum(axis=1) for i in range(count)], axis=1) / count
        else:
            draws = min(_DRAWS, max(_DRAWS // 10, 4_000_000 // count))
            weights = random.multinomial(count, np.full(count, 1 / count), size=draws) / count
        wide = quantile(count - 1) / float(ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(count / (count - 1))
        parts.append(wide * np.asarray(weights @ (sample - sample.mean(axis=1, keepdims=True)).T))
    if enumerated:  # every resample of one side with every one of the other
        return functools.reduce(lambda a, b: (a[:, np.newaxis] + b).reshape(-1, a.shape[1]), parts)
    least = min(map(len, parts))
    return np.asarray(sum(part[:least] for part in parts))


class Change(NamedTuple):
    """A ratio estimated by Student's t: its logarithm, that logarithm's standard error, which is above 0, and the
    error's degrees of freedom."""

    log: float
    error: float
    freedom: float

    def larger_p(self) -> float:
        """Return the one-sided p value of a ratio of at most 1."""
        return float(stdtr(self.freedom, -self.log / self.error))

    def inverse(self) -> Change:
        """Return the change for the inverse ratio."""
        return self._replace(log=-self.log)

    def interval(self, below: float = (1 - CONFIDENCE) / 2, above: float = (1 - CONFIDENCE) / 2) -> Interval:
        """Return the interval that leaves out the probability ``below`` under its low end and ``above`` over its high
        end; the default is 95 %."""
        low, high = (min(float(stdtrit(self.freedom, 1 - tail)) * self.error, WIDEST) for tail in (below, above))
        value = math.exp(self.log)
        return Interval(value, value * math.exp(-low), value * math.exp(high), INTERVAL)


def pooled_variance(one: Sequence[float], other: Sequence[float]) -> tuple[float, int]:
    """Return the variance of two sets about their own means, and its degrees of freedom, as in Student's test.

    It is pooled, unlike Welch's: both sets are the same code on the same machine except for one change. There are three
    values in all, and one in each set.
    """
    sides = [np.asarray(values, dtype=float) for values in (one, other)]
    freedom = len(sides[0]) + len(sides[1]) - 2
    return float(sum(((values - values.mean()) ** 2).sum() for values in sides)) / freedom, freedom


def moderated(variances: Sequence[float], freedoms: Sequence[int]) -> tuple[list[float], float]:
    """Return variances, each from few values, moved towards their common value; and how many degrees of freedom
    that adds to each. Fewer than five stay unchanged: they don't show a common value.

    The prior is fitted by the moments of the logarithms of the variances, as in the R package limma. Source: G. K.
    Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, section 6.2.
    """
    if len(variances) < _LEAST_SHARED:
        return list(variances), 0.0
    own, halves = np.asarray(variances, dtype=float), np.asarray(freedoms, dtype=float) / 2
    logs = np.log(own) - digamma(halves) + np.log(halves)
    excess = logs.var(ddof=1) - polygamma(1, halves).mean()
    if excess <= 0:  # no more than chance explains: all have one variance
        return [math.exp(logs.mean())] * len(own), _CERTAIN
    half = _inverse_trigamma(excess)
    prior = math.exp(logs.mean() + digamma(half) - math.log(half))
    return list((half * prior + halves * own) / (half + halves)), 2 * half


def _inverse_trigamma(value: float) -> float:
    """Return the inverse of trigamma, by Newton's method on 1 / trigamma, which is nearly straight (Smyth, 2004,
    appendix)."""
    x, step = 0.5 + 1 / value, math.inf
    while abs(step) >= 1e-8 * x:
        now = float(polygamma(1, x))
        step = now * (1 - now / value) / float(polygamma(2, x))
        x += step
    return x


def detectable(change: Change, level: float, power: float) -> float:
    """Return the logarithm of the ratio that a one-sided t test with the error of ``change`` detects with this
    power."""
    return change.error * float(stdtrit(change.freedom, 1 - level) + stdtrit(change.freedom, power))


def larger_p_of_one(ratio: float, spread: float) -> float:
    """Return the one-sided p value of a ratio of two single values with logarithms that scatter by a known
    ``spread``."""
    return float(ndtr(-math.log(ratio) / (spread * math.sqrt(2))))


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """Return adjusted p values: values at or below a level are discoveries, and at most that share of them is false.

    Source: Y. Benjamini, Y. Hochberg, J. R. Statist. Soc. B 57 (1995) 289-300.
    """
    own, count = np.asarray(values, float), len(values)
    order = np.argsort(-own, kind="stable")
    least = np.minimum.accumulate(own[order] * count / np.arange(count, 0, -1))
    return [float(value) for value in np.minimum(least, 1.0)[np.argsort(order)]]


def needed_values(spread: float, ratio: float, level: float, power: float = 0.8, most: int = 1000) -> int | None:
    """Return the number of values per side with which a pooled one-sided t test detects ``ratio`` with this power; None
    beyond ``most``.

    The usual approximation n = 2 s² (t_level + t_power)² / d², solved for the n in its own degrees of freedom.
    """
    counts = np.arange(2, most + 1)
    reach = stdtrit(2 * counts - 2, 1 - level) + stdtrit(2 * counts - 2, power)
    enough = counts[reach * spread * np.sqrt(2 / counts) <= abs(math.log(ratio))]
    return int(enough[0]) if len(enough) else None
