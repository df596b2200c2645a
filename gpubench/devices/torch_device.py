"""Devices that torch's own module describes, and kinds that need little else: Apple's, Intel's and out-of-tree ones."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, ClassVar

from . import lazy
from .base import Device, Memory
from .cpu import model

torch: Any = lazy.torch
"""PyTorch; some functions have no types, and some builds lack functions."""


class TorchDevice(Device):
    """A kind of device that is used through its ``torch.<kind>`` module, by torch's contract for device modules."""

    caches_pinned_memory: ClassVar[bool] = False
    """Whether torch caches this kind's page-locked host memory. If another kind is asked, torch may end the process."""

    @classmethod
    def _module(cls) -> Any:
        """Return torch's module of this kind; ``None`` if torch was built without it."""
        with contextlib.suppress(RuntimeError, AttributeError):
            return torch.get_device_module(cls.kind)

    @classmethod
    def _ask(cls, function: str, *args: Any) -> Any:
        """Return the module's answer, or ``None`` if it doesn't have that function or doesn't know."""
        with contextlib.suppress(RuntimeError, AttributeError, TypeError):
            return getattr(cls._module(), function)(*args)

    def _count_bytes(self, function: str) -> int | None:
        answer = self._ask(function, self.index)
        return None if answer is None else int(answer)

    @classmethod
    def count(cls) -> int:
        return 0 if cls._ask("is_available") is False else int(cls._ask("device_count") or 0)

    @classmethod
    def why_absent(cls) -> str:
        if cls._module() is None or cls._ask("_is_compiled") is False:
            return f"this PyTorch build ({torch.__version__}) has no {cls.kind} support"
        return f"torch.{cls.kind} reports no device"

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        return () if cls._ask("is_initialized") is False else super().indices_in_use()

    @classmethod
    def release_memory(cls) -> None:
        cls._ask("empty_cache")
        cls.release_pinned_memory()

    @classmethod
    def release_pinned_memory(cls) -> None:
        public = getattr(getattr(torch, "accelerator", None), "empty_host_cache", None)  # since torch 2.13
        with contextlib.suppress(RuntimeError, AttributeError):
            _ = cls.caches_pinned_memory and (public or torch._C._host_emptyCache)()

    @property
    def label(self) -> str:
        return str(self._ask("get_device_name", self.index) or f"{self.kind} device")

    def synchronize(self) -> None:
        self._module().synchronize(self.index)

    def memory(self) -> Memory | None:
        answer = self._ask("mem_get_info", self.index)
        if answer is None:
            return None
        cached = (self._count_bytes("memory_reserved") or 0) - (self._count_bytes("memory_allocated") or 0)
        return Memory(int(answer[0]) + max(0, cached), int(answer[1]))

    def allocated_memory(self) -> int | None:
        return self._count_bytes("memory_allocated")

    def peak_memory(self) -> int | None:
        return self._count_bytes("max_memory_allocated")

    def reset_peak_memory(self) -> None:
        self._ask("reset_peak_memory_stats", self.index)

    def random_state(self) -> Any:
        return self._ask("get_rng_state", *[self.index] * self.indexed)

    def set_random_state(self, state: Any) -> None:
        if state is not None:
            self._ask("set_rng_state", state, *[self.index] * self.indexed)

    def _event(self) -> Any:
        """Queue a timestamp, by a kind of events that know the time."""
        module = self._module()
        event = module.Event(enable_timing=True)
        event.record(*([module.current_stream(self.index)] if self.indexed else []))
        return event


class Mps(TorchDevice):
    """The GPU of an Apple computer, through Metal; ``torch.mps`` takes no index. Its events time work, but its queue
    can't be made to wait. Written from the documentation of ``torch.mps``; not run on such a GPU yet."""

    kind = "mps"
    indexed = False
    record_event = TorchDevice._event
    shares_memory = True  # of Apple's own GPUs, the only ones that torch 2.6 and later know

    @classmethod
    def why_absent(cls) -> str:
        if not torch.backends.mps.is_built():
            return f"this PyTorch build ({torch.__version__}) has no Metal (mps) support"
        return "no Metal device, or macOS older than 12.3"

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        return (0,) if cls.count() and torch.mps.driver_allocated_memory() else ()

    @property
    def label(self) -> str:
        return f"{model()} GPU"

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def lacks(self, dtype: str) -> str | None:
        return f"{dtype} does not exist on mps" if dtype in ("tf32", "float64") else None

    def memory(self) -> Memory:
        total = torch.mps.recommended_max_memory()
        return Memory(max(0, total - torch.mps.current_allocated_memory()), total)


class Xpu(TorchDevice):
    """Intel GPUs. Their events time work, but their queue can't be made to wait. Written from the documentation of
    ``torch.xpu``; not run on such a GPU yet."""

    kind = "xpu"
    caches_pinned_memory = True
    record_event = TorchDevice._event

    def lacks(self, dtype: str) -> str | None:
        if dtype == "float64" and not getattr(self._ask("get_device_properties", self.index), "has_fp64", True):
            return f"{self.label} has no float64"
        return super().lacks(dtype)

    @property
    def shares_memory(self) -> bool:
        return bool(getattr(self._ask("get_device_properties", self.index), "is_integrated_gpu", False))


@functools.cache
def torch_kind(name: str) -> type[Device]:
    """Return the kind that consists only of its torch module; one class per name, since devices of a class compare
    equal."""
    return type(name, (TorchDevice,), {"kind": name})
