"""What may be said of a number: whether it is worth it, too noisy to state, or can't be."""

from __future__ import annotations

import math

from ..statistics import ALWAYS
from .crossover import Crossing
from .labels import Row, rounded_size, size_label, size_text, times_range, times_text
from .speedup import on_accelerator
from .sweep import Line

WORTH_IT, IF_IT_STAYS, NOT_WORTH_IT, UNSURE = "worth it", "if the data stays", "no", "unsure"
MARKS = {WORTH_IT: "✓", IF_IT_STAYS: "◐", NOT_WORTH_IT: "✗", UNSURE: "?"}
TOO_NOISY = "unknown (too noisy)"
WORTHWHILE = 1.5
"""A speedup below that isn't worth moving work to another device."""
NOISY_FACTOR = 4.0
"""An interval whose ends are further apart than that says nothing."""


def too_noisy(low: float | None, high: float | None) -> bool:
    """Whether an interval is wider than a factor of four."""
    return low is not None and high is not None and (low <= 0 or high > NOISY_FACTOR * low)


def speedup_words(row: Row) -> str:
    """``132× (111× to 141×)``; nothing but that it is unknown where the interval is too wide."""
    if too_noisy(row["low"], row["high"]):
        return TOO_NOISY
    return f"{times_text(row['speedup'])} ({times_range(row['low'], row['high'])})"


def copies_text(row: Row) -> str:
    """The speedup with inputs and results copied for every call."""
    if row["one_shot_speedup"] is None:
        return "—"
    return TOO_NOISY if too_noisy(row["one_shot_low"], row["one_shot_high"]) else times_text(row["one_shot_speedup"])


def verdict(row: Row) -> str:
    """Whether moving the work is worth it, judged at the low end of the intervals.

    Where nothing has to be copied, between two CPUs or two GPUs, resident data is all there is to judge.
    """
    if too_noisy(row["low"], row["high"]):
        return UNSURE
    copied = on_accelerator(row) and row["baseline_device"] == "cpu"
    shot_low = row["one_shot_speedup"] if row["one_shot_low"] is None else row["one_shot_low"]
    if row["low"] >= WORTHWHILE and not copied:
        return WORTH_IT
    if shot_low is not None and shot_low >= WORTHWHILE and not too_noisy(row["one_shot_low"], row["one_shot_high"]):
        return WORTH_IT
    if row["low"] >= WORTHWHILE:
        return IF_IT_STAYS
    return NOT_WORTH_IT if row["high"] < WORTHWHILE else UNSURE


def crossover_text(crossing: Crossing, line: Line, name: str) -> str:
    """From which size on the device is faster: only what the interval, or the sizes on either side, hold for sure."""
    known, sizes, label = crossing.crossover, [point.x for point in line.points], size_label(name)
    if len(sizes) == 1 or crossing.disputed or crossing.anywhere(sizes[0], sizes[-1]):
        return UNSURE
    if known.kind == ALWAYS:
        return "every size measured"
    if known.size is None:
        ahead = [point.x for point in line.points if point.y >= 1]
        upper = size_text(max(ahead) if ahead else sizes[-1], name)
        return f"{'only' if ahead else 'not'} up to {label} = {upper}"
    if known.low is None or known.high is None:
        below = max((point.x for point in line.points if point.y < 1), default=sizes[0])
        above = min((x for x in sizes if x > below), default=sizes[-1])
        return f"{label} between {size_text(below, name)} and {size_text(above, name)}"
    if not known.low or known.high == math.inf:
        return UNSURE
    return f"{label} ≈ {rounded_size(known.size, name)}"


def peak_text(share: float | None) -> str:
    """``73%`` of a measured peak; a dash where it is unknown, or above 100%, which can't be."""
    return "—" if share is None or share > 1 else "<1%" if share < 0.01 else f"{share:.0%}"
