"""Devices: the only package that knows their kinds. A kind is one file here, or one class that a plugin registers.

torch is imported only when a function needs it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import UsageError
from .base import EIGHT_BITS, KINDS, Device, Load, Memory, register
from .cpu import Cpu
from .lazy import torch
from .torch_device import Mps, TorchDevice, Xpu, torch_kind
from .virtual import SimulatedDevice

__all__ = ["CPU", "EIGHT_BITS", "Choice", "Device", "Load", "Memory", "SimulatedDevice", "TorchDevice"]
__all__ += ["current", "find_device", "in_use", "kinds", "present", "register", "select"]

for _module in pkgutil.iter_modules(__path__):  # importing the file of a kind registers it
    importlib.import_module(f"{__name__}.{_module.name}")
register(Mps)
register(Xpu)

CPU = Cpu()


def kinds() -> dict[str, type[Device]]:
    """Return every kind that is registered here or, as an out-of-tree backend (PrivateUse1), with torch, the CPU
    first."""
    name = torch._C._get_privateuse1_backend_name()
    return dict(KINDS) if name == "privateuseone" else {**KINDS, name: KINDS.get(name, torch_kind(name))}


def present() -> list[Device]:
    """Return every device of this machine that ``CUDA_VISIBLE_DEVICES`` and similar variables allow, the CPU first."""
    return [kind(index) for kind in kinds().values() if not kind.simulated for index in range(kind.count())]


@dataclass(frozen=True, slots=True)
class Choice:
    """A requested device by its full name; if it isn't present, ``device`` is ``None`` and ``reason`` says why."""

    name: str
    device: Device | None
    reason: str | None = None


def find_device(name: str) -> Choice:
    """Return one device by name: a kind (``cuda``: its first device) or a kind and index (``cuda:1``). Raises
    UsageError for an unknown kind, with a list of the kinds."""
    registered = kinds()
    match = re.fullmatch(r"([a-z][a-z0-9_]*)(?::(\d+))?", name)
    if not match or match[1] not in registered:
        names = ", ".join(["auto", "all", *registered])
        raise UsageError(f"unknown device {name!r}: choose from {names}, with an index if need be (cuda:1)")
    kind, index = registered[match[1]], int(match[2] or 0)
    device, count = kind(index), kind.count()
    if index < count:
        return Choice(str(device), device)
    full_name = str(device) if index == 0 else f"{kind.kind}:{index}"
    only = f"only {kind()} is" if count == 1 else f"only {kind()} to {kind(count - 1)} are"
    return Choice(full_name, None, f"{full_name} is not available: {only if count else kind.why_absent()}")


def select(requests: Iterable[str]) -> list[Choice]:
    """Return the devices to measure: ``auto`` is the CPU and the first device of each kind present, ``all`` is every
    device. A device that was requested by name but is absent is kept with its reason, for a report."""
    chosen: dict[str, Choice] = {}
    for request in requests:
        everything = [Choice(str(d), d) for d in present() if request == "all" or d.index == 0]
        for choice in everything if request in ("auto", "all") else [find_device(request)]:
            chosen.setdefault(choice.name, choice)
    return list(chosen.values())


def in_use(among: Iterable[type[Device]] | None = None) -> list[Device]:
    """Return the accelerators that this process has used so far, of all kinds or only of the kinds in ``among``; none
    without torch, which isn't imported for that."""
    if "torch" not in sys.modules:
        return []
    searched = kinds().values() if among is None else among
    return [kind(index) for kind in searched if kind.accelerator for index in kind.indices_in_use()]


def current(name: str) -> Device | None:
    """Return the accelerator of a kind that torch uses unless a program names another; ``None`` for the CPU."""
    kind = kinds().get(name)
    return kind(int(kind._ask("current_device") or 0)) if kind and issubclass(kind, TorchDevice) else None
