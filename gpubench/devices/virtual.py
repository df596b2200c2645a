"""A fake accelerator on a virtual clock, for exact and instant tests of measuring code without a GPU.

In a ``conftest.py``::

    import pytest
    from gpubench import devices
    from gpubench.devices.virtual import VirtualDevice

    devices.register(VirtualDevice)

    @pytest.fixture
    def machine():
        return VirtualDevice.machine

``pytest --gpubench-device=virtual`` then measures on ``virtual:0``: a benchmark that calls ``machine.launch(2e-3)``
takes 2 ms by the clock of the run. A virtual device can't hold tensors.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .base import Device, Load, Memory


@dataclass
class VirtualMachine:
    """The clock and the queues of all devices of one virtual kind; times in seconds.

    Time passes only while a device is waited for or the host launches work, and by ``tick_s`` at each reading, since
    pytest-benchmark can't calibrate with a clock that stands still. Each wait itself takes ``wait_cost_s``. Work takes
    its given time, with a relative variation of ``jitter`` that is the same in every run.
    """

    time_s: float = 0.0
    tick_s: float = 1e-10
    wait_cost_s: float = 0.0
    jitter: float = 0.0
    busy_until_s: dict[int, float] = field(default_factory=dict)
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def now(self) -> float:
        """Read the clock."""
        self.time_s += self.tick_s
        return self.time_s

    def launch(self, seconds: float, index: int = 0, host_s: float = 0.0) -> None:
        """Queue work of this length in seconds on a device; launching it takes the host ``host_s``."""
        noise = max(0.5, self._random.gauss(1.0, self.jitter)) if self.jitter else 1.0
        self.time_s += host_s * noise
        self.busy_until_s[index] = max(self.time_s, self.busy_until_s.get(index, 0.0)) + seconds * noise

    def synchronize(self, index: int) -> None:
        """Let time pass until a device's queue is empty."""
        self.time_s = max(self.time_s, self.busy_until_s.get(index, 0.0)) + self.wait_cost_s


class VirtualDevice(Device):
    """The kind ``virtual``, with two devices on one :class:`VirtualMachine`, each with a gigabyte of free memory."""

    kind = "virtual"
    machine = VirtualMachine()
    now = staticmethod(machine.now)

    @property
    def label(self) -> str:
        return "Virtual Accelerator"

    @classmethod
    def on(cls, machine: VirtualMachine) -> type[VirtualDevice]:
        """Return the same kind on another machine."""
        return type("VirtualDevice", (cls,), {"machine": machine, "now": staticmethod(machine.now)})

    @classmethod
    def count(cls) -> int:
        return 2

    def synchronize(self) -> None:
        self.machine.synchronize(self.index)

    def memory(self) -> Memory | None:
        return Memory(free=10**9, total=10**9)


class Peaks(NamedTuple):
    """FLOP/s in one dtype, bytes per second of memory and of the link to the host, and seconds of a launch; ``None``
    means unknown."""

    flop_per_s: float | None
    byte_per_s: float | None
    link_byte_per_s: float | None
    launch_s: float


class SimulatedDevice(VirtualDevice):
    """A virtual device with a model of its times, measured only when it is named."""

    simulated = True

    @abstractmethod
    def declared_peaks(self, dtype: str) -> Peaks:
        """Return the peaks, which are measured on other devices."""

    @abstractmethod
    def stand_in(self, call: Callable[..., Any], observe: Callable[..., tuple[Load, Any]]) -> Callable[..., Any]:
        """Return the function that is timed in place of a call: it makes the call once, by ``observe(call, *args,
        **kwargs)``, which also returns its load, and then lets the load's time pass."""

    @abstractmethod
    def modelled_s(self, call: Any) -> tuple[float, float]:
        """Return the seconds of a call from :meth:`stand_in`, and of its launches on the host."""

    @abstractmethod
    def copy_s(self, nbytes: int, pinned: bool) -> float:
        """Return the seconds of a copy between the host and the device."""
