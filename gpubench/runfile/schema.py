"""The contract between measuring, supervising and reporting: the keys that we add to a file of pytest-benchmark.

All values are in SI base units; an unknown value is ``None``, never 0 and never NaN. Structs that occur thousands of
times in a file opt out of garbage collection (``gc=False``): they have no reference cycles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import force_setattr, replace

from .flags import Flag
from .quantities import moment_of

KEY = "gpubench"
SCHEMA_VERSION = 3
SAMPLES_KEPT = 200

OK, UNMEASURED = "ok", ("skipped", "oom", "error", "timeout", "crashed")
ACCEPTABLE = (OK, "skipped")  # the statuses of a benchmark that hasn't failed

TIMERS = ("device_clock", "timer", "replay")  # names (``options.timer``) of the clocks that wait for the device

MOST_CASES, MOST_PARAMS, MOST_DEVICES, MOST_FLAGS = 20_000, 64, 256, 32  # far more than in real runs, read in seconds
MOST_OPERATORS = 2_000  # kinds and sizes of operators in a call; a network has some twenty
LONGEST_TEXT = 2000  # characters kept of a text from a file: a reason may hold a whole traceback
MOST_NAMES = 500  # different names of parameters in one table, which has a column for each

Amount = Annotated[float, Meta(ge=0, le=1e300)]
Positive = Annotated[float, Meta(ge=1e-15, le=1e30)]  # a time, or an amount of work, of a size with finite ratios
_Part = Annotated[float, Meta(ge=0, le=1e30)]  # of a call's work
Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Scalar = str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Finite | bool | None
Flags = Annotated[tuple[Flag, ...], Meta(max_length=MOST_FLAGS)]
Scalars = Annotated[Mapping[str, Scalar], Meta(max_length=MOST_PARAMS)]
_Amounts = Annotated[Mapping[str, Amount], Meta(max_length=MOST_PARAMS)]
_Rates = Annotated[Mapping[str, Positive], Meta(max_length=MOST_PARAMS)]
_Ways = Annotated[Mapping[str, _Rates], Meta(max_length=MOST_PARAMS)]
_Medians = tuple[Positive, ...]
_Rows = tuple[tuple[Whole, ...], ...]


def _is(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class Operators(Struct, frozen=True, gc=False):
    """Operators of one kind and of about one size that a call is made of: FLOPs and bytes are the sums of all."""

    kind: Annotated[str, _is("product, convolution, normalisation, elementwise, sort or other")]
    count: Annotated[Count, _is("how many")]
    flops: Annotated[_Part, _is("floating-point operations that torch counts")]
    bytes: Annotated[_Part, _is("bytes read and written; by a sort, once for each byte of a key")]


class Work(Struct, frozen=True, gc=False):
    """The work of one call, on any device."""

    flops: Annotated[Positive | None, _is("floating-point operations; a multiply-add counts as two")] = None
    bytes: Annotated[Positive | None, _is("minimum traffic: inputs read once, outputs written once")] = None
    items: Annotated[Positive | None, _is("what a person counts")] = None
    unit: Annotated[str, _is("the name of an item: sample, token, element")] = "element"
    operators: Annotated[tuple[Operators, ...], _is("what the call is made of", max_length=MOST_OPERATORS)] = ()


class Case(Struct, frozen=True, gc=False):
    """One parametrised point of a workload on one device: its identity, its conditions, and its display names."""

    workload: Annotated[str, _is("the test's file and function without their test_, joined by a dot: matmul.square")]
    device: Annotated[str, _is("the device it is named for: cpu, cuda:0; empty where nothing says which it uses")]
    dtype: Annotated[str, _is("float32, tf32, bfloat16, float16 or float64; empty where none applies")] = ""
    params: Annotated[Scalars, _is("the test's own parameters")] = {}
    implementation: Annotated[str, _is("torch, numpy, …; it and the next two are empty for other fixtures")] = "torch"
    variant: Annotated[str, _is("eager, autocast, compile or graph")] = "eager"
    cache: Annotated[str, _is("cold: the last cache was flushed before every round", pattern="^(hot|cold|)$")] = "hot"
    threads: Annotated[Count | None, _is("CPU threads that the implementation may use")] = None
    size: Annotated[str | None, _is("the parameter that charts put on the x axis")] = None
    devices: Annotated[tuple[str, ...], _is("all devices the call uses", max_length=MOST_DEVICES)] = ()
    kind: Annotated[str, _is("kind of work: networks, copies, …; empty for one's own benchmark")] = ""
    title: Annotated[str, _is("display name of the workload; empty if its own name reads well")] = ""

    @property
    def id(self) -> str:
        """Identity without device and implementation: equal on every machine, folder and process."""
        terms = [self.dtype, *(term for term in (self.variant, self.cache) if term not in ("eager", "hot"))]
        terms += [f"{name}={value}" for name, value in self.params.items()]
        shown = "-".join(filter(None, terms))
        return f"{self.workload}[{shown}]" if shown else self.workload

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-ready, ``id`` included for other readers."""
        record = {name: list(value) if isinstance(value, tuple) else value for name, value in to_builtins(self).items()}
        return {"id": self.id, **record}


class Check(Struct, frozen=True, gc=False):
    """The comparison of a result with its float64 reference."""

    status: Annotated[str, _is("passed or unchecked; a wrong result fails the benchmark")]
    error: Annotated[Amount | None, _is("max|result - reference| / max|reference|, the worst of all outputs")] = None
    tolerance: Annotated[Amount | None, _is("the largest error that rounding explains")] = None
    reason: Annotated[str | None, _is("why it is unchecked, or how else it was checked")] = None


class Transfer(Struct, frozen=True, gc=False):
    """Seconds to copy a benchmark's inputs to its device and its outputs back; ``None`` where nothing is copied."""

    in_bytes: Annotated[Whole, _is("bytes of all inputs")]
    out_bytes: Annotated[Whole, _is("bytes of all outputs")]
    in_s: Annotated[Positive | None, _is("inputs from pageable host memory")] = None
    out_s: Annotated[Positive | None, _is("outputs to pageable host memory")] = None
    in_pinned_s: Annotated[Positive | None, _is("inputs from page-locked host memory")] = None
    out_pinned_s: Annotated[Positive | None, _is("outputs to page-locked host memory")] = None


class Process(Struct, frozen=True, gc=False):
    """The measurement of a benchmark in one process."""

    index: Annotated[Whole, _is("the number of the process")] = field(name="process")
    rounds: Annotated[Count, _is("timed stretches")]
    median_s: Annotated[Positive, _is("median of its rounds, seconds per call")]
    kept: Annotated[Whole, _is("how many of stats.data are its samples; processes follow one another there")] = 0
    iterations: Annotated[Count | None, _is("calls in each round")] = None
    iqr_s: Annotated[Amount | None, _is("interquartile range of its rounds")] = None
    latency_s: Annotated[Positive | None, _is("median of one call with its own synchronization")] = None
    flags: Annotated[Flags, _is("what was wrong meanwhile")] = ()
    cpu_s: Annotated[Positive | None, _is("of a CPU: least CPU time of the calling thread, seconds per call")] = None
    placements: Annotated[_Medians, _is("medians of rounds where copies lay elsewhere", max_length=MOST_DEVICES)] = ()
    unplaced: Annotated[str | None, _is("why the data lay at one place")] = None
    blocks: Annotated[_Medians, _is("of an expression: medians of stretches of time", max_length=MOST_DEVICES)] = ()


class Parallel(Struct, frozen=True, gc=False):
    """How a benchmark used several devices. Efficiency and speedup are derived by the report."""

    method: Annotated[str | None, _is("ddp, stages, all_reduce, …; single or one thread for one device")] = None
    devices: Annotated[Count, _is("ranks, each on one device")] = 1
    threads: Annotated[Count | None, _is("CPU threads of each rank")] = None
    mode: Annotated[str | None, _is("strong: one job for all; weak: one job for each")] = None
    ideal_speedup: Annotated[Positive | None, _is("the most that the method allows")] = None
    interconnect: Annotated[str | None, _is("what joins the devices")] = None
    bus_share: Annotated[Positive | None, _is("bus bandwidth over algorithm bandwidth of a collective")] = None
    rows: Annotated[_Rows, _is("rows of each batch on each replica", max_length=MOST_CASES)] = ()


class Measurement(Case, frozen=True, gc=False):
    """The measurement of one benchmark: its identity, and its numbers, except the statistics, which are in ``stats``.

    The first process alone does everything that is done once (``work``, ``check``, the probes of the device).
    """

    work: Annotated[Work, _is("what one call has to do")] = Work()
    uncounted: Annotated[str | None, _is("why the work couldn't be counted")] = None
    steps: Annotated[Count | None, _is("how many such calls make up the whole job, if the benchmark says so")] = None
    first_call_s: Annotated[Amount | None, _is("the first call; compiling included")] = None
    latency_s: Annotated[Positive | None, _is("median of one call with its own synchronization")] = None
    p95_s: Annotated[Positive | None, _is("95th percentile of single calls, from 20 samples on")] = None
    p99_s: Annotated[Positive | None, _is("99th percentile of single calls, from 100 samples on")] = None
    precision: Annotated[Scalars, _is("switches of torch and its libraries while it was timed")] = {}
    memory_bytes: Annotated[Amount | None, _is("peak memory on its device, inputs included")] = None
    plain_s: Annotated[Positive | None, _is("of a CPU: a call in a process that returns freed memory")] = None
    device_s: Annotated[Positive | None, _is("time per call that the device was busy, launch gaps excluded")] = None
    launch_s: Annotated[Positive | None, _is("host time per call to enqueue the work")] = None
    device_reason: Annotated[str | None, _is("why device_s and launch_s are unknown")] = None
    device_method: Annotated[str | None, _is("held: timed behind a wait; marked: without one")] = None
    energy_j: Annotated[Positive | None, _is("energy per call from the device's counter, idle power included")] = None
    transfer: Annotated[Transfer | None, _is("copies of inputs and outputs; on a CPU their bytes alone")] = None
    check: Annotated[Check | None, _is("whether the result is right")] = None
    convolution_share: Annotated[Amount | None, _is("of the FLOPs: fast algorithms do fewer than are counted")] = None
    processes: Annotated[tuple[Process, ...], _is("what each process measured, in the order of their samples")] = ()
    parallel: Annotated[Parallel | None, _is("how it used several devices, if it did")] = None

    @property
    def compute_dtype(self) -> str:
        """The dtype that products are computed in: under autocast the one that ``precision`` names, and tf32 where the
        program had it on."""
        if self.variant == "autocast":
            return str(self.precision.get("autocast") or "bfloat16")
        return "tf32" if self.dtype == "float32" and self.precision.get("tf32") is True else self.dtype

    def __post_init__(self) -> None:
        if len({process.index for process in self.processes}) < len(self.processes):
            raise ValueError("expected each process once")


class Bandwidth(Struct, frozen=True, gc=False):
    """Traffic of one access pattern over a footprint of distinct memory."""

    pattern: Annotated[str, _is("read, copy, triad or in-place")]
    footprint_bytes: Annotated[Positive, _is("bytes of distinct memory")]
    byte_per_s: Annotated[Positive, _is("traffic")]
    level: Annotated[str, _is("the smallest memory that holds the footprint: l1d, l2, l3 or memory")] = ""


class Ceilings(Struct, frozen=True):
    """Measured peaks of one device."""

    bandwidth: Annotated[tuple[Bandwidth, ...], _is("by pattern, footprint", max_length=MOST_DEVICES)] = ()
    throughput: Annotated[_Rates, _is("FLOP/s of matrix products by dtype, in the fastest way")] = {}
    launch_floor_s: Annotated[Positive | None, _is("least time of any operation, launched in a long row")] = None
    host_to_device_byte_per_s: Annotated[Positive | None, _is("copies from pinned memory")] = None
    device_to_host_byte_per_s: Annotated[Positive | None, _is("copies to pinned memory")] = None
    ways: Annotated[_Ways, _is("FLOP/s of a CPU's products by dtype, then by the library that computed them")] = {}
    allowed: Annotated[_Rates, _is("FLOP/s that the instruction set allows, by dtype, where known")] = {}

    @property
    def l2_bytes(self) -> float:
        """Bytes of an accelerator's L2 (its bandwidth is measured with half of them); 0 if unknown."""
        return max((2 * entry.footprint_bytes for entry in self.bandwidth if entry.level == "l2"), default=0.0)

    def bandwidth_for(self, nbytes: float) -> Bandwidth | None:
        """The best pattern at the largest measured footprint that isn't above ``nbytes``, or at a larger one: a small
        footprint can reach the rate of a large one, and reads too low, since a call has a fixed cost."""
        sizes = sorted({entry.footprint_bytes for entry in self.bandwidth})
        smallest = max((size for size in sizes if size <= nbytes), default=sizes[0] if sizes else 0.0)
        usable = [entry for entry in self.bandwidth if entry.footprint_bytes >= smallest]
        return max(usable, key=lambda entry: entry.byte_per_s, default=None)

    def raised(self, other: Ceilings) -> Ceilings:
        """These peaks, each replaced by the other measurement's on the same device where that is better."""
        entries: dict[tuple[str, float], Bandwidth] = {}
        for entry in (*self.bandwidth, *other.bandwidth):
            key = entry.pattern, entry.footprint_bytes
            entries[key] = max(entries.get(key, entry), entry, key=lambda each: each.byte_per_s)

        def higher(rates: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
            return {name: max(rates.get(name, 0.0), others.get(name, 0.0)) for name in {**rates, **others}}

        ways = {d: higher(self.ways.get(d, {}), other.ways.get(d, {})) for d in {**self.ways, **other.ways}}
        floor_s = min(filter(None, (self.launch_floor_s, other.launch_floor_s)), default=None)
        highest = {"throughput": higher(self.throughput, other.throughput), "ways": ways, "launch_floor_s": floor_s}
        return replace(self, bandwidth=tuple(entries.values()), **highest)


class CanaryTimes(Struct, frozen=True):
    """Median seconds of a small matrix product: other work on the cores makes more threads slower than one."""

    threads: Annotated[Count, _is("all threads")]
    one_s: Annotated[Positive, _is("on one thread")]
    all_s: Annotated[Positive, _is("on all threads")]


class ProcessFacts(Struct, frozen=True):
    """The surroundings of one process."""

    index: Annotated[Whole, _is("the number of the process")] = field(name="process")
    flags: Annotated[Flags | None, _is("what was wrong with all it measured")] = None
    canary: Annotated[CanaryTimes | None, _is("the thread canary")] = None
    before: Annotated[dict[str, Any] | None, _is("time and load before its first case")] = None
    after: Annotated[dict[str, Any] | None, _is("the same after its last case")] = None


class UnmeasuredCase(Case, frozen=True, kw_only=True):
    """A benchmark that gave no number."""

    status: Annotated[str, Meta(pattern=f"^({'|'.join(UNMEASURED)})$", description="what came of it")]
    name: Annotated[str | None, _is("the test's name with its parameters")] = None
    fullname: Annotated[str | None, _is("the test's file and name")] = None
    reason: Annotated[str | None, _is("why")] = None


_Ceilings = Annotated[dict[str, Ceilings], Meta(max_length=MOST_DEVICES)]
_Unmeasured = Annotated[tuple[UnmeasuredCase, ...], Meta(max_length=MOST_CASES)]


class RunFacts(Struct, frozen=True):
    """One run: its settings, and the surroundings of its processes."""

    schema_version: Annotated[int, Meta(ge=SCHEMA_VERSION, le=SCHEMA_VERSION, description="of this format")]
    version: Annotated[str | None, _is("the version of gpubench")] = None
    preset: Annotated[str | None, _is("smoke, glance, quick or full")] = None
    stage: Annotated[str | None, _is("of compare --interleave: screen, or confirm: what that made suspect")] = None
    seed: Annotated[Whole | None, _is("all data is made from it")] = None
    started: Annotated[str | None, _is("ISO 8601 date and time")] = None
    ceilings: Annotated[_Ceilings | None, _is("measured peaks by device")] = None
    processes: Annotated[tuple[ProcessFacts, ...] | None, _is("one entry for each process")] = None
    unmeasured: Annotated[_Unmeasured | None, _is("benchmarks without a number")] = None

    def __post_init__(self) -> None:
        if self.started is not None and not moment_of(self.started):
            raise ValueError(f"expected an ISO 8601 date and time as started, found {self.started[:60]!r}")


_MODELLED = re.compile(r"\b(modelled|simulated)\b", re.IGNORECASE)


class DeviceFacts(Struct, frozen=True):
    """A device of the machine."""

    name: Annotated[str, _is("cpu, cuda:0")]
    kind: Annotated[str, _is("cpu, cuda")]
    label: Annotated[str, _is("what its maker calls it")] = ""
    driver: Annotated[str | None, _is("its driver's version")] = None
    simulated: Annotated[bool, _is("its times come from a model, not from hardware")] = False

    def __post_init__(self) -> None:
        if _MODELLED.search(self.label):  # a file that another program made says so in the label
            force_setattr(self, "simulated", True)

    @property
    def accelerator(self) -> bool:
        """Whether it is known, and anything but the CPU that it is compared with."""
        return self.kind not in ("", "cpu")


_Texts = Annotated[Mapping[str, str], Meta(max_length=MOST_NAMES)]
_Names = Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)]


class CpuFacts(Struct, frozen=True):
    """The CPU, and the facts that decide how fast the same code runs on it."""

    model: Annotated[str | None, _is("what its maker calls it")] = None
    cores: Annotated[Count | None, _is("physical cores that this process may use")] = None
    logical_cpus: Annotated[Count | None, _is("logical CPUs that this process may use")] = None
    machine_cpus: Annotated[Count | None, _is("logical CPUs of the machine")] = None
    cgroup_cores: Annotated[Positive | None, _is("CPUs' worth of time that the control group allows")] = None
    memory_bytes: Annotated[Whole | None, _is("memory")] = None
    cache_bytes: Annotated[_Amounts | None, _is("caches of a core; the last level of all dies in use")] = None
    instructions: Annotated[_Names | None, _is("those of its instructions that decide the speed of products")] = None
    sockets: Annotated[Count | None, _is("processors that hold the CPUs in use")] = None
    numa_nodes: Annotated[Count | None, _is("NUMA nodes that hold the CPUs in use")] = None
    numa_policy: Annotated[str | None, _is("where new memory is put: default, bind, interleave")] = None
    governor: Annotated[str | None, _is("how Linux chooses its clocks: performance, powersave")] = None
    huge_pages: Annotated[str | None, _is("transparent huge pages: always, madvise or never")] = None
    allocator: Annotated[str | None, _is("what gives out memory: glibc 2.36, tcmalloc, jemalloc, mimalloc")] = None
    preloaded: Annotated[_Names | None, _is("file names of preloaded libraries")] = None
    kernels: Annotated[_Texts | None, _is("what a library's products are computed by")] = None
    variables: Annotated[_Texts | None, _is("environment variables that change a CPU's times")] = None


class Machine(Struct, frozen=True):
    """Facts of the machine that hold for every run: pytest-benchmark warns at any difference."""

    label: Annotated[str, _is("what tables call it")] = ""
    devices: Annotated[tuple[DeviceFacts, ...], _is("all devices", max_length=MOST_DEVICES)] = ()
    cpu: Annotated[CpuFacts, _is("the CPU, and what decides its times")] = CpuFacts()
    build: Annotated[Scalars | None, _is("the build of PyTorch: its version, 2.13.0+cpu")] = field(
        default=None, name="torch"
    )
    libraries: Annotated[Scalars | None, _is("versions of NumPy and of registered libraries")] = None
    precision: Annotated[Scalars | None, _is("switches of torch and its libraries")] = None
    threads: Annotated[Count | None, _is("threads of torch on the CPU")] = None

    @property
    def torch(self) -> str | None:
        """The version of PyTorch."""
        version = (self.build or {}).get("version")
        return version if isinstance(version, str) else None

    @property
    def tf32(self) -> bool | None:
        """Whether products in float32 were made in TF32; None if unknown."""
        on = (self.precision or {}).get("tf32")
        return on if isinstance(on, bool) else None

    def device(self, name: str) -> DeviceFacts:
        """The device of that name; a device that the file doesn't describe has its name alone."""
        alone = DeviceFacts(name, name.partition(":")[0])
        return next((device for device in self.devices if device.name == name), alone)


class MachineInfo(Struct, frozen=True):
    """pytest-benchmark's description of the machine, and ours."""

    cpu: Annotated[dict[str, Any] | None, _is("pytest-benchmark's own description of the CPU")] = None
    machine: str | None = None
    gpubench: Annotated[Machine | None, _is("facts of the machine")] = None


class Stats(Struct, frozen=True, gc=False):
    """pytest-benchmark's statistics of seconds per call, over all rounds of all processes."""

    median: Positive
    mean: Positive
    min: Amount
    iqr: Amount
    rounds: Count
    iterations: Count
    q1: Positive | None = None
    q3: Positive | None = None
    data: Annotated[
        list[Amount] | None, _is(f"at most {SAMPLES_KEPT} samples of each process, process after process")
    ] = None


class Options(Struct, frozen=True, gc=False):
    """pytest-benchmark's options."""

    timer: Annotated[str | None, _is(f"{', '.join(TIMERS)} wait for the device")] = None


class ExtraInfo(Struct, frozen=True, gc=False):
    """pytest-benchmark's place for the data of plugins."""

    gpubench: Annotated[Measurement | None, _is("absent in a test of pytest-benchmark alone")] = None


class Benchmark(Struct, frozen=True, gc=False):
    """One entry of pytest-benchmark's list."""

    stats: Annotated[Stats, _is("its times")]
    fullname: Annotated[str | None, _is("the test's file and name")] = None
    params: Annotated[Any, _is("the test's parameters, as pytest-benchmark writes them")] = None
    options: Options | None = None
    extra_info: ExtraInfo | None = None


class RunFile(Struct, frozen=True):
    """The whole file; keys that are not named here are pytest-benchmark's, or of another version, and ignored."""

    benchmarks: Annotated[tuple[Benchmark, ...], Meta(max_length=MOST_CASES, description="what was measured")]
    machine_info: Annotated[MachineInfo | None, _is("the machine")] = None
    datetime: Annotated[str | None, _is("when pytest-benchmark wrote the file")] = None
    gpubench: Annotated[RunFacts | None, _is("the run")] = None


class Times(Struct, frozen=True, gc=False):
    """Wall time in seconds per call; above 0. ``median_s`` is the median over the rounds, of several processes the
    median of their medians: a process is one observation. The other statistics are over all rounds of all processes.
    ``samples`` holds an array for each process: tuples take four times as much memory."""

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
    samples: tuple[Sequence[float], ...] = ()

    @property
    def cpu_s(self) -> float | None:
        """The least seconds that its thread had a core for a call; None where that wasn't recorded."""
        return min((process.cpu_s for process in self.processes if process.cpu_s), default=None)


class Raised(Struct, frozen=True, gc=False):
    """A flag, the evidence where it first came up, and its processes."""

    name: str
    seen: str
    processes: tuple[int, ...]


class Result(Measurement, frozen=True, gc=False):
    """A benchmark and its outcome: ``times`` exactly when ``status`` is ``ok``, otherwise the ``reason`` why not.
    ``flags`` are of all its processes, each name once."""

    status: str = OK
    reason: str | None = None
    times: Times | None = None
    flags: tuple[Raised, ...] = ()
    fullname: str = ""

    @property
    def case(self) -> Case:
        """The identity of the result alone."""
        return Case(*(getattr(self, name) for name in Case.__struct_fields__))


class Run(Struct, frozen=True):
    """One results file. ``plain`` files come from pytest-benchmark alone and hold none of our keys. ``flags`` are of
    whole processes. ``slow_threads`` are the processes with a thread canary that took longer on all threads than on
    one. ``contended``: whether other programs were seen. ``disproved`` is the reason why a device has no ``ceilings``
    although they were measured. ``digest`` is equal for copies of a file."""

    path: Path
    machine: Machine
    results: tuple[Result, ...]
    started: str | None = None
    preset: str | None = None
    stage: str | None = None
    version: str | None = None
    processes: int = 1
    plain: bool = False
    seed: int | None = None
    ceilings: Mapping[str, Ceilings] = {}
    disproved: Mapping[str, str] = {}
    flags: tuple[Raised, ...] = ()
    slow_threads: tuple[int, ...] = ()
    contended: bool = False
    digest: bytes = b""

    @property
    def date(self) -> str | None:
        """The day of the measurement, ``2026-01-31``."""
        return self.started[:10] if self.started else None
