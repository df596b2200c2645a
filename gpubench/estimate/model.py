"""How long work takes on a card: the least possible time, by physics, and the likely time, from other cards' timings.

:func:`shortest` takes only what no fusion, cache or compiler avoids. :func:`likely` goes operator by operator, as
:mod:`gpubench.devices.roofline` does; docs/estimate.md has its measured errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..devices.datasheets import Gpu
from ..devices.roofline import (
    DISPATCH_S,
    LEAST_KERNEL_S,
    Factor,
    arithmetic_s,
    factor_of,
    kind_by_sums,
    learned_factors,
    memory_s,
)
from ..runfile.schema import Operators, Work

SAFETY, SAFETY_ABOVE_DATASHEET = 1.1, 1.2
"""Divisors of the bound: for a datasheet, and for one that the card exceeds (GeForce in half precision reached 1.16
times theirs)."""
LEAST_CALL_S = 2e-6
"""Least seconds of a call: less than any launch that we know of (a round trip takes 6–9 µs on an RTX 5060 and an
MI300X, by clpeak's README)."""
FAST_CONVOLUTION = 4.0
"""Winograd's F(4x4, 3x3) does this many times fewer multiplications than are counted (A. Lavin, S. Gray, *Fast
Algorithms for Convolutional Neural Networks*, 2016)."""
CACHE_RATE = 5.0
"""The last cache is assumed to be at most this many times as fast as the memory. No source states it for all cards, so
only likely times rest on it, no bound."""
OTHER_SHARE, OTHER_HIGH = 0.2, 4.0
"""Share of the time that operators without learned factors may take up, and how many times their bound they may
take."""


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


def safety_of(card: Gpu) -> float:
    """The divisor of this card's bound."""
    return SAFETY_ABOVE_DATASHEET if card.beats_datasheet else SAFETY


def least_flops(work: Work) -> float:
    """FLOPs that every algorithm in use needs."""
    convolutions = sum(each.flops for each in work.operators if each.kind == "convolution")
    return max(0.0, (work.flops or 0.0) - convolutions * (1 - 1 / FAST_CONVOLUTION))


def shortest(work: Work, dtype: str, card: Gpu) -> Bound:
    """The time that no program for this card can beat."""
    parts, safety = {"launch": LEAST_CALL_S}, safety_of(card)
    if work.flops and (seconds := arithmetic_s(least_flops(work), dtype, card)) is not None:
        parts["arithmetic"] = seconds / safety
    if work.bytes and (seconds := memory_s(work.bytes, card, cached=True)) is not None:
        parts["memory"] = seconds / safety
    binds = max(parts, key=lambda name: parts[name])
    return Bound(parts[binds], binds, complete=len(parts) > 1)


def likely(work: Work, dtype: str, card: Gpu, factors: Mapping[str, Factor] | None = None) -> Likely | str:
    """The likely time, or the reason why there is none. Where the operators are unknown the sums stand for one
    operator."""
    factors = learned_factors() if factors is None else factors
    if dtype in card.emulates:
        return f"the {card.name} emulates {dtype}"
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
    """The likely time of one group of operators; where nothing was learned the bound itself stands for the fastest."""
    slow, fast = (_roofline_s(each, dtype, card, cached) for cached in (False, True))
    if slow is None or fast is None:
        return "a figure of the GPU is unknown"
    if (found := factor_of(each.kind, card, factors)) is None:
        return "the GPU's power limit is unknown"
    factor, crowding = found
    middle_s = factor.middle(slow, crowding)
    if each.kind in factors and dtype == "float32":
        low_s = factor.low * factor.middle(fast, crowding)
    else:
        low_s = fast / safety_of(card) / (FAST_CONVOLUTION if each.kind == "convolution" else 1.0)
    high_s = middle_s * (OTHER_HIGH if each.kind == "other" else factor.high)
    return Likely(each.count * low_s, each.count * middle_s, each.count * high_s)


def _roofline_s(each: Operators, dtype: str, card: Gpu, cached: bool) -> float | None:
    """Seconds that the roofline allows one of these operators; if ``cached``, with as much of its data in the last
    cache as fits."""
    arithmetic = arithmetic_s(each.flops / each.count, dtype, card)
    memory = memory_s(each.bytes / each.count, card)
    if arithmetic is None or memory is None:
        return None
    beyond = memory_s(each.bytes / each.count, card, cached=True)
    return max(arithmetic, memory if not cached or beyond is None else max(beyond, memory / CACHE_RATE))


def _one_operator(work: Work, dtype: str, card: Gpu) -> tuple[Operators, ...]:
    if not work.bytes:
        return ()
    kind = kind_by_sums(work.flops or 0.0, work.bytes, dtype, card)
    return (Operators(kind, 1, work.flops or 0.0, work.bytes),)
