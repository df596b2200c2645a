"""Why a GPU gains little: the largest cause that the recorded fields of a pair prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..runfile.quantities import ratio_text, seconds_text
from . import words
from .number import times
from .pairs import Pair
from .rows import FILLED, Measured, grouped

GAIN = 1.5
"""Speedups below this one have a cause."""
_STARVED_S = 1e-4
"""A GPU that is busy for longer at so small a share of its peak has enough work, and does it badly."""
_COARSE = 0.25
"""A GPU whose float64 reaches a smaller share of its float32 isn't made for it."""


class Cause(NamedTuple):
    """The seconds of a call that a cause takes, its kind, and a sentence."""

    seconds: float
    kind: str
    text: str


def why(pair: Pair) -> Cause | None:
    """Return why a GPU is slower than the CPU, or hardly faster, also with copies, or that launches decide; None where
    no recorded field proves a cause."""
    base, other = pair.sides
    if base.on_accelerator or not other.on_accelerator or pair.quality.doubt is not None:
        return None
    copied = pair.copies
    if pair.speedup >= GAIN and copied and copied.speedup < 1:
        text = f"slower only because of the copies: without them {times(pair.speedup)}"
        return Cause(copied.compared.time_s - other.time_s, "copies", text)
    if pair.speedup >= GAIN and not other.launch_bound:
        return None
    cause = max(_causes(base, other), default=None)
    return cause if cause and cause.seconds >= FILLED * other.time_s else None


def reasons(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, str, str]]:
    """Yield the causes of these pairs, once for each benchmark, device and kind: its longest pair, the sizes that it
    holds for (empty, ``at every size``, ``up to n=64``), and the sentence."""
    for members in grouped(
        pairs, lambda pair: (pair.other.result.workload, pair.other.setting, pair.other.source)
    ).values():
        members.sort(key=lambda pair: pair.other.time_s)
        causes = [(pair, cause) for pair in members if (cause := why(pair))]
        for found in grouped(causes, lambda each: each[1].kind).values():
            pair, cause = found[-1]
            sizes = " at every size" if len(found) == len(members) else f" up to {words.size(pair.other)}"
            yield pair, sizes * (len(members) > 1), cause.text


def _causes(base: Measured, other: Measured) -> Iterator[Cause]:
    """Yield the causes that take a part of a GPU's call."""
    result, time_s = other.result, other.time_s
    busy_s = min(result.device_s or time_s, time_s)
    if other.launch_bound:
        more = max(2.0, time_s / busy_s)
        yield Cause(
            time_s - busy_s,
            "launches",
            f"launching takes longer than the work (the GPU works {seconds_text(busy_s)} of {seconds_text(time_s)}):"
            f" a batch up to about {more:.0f} times this one costs nothing more, a faster GPU gains nothing",
        )
        return
    if result.device_s is None and result.device_reason:
        yield Cause(FILLED * time_s, "unknown", f"how long the GPU works is unknown: {result.device_reason}")
    share = other.utilisation
    if share is not None and share < FILLED:
        badly = busy_s > _STARVED_S
        text = "GPUs do such operators badly" if badly else "too little work to fill the GPU"
        text += f": it reaches {100 * share:.2g} % of its peak"
        yield Cause((1 - share) * busy_s, "operator" if badly else "little work", text)
    elif share is not None:
        yield from _limits(base, other, share * time_s)


def _limits(base: Measured, other: Measured, least_s: float) -> Iterator[Cause]:
    """Yield the limits of a GPU that is near its own peak: its dtype, or peaks that are hardly above the CPU's."""
    own, dtype = other.run.ceilings.get(other.result.device), other.result.compute_dtype
    rates = own.throughput if own else {}
    rate, usual = rates.get(dtype), rates.get("float32")
    if dtype == "float64" and rate and usual and rate < _COARSE * usual:
        text = f"float64: this GPU's products reach 1/{usual / rate:.0f} of its float32"
        yield Cause((1 - rate / usual) * least_s, "float64", text)
    if base.utilisation and (gain := base.utilisation * base.time_s / least_s) < 2 * GAIN:
        text = f"by the peaks of both this work can be {ratio_text(gain)} as fast as on this CPU, and no faster"
        yield Cause(least_s / 2, "peaks", text)
