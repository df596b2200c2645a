"""What the rest of the package may ask of a device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import Unmeasurable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes free to this process now, and in all."""

    free: int
    total: int


@dataclass(frozen=True)
class Device(ABC):
    """One device; a subclass is a kind of device. ``str(device)`` is the name torch knows it by.

    :func:`register` adds a kind, which must define what is abstract here. A method that a kind doesn't define answers
    that it doesn't know: ``None``, or nothing.
    """

    index: int = 0

    kind: ClassVar[str]
    """The name of the kind: torch's ``device.type``."""
    accelerator: ClassVar[bool] = True
    """Whether a call returns before its work is done. Only then is there anything to wait for."""
    indexed: ClassVar[bool] = True
    """Whether a device is written with its index (``cuda:0``) or, being the only one, without (``cpu``)."""
    simulated: ClassVar[bool] = False
    """Whether a model gives its times, as for ``--device demo``. It is measured only when it is named."""
    supports_graphs: ClassVar[bool] = False
    """Whether :meth:`capture_graph` works."""
    supports_data_parallel: ClassVar[bool] = False
    """Whether ``torch.nn.DataParallel`` can split a batch over several devices of this kind."""

    @staticmethod
    def now() -> float:
        """Seconds on the clock that times this kind; a simulated device has its own."""
        return time.perf_counter()

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """Devices of this kind that are present; must not initialize any."""

    @classmethod
    def called(cls, name: str) -> Device | None:
        """The device of this kind that ``kind:name`` means, where it isn't an index; ``None`` if none."""
        return None

    @property
    @abstractmethod
    def label(self) -> str:
        """The model's name, as people know it."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return when all work queued on the device is done."""

    @classmethod
    def why_absent(cls) -> str:
        """Why :meth:`count` is 0, in words a person can act on."""
        return f"no {cls.kind} device found"

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        """Indices of the devices that this process has work or memory on."""
        return tuple(range(cls.count()))

    @classmethod  # noqa: B027
    def release_memory(cls) -> None:
        """Return memory that is cached but unused to the devices of this kind."""

    @classmethod  # noqa: B027
    def release_pinned_memory(cls) -> None:
        """Return page-locked host memory that is cached but unused to the system."""

    def ruined(self) -> str | None:
        """Why nothing more can be measured on the device in this process, or ``None``.

        Waits for the device: what a failed case left in its queue may fail only now, and again at every later call.
        """
        try:
            self.synchronize()
        except RuntimeError as error:
            return " ".join(str(error).split(". ")[0].split()) or type(error).__name__
        return None

    @classmethod
    def interconnect(cls, indices: Sequence[int]) -> str | None:
        """What joins the devices of these indices: ``NVLink``, ``PCIe``, ``memory``."""
        return None

    def lacks(self, dtype: str) -> str | None:
        """Why a dtype can't be used on the device, or ``None``."""
        return f"{dtype} does not exist on {self.kind}" if dtype == "tf32" else None

    def memory(self) -> Memory | None:
        """Bytes free and in all; may initialize the device."""
        return None

    def total_memory(self) -> int | None:
        """Bytes in all; unlike :meth:`memory`, must not initialize the device."""
        memory = self.memory()
        return memory.total if memory else None

    def allocated_memory(self) -> int | None:
        """Bytes allocated by this process now, as :meth:`peak_memory` counts them."""
        return None

    def peak_memory(self) -> int | None:
        """Most bytes allocated at once since :meth:`reset_peak_memory`."""
        return None

    def reset_peak_memory(self) -> None:  # noqa: B027
        """Start a new peak."""

    def settle(self) -> None:  # noqa: B027
        """Have libraries allocate what they never return, lest it counts as memory of the first case that needs it."""

    def cache_bytes(self) -> int | None:
        """Size of the last cache before the device's memory: what a cold measurement flushes."""
        return None

    def clocks(self) -> Mapping[str, float] | None:
        """Current clocks in Hz, by domain."""
        return None

    def throttle_reasons(self) -> tuple[str, ...]:
        """Why the device's clocks are held down at this moment, e.g. heat or power limit; empty if unknown."""
        return ()

    def throttled_s(self) -> Mapping[str, float]:
        """Seconds, since some moment, that each cause has held the device's clocks down."""
        return {}

    def other_processes(self) -> int | None:
        """Number of other processes that use the device now."""
        return None

    def energy_j(self) -> float | None:
        """Reading of the device's energy counter, in joules since some moment."""
        return None

    def queue_wait(self, seconds: float) -> bool:
        """Queue a wait of at least so many seconds on the device itself; ``False`` where the kind can't.

        What is launched meanwhile runs afterwards without a gap.
        """
        return False

    def record_event(self) -> torch.Event:
        """Queue a timestamp that is timed on the device's own clock; needed where :meth:`queue_wait` works."""
        raise NotImplementedError

    def kernels_s(self, call: Callable[[], Any]) -> float | None:
        """Sum of the seconds that each kernel and copy of one call takes on the device; ``None`` if none is seen."""
        return None

    def capture_graph(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Capture a call's launches: the function that replays them, and the call's result, which a replay fills.

        Raises :class:`~gpubench.errors.Unmeasurable` where the kind or the call can't.
        """
        raise Unmeasurable(f"{self.kind} has no graphs of launches")

    def details(self) -> dict[str, Any]:
        """What else doesn't change while running, JSON-ready: driver, capability, cache sizes."""
        return {}

    @property
    def torch_name(self) -> str:
        """Where its tensors lie, for torch."""
        return str(self)

    def facts(self) -> dict[str, Any]:
        """Name, kind, model, memory and :meth:`details`; JSON-ready. Whether it is simulated only if it is."""
        own = {"name": str(self), "kind": self.kind, "label": self.label, "memory_bytes": self.total_memory()}
        return own | ({"simulated": True} if self.simulated else {}) | self.details()

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.indexed else self.kind


KINDS: dict[str, type[Device]] = {}
"""Registered kinds by name, in the order of registration."""

_DeviceType = TypeVar("_DeviceType", bound=type[Device])


def register(kind: _DeviceType) -> _DeviceType:
    """Add a kind of device to this process, in place of one of the same name; a class decorator."""
    KINDS[kind.kind] = kind
    return kind
