"""The search for the size from which one side is faster, with few measurements.

A grid of a few sizes is measured first, since there may be several crossings; then the size that halves the interval
(R. Waeber, P. I. Frazier, S. G. Henderson, *Bisection search with noisy responses*, SIAM J. Control Optim. 51(3),
2013).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

GRID = 5  # sizes that are measured first, evenly spread over the logarithm
WIDTH = 1.2  # the interval of a crossing may reach from the size / WIDTH to the size × WIDTH
MOST = 16  # measurements after which the search ends, unsure
LEVEL = 0.98
"""Confidence of the interval at which the search stops, above the usual level since it looks again and again."""
_PLACES, _SLOPES, _SLOPES_TRIED = 400, (0.1, 5.0), 24
"""A speedup grows with the size to these powers: from where both devices are alike to a launch against a product."""
_BENT = 0.5  # standard deviation of a gain from the line, over its distance from one


class Point(NamedTuple):
    """A measured size: the logarithm of the speedup, and its standard error, above 0."""

    size: float
    gain: float
    error: float

    @property
    def faster(self) -> float:
        """The probability that the speedup is above one."""
        return float(ndtr(self.gain / self.error))


class Crossing(NamedTuple):
    """The size from which one side is faster, with the ends of its interval; ``answer`` is ``from``, ``always``,
    ``never`` (within the measured sizes) or ``unsure``."""

    answer: str
    size: float
    low: float
    high: float


def next_size(points: Sequence[Point], width: float = WIDTH) -> int | None:
    """Return the size to measure after the sizes of the grid; None once the crossing is known well enough or there is
    none, or if :data:`MOST` sizes didn't tell."""
    now, measured = crossing(points, width), {point.size for point in points}
    if now.answer != "unsure" or not now.size or len(points) >= MOST:
        return None
    return next((size for size in range(round(now.size), round(max(measured))) if size not in measured), None)


def grid(first: int, last: int) -> list[int]:
    """Return the sizes to begin with, ascending."""
    steps = np.geomspace(first, last, GRID)
    return sorted({min(max(round(float(step)), first), last) for step in steps})


def crossing(points: Sequence[Point], width: float = WIDTH) -> Crossing:
    """Return the last size at which the speedup rises above one. It is ``unsure`` while its interval is wider than
    ``width`` allows, with a size of 0 where the largest sizes are slower and smaller ones aren't."""
    points = sorted(points)
    sides = [(point.size, point.faster > 0.5) for point in points if abs(point.faster - 0.5) > LEVEL - 0.5]
    slower = [size for size, faster in sides if not faster]
    ends = points[0].size, points[-1].size
    if sides and len({faster for _, faster in sides}) == 1 and len(sides) == len(points):
        return Crossing("never" if slower else "always", math.nan, *ends)
    if sides and not sides[-1][1]:
        return Crossing("unsure", 0.0, *ends)  # beyond some size it is slower again
    start = slower[-1] if slower else ends[0]
    return _last_rise([point for point in points if point.size >= start], width)


def _last_rise(points: Sequence[Point], width: float) -> Crossing:
    """Return the crossing by its posterior distribution between the first and the last of these points: gains rise on
    a line of unknown slope in log-log, from which they may depart by a share of their distance from the crossing."""
    ends = math.log(points[0].size), math.log(points[-1].size)
    places, slopes = np.linspace(*ends, _PLACES), np.geomspace(*_SLOPES, _SLOPES_TRIED)
    weight = np.zeros((_PLACES, _SLOPES_TRIED))
    for point in points:
        line = (math.log(point.size) - places)[:, np.newaxis] * slopes
        spread = point.error**2 + (_BENT * line) ** 2
        weight -= ((point.gain - line) ** 2 / spread + np.log(spread)) / 2
    total = np.cumsum(np.exp(weight - weight.max()).sum(axis=1))
    shares = (1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2
    low, middle, high = (math.exp(places[int(np.searchsorted(total / total[-1], share))]) for share in shares)
    narrow = high <= middle * width and low >= middle / width
    return Crossing("from" if narrow else "unsure", middle, low, high)
