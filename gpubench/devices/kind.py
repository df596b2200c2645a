"""What the rest of the package may ask of a kind of device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Unmeasurable


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
    graphs = False
    """Whether :meth:`record` works."""
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

    def slowed(self, index: int) -> tuple[str, ...]:
        """Why the device's clocks are held down at this moment: heat, power; empty when they aren't or nobody knows."""
        return ()

    def slowed_s(self, index: int) -> Mapping[str, float]:
        """For how long, since some moment, each cause has held the device's clocks down, in seconds."""
        return {}

    def neighbours(self, index: int) -> int | None:
        """Other processes that use the device now."""
        return None

    def energy_j(self, index: int) -> float | None:
        """Reading of the device's energy counter, in joules since some moment."""
        return None

    def cache_bytes(self, index: int) -> int | None:
        """Size of the last cache before the device's memory: what a cold measurement flushes."""
        return None

    def allocated_memory(self, index: int) -> int | None:
        """Bytes allocated by this process now, as :meth:`peak_memory` counts them."""
        return None

    def hold(self, index: int, seconds: float) -> bool:
        """Queue a wait of at least so many seconds on the device itself; ``False`` where the kind can't.

        What is launched meanwhile runs afterwards without a gap.
        """
        return False

    def mark(self, index: int) -> Any:
        """Queue a timestamp on the device, to be read by :meth:`between`."""
        raise NotImplementedError

    def reached(self, mark: Any) -> bool:
        """Whether the device has come to a mark."""
        raise NotImplementedError

    def between(self, start: Any, end: Any) -> float:
        """Seconds on the device's own clock between two marks that it has reached."""
        raise NotImplementedError

    def copy(self, target: Any, source: Any) -> None:
        """Copy one tensor into another, to or from the device; may return before it is done."""
        target.copy_(source, non_blocking=True)

    def record(self, call: Callable[[], Any], index: int) -> tuple[Callable[[], None], Any]:
        """Capture a call's launches once; what replays them all at once, and the call's result, which a replay fills.

        Raises :class:`~gpubench.errors.Unmeasurable` where the kind or the call can't.
        """
        raise Unmeasurable(f"{self.name} has no graphs of launches")

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
