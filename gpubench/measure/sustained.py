"""Sustained rates: a device's matrix product for many seconds, until heat and power limits take effect.

A benchmark lasts a fraction of a second, and so does the measurement of a peak. Both are over before clocks fall.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..devices import Device
from ..devices.cpu import highest_clock
from ..runfile.schema import Ceilings, Sustained
from .ceilings import SIZES, product_makers, random_matrix
from .clock import DeviceClock, repeat

SECONDS = 20
DTYPE = "float32"
CALL_S, STRETCH_S = 0.25, 0.1
"""Seconds of the longest call, and of the calls that are queued without a wait."""


def sustained(device: Device, peaks: Ceilings) -> Sustained | None:
    """Measure the fastest library's largest product whose call stays short; ``None`` if the device has no known
    peak."""
    rate, memory = peaks.throughput.get(DTYPE), device.memory()
    if not rate:
        return None
    room = memory.free // 4 if memory else None
    fitting = [n for n in SIZES if 2 * n**3 / rate <= CALL_S and (room is None or 12 * n * n <= room)]
    n = max(fitting, default=SIZES[0])
    ways = peaks.ways.get(DTYPE, {})
    library = max(ways, key=lambda way: ways[way], default="torch")
    with product_makers(device, DTYPE, {library}) as makers:
        if library not in makers:
            return None
        call = makers[library](random_matrix(n, DTYPE, device))
        rates, clocks, power = over_time(device, call, 2.0 * n**3)
    return Sustained(DTYPE, n, library, tuple(rates), tuple(clocks), tuple(power))


def over_time(
    device: Device, call: Callable[[], Any], flops: float, seconds: int = SECONDS
) -> tuple[list[float], list[float], list[float]]:
    """Return FLOP/s, clock in Hz and power in W of each second; the last two are empty where the device reports
    none."""
    clock = DeviceClock([device])
    call()
    calls = max(1, int(STRETCH_S / max(min(repeat(call, clock, least=2, most=2)), 1e-9)))
    rates: list[float] = []
    clocks: list[float | None] = []
    power: list[float | None] = []
    while len(rates) < seconds:
        done, start, before = 0, clock(), device.energy_j()
        while (now := clock()) < start + 1:
            for _ in range(calls):
                call()
            done += calls
        after = device.energy_j()
        rates.append(done * flops / (now - start))
        clocks.append(_clock(device))
        power.append((after - before) / (now - start) if after is not None and before is not None else None)
    return rates, _known(clocks), _known(power)


def _clock(device: Device) -> float | None:
    if not device.accelerator:
        return highest_clock()
    clocks = device.clocks() or {}
    return clocks.get("sm") or next(iter(clocks.values()), None)


def _known(values: list[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []
