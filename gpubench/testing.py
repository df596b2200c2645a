"""A fake accelerator on a virtual clock: tests what measures, without a GPU, exactly and in no time.

In a ``conftest.py``::

    import pytest
    from gpubench import devices, testing

    devices.register(testing.VirtualDevice)

    @pytest.fixture
    def machine():
        return testing.VirtualDevice.machine

``pytest --gpubench-device=virtual`` then measures on ``virtual:0``: a benchmark that calls ``machine.launch(2e-3)``
takes 2 ms by the clock of the run. No tensor can lie on a virtual device.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .devices import Device, Memory


@dataclass
class VirtualMachine:
    """The clock and the queues of all devices of one virtual kind; times in seconds.

    Time passes only while a device is waited for, and by ``tick_s`` at each reading, since pytest-benchmark can't
    calibrate with a clock that stands still. Each wait itself takes ``wait_cost_s``. ``waits`` lists the devices that
    were waited for, by index.
    """

    time_s: float = 0.0
    tick_s: float = 1e-10
    wait_cost_s: float = 0.0
    busy_until_s: dict[int, float] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)

    def now(self) -> float:
        """Read the clock."""
        self.time_s += self.tick_s
        return self.time_s

    def launch(self, seconds: float, index: int = 0) -> None:
        """Queue work of this length on a device."""
        self.busy_until_s[index] = max(self.time_s, self.busy_until_s.get(index, 0.0)) + seconds

    def synchronize(self, index: int) -> None:
        """Let time pass until a device's queue is empty."""
        self.waits.append(index)
        self.time_s = max(self.time_s, self.busy_until_s.get(index, 0.0)) + self.wait_cost_s


class VirtualDevice(Device):
    """The kind ``virtual``, with two devices on one :class:`VirtualMachine`."""

    kind = "virtual"
    label = "Virtual Accelerator"
    machine = VirtualMachine()
    now = staticmethod(machine.now)

    @classmethod
    def on(cls, machine: VirtualMachine) -> type[VirtualDevice]:
        """The same kind on another machine."""
        return type("VirtualDevice", (cls,), {"machine": machine, "now": staticmethod(machine.now)})

    @classmethod
    def count(cls) -> int:
        """Two."""
        return 2

    def synchronize(self) -> None:
        """Let the machine's time pass until this device is idle."""
        self.machine.synchronize(self.index)

    def memory(self) -> Memory:
        """A gigabyte, all free."""
        return Memory(free=10**9, total=10**9)
