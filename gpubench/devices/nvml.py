"""What NVIDIA's management library tells beyond torch. Every answer may be missing: the library is an extra."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@functools.cache
def _library() -> Any:
    """The initialised ``pynvml`` module, or ``None`` without library or driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, or any of NVML's own errors: then nothing is known
        return None
    return pynvml


def driver(kernel: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA driver: from the library, or without it from the kernel module."""
    library = _library()
    if library is not None:
        with contextlib.suppress(library.NVMLError):
            return str(library.nvmlSystemGetDriverVersion())
    with contextlib.suppress(OSError):
        if found := re.search(r"Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", kernel.read_text()):
            return found[1]
    return None


def _handle(uuid: str | None) -> Any:
    library = _library()
    if library is None or uuid is None:
        return None
    try:
        return library.nvmlDeviceGetHandleByUUID(uuid)
    except library.NVMLError:
        return None


def clocks(uuid: str | None) -> Mapping[str, float] | None:
    """Current clocks in Hz: ``sm`` and ``memory``."""
    handle, library = _handle(uuid), _library()
    if handle is None:
        return None
    try:
        return {
            "sm": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM) * 1e6,
            "memory": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM) * 1e6,
        }
    except library.NVMLError:
        return None


def facts(uuid: str | None) -> dict[str, Any]:
    """Power limit and highest clocks of one GPU."""
    handle, library = _handle(uuid), _library()
    if handle is None:
        return {}
    told: dict[str, Any] = {}
    for name, ask in (
        ("power_limit_w", lambda: library.nvmlDeviceGetPowerManagementLimit(handle) / 1e3),
        ("max_sm_hz", lambda: library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM) * 1e6),
        ("max_memory_hz", lambda: library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM) * 1e6),
    ):
        try:
            told[name] = ask()  # type: ignore[no-untyped-call]
        except library.NVMLError:
            told[name] = None
    return told


_SLOWDOWNS = {
    "SwPowerCap": "power limit",
    "HwSlowdown": "hardware slowdown",
    "HwThermalSlowdown": "heat (hardware)",
    "SwThermalSlowdown": "heat",
    "HwPowerBrakeSlowdown": "power brake",
}


def slowed(uuid: str | None) -> tuple[str, ...]:
    """Why one GPU's clocks are below what was asked of them at this moment."""
    handle, library = _handle(uuid), _library()
    if handle is None:
        return ()
    # NVML calls them clock event reasons since CUDA 12.2, throttle reasons before.
    for function, prefix in (
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlClocksEventReason"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlClocksThrottleReason"),
    ):
        ask = getattr(library, function, None)
        if ask is None:
            continue
        try:
            reasons = int(ask(handle))
        except library.NVMLError:
            continue
        masks = {
            told: getattr(library, f"{prefix}{name}", getattr(library, f"nvmlClocksThrottleReason{name}", 0))
            for name, told in _SLOWDOWNS.items()
        }
        return tuple(told for told, mask in masks.items() if reasons & mask)
    return ()


def slowed_s(uuid: str | None) -> dict[str, float]:
    """Seconds that power limit and heat have held one GPU's clocks down, counted by the driver.

    Unlike :func:`slowed` it tells of the time between two readings, not of the moment after the work.
    """
    handle, library = _handle(uuid), _library()
    if handle is None:
        return {}
    found = {}
    for told, policy in (("power limit", "NVML_PERF_POLICY_POWER"), ("heat", "NVML_PERF_POLICY_THERMAL")):
        with contextlib.suppress(library.NVMLError, AttributeError):
            found[told] = library.nvmlDeviceGetViolationStatus(handle, getattr(library, policy)).violationTime / 1e9
    return found


def neighbours(uuid: str | None) -> int | None:
    """Processes with a context on the GPU, besides this one and those it has started.

    In a container processes go by numbers of the host's: as many of those listed are taken for ours.
    """
    handle, library = _handle(uuid), _library()
    if handle is None:
        return None
    import psutil

    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    try:
        listed = {process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)}
    except library.NVMLError:
        return None
    return len(listed - own) if os.getpid() in listed else max(0, len(listed) - len(own))


def energy_j(uuid: str | None) -> float | None:
    """Joules since the driver was loaded; GPUs before Volta have no counter."""
    handle, library = _handle(uuid), _library()
    if handle is None:
        return None
    try:
        return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
    except library.NVMLError:
        return None


def nvlink(uuids: list[str | None]) -> bool | None:
    """Whether every two of these GPUs can reach each other over NVLink; ``None`` if that isn't known."""
    library, handles = _library(), [_handle(uuid) for uuid in uuids]
    if library is None or None in handles:
        return None
    try:
        states = [
            library.nvmlDeviceGetP2PStatus(one, other, library.NVML_P2P_CAPS_INDEX_NVLINK)
            for one in handles
            for other in handles
            if one is not other
        ]
    except library.NVMLError:
        return None
    return all(state == library.NVML_P2P_STATUS_OK for state in states)
