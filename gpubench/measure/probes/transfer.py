"""Transfers: what it takes to bring a case's own inputs to its device, and its outputs back."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...devices import CPU, Device
from ...errors import TooLarge
from ...runfile.schema import Transfer
from ..clock import DeviceClock, repeat
from ..data import require_memory

if TYPE_CHECKING:
    import torch

FEWEST, MOST, COPIES_S = 3, 20, 0.05
"""Copies each way: at least and at most so many, within about so long."""


def transfer(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], device: Device) -> Transfer | None:
    """Median seconds of all copies of one direction with one wait at the end.

    A case's inputs are overwritten with themselves. ``None`` if it has no tensor on its device, or no room on the
    host for their copies.
    """
    inputs, outputs = _distinct(inputs, device), _distinct(outputs, device)
    sizes = sum(t.nbytes for t in inputs), sum(t.nbytes for t in outputs)
    if not any(sizes):
        return None
    try:
        require_memory(2 * max(sizes), CPU)
    except TooLarge:
        return None
    times: dict[str, float | None] = {}
    for name, tensors, arriving in (("in", inputs, True), ("out", outputs, False)):
        for suffix, pinned in (("_s", False), ("_pinned_s", True)):
            times[name + suffix] = _copies(tensors, device, arriving, pinned) if tensors else None
    return Transfer(sizes[0], sizes[1], **times)


def _distinct(tensors: Sequence[torch.Tensor], device: Device) -> list[torch.Tensor]:
    """Those on the device, each memory once."""
    distinct: dict[Any, torch.Tensor] = {}
    for tensor in tensors:
        resident = str(tensor.device) == str(device) or (tensor.device.type == device.kind and not device.index)
        if resident and tensor.numel():
            distinct.setdefault(
                (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape), tensor.detach()
            )
    # Of a view with gaps as many bytes travel as it has elements.
    return [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in distinct.values()]


def _copies(tensors: Sequence[torch.Tensor], device: Device, arriving: bool, pinned: bool) -> float | None:
    import torch

    hosts = []
    for tensor in tensors:
        host = torch.empty_like(tensor, device="cpu").copy_(tensor)
        try:
            hosts.append(host.pin_memory() if pinned else host)
        except (RuntimeError, NotImplementedError):  # a kind without pinned memory
            return None
    pairs = zip(tensors, hosts, strict=True)
    copies = [(tensor, host) if arriving else (host, tensor) for tensor, host in pairs]

    def once() -> None:
        for target, source in copies:
            target.copy_(source, non_blocking=True)

    once()
    return statistics.median(repeat(once, DeviceClock([device]), least=FEWEST, most=MOST, seconds=COPIES_S))
