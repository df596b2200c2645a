"""The interface through which the rest of the package uses a device."""
# ruff: noqa: B027  # a method without a body returns None, which means "unknown"

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ..errors import Unmeasurable
from .lazy import torch

EIGHT_BITS = "8 bits"
"""The dtype of products of 8-bit numbers, which run at twice the rate of 16-bit ones."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a device: free to this process now, and in total."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Load:
    """The work of one call: FLOPs in a dtype, or operations on 8-bit numbers; the least bytes read and written; the
    number of its operators, and the operators by kind and size, as run files hold them, if they were counted."""

    flops: float
    nbytes: float
    operations: int
    dtype: str
    operators: Sequence[Any] = ()


@dataclass(frozen=True)
class Device(ABC):
    """One device; a subclass is a kind of device. ``str(device)`` is the name by which torch knows it.

    :func:`register` adds a kind, which must define the abstract methods. Every other method has a default that means
    "unknown": ``None``, or an empty value.
    """

    index: int = 0

    kind: ClassVar[str]
    """The name of the kind: torch's ``device.type``."""
    accelerator: ClassVar[bool] = True
    """Whether a call returns before its work is done. Only then must the clock wait for the device."""
    indexed: ClassVar[bool] = True
    """Whether a device's name has an index (``cuda:0``) or, since there is only one, has none (``cpu``)."""
    simulated: ClassVar[bool] = False
    """Whether a model computes its times, as for ``--device demo``. Such a device is measured only when it is named."""
    supports_graphs: ClassVar[bool] = False
    """Whether :meth:`capture_graph` works."""

    now = staticmethod(time.perf_counter)
    """The time in seconds on the clock of this kind. No module has a name for it, because a test may freeze time by
    replacing such names. A simulated device has its own."""

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """Return the number of devices of this kind that are present; must not initialize any."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The customary name of the model."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return when all work queued on the device is done."""

    @classmethod
    def why_absent(cls) -> str:
        """Return why :meth:`count` is 0, in words that a user can act on."""
        return f"no {cls.kind} device found"

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        """Return the indices of the devices on which this process has work or memory."""
        return tuple(range(cls.count()))

    @classmethod
    def release_memory(cls) -> None:
        """Release memory that is cached but unused to the devices of this kind."""

    @classmethod
    def release_pinned_memory(cls) -> None:
        """Release page-locked host memory that is cached but unused to the system."""

    def ruined(self) -> str | None:
        """Return why nothing more can be measured on the device in this process, or ``None``. Waits for the device,
        because a failed case's work may fail only now, and again at every later call."""
        try:
            self.synchronize()
        except RuntimeError as error:
            return " ".join(str(error).split(". ")[0].split()) or type(error).__name__
        return None

    @classmethod
    def interconnect(cls, indices: Sequence[int]) -> str | None:
        """Return the connection of the devices with these indices: ``NVLink``, ``PCIe``, ``memory``."""

    def lacks(self, dtype: str) -> str | None:
        """Return why a dtype can't be used on the device, or ``None`` if it can."""
        return f"{dtype} does not exist on {self.kind}" if dtype == "tf32" else None

    def memory(self) -> Memory | None:
        """Return the free and the total bytes; may initialize the device."""

    def total_memory(self) -> int | None:
        """Return the total bytes; unlike :meth:`memory`, must not initialize the device."""
        memory = self.memory()
        return memory.total if memory else None

    def allocated_memory(self) -> int | None:
        """Return the bytes that this process has allocated now, as :meth:`peak_memory` counts them."""

    def peak_memory(self) -> int | None:
        """Return the most bytes allocated at once since :meth:`reset_peak_memory`."""

    def reset_peak_memory(self) -> None:
        """Reset the peak to the memory that is allocated now."""

    def random_state(self) -> Any:
        """Return the state of the device's own random stream; ``None`` without one."""

    def set_random_state(self, state: Any) -> None:
        """Set the random stream to a state from :meth:`random_state`."""

    def settle(self) -> None:
        """Make libraries allocate memory that they never release, so that the first case that needs it isn't charged
        for it."""

    def workspace_bytes(self) -> int:
        """Return the bytes that a library takes during a product and then releases; no tensor of the call has them."""
        return 0

    def cache_bytes(self) -> int | None:
        """Return the bytes of the device's last-level cache, which a cold measurement flushes."""

    def clocks(self) -> Mapping[str, float] | None:
        """Return the current clocks in Hz, by domain."""

    def clock_share(self) -> float | None:
        """Return the clock of the device's processors as a share of its maximum."""
        return None

    def throttle_reasons(self) -> tuple[str, ...]:
        """Return why the device's clocks are held down at this moment, such as heat or power limit."""
        return ()

    def throttled_s(self) -> Mapping[str, float]:
        """Return the seconds for which each cause has held the device's clocks down, since an unspecified moment."""
        return {}

    def power_share(self) -> float | None:
        """Return the power that the device draws now as a share of its limit."""

    def other_processes(self) -> int | None:
        """Return the number of other processes that use the device now."""

    def energy_j(self) -> float | None:
        """Return the reading of the device's energy counter, in joules since an unspecified moment."""

    @property
    def shares_memory(self) -> bool:
        """Whether it works in the CPU's own memory, as an integrated GPU does: nothing need be copied to it."""
        return False

    def queue_wait(self, seconds: float) -> bool:
        """Queue a wait of at least this many seconds on the device itself, after which work that was launched meanwhile
        runs without a gap; return ``False`` if the kind can't."""
        return False

    def record_event(self) -> torch.Event:
        """Queue a timestamp of the device's own clock; required with :meth:`queue_wait`."""
        raise NotImplementedError

    def capture_graph(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Capture a call's launches; return the function that replays them, and the call's result, which a replay
        fills. Raises :class:`~gpubench.errors.Unmeasurable` if that can't be done."""
        raise Unmeasurable(f"{self.kind} has no graphs of launches")

    def details(self) -> dict[str, Any]:
        """Return further facts that don't change during a run, JSON-ready: driver, capability, cache sizes."""
        return {}

    @property
    def torch_name(self) -> str:
        """The torch device that holds its tensors."""
        return str(self)

    def facts(self) -> dict[str, Any]:
        """Return name, kind, model, memory and :meth:`details`, JSON-ready; ``simulated`` only if it is true."""
        own = {"name": str(self), "kind": self.kind, "label": self.label, "memory_bytes": self.total_memory()}
        return own | ({"simulated": True} if self.simulated else {}) | self.details()

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.indexed else self.kind


KINDS: dict[str, type[Device]] = {}
"""Registered kinds by name, in the order of registration."""
_DeviceType = TypeVar("_DeviceType", bound=type[Device])


def register(kind: _DeviceType) -> _DeviceType:
    """Register a kind of device in this process, replacing one of the same name; a class decorator."""
    KINDS[kind.kind] = kind
    return kind
