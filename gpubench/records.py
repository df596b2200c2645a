"""What a run file says, frozen: a run, its machine, its results.

:func:`gpubench.runfile.read` makes these and checks every value, so that later code may divide by a time and take its
logarithm. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .roofline import Ceilings
from .schema import OK, Case, Scalar, Transfer, Work


@dataclass(frozen=True, slots=True)
class Process:
    """What one process saw of a case; ``samples`` are those it kept, in seconds per call.

    They are an array and not a tuple: a thousand files hold 60 million, and a tuple of floats takes four times as much.
    """

    index: int
    median_s: float
    rounds: int
    iterations: int
    latency_s: float | None = None
    samples: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Wall time in seconds per call; above 0.

    ``median_s`` is the median over the rounds, of several processes the geometric mean of their medians: a process is
    one observation, however many rounds it made. The other statistics are over all rounds of all processes.
    """

    median_s: float
    mean_s: float
    min_s: float
    iqr_s: float
    q1_s: float
    q3_s: float
    rounds: int
    iterations: int
    latency_s: float | None
    timer: str
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """A flag, what was seen where it first came up, and in which of the processes it did."""

    name: str
    seen: str
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a case used several devices; ``single`` and ``one thread`` are the methods of a case that used one.

    ``bus_share``: bus bandwidth over algorithm bandwidth of a collective. ``phases``: seconds of each part of a step.
    ``rows``: of each batch, the rows that every replica got. Efficiency and speedup are the report's to find.
    """

    method: str | None = None
    devices: int = 1
    threads: int | None = None
    mode: str | None = None
    ideal_speedup: float | None = None
    interconnect: str | None = None
    bus_share: float | None = None
    microbatches: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A case and what came of it: ``times`` exactly when ``status`` is ``ok``, otherwise the ``reason`` why not.

    ``precision`` are the switches in force while it was timed.
    """

    case: Case
    work: Work
    status: str = OK
    reason: str | None = None
    times: Times | None = None
    check: str | None = None
    check_reason: str | None = None
    check_error: float | None = None
    steps: int | None = None
    device_s: float | None = None
    launch_s: float | None = None
    transfer: Transfer | None = None
    memory_bytes: float | None = None
    energy_j: float | None = None
    precision: Mapping[str, Scalar] = field(default_factory=dict)
    flags: tuple[Raised, ...] = ()
    parallel: Parallel | None = None
    fullname: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the machine: ``cuda:0``, its kind ``cuda``, what its maker calls it, and its driver's version."""

    name: str
    kind: str
    label: str
    driver: str | None = None

    @property
    def accelerator(self) -> bool:
        """Whether it is anything but the CPU that it is held against."""
        return self.kind != "cpu"


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of the machine that hold for the whole run."""

    label: str
    devices: tuple[Device, ...]
    torch: str | None = None
    tf32: bool | None = None
    threads: int | None = None
    precision: Mapping[str, Scalar] = field(default_factory=dict)

    def device(self, name: str) -> Device:
        """The device of that name; one that the file doesn't describe is known by its name alone."""
        for device in self.devices:
            if device.name == name:
                return device
        return Device(name, name.partition(":")[0], "")


@dataclass(frozen=True, slots=True)
class Run:
    """One run file. ``plain`` files come from pytest-benchmark alone and hold none of our keys.

    ``flags`` are those of whole processes: what was seen applies to all they measured. ``slow_threads`` are the
    processes whose thread canary took longer on all threads than on one.
    """

    path: Path
    machine: Machine
    results: tuple[Result, ...]
    started: str | None = None
    preset: str | None = None
    version: str | None = None
    processes: int = 1
    plain: bool = False
    seed: int | None = None
    ceilings: Mapping[str, Ceilings] = field(default_factory=dict)
    flags: tuple[Raised, ...] = ()
    slow_threads: tuple[int, ...] = ()

    @property
    def date(self) -> str | None:
        """The day of the measurement, ``2026-01-31``."""
        return self.started[:10] if self.started else None
