"""Latency: what a single answer costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from ..clock import DeviceClock

CALLS = 100
SECONDS = 0.02


def latency(call: Callable[[], Any], clock: DeviceClock, call_s: float) -> float:
    """Median seconds of one call with its own wait, over at most 100 calls and about 20 ms, but 3 at least.

    ``call_s`` is the expected length of one.
    """
    times = []
    for _ in range(max(3, min(CALLS, int(SECONDS / max(call_s, 1e-9))))):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)
