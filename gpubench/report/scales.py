"""Ticks on logarithmic and linear axes, labelled in the field's units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..quantity import text
from .labels import raised, size_text

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
    if not unit and (value < 0.001 or value >= 1e6):
        power = math.floor(math.log10(value) + 1e-9)
        lead = f"{value / 10.0**power:.3g}"
        return f"{f'{lead}·' * (lead != '1')}{raised(power)}×"
    if not unit:
        return f"{value:,.0f}×" if value >= 1000 else f"{value:.4g}×"
    if value == 0:
        return "0"
    number, _, rest = text(value, unit, 4).partition(" ")
    return f"{float(number):g} {rest}"


BEYOND = 10.0
"""How many times beyond the outermost values their ranges are shown: wider ones would flatten what they surround."""

CUT = "Axes end a decade beyond the values: wider {} are cut there. "


def shown(values: Sequence[float], ranges: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Ends of the values and of their ranges, as far as these are worth showing."""
    low, high = min(values), max(values)
    lows, highs = zip((low, high), *ranges, strict=True)
    return max(min(lows), low / BEYOND), min(max(highs), high * BEYOND)


def is_cut(values: Sequence[float], ranges: Sequence[tuple[float, float]]) -> bool:
    """Whether an end of a range lies beyond what is shown."""
    low, high = shown(values, ranges)
    return any(start < low or end > high for start, end in ranges)


def padded(values: Sequence[float], share: float = 0.06, least: float = 1.25) -> tuple[float, float]:
    """Limits of a logarithmic axis: a share of its length free on either side, ``least`` a factor between ends."""
    low, high = min(values), max(values)
    if high / low < least:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(least), middle * math.sqrt(least)
    room = (high / low) ** share
    return low / room, high * room
