"""Why a GPU gains little: the largest cause that the recorded fields of a pair prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..runfile.quantities import ratio_text, seconds_text, times
from . import words
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
    """Return why a GPU is slower than the CPU, or hardly faster, also with copies, or that launches decide; None if
    no recorded field proves a cause."""
    base, gpu = pair.sides
    if base.on_accelerator or not gpu.on_accelerator or pair.quality.doubt is not None:
        return None
    copied = pair.copies
    if pair.speedup >= GAIN and copied and copied.speedup < 1:
        text = f"slower only because of the copies: without them {times(pair.speedup)}"
        return Cause(copied.compared.time_s - gpu.time_s, "copies", text)
    if pair.speedup >= GAIN and not gpu.launch_bound:
        return None
    cause = max(_causes(base, gpu), default=None)
    return cause if cause and cause.seconds >= FILLED * gpu.time_s else None


def reasons(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, str, str]]:
    """Yield the causes of these pairs, once for each benchmark, device and kind: its longest pair, the sizes that it
    holds for (empty, ``at every size``, ``up to n=64``), and the sentence."""
    by_device = grouped(pairs, lambda pair: (pair.other.result.workload, pair.other.setting, pair.other.source))
    for members in by_device.values():
        members.sort(key=lambda pair: pair.other.time_s)
        causes = [(pair, cause) for pair in members if (cause := why(pair))]
        for alike in grouped(causes, lambda entry: entry[1].kind).values():
            pair, cause = alike[-1]
            sizes = " at every size" if len(alike) == len(members) else f" up to {words.size(pair.other)}"
            yield pair, sizes * (len(members) > 1), cause.text


def _causes(base: Measured, gpu: Measured) -> Iterator[Cause]:
    """Yield the causes that take a part of a GPU's call: near its own peak, its dtype, or a peak like the CPU's."""
    result, time_s, share = gpu.result, gpu.time_s, gpu.utilisation
    busy_s = min(result.device_s or time_s, time_s)
    if gpu.launch_bound:
        more = max(2.0, time_s / busy_s)
        text = f"launching takes longer than the work (the GPU works {seconds_text(busy_s)} of {seconds_text(time_s)}):"
        text += f" a batch up to about {more:.0f} times this one costs nothing more, a faster GPU gains nothing"
        yield Cause(time_s - busy_s, "launches", text)
        return
    if result.device_s is None and result.device_reason:
        yield Cause(FILLED * time_s, "unknown", f"how long the GPU works is unknown: {result.device_reason}")
    if share is None:
        return
    if share < FILLED:
        badly = busy_s > _STARVED_S
        text = "GPUs do such operators badly" if badly else "too little work to fill the GPU"
        text += f": it reaches {100 * share:.2g} % of its peak"
        yield Cause((1 - share) * busy_s, "operator" if badly else "little work", text)
        return
    rates = gpu.ceilings.throughput if gpu.ceilings else {}
    rate, usual, least_s = rates.get(result.compute_dtype), rates.get("float32"), share * time_s
    if result.compute_dtype == "float64" and rate and usual and rate < _COARSE * usual:
        text = f"float64: this GPU's products reach 1/{usual / rate:.0f} of its float32"
        yield Cause((1 - rate / usual) * least_s, "float64", text)
    if base.utilisation and (gain := base.utilisation * base.time_s / least_s) < 2 * GAIN:
        text = f"by the peaks of both this work can be {ratio_text(gain)} as fast as on this CPU, and no faster"
        yield Cause(least_s / 2, "peaks", text)
