"""How long work takes on a card: the least possible time, by physics, and the likely time, from other cards' timings.

Both go by the roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009): the larger of
the arithmetic's time and the time of the bytes at the memory's rate. Bounds take both from the card's datasheet, and
only the work that no fusion, cache or compiler avoids. Likely times go operator by operator: they take the arithmetic
that products are known to reach, and a norm between the sum and the larger of both times, since they overlap in part,
times a factor that ``docs/experiments/learn_estimate.py`` learned; docs/estimate.md reports the errors. The simulated
device takes them too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..runfile.schema import Operators, Work
from .datasheets import PEAKS, Gpu

LEARNED = Path(__file__).with_name("factors.json")
LEAST_KERNEL_S, DISPATCH_S = 3e-6, 1e-5
"""Seconds per operator: the least of a kernel, as in aiconfigurator, and of eager PyTorch on the host. Of the latter
about half is Python and PyTorch's dispatcher, measured with a small tensor on a CPU, and half is the driver."""
OVERLAP = 1.5
"""Exponent of the norm: 1 for one after the other, infinity for both at once; the best of a few that were tried."""
STREAMING = "streaming"
"""The factor of elementwise work on a card with a published rate of its memory, relative to that rate."""
_LIKE = {"convolution": "product", "other": "elementwise"}
"""The kind that lends its factor to a kind of operator without a learned one."""
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
BASES = {"product": "products", "elementwise": "elementwise work", "normalisation": "softmax and layer norm"}
_NETWORKS, OPERATORS_UNKNOWN = "whole networks", "its operators are unknown"
NOTHING_LEARNED = "nothing was learned of its operators"


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
    :attr:`Learned.held`, or empty for a guess. ``launches``: they are most of ``high_s``."""

    low_s: float
    middle_s: float
    high_s: float
    basis: str = ""
    launches: bool = False


def overlapping_s(arithmetic_s: float, memory_s: float) -> float:
    """Return the seconds of both, partly at the same time."""
    return float((arithmetic_s**OVERLAP + memory_s**OVERLAP) ** (1 / OVERLAP))


def spread(arithmetic_s: float, memory_s: float) -> float:
    """Return the power of a factor's high end: 1 for arithmetic alone, 2 from where memory takes as long."""
    return 1 + min(1.0, memory_s / arithmetic_s if arithmetic_s else 1.0)


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


def likely(work: Work, dtype: str, card: Gpu, learned: Learned | None = None) -> Likely | str:
    """Return the likely time by ``learned`` factors and shares (default: the package's), or the reason why there is
    none. If the operators are unknown, the sums stand for one."""
    operators, flops = work.operators, work.flops or 0.0
    if not operators and work.bytes:
        operators = (Operators(kind_by_sums(flops, work.bytes), 1, flops, work.bytes),)
        work = replace(work, operators=operators)
    spans = work_on(operators, dtype, card, learned)
    if isinstance(spans, str):
        return spans
    low_s, middle_s, high_s = (sum(getattr(span, end) for span in spans) for end in ("low_s", "middle_s", "high_s"))
    count = sum(each.count for each in operators)
    layers = sum(each.count for each in operators if each.kind in ("convolution", "normalisation"))
    network = count >= EAGER_LEAST and layers >= LAYERS * count
    least_s, most_s = EAGER_S if network else (LEAST_KERNEL_S, DISPATCH_S)
    bound_s = shortest(work, dtype, card).seconds * (1.0 if card.beats_datasheet else SAFETY)  # likely, not possible
    low_s, high_s = max(low_s, least_s * count, bound_s), high_s + most_s * count
    compared = all(span.basis for each, span in zip(operators, spans, strict=True) if each.kind != "other")
    basis = _NETWORKS if network else max(spans, key=lambda span: span.middle_s).basis
    return Likely(low_s, min(max(middle_s, low_s), high_s), high_s, basis * compared, most_s * count > high_s / 2)


def work_on(
    operators: Sequence[Operators], dtype: str, card: Gpu, learned: Learned | None = None
) -> list[Likely] | str:
    """Return the likely time of each group of operators, without their launches, or the reason why there is none."""
    learned = learned or learned_values()
    factors = learned.kinds
    if dtype in card.emulates:
        return f"the {card.name} emulates {dtype}"
    if dtype not in PEAKS:
        return f"GPUs' figures in {dtype} are unknown"
    if not operators:
        return OPERATORS_UNKNOWN
    rate, spans, others_s = reached(dtype, card, learned.shares), list[Likely](), 0.0
    for each in operators:
        kind = each.kind if each.kind in {*factors, "convolution"} else "other"  # as a newer version's kind is
        parts = parts_of((kind, each.flops / each.count, each.bytes / each.count), rate, card, factors)
        if parts is None:
            return "a figure of the GPU is unknown"
        spans.append(_likely_of(kind, each, card, parts, learned=kind in factors and dtype == "float32"))
        others_s += spans[-1].middle_s * (kind == "other")
    return NOTHING_LEARNED if others_s > OTHER_SHARE * sum(span.middle_s for span in spans) else spans


def _likely_of(kind: str, each: Operators, card: Gpu, parts: tuple[Factor, float, float], learned: bool) -> Likely:
    """Return the likely time of one group of operators. At its fastest as much of its data is in the last cache as that
    holds; of elementwise work, which reads each byte once, nothing is left there of twice as much; a sort waits for its
    passes, one after another."""
    factor, arithmetic, memory = parts
    low, high = (factor.low, factor.high ** spread(arithmetic, memory)) if learned else GUESS
    held = (card.value("cache") or 0.0) / (each.bytes / each.count or 1.0) * (kind != "sort")
    if kind == "elementwise":  # its bytes are as fast in any dtype, its arithmetic isn't
        low, held = factor.low, max(0.0, 2 * held - 1)
    if kind == "other":
        low, high = 1 / factor.times, OTHER_HIGH
    least_s = low * factor.middle(arithmetic, memory * max(1 - held, 1 / CACHE_RATE))
    middle_s = factor.middle(arithmetic, memory)
    low_s, middle_s, high_s = (each.count * seconds for seconds in (least_s, middle_s, high * middle_s))
    return Likely(low_s, middle_s, high_s, BASES.get(kind, "") * learned)
