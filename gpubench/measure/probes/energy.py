"""Energy: joules a call, where the device counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...devices import Device
from ..clock import DeviceClock

SECONDS = 0.3
"""A counter moves every 20 to 100 ms: a stretch must be several times as long."""


def energy(call: Callable[[], Any], device: Device, clock: DeviceClock, call_s: float) -> float | None:
    """Joules per call over about 0.3 s of calls, what the device takes when idle included.

    ``None`` where the device has no counter, or where it didn't move.
    """
    before = device.kind.energy_j(device.index)
    if before is None:
        return None
    calls = max(3, int(SECONDS / max(call_s, 1e-7)))
    clock()
    before = device.kind.energy_j(device.index)
    for _ in range(calls):
        call()
    clock()
    after = device.kind.energy_j(device.index)
    used = (after or 0.0) - (before or 0.0)
    return used / calls if used > 0 else None
