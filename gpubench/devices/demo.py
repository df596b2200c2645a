"""Devices on a virtual clock: one for tests, and a simulated GPU for learning, for documentation and for trying CI.

The simulated GPU computes results on the CPU, once. A call then takes the time that ``gpubench estimate`` finds most
likely on that card: each operator costs the host a launch, and the device its roofline times a factor that was learned
from timings (:mod:`.roofline`). Times vary by about a percent, from a fixed seed, as on hardware.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .base import EIGHT_BITS, Device, Load, Memory, Peaks
from .datasheets import Gpu, read_cards
from .roofline import DISPATCH_S, LEAST_KERNEL_S, kind_by_sums, middle_s

CARD = "L4"
"""The card that is simulated."""
WAIT_S, FIRST_S = 6e-6, 0.02
"""Seconds that a wait takes, and seconds that the first call takes to prepare: it loads a kernel's code from the
library, which CUDA does lazily (CUDA C++ Programming Guide, "Lazy Loading"), and makes handles and workspaces.
Allocation costs nothing, since PyTorch's caching allocator reuses freed memory (PyTorch, "CUDA semantics: memory
management")."""
PAGEABLE, LINK_SHARE, COPY_S = 6e9, 0.8, 1e-5
"""Bytes per second to and from the host's pageable memory, the share of the link's rate that page-locked memory
reaches, and the least seconds per copy."""


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

    def __post_init__(self) -> None:
        self._random = random.Random(0)

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
    """The kind ``virtual``, with two devices on one :class:`VirtualMachine`."""

    kind = "virtual"
    machine = VirtualMachine()
    now = staticmethod(machine.now)

    @classmethod
    def on(cls, machine: VirtualMachine) -> type[VirtualDevice]:
        """Return the same kind on another machine."""
        return type("VirtualDevice", (cls,), {"machine": machine, "now": staticmethod(machine.now)})

    @property
    def label(self) -> str:
        return "Virtual Accelerator"

    @classmethod
    def count(cls) -> int:
        """Return 2."""
        return 2

    def synchronize(self) -> None:
        """Let the machine's time pass until this device is idle."""
        self.machine.synchronize(self.index)

    def memory(self) -> Memory | None:
        """Return a gigabyte, all of it free."""
        return Memory(free=10**9, total=10**9)


class Demo(VirtualDevice):
    """A simulated GPU, measured only when it is named. Its tensors lie on the CPU."""

    kind = "demo"
    simulated = True
    indexed = False
    machine = VirtualMachine(tick_s=2e-8, wait_cost_s=WAIT_S, jitter=0.01)
    now = staticmethod(machine.now)

    @property
    def gpu(self) -> Gpu:
        """The simulated card with its figures."""
        return read_cards()[0][CARD]

    @property
    def label(self) -> str:
        return "Simulated accelerator"

    @classmethod
    def count(cls) -> int:
        """Return 1."""
        return 1

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        return ()

    @property
    def torch_name(self) -> str:
        return "cpu"

    def memory(self) -> Memory | None:
        """Return ``None``: the table of cards doesn't contain it, and the tensors lie in the host's memory."""
        return None

    def lacks(self, dtype: str) -> str | None:
        lacking = dtype in self.gpu.emulates or not self.gpu.flop_per_s(dtype)
        return super().lacks(dtype) or (f"{dtype} does not exist on {self}" if lacking else None)

    def declared_peaks(self, dtype: str) -> Peaks:
        memory, link = self.gpu.value("memory"), self.gpu.value("link")
        return Peaks(self.gpu.flop_per_s(dtype), memory, link, DISPATCH_S)

    def stand_in(self, call: Callable[..., Any], observe: Callable[..., tuple[Load, Any]]) -> StandIn:
        return StandIn(self, call, observe)

    def modelled_s(self, call: Any) -> tuple[float, float] | None:
        return self.busy_s(call.load), DISPATCH_S * call.load.operations

    def launch(self, load: Load) -> None:
        """Queue one call's work."""
        self.machine.launch(self.busy_s(load), host_s=DISPATCH_S * load.operations)

    def busy_s(self, load: Load) -> float:
        """Return the seconds that a call keeps the device busy: the sum of its operators, and at least what its total
        work takes."""
        dtype, scale = (load.dtype, 1.0) if load.dtype != EIGHT_BITS else ("float16", 0.5)
        dtype = dtype if self.gpu.flop_per_s(dtype) else "float32"
        kind = kind_by_sums(scale * load.flops, load.nbytes)
        sums_s = self._operator_s(kind, scale * load.flops, load.nbytes, dtype)
        each_s = (
            each.count * self._operator_s(each.kind, each.flops / each.count, each.bytes / each.count, dtype)
            for each in load.operators
        )
        return max(sums_s, float(sum(each_s)), LEAST_KERNEL_S * load.operations)

    def _operator_s(self, kind: str, flops: float, nbytes: float, dtype: str) -> float:
        return max(LEAST_KERNEL_S, middle_s(kind, flops, nbytes, dtype, self.gpu) or 0.0)

    def copy_s(self, nbytes: int, pinned: bool) -> float:
        return COPY_S + nbytes / (LINK_SHARE * (self.gpu.value("link") or 0.0) if pinned else PAGEABLE)


class StandIn:
    """A call that is made once, on the CPU. Then it takes the time of its ``load``, and returns the first result; the
    first takes longer."""

    load: Load

    def __init__(self, device: Demo, call: Callable[..., Any], observe: Callable[..., tuple[Load, Any]]) -> None:
        self._device, self._call, self._observe = device, call, observe

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call, or only let its time pass."""
        if not hasattr(self, "load"):
            self.load, self._result = self._observe(self._call, *args, **kwargs)
            self._device.machine.launch(0.0, host_s=FIRST_S)
        self._device.launch(self.load)
        return self._result
