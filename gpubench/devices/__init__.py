"""Devices: the only place that knows their kinds.

torch is imported when a question needs it, never before.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import UsageError
from .cpu import Cpu
from .cuda import Cuda
from .generic import TorchModule, registered
from .kind import Device, Kind, Memory
from .mps import Mps

__all__ = ["CPU", "Choice", "Device", "Kind", "Memory", "device", "in_use", "kinds", "present", "select"]

BUILT_IN: tuple[Kind, ...] = (Cpu(), Cuda(), Mps(), TorchModule("xpu"))
CPU = Device(BUILT_IN[0])


@functools.cache
def _registered(name: str) -> TorchModule:
    return TorchModule(name)


def kinds() -> dict[str, Kind]:
    """Every kind this torch knows, the CPU first."""
    known = {kind.name: kind for kind in BUILT_IN}
    extra = registered()
    if extra is not None:
        known.setdefault(extra.name, _registered(extra.name))  # one object a kind: devices compare equal
    return known


def present() -> list[Device]:
    """Every device on this machine, the CPU first. ``CUDA_VISIBLE_DEVICES`` and its like are respected."""
    return [Device(kind, index) for kind in kinds().values() for index in range(kind.count())]


@dataclass(frozen=True, slots=True)
class Choice:
    """A device that was asked for: there (``device``), or not, and why not (``reason``)."""

    name: str
    device: Device | None
    reason: str | None = None


def device(name: str) -> Choice:
    """One device by name: a kind (``cuda``: its first device) or a kind and index (``cuda:1``).

    Raises :class:`UsageError` when no such kind exists, naming those that do.
    """
    known = kinds()
    match = re.fullmatch(r"([a-z][a-z0-9_]*)(?::(\d+))?", name)
    if not match or match[1] not in known:
        names = ", ".join(["auto", "all", *known])
        raise UsageError(f"unknown device {name!r}: choose from {names}, with an index if need be (cuda:1)")
    kind, index = known[match[1]], int(match[2] or 0)
    asked, count = Device(kind, index), kind.count()
    if index < count:
        return Choice(str(asked), asked)
    full = str(asked) if index == 0 else f"{kind.name}:{index}"  # one name whether it is here or not
    there = f"only {Device(kind)} is" if count == 1 else f"only {Device(kind)} to {Device(kind, count - 1)} are"
    return Choice(full, None, f"{full} is not here: {there if count else kind.why_absent()}")


def select(requests: Iterable[str]) -> list[Choice]:
    """The devices to measure: ``auto`` is the CPU and the first of each kind present, ``all`` is every device.

    A device asked for by name and absent is returned with the reason: a case for it is skipped, not forgotten.
    """
    chosen: dict[str, Choice] = {}
    for request in requests:
        if request == "auto":
            found = [Choice(str(d), d) for d in present() if d.index == 0]
        elif request == "all":
            found = [Choice(str(d), d) for d in present()]
        else:
            found = [device(request)]
        for choice in found:
            chosen.setdefault(choice.name, choice)
    return list(chosen.values())


def in_use() -> list[Device]:
    """The accelerators that this process has used so far."""
    return [Device(kind, i) for kind in kinds().values() if kind.asynchronous for i in kind.in_use()]
