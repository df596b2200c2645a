"""A simulated GPU for learning, for documentation and for trying CI.

It computes results on the CPU, once. A call then takes the time that ``gpubench estimate`` finds most likely on that
card: each operator costs the host a launch, and the device its roofline times a factor that was learned from timings
(:mod:`gpubench.cards.model`). Times vary by about a percent, from a fixed seed, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..cards.datasheets import Gpu, read_cards
from ..cards.model import DISPATCH_S, LEAST_KERNEL_S, kind_by_sums, middle_s
from ..devices import EIGHT_BITS, Load, Memory
from ..devices.virtual import Peaks, SimulatedDevice, VirtualMachine

CARD = "L4"
"""The card that is simulated."""
WAIT_S, FIRST_S = 6e-6, 0.02
"""Seconds of a wait, and seconds by which a first call is longer: it loads a kernel's code (CUDA C++ Programming Guide,
"Lazy Loading"), and makes handles and workspaces. Allocation costs nothing, since PyTorch's caching allocator reuses
freed memory (PyTorch, "CUDA semantics: memory management")."""
PAGEABLE, LINK_SHARE, COPY_S = 6e9, 0.8, 1e-5
"""Bytes per second to and from the host's pageable memory, the share of the link's rate that page-locked memory
reaches, and the least seconds per copy."""


class Demo(SimulatedDevice):
    """A simulated GPU, measured only when it is named. Its tensors lie on the CPU."""

    kind = "demo"
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

    def modelled_s(self, call: Any) -> tuple[float, float]:
        return self.busy_s(call.load), DISPATCH_S * call.load.operations

    def launch(self, load: Load) -> None:
        """Queue one call's work."""
        self.machine.launch(self.busy_s(load), host_s=DISPATCH_S * load.operations)

    def busy_s(self, load: Load) -> float:
        """Return the seconds that a call keeps the device busy: the sum of its operators, and at least the
        time of its total work."""
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
