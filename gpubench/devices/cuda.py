"""NVIDIA GPUs through CUDA, and AMD GPUs through ROCm, which torch calls ``cuda`` too."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Unmeasurable
from . import nvml
from .base import DeviceEvent, register
from .torch_device import TorchDevice

_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
FASTEST_CLOCK = 3e9
"""Cycles per second that no GPU exceeds: a wait of so many cycles lasts at least as long as requested."""
_SOURCE = re.compile(r"\(Triggered internally at [^)]*\)")


@register
class Cuda(TorchDevice):
    """Differs from other torch devices in how it is found, and in what the driver's library tells of it."""

    kind = "cuda"
    supports_graphs = True
    supports_data_parallel = True

    @classmethod
    def count(cls) -> int:
        with warnings.catch_warnings():  # of a driver that is missing or too old: why_absent() reports it
            warnings.simplefilter("ignore")
            return super().count()

    @classmethod
    def why_absent(cls) -> str:
        import torch

        if torch.version.cuda is None and torch.version.hip is None:
            return f"this torch ({torch.__version__}) was built without CUDA or ROCm"
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                torch.cuda.is_available()
                # torch warns once per process, but here repeats the warning as an error:
                torch.cuda.init()  # type: ignore[no-untyped-call]
            except (RuntimeError, AssertionError) as error:
                failure = str(error)
            else:
                failure = "torch sees no CUDA device"
        texts = [*(str(item.message) for item in warned), failure]
        texts = list(dict.fromkeys(" ".join(_SOURCE.sub("", text).split()) for text in texts))
        # A warning often is the error with a prefix: only the longer text is kept.
        reasons = [text for text in texts if not any(text != other and text in other for other in texts)]
        hidden = [f"{name}={os.environ[name]!r}" for name in _HIDING if name in os.environ]
        return " ".join(reasons) + (f" (with {', '.join(hidden)})" if hidden else "")

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        import torch

        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return ()
        # Waiting for a GPU that has no context would create one: seconds, and hundreds of megabytes.
        has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda index: True)
        return tuple(filter(has_context, range(torch.cuda.device_count())))

    @classmethod
    def interconnect(cls, count: int) -> str | None:
        """NVLink if it joins every pair, else PCIe; ``None`` without the driver's library."""
        joined = nvml.nvlink([cls(index)._uuid() for index in range(count)])
        return None if joined is None else "NVLink" if joined else "PCIe"

    def lacks(self, dtype: str) -> str | None:
        import torch

        capability = torch.cuda.get_device_capability(self.index)
        if dtype == "tf32" and (torch.version.hip or capability < (8, 0)):
            return f"tf32 needs an NVIDIA GPU of compute capability 8.0; this is {capability[0]}.{capability[1]}"
        if dtype == "bfloat16" and not torch.version.hip and capability < (8, 0):
            return f"bfloat16 is emulated below compute capability 8.0; this is {capability[0]}.{capability[1]}"
        return None

    def total_memory(self) -> int:
        return int(self._properties().total_memory)  # mem_get_info would create a context

    def cache_bytes(self) -> int | None:
        return getattr(self._properties(), "L2_cache_size", None) or None

    def clocks(self) -> Mapping[str, float] | None:
        return nvml.clocks(self._uuid())

    def throttle_reasons(self) -> tuple[str, ...]:
        return nvml.throttle_reasons(self._uuid())

    def throttled_s(self) -> Mapping[str, float]:
        return nvml.throttled_s(self._uuid())

    def other_processes(self) -> int | None:
        return nvml.other_processes(self._uuid())

    def energy_j(self) -> float | None:
        return nvml.energy_j(self._uuid())

    def queue_wait(self, seconds: float) -> bool:
        import torch

        sleep = getattr(torch.cuda, "_sleep", None)
        if sleep is None:
            return False
        with torch.cuda.device(self.index):
            sleep(int(seconds * FASTEST_CLOCK))
        return True

    def record_event(self) -> DeviceEvent:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.index))
        return event

    def capture_graph(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        import torch

        # Only launches on the current device's streams are captured. The inner context restores the current stream,
        # which a capture that fails leaves on its own.
        with torch.cuda.device(self.index), torch.cuda.stream(torch.cuda.current_stream(self.index)):
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # what a first call allocates must exist before the capture
                for _ in range(3):
                    call()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    result = call()
            except RuntimeError as error:
                reason = " ".join(str(error).split())
                raise Unmeasurable(f"the call can't be captured in a CUDA graph: {reason}") from error
        return graph.replay, result

    def details(self) -> dict[str, Any]:
        import torch

        properties = self._properties()
        return {
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None),
            "platform": "rocm" if torch.version.hip else "cuda",
            "driver": None if torch.version.hip else nvml.driver(),
            **nvml.facts(self._uuid()),
        }

    def _properties(self) -> Any:
        import torch

        return torch.cuda.get_device_properties(self.index)

    def _uuid(self) -> str | None:
        """The key by which NVML knows the device: its index there ignores ``CUDA_VISIBLE_DEVICES``."""
        import torch

        uuid = getattr(self._properties(), "uuid", None)
        return None if uuid is None or torch.version.hip else f"GPU-{uuid}"
