"""How long one operator takes on a GPU: its roofline, times a factor learned from the timings of other GPUs.

The roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009) is the larger of two times:
the arithmetic, and the bytes at the memory's rate. Bounds take both from the card's datasheet. Likely times take the
arithmetic that products are known to reach, and a norm between the sum and the larger of both times, since they
overlap in part. ``docs/experiments/learn_estimate.py`` learned the factors; docs/estimate.md reports their errors.
``gpubench estimate`` and the simulated device both use them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from .datasheets import PEAKS, Gpu

LEARNED = Path(__file__).with_name("factors.json")
LEAST_KERNEL_S, DISPATCH_S = 3e-6, 1e-5
"""Seconds per operator: the least of a kernel, as in aiconfigurator, and of eager PyTorch on the host. Of the latter
about half is Python and PyTorch's dispatcher, measured with a small tensor on a CPU, and half is the driver."""
OVERLAP = 1.5
"""Exponent of that norm: 1 for one after the other, infinity for both at once; the best of a few that were tried."""
STREAMING = "streaming"
"""The factor of elementwise work on a card whose memory somebody has measured, relative to that rate."""
_LIKE = {"convolution": "product", "other": "elementwise"}
"""The kind whose factor stands in for a kind of operator without a learned one."""


class Factor(Struct, frozen=True):
    """The ratio of time to roofline for one kind of operator.

    The middle is ``times`` the roofline, plus up to ``small_s`` for operators too small to fill the card. The interval
    is ``low`` to ``high`` times the middle where arithmetic takes up all the time, and to the square of ``high`` where
    memory does: products that are small or skinny are slower than others, not faster.
    """

    times: float
    small_s: float
    low: float
    high: float

    def middle(self, arithmetic_s: float, memory_s: float) -> float:
        """Return the middle in seconds."""
        roofline_s = overlapping_s(arithmetic_s, memory_s)
        return self.times * roofline_s + min(roofline_s, self.small_s)


def overlapping_s(arithmetic_s: float, memory_s: float) -> float:
    """Return the seconds of both, partly at the same time."""
    return float((arithmetic_s**OVERLAP + memory_s**OVERLAP) ** (1 / OVERLAP))


def spread(arithmetic_s: float, memory_s: float) -> float:
    """Return the power of a factor's high end: 1 for arithmetic alone, 2 from where memory takes as long."""
    return 1 + min(1.0, memory_s / arithmetic_s if arithmetic_s else 1.0)


class Shares(Struct, frozen=True):
    """The share of its peak that a card without a published figure is assumed to reach in products: a line over the
    logarithm of the FLOP/s per watt that it promises, since a peak that needs more than the power limit isn't reached;
    in ``tf32`` and ``half`` the median of the published ones."""

    intercept: float
    slope: float
    tf32: float
    half: float


class Learned(Struct, frozen=True):
    """The package's knowledge: factors by kind of operator (sorts from published rates); ``held``, the share of
    measured times within the interval, for cards that were left out of the learning (the worst card's and the best
    card's, by the name of the work); the shares of peaks."""

    kinds: dict[str, Factor]
    held: dict[str, tuple[float, float]]
    shares: Shares


@functools.cache
def learned_values() -> Learned:
    """Return the values that the package ships."""
    return msgspec.json.decode(LEARNED.read_bytes(), type=Learned)


def reached(dtype: str, card: Gpu, shares: Shares | None = None) -> float | None:
    """Return the FLOP/s that large products reach: from the published measurement of this card, else a share of its
    peak; ``None`` if the peak is unknown."""
    shares, peak, figure = shares or learned_values().shares, card.flop_per_s(dtype), PEAKS.get(dtype, "")
    published = card.value(f"{figure}_reached") if figure in ("float32", "tf32", "half") else None
    if peak is None or published is not None:
        return peak and published
    if figure in ("float32", "float64") and (watt := card.value("watt")):
        return peak * min(1.0, math.exp(shares.intercept + shares.slope * math.log(peak / watt)))
    return peak * (shares.tf32 if figure == "tf32" else shares.half)


def arithmetic_s(flops: float, rate: float | None) -> float | None:
    """Return the seconds of the arithmetic at a rate in FLOP/s; ``None`` if that is unknown."""
    return 0.0 if not flops else flops / rate if rate else None


def memory_s(nbytes: float, card: Gpu, cached: bool = False, figure: str = "memory") -> float | None:
    """Return the seconds to move this many bytes, if ``cached`` without the bytes that the last-level cache may save: a
    call that leaves data in the cache saves the next one at most one read and one write of each byte, hence twice the
    cache's size. ``None`` if the card's rate, or its cache, is unknown."""
    rate, cache = card.value(figure), card.value("cache")
    if rate is None or (cached and cache is None):
        return None
    return max(0.0, nbytes - 2 * (cache or 0.0) * cached) / rate


def kind_by_sums(flops: float, nbytes: float) -> str:
    """Return the kind that is assumed, on any card, for work that is known by its sums alone: a product from 20 FLOP
    per byte on, where cards begin to wait for arithmetic."""
    return "product" if flops > 20 * nbytes else "elementwise"


def parts_of(
    each: tuple[str, float, float], rate: float | None, card: Gpu, factors: Mapping[str, Factor]
) -> tuple[Factor, float, float] | None:
    """Return the factor of an operator (its kind, FLOPs and bytes), or of the kind that stands in for it, and the
    seconds of its arithmetic at this rate and of its bytes; ``None`` if a figure of the card is unknown."""
    kind, flops, nbytes = each
    streams = kind == "elementwise" and card.value("memory_reached") is not None and STREAMING in factors
    memory = memory_s(nbytes, card, figure="memory_reached" if streams else "memory")
    arithmetic = arithmetic_s(flops, rate)
    if arithmetic is None or memory is None:
        return None
    return factors[STREAMING if streams else _LIKE.get(kind, kind)], arithmetic, memory


def middle_s(kind: str, flops: float, nbytes: float, dtype: str, card: Gpu) -> float | None:
    """Return the likely time of one operator in seconds; ``None`` if a figure of the card is unknown."""
    parts = parts_of((kind, flops, nbytes), reached(dtype, card), card, learned_values().kinds)
    return parts and parts[0].middle(*parts[1:])
