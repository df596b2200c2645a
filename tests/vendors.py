"""Stand-ins for vendors' libraries about GPUs, by their documentation; a test changes their answers."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple


class Moment(NamedTuple):
    """An event, at so many seconds of a device's clock, a virtual machine's."""

    at: float
    machine: Any = None

    def query(self) -> bool:
        return self.machine.time_s >= self.at

    def elapsed_time(self, end: Moment) -> float:
        return 1e3 * (end.at - self.at)


class NvmlError(Exception):
    """The error that pynvml raises, with NVML's number of the error: 999 for an unknown one."""

    value = 999


def raising(kind: type[Exception]) -> Callable[..., Any]:
    """In place of a function of any library."""

    def fail(*_: Any) -> None:
        raise kind("no driver")

    return fail


failing = raising(NvmlError)


def nvml() -> types.SimpleNamespace:
    """``pynvml`` with one GPU, known by UUID alone."""
    gpus = {"GPU-1": "handle"}
    return types.SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_SUCCESS=0,
        NVML_ERROR_NOT_FOUND=6,
        NVML_ERROR_INSUFFICIENT_SIZE=7,
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "570.86.15",
        nvmlDeviceGetHandleByUUID=lambda uuid: gpus.get(uuid) or failing(),
        nvmlDeviceGetClockInfo=lambda handle, domain: {1: 1980, 2: 3201}[domain],
        nvmlDeviceGetPowerManagementLimit=lambda handle: 700_000,
    )
