"""What the rest of the package may ask of a kind of device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes free to this process now, and in all."""

    free: int
    total: int


class Kind(ABC):
    """One kind of device. Adding a kind is one subclass, listed in :mod:`gpubench.devices`.

    Methods take the index of a device of this kind. What a kind can't tell is ``None``.
    """

    name: str
    asynchronous = True
    """Whether a call returns before its work is done. Only then is there anything to wait for."""
    indexed = True
    """Whether a device is written with its index (``cuda:0``) or, being the only one, without (``cpu``)."""
    data_parallel = False
    """Whether ``torch.nn.DataParallel`` can split a batch over several devices of this kind."""
    now: Callable[[], float] = staticmethod(time.perf_counter)
    """Seconds on the clock that times this kind; a simulated device brings its own."""

    @abstractmethod
    def count(self) -> int:
        """Devices present; never initialises one."""

    @abstractmethod
    def label(self, index: int) -> str:
        """The model's name, as people know it."""

    @abstractmethod
    def synchronize(self, index: int) -> None:
        """Return when all work queued on the device is done."""

    def why_absent(self) -> str:
        """Why :meth:`count` is 0, in words a person can act on."""
        return f"no {self.name} device found"

    def in_use(self) -> tuple[int, ...]:
        """Indices of the devices that this process has work or memory on."""
        return tuple(range(self.count()))

    def lacks(self, dtype: str, index: int) -> str | None:
        """Why a dtype can't be used there, or ``None``."""
        return f"{dtype} does not exist on {self.name}" if dtype == "tf32" else None

    def memory(self, index: int) -> Memory | None:
        return None

    def total_memory(self, index: int) -> int | None:
        """Bytes in all; unlike :meth:`memory`, must not start using the device."""
        memory = self.memory(index)
        return memory.total if memory else None

    def peak_memory(self, index: int) -> int | None:
        """Most bytes allocated at once since :meth:`reset_peak_memory`."""
        return None

    def reset_peak_memory(self, index: int) -> None:  # noqa: B027
        """Start a new peak."""

    def release_memory(self) -> None:  # noqa: B027
        """Hand memory that is cached but unused back to the device."""

    def interconnect(self, count: int) -> str | None:
        """What joins the first ``count`` devices: ``NVLink``, ``PCIe``, ``memory``."""
        return None

    def clocks(self, index: int) -> Mapping[str, float] | None:
        """Current clocks in Hz, by domain."""
        return None

    def facts(self, index: int) -> dict[str, Any]:
        """What doesn't change while running: driver, capability, cache sizes."""
        return {}


@dataclass(frozen=True, slots=True)
class Device:
    """One device, by kind and index. ``str(device)`` is the name torch knows it by."""

    kind: Kind
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind.name}:{self.index}" if self.kind.indexed else self.kind.name

    @property
    def name(self) -> str:
        return str(self)

    @property
    def label(self) -> str:
        return self.kind.label(self.index)

    @property
    def accelerator(self) -> bool:
        return self.kind.asynchronous

    def synchronize(self) -> None:
        self.kind.synchronize(self.index)

    def memory(self) -> Memory | None:
        return self.kind.memory(self.index)

    def lacks(self, dtype: str) -> str | None:
        return self.kind.lacks(dtype, self.index)

    def facts(self) -> dict[str, Any]:
        """Name, kind, model, memory and what else the kind tells; JSON-ready."""
        return {
            "name": self.name,
            "kind": self.kind.name,
            "label": self.label,
            "memory_bytes": self.kind.total_memory(self.index),
            **self.kind.facts(self.index),
        }
