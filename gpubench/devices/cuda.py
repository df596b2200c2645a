"""NVIDIA GPUs through CUDA, and AMD GPUs through ROCm, which torch calls ``cuda`` too."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Unmeasurable
from . import nvml
from .kind import Kind, Memory

_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
FASTEST_CLOCK = 3e9
"""Cycles per second that no GPU exceeds: a wait of so many cycles lasts at least as long as asked."""
_SOURCE = re.compile(r"\(Triggered internally at [^)]*\)")


class Cuda(Kind):
    name = "cuda"
    graphs = True
    data_parallel = True

    def count(self) -> int:
        import torch

        with warnings.catch_warnings():  # a driver that is missing or too old: why_absent() tells
            warnings.simplefilter("ignore")
            return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def why_absent(self) -> str:
        import torch

        if torch.version.cuda is None and torch.version.hip is None:
            return f"this torch ({torch.__version__}) was built without CUDA or ROCm"
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                torch.cuda.is_available()
                # torch warns once per process, but says it again here, as an error:
                torch.cuda.init()  # type: ignore[no-untyped-call]
            except (RuntimeError, AssertionError) as error:
                said = str(error)
            else:
                said = "torch sees no CUDA device"
        texts = [*(str(item.message) for item in seen), said]
        texts = list(dict.fromkeys(" ".join(_SOURCE.sub("", text).split()) for text in texts))
        # The warning often is the error with a word before it: once is enough.
        reasons = [text for text in texts if not any(text != other and text in other for other in texts)]
        hidden = [f"{name}={os.environ[name]!r}" for name in _HIDING if name in os.environ]
        return " ".join(reasons) + (f" (with {', '.join(hidden)})" if hidden else "")

    def in_use(self) -> tuple[int, ...]:
        import torch

        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return ()
        # Waiting for a GPU that has no context would create one: seconds, and hundreds of megabytes.
        has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
        indices = range(torch.cuda.device_count())
        return tuple(i for i in indices if has_context is None or has_context(i))

    def label(self, index: int) -> str:
        import torch

        return torch.cuda.get_device_name(index)

    def synchronize(self, index: int) -> None:
        import torch

        torch.cuda.synchronize(index)

    def lacks(self, dtype: str, index: int) -> str | None:
        import torch

        capability = torch.cuda.get_device_capability(index)
        if dtype == "tf32" and (torch.version.hip or capability < (8, 0)):
            return f"tf32 needs an NVIDIA GPU of compute capability 8.0; this is {capability[0]}.{capability[1]}"
        if dtype == "bfloat16" and not torch.version.hip and capability < (8, 0):
            return f"bfloat16 is emulated below compute capability 8.0; this is {capability[0]}.{capability[1]}"
        return None

    def memory(self, index: int) -> Memory:
        import torch

        free, total = torch.cuda.mem_get_info(index)
        reusable = torch.cuda.memory_reserved(index) - torch.cuda.memory_allocated(index)
        return Memory(free + reusable, total)

    def total_memory(self, index: int) -> int:
        import torch

        return int(torch.cuda.get_device_properties(index).total_memory)  # mem_get_info would create a context

    def peak_memory(self, index: int) -> int:
        import torch

        return torch.cuda.max_memory_allocated(index)

    def reset_peak_memory(self, index: int) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(index)

    def release_memory(self) -> None:
        import torch

        torch.cuda.empty_cache()

    def allocated_memory(self, index: int) -> int:
        import torch

        return torch.cuda.memory_allocated(index)

    def interconnect(self, count: int) -> str | None:
        """NVLink where every pair has it, as far as the driver's library tells; else the bus."""
        joined = nvml.nvlink([self._uuid(index) for index in range(count)])
        return None if joined is None else "NVLink" if joined else "PCIe"

    def clocks(self, index: int) -> Mapping[str, float] | None:
        return nvml.clocks(self._uuid(index))

    def slowed(self, index: int) -> tuple[str, ...]:
        return nvml.slowed(self._uuid(index))

    def slowed_s(self, index: int) -> Mapping[str, float]:
        return nvml.slowed_s(self._uuid(index))

    def neighbours(self, index: int) -> int | None:
        return nvml.neighbours(self._uuid(index))

    def energy_j(self, index: int) -> float | None:
        return nvml.energy_j(self._uuid(index))

    def cache_bytes(self, index: int) -> int | None:
        import torch

        return getattr(torch.cuda.get_device_properties(index), "L2_cache_size", None) or None

    def hold(self, index: int, seconds: float) -> bool:
        import torch

        sleep = getattr(torch.cuda, "_sleep", None)
        if sleep is None:
            return False
        with torch.cuda.device(index):
            sleep(int(seconds * FASTEST_CLOCK))
        return True

    def mark(self, index: int) -> Any:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(index))
        return event

    def reached(self, mark: Any) -> bool:
        return bool(mark.query())

    def between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def record(self, call: Callable[[], Any], index: int) -> tuple[Callable[[], None], Any]:
        import torch

        # Streams are the current device's: another's launches would not be captured. A capture that fails leaves its
        # own stream current: ours is put back.
        with torch.cuda.device(index), torch.cuda.stream(torch.cuda.current_stream(index)):
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # a capture needs everything that a first call allocates to be there
                for _ in range(3):
                    call()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    result = call()
            except RuntimeError as error:
                said = " ".join(str(error).split())
                raise Unmeasurable(f"the call can't be captured in a CUDA graph: {said}") from error
        return graph.replay, result

    def facts(self, index: int) -> dict[str, Any]:
        import torch

        properties = torch.cuda.get_device_properties(index)
        return {
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None),
            "platform": "rocm" if torch.version.hip else "cuda",
            "driver": None if torch.version.hip else nvml.driver(),
            **nvml.facts(self._uuid(index)),
        }

    @staticmethod
    def _uuid(index: int) -> str | None:
        """The key by which NVML knows the device: its index there ignores ``CUDA_VISIBLE_DEVICES``."""
        import torch

        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        return None if uuid is None or torch.version.hip else f"GPU-{uuid}"
