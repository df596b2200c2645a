"""NVIDIA GPUs through CUDA, and AMD GPUs through ROCm, which torch also calls ``cuda``.

NVIDIA's management library (NVML) says more than torch. A machine may lack the library, each of its answers may be
missing, and for an AMD GPU all are.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ..errors import Unmeasurable
from .base import register
from .cpu import family
from .torch_device import TorchDevice, torch

_Answer = TypeVar("_Answer")
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_FASTEST_CLOCK, _HEADROOM = 3.5e9, 1.5
"""Cycles per second that no GPU exceeds, so that a wait of this many cycles per second is at least as long as
requested; and the factor by which a clock may rise after its calibration."""
_SOURCE = re.compile(r"\(Triggered internally at [^)]*\)")
_REASONS = {0x4: "power limit", 0x8: "hardware slowdown", 0x40: "heat (hardware)", 0x20: "heat", 0x80: "power brake"}
"""NVML's bits of the clock event reasons (nvml.h)."""
_BUSY_S = 1.0
"""Seconds before now in which a process must have worked on a GPU to count."""
_POLICIES = {"power limit": "PERF_POLICY_POWER", "heat": "PERF_POLICY_THERMAL"}


def _runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code built for ``sm_86``, ``sm_90a`` or ``compute_90`` runs on a GPU of this compute capability (CUDA C++
    Programming Guide, "Application Compatibility")."""
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)(\w?)", architecture)
    if match is None:
        return True
    built = int(match[2]), int(match[3])
    if match[4] == "a":
        return built == capability
    return built <= capability and (match[1] == "compute" or built[0] == capability[0])


def _at_work(nvml: Any, gpu: Any) -> set[int]:
    """Return the ids of processes that have worked on a GPU within the last :data:`_BUSY_S`.

    Without any, NVML answers "not found", or pynvml raises its success as an error. A buffer that has become too small
    between pynvml's two calls names nobody, after a second try.
    """
    for _ in range(2):
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(gpu, int((time.time() - _BUSY_S) * 1e6))
            return {sample.pid for sample in samples if sample.smUtil}
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
                break
            if error.value != nvml.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
    return set()


def _holds_gpu(pid: int) -> bool:
    """Whether a process has a GPU of NVIDIA open, as one with a context does."""
    with contextlib.suppress(OSError):
        files = Path(f"/proc/{pid}/fd").iterdir()
        return any(os.readlink(file).startswith(("/dev/nvidia", "/dev/dxg")) for file in files)
    return False


@functools.cache
def _library() -> Any:
    """Return the initialised ``pynvml`` module, or ``None`` without the module or a driver."""
    with contextlib.suppress(Exception):  # ImportError, or any of NVML's own errors: then nothing is known
        import pynvml

        pynvml.nvmlInit()
        return pynvml


@functools.cache
def _handle(uuid: str) -> Any:
    """Return NVML's handle of a GPU or of a part of one, which has its own key, or ``None``; torch gives both keys
    without the kind."""
    for kind in ("GPU", "MIG"):
        with contextlib.suppress(_library().NVMLError):
            return _library().nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}")


@functools.cache
def _ticks_per_s(device: Cuda) -> float:
    """Return the ticks per second of the device-side wait, measured with events: some AMD GPUs count a clock of 100
    MHz, others the shader's."""
    ticks, waited_ms = 10**5, 0.0
    while waited_ms < 1.0 and ticks < 10**9:
        ticks *= 10
        start = device.record_event()
        with torch.cuda.device(device.index):
            torch.cuda._sleep(ticks)
        end = device.record_event()
        device.synchronize()
        waited_ms = start.elapsed_time(end)
    return _HEADROOM * ticks / max(waited_ms, 1e-3) * 1e3


@register
class Cuda(TorchDevice):
    """CUDA devices, which differ from other torch devices in how they are found and in the reports of the driver's
    library."""

    kind = "cuda"
    supports_graphs = True
    caches_pinned_memory = True
    record_event = TorchDevice._event
    _failed_capture: ClassVar[str | None] = None
    _sides: ClassVar[dict[int, Any]] = {}
    _workspaces: ClassVar[dict[int, int]] = {}
    """Bytes by device index that cuBLAS takes for the duration of a product, since torch 2.15."""

    @classmethod
    def count(cls) -> int:
        with warnings.catch_warnings():  # why_absent() reports a driver that is missing or too old
            warnings.simplefilter("ignore")
            return super().count()

    @classmethod
    def why_absent(cls) -> str:
        if torch.version.cuda is None and torch.version.hip is None:
            return f"this PyTorch build ({torch.__version__}) has no CUDA or ROCm support. See pytorch.org/get-started"
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                torch.cuda.is_available()
                torch.cuda.init()  # torch warns once per process, but here repeats the warning as an error
                failure = "torch sees no CUDA device"
            except (RuntimeError, AssertionError) as error:
                failure = str(error)
        texts = [*(str(item.message) for item in warned), failure]
        texts = list(dict.fromkeys(" ".join(_SOURCE.sub("", text).split()) for text in texts))
        # A warning often is the error with a prefix: only the longer text is kept.
        reasons = [text for text in texts if not any(text != other and text in other for other in texts)]
        hidden = [f"{name}={os.environ[name]!r}" for name in _HIDING if name in os.environ]
        return " ".join(reasons) + (f" (with {', '.join(hidden)})" if hidden else "")

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        def has_context(index: int) -> bool:
            try:
                return bool(torch._C._cuda_hasPrimaryContext(index))
            except RuntimeError:  # a broken context, which clean-up must survive
                return True

        # Waiting for a GPU that has no context would create one: seconds, and hundreds of megabytes.
        return tuple(filter(has_context, range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)))

    @classmethod
    def interconnect(cls, indices: Sequence[int]) -> str | None:
        """Return NVLink if it connects every pair of GPUs, else PCIe; ``None`` without the driver's library."""
        handles, library = [cls(index)._nvml(lambda nvml, gpu: gpu) for index in indices], _library()
        if library is None or None in handles:
            return None
        with contextlib.suppress(library.NVMLError):
            status, link = library.nvmlDeviceGetP2PStatus, library.NVML_P2P_CAPS_INDEX_NVLINK
            states = {status(*pair, link) for pair in itertools.permutations(handles, 2)}
            return "NVLink" if states <= {library.NVML_P2P_STATUS_OK} else "PCIe"
        return None

    def lacks(self, dtype: str) -> str | None:
        capability, amd = torch.cuda.get_device_capability(self.index), self._is_amd
        built = self._ask("get_arch_list")
        if built and not amd and not any(_runs_on(architecture, capability) for architecture in built):
            return f"this PyTorch build has kernels for {', '.join(built)}, not for sm_{capability[0]}{capability[1]}"
        if dtype == "tf32" and (amd or capability < (8, 0)):
            return f"tf32 needs an NVIDIA GPU of compute capability 8.0; this is {capability[0]}.{capability[1]}"
        if dtype == "bfloat16" and not amd and capability < (8, 0):
            return f"bfloat16 is emulated below compute capability 8.0; this is {capability[0]}.{capability[1]}"
        return None

    def total_memory(self) -> int:
        return int(self._properties().total_memory)  # mem_get_info would create a context

    def cache_bytes(self) -> int | None:
        # AMD's last cache isn't the L2, and torch reports no other.
        return None if self._is_amd else getattr(self._properties(), "L2_cache_size", None) or None

    def clocks(self) -> dict[str, float] | None:
        def read(nvml: Any, gpu: Any) -> dict[str, float]:
            domains = {"sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
            return {name: nvml.nvmlDeviceGetClockInfo(gpu, domain) * 1e6 for name, domain in domains.items()}

        return self._nvml(read)

    def clock_share(self) -> float | None:
        def share(nvml: Any, gpu: Any) -> float:
            now, most = nvml.nvmlDeviceGetClockInfo, nvml.nvmlDeviceGetMaxClockInfo
            return float(now(gpu, nvml.NVML_CLOCK_SM) / most(gpu, nvml.NVML_CLOCK_SM))

        return self._nvml(share)

    def throttle_reasons(self) -> tuple[str, ...]:
        # Drivers call them clock event reasons since CUDA 12.2, throttle reasons before.
        mask = self._nvml(
            lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
            lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
        )
        return tuple(reason for bit, reason in _REASONS.items() if (mask or 0) & bit)

    def throttled_s(self) -> dict[str, float]:
        """Return the driver's counters; the function that NVML marks as deprecated in CUDA 13 is asked first, since its
        unit is documented for all drivers."""

        def counter(nvml: Any, gpu: Any) -> float:
            return float(nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, f"NVML_{policy}")).violationTime)

        def field(nvml: Any, gpu: Any) -> float | None:
            (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [getattr(nvml, f"NVML_FI_DEV_{policy}")])
            return None if answer.nvmlReturn else float(answer.value.ullVal)

        seconds = {}
        for cause, policy in _POLICIES.items():  # noqa: B007  # both functions use it at once
            if (nanoseconds := self._nvml(counter, field)) is not None:
                seconds[cause] = nanoseconds / 1e9
        return seconds

    def power_share(self) -> float | None:
        """Return the share by the driver's reading of this moment: older drivers' average over a second is too late."""

        def share(nvml: Any, gpu: Any) -> float | None:
            (reading,) = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])
            limit = nvml.nvmlDeviceGetPowerManagementLimit(gpu)
            return None if reading.nvmlReturn else reading.value.uiVal / limit

        return self._nvml(share)

    def other_processes(self) -> int | None:
        """Return the number of processes that work on the GPU, or have a context if the library doesn't tell who
        works, besides this one and its family. A container can't recognise its own processes among the host's, so the
        number of its own with a GPU open is subtracted there."""
        listed = self._nvml(lambda nvml, gpu: {p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)})
        if listed is None:
            return None
        if listed <= {os.getpid()}:  # to look for children takes tens of milliseconds on a large host
            return 0
        at_work = self._nvml(_at_work)
        idle = set() if at_work is None else listed - at_work
        children = [process.pid for process in family()]
        if os.getpid() in listed:
            return len(listed - idle - {os.getpid(), *children})
        return max(0, len(listed) - 1 - sum(map(_holds_gpu, children)) - len(idle))

    def energy_j(self) -> float | None:
        """Return joules since the driver was loaded; GPUs before Volta have no counter."""
        return self._nvml(lambda nvml, gpu: float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1e3)

    def queue_wait(self, seconds: float) -> bool:
        rate = _ticks_per_s(self) if self._is_amd else _FASTEST_CLOCK
        with torch.cuda.device(self.index):
            torch.cuda._sleep(int(seconds * rate))
        return True

    def capture_graph(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        cuda, side = torch.cuda, self._side()
        # Only launches on the current device's streams are captured. The inner context restores the current stream,
        # which a capture that fails leaves on its own.
        with cuda.device(self.index), cuda.stream(cuda.current_stream(self.index)):
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):  # memory of a first call must exist before the capture
                for _ in range(3):
                    call()
            cuda.current_stream().wait_stream(side)
            cuda.synchronize()
            graph, collects = cuda.CUDAGraph(), gc.isenabled()
            gc.collect()
            gc.disable()  # to free another graph, or a compiled kernel, within a capture spoils it (pytorch#161037)
            try:
                with cuda.graph(graph, stream=side):  # torch's own capture stream stays on the first device used
                    result = call()
            except RuntimeError as error:
                # torch ends neither the capture nor the use of the graph's memory: every later allocation may fail. The
                # end of a failed capture raises another error, and torch adds advice for debugging.
                first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
                cause = str(first).strip().split("\n")[0] or type(first).__name__
                reason = Cuda._failed_capture = f"the call can't be captured in a CUDA graph: {cause}"
                raise Unmeasurable(reason) from error
            finally:
                if collects:
                    gc.enable()
        return graph.replay, result

    def ruined(self) -> str | None:
        return self._failed_capture or super().ruined()

    @property
    def shares_memory(self) -> bool:
        return bool(getattr(self._properties(), "is_integrated", False))

    def settle(self) -> None:
        """Make cuBLAS allocate its workspaces (32 MiB on Hopper), one per thread and stream: a product and its backward
        pass, which has its own thread, run once on both streams, unless torch refuses products because they may differ
        from call to call."""
        cuda = torch.cuda
        refused = torch.are_deterministic_algorithms_enabled() and "CUBLAS_WORKSPACE_CONFIG" not in os.environ
        if self.index in self._sides or refused:
            return
        with cuda.device(self.index), torch.inference_mode(False), torch.enable_grad():
            for stream in (cuda.current_stream(), self._side()):
                with cuda.stream(stream):
                    x = torch.ones(32, 32, dtype=torch.float32, device=str(self), requires_grad=True)
                    torch.nn.functional.linear(x @ x, x, x[0]).sum().backward()
            cuda.synchronize()
            self.reset_peak_memory()
            before, product = self.allocated_memory() or 0, x.detach() @ x.detach()
            self._workspaces[self.index] = max(0, (self.peak_memory() or 0) - before - product.nbytes)

    def workspace_bytes(self) -> int:
        return self._workspaces.get(self.index, 0)

    def _side(self) -> Any:
        """An additional stream: torch doesn't capture on the default stream."""
        return self._sides.get(self.index) or self._sides.setdefault(self.index, torch.cuda.Stream(self.index))

    def details(self) -> dict[str, Any]:
        properties = self._properties()
        details = {
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "driver": self._nvml(lambda nvml, gpu: str(nvml.nvmlSystemGetDriverVersion())),
            "power_limit_w": self._nvml(lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1e3),
        }
        if not self._is_amd and not _library():
            details["unknown"] = "the driver's library (NVML) doesn't answer"
        if self._nvml(lambda nvml, gpu: bool(nvml.nvmlDeviceIsMigDeviceHandle(gpu))):
            details["mig"] = True
        return details

    @property
    def _is_amd(self) -> bool:
        return bool(torch.version.hip)

    def _nvml(self, *questions: Callable[[Any, Any], _Answer | None]) -> _Answer | None:
        """Return the first answer to ``question(library, handle)`` for this GPU; ``None`` without library, GPU or
        answer."""
        library, uuid = _library(), self._uuid()
        handle = _handle(uuid) if library and uuid else None
        for question in questions if handle is not None else ():
            # Older libraries lack some functions, and a virtual GPU may give 0 as a limit.
            with contextlib.suppress(library.NVMLError, AttributeError, ZeroDivisionError):
                if (answer := question(library, handle)) is not None:
                    return answer
        return None

    def _uuid(self) -> str | None:
        """Return the key by which NVML knows the device: its index in NVML ignores ``CUDA_VISIBLE_DEVICES``."""
        return None if self._is_amd else str(self._properties().uuid)

    def _properties(self) -> Any:
        return torch.cuda.get_device_properties(self.index)
