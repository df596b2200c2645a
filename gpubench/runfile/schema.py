"""The contract between measuring, supervising and reporting: the keys of a run file.

A run file is a valid pytest-benchmark file with our keys added in three places:

``benchmarks[i]["extra_info"]["gpubench"]``
    a :class:`Case` (what was measured, flattened by :meth:`Case.as_dict`) plus what was measured of it:
    ``work`` (:class:`Work`), ``latency_s``, ``wait_s``, ``first_call_s``, ``check``, ``device_s`` and ``launch_s``
    (``device_reason`` where they are unknown), ``transfer`` (:class:`Transfer`), ``memory_bytes``, ``energy_j``,
    ``precision`` (the switches in force while it was timed), ``processes`` (each with its own ``flags``, a list of
    ``{"flag", "seen"}``; :mod:`gpubench.runfile.flags` says what each means) and ``steps`` (how many such calls make up
    the whole job, if the case says so). A case of several devices, or one that they are held against, has ``parallel``
    too (see :class:`gpubench.runfile.reader.Parallel`, and ``losses``: a curve).
``machine_info["gpubench"]``
    facts that don't change while running: ``label``, ``cpu``, ``devices``, ``torch``, ``precision``, ``threads``.
    pytest-benchmark warns at any difference here, so nothing that varies from run to run belongs in it.
``["gpubench"]``
    ``schema_version``, ``version``, ``preset``, ``seed``, ``asked`` (the options), ``started``, ``finished``,
    ``ceilings`` (what each device can do, by name: :class:`Ceilings`), ``processes`` (a list, one entry a process:
    load and clocks ``before`` and ``after``, the thread ``canary``, its ``flags``), and ``unmeasured``: the
    cases that gave no number, each a :class:`Case` plus ``name``, ``fullname``, ``status`` and ``reason``.

All values are in SI base units; what is unknown is ``None``, never 0 and never NaN.
``stats.data`` holds at most :data:`SAMPLES_KEPT` raw samples of each process, process after process, as many as
``processes[j]["kept"]`` says; ``stats`` itself is computed from all of them.

This module imports the standard library only: every part of the package may import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

KEY = "gpubench"
SCHEMA_VERSION = 1
SAMPLES_KEPT = 200

PRESETS = ("smoke", "quick", "full")
DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64")
VARIANTS = ("eager", "autocast", "compile", "graph")
IMPLEMENTATIONS = ("torch", "numpy")
REGIMES = ("resident", "one-shot")
CACHES = ("hot", "cold")

OK = "ok"
UNMEASURED = ("skipped", "oom", "error", "timeout", "crashed")
STATUSES = (OK, *UNMEASURED)

TIMERS = ("device_clock", "timer", "replay")
"""Names (``options.timer``) of the clocks that wait for the device."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Work:
    """What one call has to do, whatever the device.

    ``flops``: floating-point operations, a multiply-add counted as two.
    ``bytes``: compulsory traffic, each input read once and each output written once.
    ``items``: what a person counts, named by ``unit`` (samples, tokens, elements).
    """

    flops: float | None = None
    bytes: float | None = None
    items: float | None = None
    unit: str = "element"


@dataclass(frozen=True, slots=True)
class Case:
    """One parametrised point of a workload on one device: its identity, and on which terms it may be compared.

    ``workload`` is the test's file and function without their ``test_``, joined by a dot (``matmul.square``);
    ``params`` are the test's own parameters, JSON scalars; ``size`` names the one that charts put on the x axis.
    ``devices`` are all devices the call uses, ``device`` the one it is named for. ``threads`` are those that the
    implementation may use on the CPU (NumPy's elementwise work: 1). ``cache`` is ``cold`` where the device's last
    cache was flushed before every round.
    """

    workload: str
    device: str
    dtype: str
    params: Mapping[str, Scalar] = field(default_factory=dict)
    implementation: str = "torch"
    variant: str = "eager"
    regime: str = "resident"
    cache: str = "hot"
    threads: int | None = None
    size: str | None = None
    devices: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Identity without device and implementation: equal on every machine, folder and process."""
        terms = [self.dtype, *(term for term in (self.variant, self.cache) if term not in ("eager", "hot"))]
        terms += [f"{name}={value}" for name, value in self.params.items()]
        return f"{self.workload}[{'-'.join(terms)}]"

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-ready, ``id`` included for other readers."""
        record: dict[str, Any] = {"id": self.id}
        for item in fields(self):
            value = getattr(self, item.name)
            record[item.name] = list(value) if isinstance(value, tuple) else value
        record["params"] = dict(self.params)
        return record


@dataclass(frozen=True, slots=True)
class Transfer:
    """What it takes to bring a case's inputs to its device and its outputs back, in seconds.

    ``in_s`` and ``out_s`` from and to pageable host memory, the ``pinned`` ones page-locked; ``None`` where there is
    nothing to copy that way, or no pinned memory.
    """

    in_bytes: int
    out_bytes: int
    in_s: float | None = None
    out_s: float | None = None
    in_pinned_s: float | None = None
    out_pinned_s: float | None = None


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Traffic in bytes per second of one access pattern over ``footprint_bytes`` of distinct memory.

    ``level`` names the smallest memory that holds the footprint: ``l1d``, ``l2``, ``l3`` or ``memory``.
    """

    pattern: str
    level: str
    footprint_bytes: float
    byte_per_s: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The best one device was seen to do. ``throughput`` is FLOP/s of matrix products by dtype.

    ``launch_floor_s`` is the least wall time of any operation, launched in a long row.
    """

    bandwidth: tuple[Bandwidth, ...] = ()
    throughput: Mapping[str, float] = field(default_factory=dict)
    launch_floor_s: float | None = None
    host_to_device_byte_per_s: float | None = None
    device_to_host_byte_per_s: float | None = None

    def bandwidth_for(self, nbytes: float) -> Bandwidth | None:
        """The best pattern at the case's footprint, for which its compulsory traffic stands.

        Of the measured footprints the largest one not above ``nbytes`` counts, and every larger one: what a large
        footprint reaches, a small one can. Small footprints read too low, since a call has a fixed cost.
        """
        sizes = sorted({entry.footprint_bytes for entry in self.bandwidth})
        from_size = max((size for size in sizes if size <= nbytes), default=sizes[0] if sizes else 0.0)
        able = [entry for entry in self.bandwidth if entry.footprint_bytes >= from_size]
        return max(able, key=lambda entry: entry.byte_per_s, default=None)

    def raised(self, other: Ceilings) -> Ceilings:
        """With the better figure of each kind of two measurements on the same device."""
        entries = {(entry.pattern, entry.footprint_bytes): entry for entry in self.bandwidth}
        for entry in other.bandwidth:
            key = entry.pattern, entry.footprint_bytes
            entries[key] = max(entries.get(key, entry), entry, key=lambda one: one.byte_per_s)
        names = {**self.throughput, **other.throughput}
        throughput = {n: max(self.throughput.get(n, 0.0), other.throughput.get(n, 0.0)) for n in names}
        floors = [floor for floor in (self.launch_floor_s, other.launch_floor_s) if floor]
        return replace(
            self, bandwidth=tuple(entries.values()), throughput=throughput, launch_floor_s=min(floors, default=None)
        )


# What a run file says, frozen: a run, its machine, its results.
#
# :func:`gpubench.runfile.reader.read` makes these and checks every value, so that later code may divide by a
# time and take its logarithm. Standard library only.


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
