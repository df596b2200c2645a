"""Ticks on logarithmic and linear axes, labelled in the field's units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..quantity import text
from .labels import size_text

Ticks = list[tuple[float, str]]


def size_ticks(sizes: Iterable[float], name: str, most: int) -> Ticks:
    """Ticks at sizes that were measured, as many as there is room for."""
    values = sorted(set(sizes))
    if len(values) == 1:
        return [(values[0], size_text(values[0], name))]
    gap = math.log(values[-1] / values[0]) / most
    kept = [values[0]]
    for value in values[1:]:
        if math.log(value / kept[-1]) >= gap * 0.99:
            kept.append(value)
    return [(value, size_text(value, name)) for value in kept]


def log_ticks(low: float, high: float, unit: str, most: int = 6) -> Ticks:
    """Decades, or steps of 1-2-5 where there are few decades, or every so many decades; ``×`` without a unit."""
    if high / low < 2:
        return linear_ticks(low, high, unit)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values: list[float] = []
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        values = [value for value in values if low <= value <= high]
        if len(values) <= most:
            break
    if len(values) > most:
        stride = math.ceil(len(values) / most)
        values = [value for value in values if round(math.log10(value)) % stride == 0]
    if len(values) < 2:
        return linear_ticks(low, high, unit, most=4)
    return [(value, tick_text(value, unit)) for value in values]


def linear_ticks(low: float, high: float, unit: str, most: int = 6) -> Ticks:
    """Round values within the range."""
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    values = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return [(value, tick_text(value, unit)) for value in values]


def tick_text(value: float, unit: str) -> str:
    """``100 µs``, ``2 TFLOP/s``, ``0.5×``: as short as a round value can be."""
    if not unit:
        return f"{value:,.0f}×" if value >= 1000 else f"{value:.4g}×"
    if value == 0:
        return "0"
    number, _, rest = text(value, unit, 4).partition(" ")
    return f"{float(number):g} {rest}"


def padded(values: Sequence[float], share: float = 0.06, least: float = 1.25) -> tuple[float, float]:
    """Limits of a logarithmic axis: a share of its length free on either side, ``least`` a factor between ends."""
    low, high = min(values), max(values)
    if high / low < least:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(least), middle * math.sqrt(least)
    room = (high / low) ** share
    return low / room, high * room
