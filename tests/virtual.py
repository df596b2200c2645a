"""An asynchronous accelerator on a virtual clock: exact, and it takes no time.

Time passes only when the device is waited for, and a tick at every reading (a clock that stands still breaks
pytest-benchmark's calibration). ``launch(s)`` queues work; ``synchronize`` lets time pass until the queue is empty,
and costs ``wait_cost_s`` itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpubench.devices import Device, Memory


@dataclass
class Machine:
    """The state shared by all devices of one virtual kind."""

    time_s: float = 0.0
    tick_s: float = 1e-10
    wait_cost_s: float = 0.0
    busy_until_s: dict[int, float] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)

    def now(self) -> float:
        self.time_s += self.tick_s
        return self.time_s

    def launch(self, seconds: float, index: int = 0) -> None:
        self.busy_until_s[index] = max(self.time_s, self.busy_until_s.get(index, 0.0)) + seconds

    def synchronize(self, index: int) -> None:
        self.waits.append(index)
        self.time_s = max(self.time_s, self.busy_until_s.get(index, 0.0)) + self.wait_cost_s


class Virtual(Device):
    """The kind ``virtual``, with two devices."""

    kind = "virtual"
    label = "Virtual Accelerator"
    machine = Machine()
    now = staticmethod(machine.now)

    @classmethod
    def count(cls) -> int:
        return 2

    def synchronize(self) -> None:
        self.machine.synchronize(self.index)

    def memory(self) -> Memory:
        return Memory(10**9, 10**9)


def device(machine: Machine, index: int = 0) -> Device:
    """A device of a kind of its own on this machine."""
    return type("OtherVirtual", (Virtual,), {"machine": machine, "now": staticmethod(machine.now)})(index)
