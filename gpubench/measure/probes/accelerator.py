"""All that only an accelerator has: its own time, the cost of launching, of copying, of power."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...devices import Device
from ..clock import DeviceClock
from .device import device_time
from .energy import energy
from .transfer import transfer

if TYPE_CHECKING:
    import torch

NOTHING: dict[str, Any] = {
    "device_s": None, "launch_s": None, "device_reason": None, "energy_j": None, "transfer": None
}  # fmt: skip


def probe(
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
    """The fields of a case's record, ``None`` on a CPU.

    ``call`` is ``None`` where it can't be repeated as it is; ``power``: whether to take the time that energy needs.
    """
    if not device.accelerator:
        return dict(NOTHING)
    record = dict(NOTHING)
    if call is None:
        record["device_reason"] = "the case sets up before every call"
    elif sum(used.accelerator for used in clock.devices) > 1:
        record["device_reason"] = "the call uses several devices"
    else:
        timed = device_time(call, device, call_s, flush)
        record |= {"device_s": timed.device_s, "launch_s": timed.launch_s, "device_reason": timed.reason}
        if power and flush is None:  # energy is counted over many calls in a row, whose cache is hot
            record["energy_j"] = energy(call, device, clock, call_s)
    # Of a call that also uses the host or another device, copying is the work itself.
    moved = transfer(inputs, outputs, device) if len(clock.devices) == 1 else None
    return record | {"transfer": dataclasses.asdict(moved) if moved else None}
