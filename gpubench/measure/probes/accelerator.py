"""What only a few devices tell: latency, peak memory, energy, and all that an accelerator's record holds besides."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...devices import Device
from ...errors import Unmeasurable
from ..clock import DeviceClock, repeat
from .device import device_time
from .transfer import transfer

if TYPE_CHECKING:
    import torch

LATENCY_CALLS = 100
LATENCY_S = 0.02
ENERGY_S = 0.3
"""Seconds of calls over which energy is counted: several times the 20 to 100 ms between two steps of a counter."""


class Flush:
    """Call it before a round to empty the device's last cache, by writing as many bytes as the cache holds.

    Raises :class:`Unmeasurable` where the size of the cache is unknown.
    """

    def __init__(self, device: Device) -> None:
        size = device.cache_bytes()
        if not size:
            raise Unmeasurable(f"{device} doesn't tell the size of its cache, so it can't be flushed")
        import torch

        self._room = torch.empty(size, dtype=torch.int8, device=str(device))

    def __call__(self) -> None:
        """Write over the device's last cache."""
        self._room.zero_()


def latency(call: Callable[[], Any], clock: DeviceClock) -> float:
    """Median seconds of one call with its own wait, over at most 100 calls and about 20 ms, but 3 at least."""
    return statistics.median(repeat(call, clock, least=3, most=LATENCY_CALLS, seconds=LATENCY_S))


class Peak:
    """The most bytes that a case held on its device at once, inputs included, by torch's allocator.

    Make it before the case's data, since what the process held by then is left out; reset it before the rounds.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._before = device.allocated_memory()

    def reset(self) -> None:
        """Forget what was only needed to prepare the calls."""
        self._device.reset_peak_memory()

    def bytes(self) -> int | None:
        """``None`` on kinds that don't count."""
        peak = self._device.peak_memory()
        if peak is None or self._before is None:
            return None
        return max(0, peak - self._before)


def energy(call: Callable[[], Any], device: Device, clock: DeviceClock, call_s: float) -> float | None:
    """Joules per call over about 0.3 s of calls, idle power included; ``None`` without a counter that moves."""
    before = device.energy_j()
    if before is None:
        return None
    calls = max(3, int(ENERGY_S / max(call_s, 1e-7)))
    clock()
    before = device.energy_j()
    for _ in range(calls):
        call()
    clock()
    after = device.energy_j()
    used = (after or 0.0) - (before or 0.0)
    return used / calls if used > 0 else None


def probe(  # noqa: PLR0913 - facts of the call that only the fixture has
    call: Callable[[], Any] | None,
    device: Device,
    clock: DeviceClock,
    *,
    call_s: float,
    flush: Callable[[], Any] | None,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    power: bool,
) -> dict[str, Any]:
    """Fields of a case's :class:`~gpubench.runfile.schema.Measurement`; none on a CPU.

    ``call`` is ``None`` where it can't be repeated as it is; ``power``: whether to take the time that energy needs.
    """
    if not device.accelerator:
        return {}
    record: dict[str, Any] = {}
    if call is None:
        record["device_reason"] = "the case sets up before every call"
    elif sum(used.accelerator for used in clock.devices) > 1:
        record["device_reason"] = "the call uses several devices"
    else:
        timed = device_time(call, device, call_s, flush)
        record |= {"device_s": timed.device_s, "launch_s": timed.launch_s, "device_reason": timed.reason}
        if power and flush is None:  # energy is counted over many calls in a row, whose cache is hot
            record["energy_j"] = energy(call, device, clock, call_s)
    # Where a call also uses the host or another device, copying is the work itself.
    moved = transfer(inputs, outputs, device) if len(clock.devices) == 1 else None
    return record | {"transfer": moved}
