"""How long work takes on a card: at least, by physics; and likely, by what other cards' timings taught.

Both begin with the roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009): the larger
of the arithmetic at the card's peak and the bytes at its memory's rate. :func:`shortest` takes only what no fusion,
cache or compiler avoids. :func:`likely` goes operator by operator and multiplies by factors that
``docs/experiments/learn_estimate.py`` learned; docs/estimate.md says how wrong it was.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from ..runfile.schema import Operators, Work
from .datasheets import Gpu

LEARNED = Path(__file__).with_name("factors.json")
SAFETY, SAFETY_ABOVE_DATASHEET, SAFETY_MEASURED = 1.1, 1.2, 1.3
"""The bound is divided by these: of a datasheet, of one that the card beats (GeForce in half precision reached 1.16
times theirs), and of peaks that were measured, which is noisy."""
LEAST_CALL_S = 2e-6
"""A call takes at least this long, in seconds: less than any launch that we know of (a round trip takes 6–9 µs on an
RTX 5060 and an MI300X, by clpeak's README)."""
LEAST_KERNEL_S, DISPATCH_S = 3e-6, 1e-5
"""Seconds per operator: of a kernel at least, as aiconfigurator counts; and of eager PyTorch with its launch."""
FAST_CONVOLUTION = 4.0
"""Winograd's F(4x4, 3x3) does that many times fewer multiplications than are counted (A. Lavin, S. Gray, *Fast
Algorithms for Convolutional Neural Networks*, 2016)."""
CACHE_RATE = 5.0
"""The last cache is taken to be at most that many times as fast as the memory. No source says it of all cards: only
what is probable rests on it, no bound."""
OTHER_SHARE, OTHER_HIGH = 0.2, 4.0
"""Operators that nothing was learned of may make up this share of the time; they may take so many times the bound."""


@dataclass(frozen=True)
class Bound:
    """The shortest possible time, and what binds: ``arithmetic``, ``memory`` or ``launch``. ``complete`` is false where
    the work or a figure of the card is unknown, so that only a launch is left."""

    seconds: float
    binds: str
    complete: bool


@dataclass(frozen=True)
class Likely:
    """An interval of seconds, and its middle."""

    low_s: float
    middle_s: float
    high_s: float


class Factor(Struct, frozen=True):
    """Time over bound of one kind of operator. The middle is ``exp(intercept + slope * crowding) >= least`` times the
    bound, plus up to ``small_s`` for operators too small to fill the card; the interval is ``low`` to ``high`` times
    the middle."""

    intercept: float
    slope: float
    least: float
    small_s: float
    low: float
    high: float

    def middle(self, bound_s: float, crowding: float) -> float:
        """Seconds; ``crowding`` is what :func:`crowding_of` says of the card."""
        factor = max(math.exp(self.intercept + self.slope * crowding if self.slope else self.intercept), self.least)
        return factor * bound_s + min(bound_s, self.small_s)


class _Learned(Struct, frozen=True):
    level: float
    kinds: dict[str, Factor]


@functools.cache
def learned_factors() -> Mapping[str, Factor]:
    """The factors that the package ships, by kind of operator."""
    return msgspec.convert(json.loads(LEARNED.read_text(encoding="utf-8")), _Learned).kinds


def safety_of(card: Gpu) -> float:
    """What a bound of this card is divided by."""
    if card.measured:
        return SAFETY_MEASURED
    return SAFETY_ABOVE_DATASHEET if card.beats_datasheet else SAFETY


def arithmetic_s(flops: float, dtype: str, card: Gpu) -> float | None:
    """Seconds at the peak of the dtype, ``None`` where nothing says it."""
    if not flops:
        return 0.0
    peak = card.flop_per_s(dtype)
    return flops / peak if peak else None


def memory_s(nbytes: float, card: Gpu, cached: bool) -> float | None:
    """Seconds to move so many bytes, less those that the last cache may spare if ``cached``.

    What a call leaves in the cache spares the next at most one read and one write of each byte of it: hence twice its
    size. ``None`` where the card's rate, or its cache, is unknown.
    """
    rate, cache = card.value("memory"), card.value("cache")
    if rate is None or (cached and cache is None):
        return None
    return max(0.0, nbytes - 2 * (cache or 0.0) * cached) / rate


def least_flops(work: Work) -> float:
    """FLOPs that no algorithm in use spares."""
    convolutions = sum(each.flops for each in work.operators if each.kind == "convolution")
    return max(0.0, (work.flops or 0.0) - convolutions * (1 - 1 / FAST_CONVOLUTION))


def shortest(work: Work, dtype: str, card: Gpu, safety: float = 0.0) -> Bound:
    """The time that no program for this card can beat, with a ``safety`` of at least that."""
    parts, safety = {"launch": LEAST_CALL_S}, max(safety, safety_of(card))
    if work.flops and (seconds := arithmetic_s(least_flops(work), dtype, card)) is not None:
        parts["arithmetic"] = seconds / safety
    if work.bytes and (seconds := memory_s(work.bytes, card, cached=True)) is not None:
        parts["memory"] = seconds / safety
    binds = max(parts, key=lambda name: parts[name])
    return Bound(parts[binds], binds, complete=len(parts) > 1)


def crowding_of(card: Gpu) -> float | None:
    """The logarithm of FLOP/s promised per watt: what is promised beyond the power limit isn't kept. Peaks that were
    measured have been kept."""
    watt, promised = card.value("watt"), card.flop_per_s("float32")
    if card.measured:
        return -math.inf
    return math.log(promised / watt) if watt and promised else None


def likely(work: Work, dtype: str, card: Gpu, factors: Mapping[str, Factor] | None = None) -> Likely | str:
    """The likely time; or why nothing is said. Where the operators are unknown the sums stand for one operator."""
    factors = learned_factors() if factors is None else factors
    operators = work.operators or _one_operator(work, dtype, card)
    if not operators:
        return "its operators are unknown"
    parts = [_likely_of(each, dtype, card, factors) for each in operators]
    spans = [part for part in parts if not isinstance(part, str)]
    if len(spans) < len(parts):
        return next(part for part in parts if isinstance(part, str))
    middle_s = sum(span.middle_s for span in spans)
    unlearned_s = sum(span.middle_s for each, span in zip(operators, spans, strict=True) if each.kind == "other")
    if unlearned_s > OTHER_SHARE * middle_s:
        return "nothing was learned of its operators"
    count = sum(each.count for each in operators)
    low_s = max(sum(span.low_s for span in spans), LEAST_KERNEL_S * count, shortest(work, dtype, card).seconds)
    high_s = sum(span.high_s for span in spans) + DISPATCH_S * count
    return Likely(low_s, max(middle_s, low_s), high_s)


def _likely_of(each: Operators, dtype: str, card: Gpu, factors: Mapping[str, Factor]) -> Likely | str:
    """Of one group of operators; where nothing was learned the bound itself stands for the fastest."""
    kind = {"convolution": "product", "other": "elementwise"}.get(each.kind, each.kind)
    factor, crowding = factors[kind], crowding_of(card)
    slow, fast = (_roofline_s(each, dtype, card, cached) for cached in (False, True))
    if slow is None or fast is None:
        return "a figure of the GPU is unknown"
    if factor.slope and crowding is None:
        return "the GPU's power limit is unknown"
    middle_s = factor.middle(slow, crowding or 0.0)
    if each.kind == kind and dtype == "float32":
        low_s = factor.low * factor.middle(fast, crowding or 0.0)
    else:
        low_s = fast / safety_of(card) / (FAST_CONVOLUTION if each.kind == "convolution" else 1.0)
    high_s = middle_s * (OTHER_HIGH if each.kind == "other" else factor.high)
    return Likely(each.count * low_s, each.count * middle_s, each.count * high_s)


def _roofline_s(each: Operators, dtype: str, card: Gpu, cached: bool) -> float | None:
    """Seconds of one of these operators; if ``cached``, with as much of its data in the last cache as fits."""
    arithmetic = arithmetic_s(each.flops / each.count, dtype, card)
    memory = memory_s(each.bytes / each.count, card, cached=False)
    if arithmetic is None or memory is None:
        return None
    beyond = memory_s(each.bytes / each.count, card, cached=True)
    return max(arithmetic, memory if not cached or beyond is None else max(beyond, memory / CACHE_RATE))


def _one_operator(work: Work, dtype: str, card: Gpu) -> tuple[Operators, ...]:
    if not work.bytes:
        return ()
    arithmetic, memory = arithmetic_s(work.flops or 0.0, dtype, card), memory_s(work.bytes, card, cached=False)
    kind = "product" if (arithmetic or 0.0) > (memory or 0.0) else "elementwise"
    return (Operators(kind, 1, work.flops or 0.0, work.bytes),)
