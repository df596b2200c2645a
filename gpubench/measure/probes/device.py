"""Device time and launch cost: what one call keeps the device busy, and what it costs the host to ask for it.

Launches are queued behind a wait on the device itself, so that all are there before the first starts: between two
marks on the device there is then nothing but work. Without that wait, marks around a few launches measure the host.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...devices import Device
from ..clock import repeat

REPEATS = 5
QUEUED_S = 0.02
"""What one repeat may keep the device busy, roughly."""
MOST_CALLS = 50
"""A device's queue is finite: beyond about a thousand launches the host has to wait for it."""
LONGEST_HOLD = 0.5
TRIES = 4


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Median seconds per call on the device and on the host; ``reason`` where the former is unknown."""

    device_s: float | None
    launch_s: float | None
    reason: str | None = None


def device_time(call: Callable[[], Any], device: Device, call_s: float, flush: Callable[[], Any] | None) -> DeviceTime:
    """Queue calls behind a wait on the device and read the device's own clock around them.

    ``call_s`` is the expected wall time of one. ``flush``, if given, runs on the device before each call and outside
    its marks, of which an empty pair is taken off. A repeat counts only if the wait was still on when the last call
    was queued, otherwise the launches had gaps between them; then fewer are queued behind a longer wait, and it is
    given up at half a second.
    """
    calls = max(1, min(MOST_CALLS, int(QUEUED_S / max(call_s, 1e-9))))
    launch_s = _launch(call, device, calls)
    hold_s = 2 * calls * launch_s + 2e-4
    times: list[float] = []
    failures = 0
    while len(times) < REPEATS:
        if failures == TRIES or hold_s > LONGEST_HOLD:
            why = "the call waits for the device itself, or has more launches than fit its queue"
            return DeviceTime(None, launch_s, why)
        seconds = _repeat(call, device, calls, hold_s, flush)
        if seconds is None:
            return DeviceTime(None, launch_s, f"{device.kind} can't be made to wait on the device itself")
        if seconds >= 0:
            times.append(seconds)
        else:
            # Too many launches for the queue, or too short a wait: less of the one, more of the other.
            calls, failures = max(1, calls // 4), failures + 1
            hold_s = max(hold_s, 2 * calls * launch_s * 4**failures + 2e-4)
    return DeviceTime(statistics.median(times) or None, launch_s)


def _launch(call: Callable[[], Any], device: Device, calls: int) -> float:
    """Host seconds per call into an empty queue, with no wait at the end: the least of three."""
    times = repeat(call, device.now, least=3, most=3, calls=calls, before=device.synchronize)
    device.synchronize()
    return min(times) / calls


def _repeat(
    call: Callable[[], Any], device: Device, calls: int, hold_s: float, flush: Callable[[], Any] | None
) -> float | None:
    """Seconds per call; below 0 if the device had begun before all was queued; ``None`` if it can't be held."""
    device.synchronize()
    if not device.queue_wait(hold_s):
        return None
    held = device.record_event()
    marks = []
    if flush is None:
        start = device.record_event()
        for _ in range(calls):
            call()
        end = device.record_event()
    else:
        for _ in range(calls):
            flush()
            empty, start = device.record_event(), device.record_event()
            call()
            marks.append((empty, start, device.record_event()))
    early = held.query()
    device.synchronize()
    if early:
        return -1.0
    if flush is None:
        return start.elapsed_time(end) / 1e3 / calls
    alone = statistics.median(empty.elapsed_time(start) for empty, start, _ in marks)
    return max(0.0, statistics.median(start.elapsed_time(end) for _, start, end in marks) - alone) / 1e3
