"""What NVIDIA's management library knows beyond torch. Every answer may be missing: the library is an extra."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")


@functools.cache
def _library() -> Any:
    """The initialised ``pynvml`` module, or ``None`` without library or driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, or any of NVML's own errors: then nothing is known
        return None
    return pynvml


def _ask(uuid: str | None, question: Callable[[Any, Any], _Answer]) -> _Answer | None:
    """``question(library, handle)`` of one GPU, or ``None`` where library, GPU or answer is missing."""
    library = _library()
    if library is None or uuid is None:
        return None
    try:
        return question(library, library.nvmlDeviceGetHandleByUUID(uuid))
    except (library.NVMLError, AttributeError):  # older libraries lack some functions and constants
        return None


def driver(kernel: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA driver: from the library, or without it from the kernel module."""
    library = _library()
    if library is not None:
        with contextlib.suppress(library.NVMLError):
            return str(library.nvmlSystemGetDriverVersion())
    with contextlib.suppress(OSError):
        if match := re.search(r"Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", kernel.read_text()):
            return match[1]
    return None


def clocks(uuid: str | None) -> Mapping[str, float] | None:
    """Current clocks in Hz: ``sm`` and ``memory``."""
    return _ask(
        uuid,
        lambda nvml, gpu: {
            "sm": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,
            "memory": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
        },
    )


def facts(uuid: str | None) -> dict[str, float | None]:
    """Power limit and highest clocks of one GPU; empty if the GPU isn't known."""
    if _ask(uuid, lambda nvml, gpu: True) is None:
        return {}
    return {
        "power_limit_w": _ask(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1e3),
        "max_sm_hz": _ask(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6),
        "max_memory_hz": _ask(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6),
    }


_REASONS = {
    "SwPowerCap": "power limit",
    "HwSlowdown": "hardware slowdown",
    "HwThermalSlowdown": "heat (hardware)",
    "SwThermalSlowdown": "heat",
    "HwPowerBrakeSlowdown": "power brake",
}


def throttle_reasons(uuid: str | None) -> tuple[str, ...]:
    """Why one GPU's clocks are lower than requested at this moment."""
    # NVML calls them clock event reasons since CUDA 12.2, throttle reasons before.
    mask = _ask(uuid, lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)))
    if mask is None:
        mask = _ask(uuid, lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)))
    if not mask:
        return ()
    library = _library()
    names = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
    bits = {
        reason: next((bit for name in names if (bit := getattr(library, name + suffix, None)) is not None), 0)
        for suffix, reason in _REASONS.items()
    }
    return tuple(reason for reason, bit in bits.items() if mask & bit)


def throttled_s(uuid: str | None) -> dict[str, float]:
    """Seconds that power limit and heat have held one GPU's clocks down, counted by the driver.

    Unlike :func:`throttle_reasons` two readings cover the time between them, not a moment after the work.
    """

    def seconds(nvml: Any, gpu: Any, policy: str) -> float:
        return float(nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, policy)).violationTime) / 1e9

    policies = {"power limit": "NVML_PERF_POLICY_POWER", "heat": "NVML_PERF_POLICY_THERMAL"}
    answers = {reason: _ask(uuid, functools.partial(seconds, policy=policy)) for reason, policy in policies.items()}
    return {reason: answer for reason, answer in answers.items() if answer is not None}


def other_processes(uuid: str | None) -> int | None:
    """Processes with a context on the GPU, besides this one and those it has started.

    A container sees the host's process ids: there, as many of the listed processes are subtracted.
    """
    listed = _ask(uuid, lambda nvml, gpu: {p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)})
    if listed is None:
        return None
    import psutil

    family = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    return len(listed - family) if os.getpid() in listed else max(0, len(listed) - len(family))


def energy_j(uuid: str | None) -> float | None:
    """Joules since the driver was loaded; GPUs before Volta have no counter."""
    return _ask(uuid, lambda nvml, gpu: float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1e3)


def nvlink(uuids: list[str | None]) -> bool | None:
    """Whether every two of these GPUs can reach each other over NVLink; ``None`` if that isn't known."""
    handles = [_ask(uuid, lambda nvml, gpu: gpu) for uuid in uuids]
    library = _library()
    if library is None or None in handles:
        return None
    try:
        states = [
            library.nvmlDeviceGetP2PStatus(source, target, library.NVML_P2P_CAPS_INDEX_NVLINK)
            for source, target in itertools.permutations(handles, 2)
        ]
    except library.NVMLError:
        return None
    return all(state == library.NVML_P2P_STATUS_OK for state in states)
