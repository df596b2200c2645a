"""What a single answer costs: the inputs copied to the device, one call, the outputs copied back.

Resident data hides the copies, which decide whether moving one call to an accelerator pays at all.
"""

from __future__ import annotations

import math

from .. import statistics
from ..records import Result, Times
from ..schema import REGIMES
from .labels import Row
from .table import ONE_SHOT_COLUMNS

RESIDENT, ONE_SHOT = REGIMES


def columns(base: Result, other: Result, base_s: float, time_s: float) -> dict[str, float | int | None]:
    """Of an accelerator against a CPU. The baseline copies nothing: its one shot is one call.

    As with resident data, two processes or more on either side count as one observation each.
    """
    found: dict[str, float | int | None] = dict.fromkeys(ONE_SHOT_COLUMNS)
    copied, pinned = copies_s(other), copies_s(other, pinned=True)
    if base.times is None or other.times is None or copied is None:
        return found
    ours, theirs = (list(calls_s(side.times).values()) for side in (base, other) if side.times)
    if min(len(ours), len(theirs)) < 2:
        ours, theirs = [base.times.latency_s or base.times.median_s], [other.times.latency_s or other.times.median_s]
    else:
        ratio = statistics.ratio_interval(ours, [copied + call for call in theirs])
        found |= {"one_shot_low": ratio.low, "one_shot_high": ratio.high}
    call = statistics.geometric_mean(ours)
    found["baseline_one_shot_s"] = call
    for name, copies in (("one_shot", copied), ("one_shot_pinned", pinned)):
        if copies is not None:
            seconds = statistics.geometric_mean([copies + call for call in theirs])
            found |= {f"{name}_s": seconds, f"{name}_speedup": call / seconds}
    found["break_even_calls"] = break_even_calls(copied, base_s, time_s)
    return found


def calls_s(times: Times) -> dict[int, float]:
    """By process: one call and its own wait."""
    return {process.index: process.latency_s or process.median_s for process in times.processes}


def break_even_calls(copied_s: float, base_s: float, time_s: float) -> int | None:
    """Calls on data that stays after which the accelerator has made up for the copies; None where it never does."""
    if time_s >= base_s:
        return None
    calls = copied_s / (base_s - time_s)
    return max(1, math.ceil(calls * (1 - 1e-9)))  # 10.000000000000002 calls are 10


def copies_s(result: Result, pinned: bool = False) -> float | None:
    """In and out, from and to pageable or page-locked host memory; None where one of them isn't known."""
    moved = result.transfer
    if moved is None:
        return None
    ways = ((moved.in_bytes, moved.in_pinned_s), (moved.out_bytes, moved.out_pinned_s))
    if not pinned:
        ways = ((moved.in_bytes, moved.in_s), (moved.out_bytes, moved.out_s))
    if any(nbytes and seconds is None for nbytes, seconds in ways):
        return None
    return sum(seconds for nbytes, seconds in ways if nbytes and seconds is not None)


def observations(result: Result, regime: str) -> dict[int, float]:
    """Seconds of a call by process: its median, or one call's latency with the copies of an accelerator."""
    if result.times is None:
        return {}
    if regime == RESIDENT:
        return {process.index: process.median_s for process in result.times.processes}
    copied = copies_s(result) or 0.0
    return {index: copied + call for index, call in calls_s(result.times).items()}


def speedup_of(row: Row) -> tuple[float, float, float] | None:
    """Value, low and high of a pair's one-shot speedup; without processes to tell, no range."""
    value = row["one_shot_speedup"]
    return None if value is None else (value, row["one_shot_low"] or value, row["one_shot_high"] or value)
