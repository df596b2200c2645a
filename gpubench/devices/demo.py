"""Devices on a virtual clock: one for tests, and a simulated GPU for learning, for documentation and for trying CI.

On the simulated GPU results are computed on the CPU, once. A call then takes what this model of a mid-range data-centre
GPU says of its work: each operation costs the host a launch, and the device the longer of its FLOPs at the peak rate
and its bytes at the memory's. Times vary by about a percent, from a fixed seed, as on hardware.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .base import Device, Memory

PEAK_FLOPS = {"float32": 2e13, "bfloat16": 1.5e14, "float16": 1.5e14, "float64": 6e11}
EIGHT_BITS, PEAK_OPERATIONS = "8 bits", 3e14
"""Products of numbers of 8 bits run at twice the rate of those of 16."""
PEAK_BYTES = 1e12
REACHED = 0.8
"""Share of its peaks that work reaches."""
LAUNCH_S, KERNEL_S, WAIT_S, FIRST_S = 8e-6, 2e-6, 6e-6, 0.02
"""Seconds: host per operation, device per operation at least, a wait, and what the first call prepares.

An operation costs the host about 4 µs in Python and in PyTorch's dispatcher, as one on a small tensor does on a CPU,
and as much in the CUDA runtime and its driver. The first call loads a kernel's code from the library, which CUDA does
lazily (CUDA C++ Programming Guide, "Lazy Loading"), and makes handles and workspaces. Allocating costs nothing:
PyTorch's caching allocator hands out again what was freed (PyTorch, "CUDA semantics: memory management").
"""
PAGEABLE, PINNED, COPY_S = 6e9, 2.4e10, 1e-5
"""Bytes per second to and from the host's memory, and seconds per copy at least."""
_BYTES = 24 * 10**9


@dataclass(frozen=True, slots=True)
class Load:
    """The work of one call: FLOPs in a dtype, or operations on numbers of 8 bits; bytes that its kernels read and
    write, and the number of kernels."""

    flops: float
    nbytes: float
    operations: int
    dtype: str


@dataclass
class VirtualMachine:
    """The clock and the queues of all devices of one virtual kind; times in seconds.

    Time passes only while a device is waited for or the host launches work, and by ``tick_s`` at each reading, since
    pytest-benchmark can't calibrate with a clock that stands still. Each wait itself takes ``wait_cost_s``. Work takes
    as long as it is said to, give or take the share ``jitter``, the same in every run. ``waits`` lists the devices
    that were waited for, by index.
    """

    time_s: float = 0.0
    tick_s: float = 1e-10
    wait_cost_s: float = 0.0
    jitter: float = 0.0
    busy_until_s: dict[int, float] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(0)

    def now(self) -> float:
        """Read the clock."""
        self.time_s += self.tick_s
        return self.time_s

    def launch(self, seconds: float, index: int = 0, host_s: float = 0.0) -> None:
        """Queue work of this length on a device, which takes the host so long."""
        noise = max(0.5, self._random.gauss(1.0, self.jitter)) if self.jitter else 1.0
        self.time_s += host_s * noise
        self.busy_until_s[index] = max(self.time_s, self.busy_until_s.get(index, 0.0)) + seconds * noise

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


class Demo(VirtualDevice):
    """One simulated GPU, measured only when it is named. Its tensors lie on the CPU."""

    kind = "demo"
    simulated = True
    indexed = False
    label = "Simulated accelerator"
    machine = VirtualMachine(tick_s=2e-8, wait_cost_s=WAIT_S, jitter=0.01)
    now = staticmethod(machine.now)

    @classmethod
    def count(cls) -> int:
        """One."""
        return 1

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        return ()

    @property
    def torch_name(self) -> str:
        return "cpu"

    def synchronize(self) -> None:
        """Let the clock pass until the device is idle; nobody reads how often."""
        super().synchronize()
        self.machine.waits.clear()

    def memory(self) -> Memory:
        """24 GB, all free."""
        return Memory(_BYTES, _BYTES)

    def lacks(self, dtype: str) -> str | None:
        return super().lacks(dtype) or (None if dtype in PEAK_FLOPS else f"{dtype} does not exist on {self.kind}")

    def launch(self, load: Load) -> None:
        """Queue a call."""
        self.machine.launch(self.busy_s(load), host_s=LAUNCH_S * load.operations)

    def busy_s(self, load: Load) -> float:
        """Seconds that the device is busy with a call."""
        rate_s = max(load.flops / PEAK_FLOPS.get(load.dtype, PEAK_OPERATIONS), load.nbytes / PEAK_BYTES)
        return max(KERNEL_S * load.operations, rate_s / REACHED)

    @staticmethod
    def copy_s(nbytes: int, pinned: bool) -> float:
        """Seconds that a copy between host and device takes."""
        return COPY_S + nbytes / (PINNED if pinned else PAGEABLE)
