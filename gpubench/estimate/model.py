"""How long work takes on a card: the least possible time, by physics, and the likely time, from other cards' timings.

:func:`shortest` takes only the work that no fusion, cache or compiler avoids. :func:`likely` goes operator by operator,
as :mod:`gpubench.estimate.roofline` does; docs/estimate.md has its measured errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ..runfile.schema import Operators, Work
from .datasheets import PEAKS, Gpu
from .roofline import (
    DISPATCH_S,
    LEAST_KERNEL_S,
    Factor,
    Shares,
    arithmetic_s,
    kind_by_sums,
    learned_values,
    memory_s,
    parts_of,
    reached,
    spread,
)

SAFETY, SAFETY_ABOVE_DATASHEET = 1.1, 1.2
"""Divisors of the bound: for a datasheet, and for one that the card exceeds (GeForce in half precision reached 1.16
times theirs)."""
LEAST_CALL_S = 2e-6
"""Least seconds of a call: less than any known launch (a round trip takes 6–9 µs on an RTX 5060 and an MI300X, by
clpeak's README)."""
FAST_CONVOLUTION = 4.0
"""Winograd's F(4x4, 3x3) does this many times fewer multiplications than are counted (A. Lavin, S. Gray, *Fast
Algorithms for Convolutional Neural Networks*, 2016)."""
CACHE_RATE = 5.0
"""The last cache is assumed to be at most this many times as fast as the memory. No source states it for all cards, so
only likely times rest on it, no bound."""
OTHER_SHARE, OTHER_HIGH = 0.5, 4.0
"""Share of the time that operators without learned factors may take up, and how many times their bound they may
take."""
GUESS = 0.5, 2.0
"""Half to twice the middle, where no time of such work has been compared: convolutions, and dtypes but float32."""
EAGER_S, EAGER_LEAST = (23e-6, 40e-6), 20
"""Seconds per operator of a network that PyTorch runs eagerly, with ``nn.Module`` and Python: ResNet-50 at batch 1 has
about 175 kernels and takes 4 to 7 ms on fast GPUs of any size. So many operators make a network."""
LAYERS = 0.02
"""Least share of convolutions and normalisations among a network's operators: the loss at the end of a loop over cells
is one softmax among thousands of operators."""
_NETWORKS = "whole networks"
BASES = {"product": "products", "elementwise": "elementwise work", "normalisation": "softmax and layer norm"}
OPERATORS_UNKNOWN = "its operators are unknown"
NOTHING_LEARNED = "nothing was learned of its operators"


@dataclass(frozen=True)
class Bound:
    """The shortest possible time, and the limit that makes it: ``arithmetic``, ``memory`` or ``launch``. ``complete``
    is false if the work or a figure of the card is unknown, so that only a launch is left."""

    seconds: float
    binds: str
    complete: bool


@dataclass(frozen=True)
class Likely:
    """An interval of seconds, its middle, and the work that was compared: ``products``, another key of
    :attr:`~gpubench.estimate.roofline.Learned.held`, or empty for a guess. ``launches``: they are most of
    ``high_s``."""

    low_s: float
    middle_s: float
    high_s: float
    basis: str = ""
    launches: bool = False


def shortest(work: Work, dtype: str, card: Gpu) -> Bound:
    """Return the time that no program for this card can beat."""
    parts, safety = {"launch": LEAST_CALL_S}, SAFETY_ABOVE_DATASHEET if card.beats_datasheet else SAFETY
    convolutions = sum(each.flops for each in work.operators if each.kind == "convolution")
    least = max(0.0, (work.flops or 0.0) - convolutions * (1 - 1 / FAST_CONVOLUTION))  # by the fastest algorithm
    if work.flops and (seconds := arithmetic_s(least, card.flop_per_s(dtype))) is not None:
        parts["arithmetic"] = seconds / safety
    if work.bytes and (seconds := memory_s(work.bytes, card, cached=True)) is not None:
        parts["memory"] = seconds / safety
    binds = max(parts, key=lambda name: parts[name])
    return Bound(parts[binds], binds, complete=len(parts) > 1)


def likely(
    work: Work, dtype: str, card: Gpu, factors: Mapping[str, Factor] | None = None, shares: Shares | None = None
) -> Likely | str:
    """Return the likely time, or the reason why there is none. If the operators are unknown, the sums stand for one."""
    operators, flops = work.operators, work.flops or 0.0
    if not operators and work.bytes:
        operators = (Operators(kind_by_sums(flops, work.bytes), 1, flops, work.bytes),)
        work = replace(work, operators=operators)
    spans = work_on(operators, dtype, card, factors, shares)
    if isinstance(spans, str):
        return spans
    middle_s, count = sum(span.middle_s for span in spans), sum(each.count for each in operators)
    layers = sum(each.count for each in operators if each.kind in ("convolution", "normalisation"))
    network = count >= EAGER_LEAST and layers >= LAYERS * count
    least_s, most_s = EAGER_S if network else (LEAST_KERNEL_S, DISPATCH_S)
    bound_s = shortest(work, dtype, card).seconds * (1.0 if card.beats_datasheet else SAFETY)  # likely, not possible
    low_s = max(sum(span.low_s for span in spans), least_s * count, bound_s)
    high_s = sum(span.high_s for span in spans) + most_s * count
    longest = max(spans, key=lambda span: span.middle_s).basis
    compared = all(span.basis for each, span in zip(operators, spans, strict=True) if each.kind != "other")
    basis = (_NETWORKS if network else longest) if compared else ""
    return Likely(low_s, min(max(middle_s, low_s), high_s), high_s, basis, most_s * count > high_s / 2)


def work_on(
    operators: Sequence[Operators],
    dtype: str,
    card: Gpu,
    factors: Mapping[str, Factor] | None = None,
    shares: Shares | None = None,
) -> list[Likely] | str:
    """Return the likely time of each group of operators, without their launches, or the reason why there is none."""
    factors = learned_values().kinds if factors is None else factors
    if dtype in card.emulates:
        return f"the {card.name} emulates {dtype}"
    if dtype not in PEAKS:
        return f"GPUs' figures in {dtype} are unknown"
    if not operators:
        return OPERATORS_UNKNOWN
    rate, spans, others_s = reached(dtype, card, shares), list[Likely](), 0.0
    for each in operators:
        kind = each.kind if each.kind in {*factors, "convolution"} else "other"  # as a newer version's kind is
        span = _likely_of(kind, each, dtype, card, rate, factors)
        if span is None:
            return "a figure of the GPU is unknown"
        spans.append(span)
        others_s += span.middle_s * (kind == "other")
    return NOTHING_LEARNED if others_s > OTHER_SHARE * sum(span.middle_s for span in spans) else spans


def _likely_of(
    kind: str, each: Operators, dtype: str, card: Gpu, rate: float | None, factors: Mapping[str, Factor]
) -> Likely | None:
    """Return the likely time of one group of operators; None if a figure of the card is unknown. At its fastest as much
    of its data is in the last cache as that holds; of elementwise work, which reads each byte once, nothing is left
    there of twice as much; a sort waits for its passes, one after another."""
    nbytes = each.bytes / each.count
    parts = parts_of((kind, each.flops / each.count, nbytes), rate, card, factors)
    if parts is None:
        return None
    factor, arithmetic, memory = parts
    learned = kind in factors and dtype == "float32"
    low, high = (factor.low, factor.high ** spread(arithmetic, memory)) if learned else GUESS
    held = (card.value("cache") or 0.0) / (nbytes or 1.0) * (kind != "sort")
    if kind == "elementwise":  # its bytes are as fast in any dtype, its arithmetic isn't
        low, held = factor.low, max(0.0, 2 * held - 1)
    if kind == "other":
        low, high = 1 / factor.times, OTHER_HIGH
    low_s = low * factor.middle(arithmetic, memory * max(1 - held, 1 / CACHE_RATE))
    middle_s = factor.middle(arithmetic, memory)
    low_s, middle_s, high_s = (each.count * seconds for seconds in (low_s, middle_s, high * middle_s))
    return Likely(low_s, middle_s, high_s, BASES.get(kind, "") * learned)
