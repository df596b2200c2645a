"""How long one operator takes on a GPU: its roofline, times a factor learned from the timings of other GPUs.

The roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009) is the larger of two times:
the arithmetic at the peak of its dtype, and the bytes at the memory's rate, both from the card's datasheet.
``docs/experiments/learn_estimate.py`` learned the factors; docs/estimate.md reports their errors. ``gpubench estimate``
and the simulated device both use them.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from .datasheets import Gpu

LEARNED = Path(__file__).with_name("factors.json")
LEAST_KERNEL_S, DISPATCH_S = 3e-6, 1e-5
"""Seconds per operator: the least of a kernel, as in aiconfigurator, and of eager PyTorch on the host. Of the latter
about half is Python and PyTorch's dispatcher, measured with a small tensor on a CPU, and half is the driver."""
_LIKE = {"convolution": "product", "other": "elementwise"}
"""The kind whose factor stands in for a kind of operator without a learned one."""


class Factor(Struct, frozen=True):
    """The ratio of time to roofline for one kind of operator.

    The middle is ``exp(intercept + slope * crowding)``, but at least ``least``, times the roofline, plus up to
    ``small_s`` for operators too small to fill the card. The interval is ``low`` to ``high`` times the middle.
    """

    intercept: float
    slope: float
    least: float
    small_s: float
    low: float
    high: float

    def middle(self, roofline_s: float, crowding: float) -> float:
        """Return the middle in seconds; ``crowding`` is that of :func:`crowding_of` for the card."""
        factor = max(math.exp(self.intercept + self.slope * crowding if self.slope else self.intercept), self.least)
        return factor * roofline_s + min(roofline_s, self.small_s)


class _Learned(Struct, frozen=True):
    kinds: dict[str, Factor]
    held: dict[str, tuple[float, float]]


@functools.cache
def _learned() -> _Learned:
    return msgspec.convert(json.loads(LEARNED.read_text(encoding="utf-8")), _Learned)


def learned_factors() -> Mapping[str, Factor]:
    """Return the factors that the package ships, by kind of operator."""
    return _learned().kinds


def held_shares() -> Mapping[str, tuple[float, float]]:
    """Return the share of measured times that lay within the interval, for cards that were left out of the learning:
    the worst card's share and the best card's, by the name of the work."""
    return _learned().held


def arithmetic_s(flops: float, dtype: str, card: Gpu) -> float | None:
    """Return the seconds of the arithmetic at the peak of the dtype; ``None`` if the peak is unknown."""
    if not flops:
        return 0.0
    peak = card.flop_per_s(dtype)
    return flops / peak if peak else None


def memory_s(nbytes: float, card: Gpu, cached: bool = False) -> float | None:
    """Return the seconds to move this many bytes, without those that the last-level cache may save if ``cached``.

    What a call leaves in the cache saves the next call at most one read and one write of each byte in it, hence twice
    the cache's size. ``None`` where the card's rate, or its cache, is unknown.
    """
    rate, cache = card.value("memory"), card.value("cache")
    if rate is None or (cached and cache is None):
        return None
    return max(0.0, nbytes - 2 * (cache or 0.0) * cached) / rate


def kind_by_sums(flops: float, nbytes: float, dtype: str, card: Gpu) -> str:
    """Return the kind that is assumed for work of which only the sums are known: a product if its arithmetic takes
    longer than its bytes."""
    longer = (arithmetic_s(flops, dtype, card) or 0.0) > (memory_s(nbytes, card) or 0.0)
    return "product" if longer else "elementwise"


def crowding_of(card: Gpu) -> float | None:
    """Return the logarithm of the card's FLOP/s per watt: a peak that needs more than the power limit isn't reached."""
    watt, promised = card.value("watt"), card.flop_per_s("float32")
    return math.log(promised / watt) if watt and promised else None


def factor_of(kind: str, card: Gpu, factors: Mapping[str, Factor]) -> tuple[Factor, float] | None:
    """Return the factor of a kind of operator and the card's crowding; ``None`` if the crowding is needed and
    unknown."""
    factor, crowding = factors[_LIKE.get(kind, kind)], crowding_of(card)
    return None if factor.slope and crowding is None else (factor, crowding or 0.0)


def middle_s(kind: str, flops: float, nbytes: float, dtype: str, card: Gpu) -> float | None:
    """Return the likely time of one operator in seconds; ``None`` where a figure of the card is unknown."""
    arithmetic, memory = arithmetic_s(flops, dtype, card), memory_s(nbytes, card)
    found = factor_of(kind, card, learned_factors())
    if arithmetic is None or memory is None or found is None:
        return None
    factor, crowding = found
    return factor.middle(max(arithmetic, memory), crowding)
