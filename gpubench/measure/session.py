"""The state of one measuring process: its settings, what it measured with, and what it could not measure."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from ..devices import Choice, Device, find_device, select
from ..devices.cpu import cores, keep_memory
from ..devices.implementations import LIBRARIES, TORCH, find_implementation
from ..devices.lazy import torch
from ..errors import UsageError
from ..runfile.flags import CONTENDED, Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Ceilings, Measurement, Process, Work
from . import ceilings, disturbance, environment
from .budget import CEILINGS_S, COMPILE_S, ENERGY_S, PRESET_SETTINGS, RANKS_S, RANKS_START_S, Preset, Rates
from .placements import each_block, levelled, medians, place_of
from .precision import computed_dtype, computing, matmul_precision
from .run_settings import Mode, Settings

BRIEF_BUDGET_S = 8.0
"""Seconds of budget for a single expression: its user wants that one time, and waits."""
MOST_REMEASURED = 3
"""Most repetitions of the ceilings' measurement in a run."""
_UNKNOWN = Work()
_USING_ACCELERATORS = {"torch", "jax", "cupy", "numba.cuda"}
"""Modules whose import shows that a suite may compute on a GPU; torch then describes the GPUs."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A case without a result, and why: its row in the run file."""

    case: Case
    name: str
    fullname: str
    status: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the case's keys, then its own; JSON-ready."""
        return self.case.as_dict() | {name: getattr(self, name) for name in ("name", "fullname", "status", "reason")}


@dataclass
class Session:
    """State of one measuring process. torch is imported only by the first property that needs it."""

    settings: Settings
    mode: Mode = Mode.ALONE
    unmeasured: dict[str, Unmeasured] = field(default_factory=dict)
    """Cases without a result, by full name."""
    begun: bool = False
    """Whether a case with the fixture ``gpubench`` has begun."""
    planned: list[dict[str, Any]] = field(default_factory=list)
    """The benchmarks of a list, and why those that will be skipped are."""
    started: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat())
    rates: Rates = field(default_factory=Rates)
    collected: list[Case] = field(default_factory=list)
    raised: list[tuple[Case, Flag]] = field(default_factory=list)
    checked: set[tuple[str, ...]] = field(default_factory=set)
    """Keys of the cases whose check passed."""
    absent: dict[str, str] = field(default_factory=dict)
    """Libraries that tests name but that aren't installed, with how to install them."""
    plain: bool = False
    """Whether no measured test uses the fixture ``gpubench``: then threads stay as the suite has set them."""
    plain_process: Any = None
    """Times a benchmark's calls in a process that returns freed memory, where there is one."""
    in_plain_process: bool = False
    plain_s: float | None = None
    """Seconds of a call, in that process."""
    agreed_threads: int | None = None
    """Threads that an earlier process of this run chose, and that this process uses too."""
    notices: list[str] = field(default_factory=list)
    """Notices that are shown before anything is measured."""
    peaks: dict[str, Ceilings] | None = None
    """Peaks by device name that this process or an earlier one of this run has measured."""
    times: bool = True
    """Whether anything is timed: without rounds the machine isn't checked."""
    remeasured: int = 0
    """How often peaks were measured again because a result exceeded them."""
    self_check: disturbance.SelfCheck | None = None
    """The state of the machine before the first case, once it was checked."""
    threads: int | None = None
    """CPU threads in use, once they are set."""
    before: dict[str, Any] = field(default_factory=dict)
    """Time and load when the first case began."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Static facts of the machine, once they were read."""

    @functools.cached_property
    def light(self) -> bool:
        """Whether nothing that is measured uses torch or another library that computes on accelerators. Then torch,
        whose import takes seconds in each process, isn't imported, and the machine is described without its
        accelerators. Garbage collection would also visit torch's hundred thousand objects, which makes a test that
        creates many objects up to three times as slow."""
        return self.plain and not _USING_ACCELERATORS.intersection(sys.modules)

    @property
    def preset(self) -> Preset:
        """The preset, with the values that pytest-benchmark's own options override."""
        given = {name: getattr(self.settings, name) for name in ("max_time", "min_rounds", "min_time")}
        preset = PRESET_SETTINGS[self.settings.preset].adjusted({k: v for k, v in given.items() if v is not None})
        return replace(preset, budget=max(preset.budget, BRIEF_BUDGET_S)) if self.settings.brief else preset

    def estimated_s(self, timed: Iterable[tuple[Case, bool]]) -> float:
        """Estimate the seconds that these cases, each with whether it needs several processes, and the ceilings take in
        a run's first process on an idle machine, if no case is skipped or slow."""
        known = list(timed)
        seconds = sum(RANKS_S if several else self.preset.case_s for _, several in known)
        seconds += RANKS_START_S * any(several for _, several in known)
        seconds += COMPILE_S * sum(case.variant == "compile" for case, _ in known)
        if self.settings.first and self.settings.preset == "full":
            counters = {str(each.device) for each in self.choices if each.device and each.device.energy_j() is not None}
            seconds += ENERGY_S * sum(case.device in counters for case, several in known if not several)
        peaks_s = CEILINGS_S[self.settings.effort] if self.settings.ceilings and self.peaks is None else 0.0
        return seconds + peaks_s * len({case.device for case in self.collected})

    @property
    def spreads(self) -> bool:
        """Whether the rounds of the only benchmark on a CPU are spread over a longer time: a single expression."""
        alone = sum(case.device == "cpu" for case in self.collected) == 1
        settings = self.settings
        return settings.brief and settings.processes == 1 and settings.max_time is None and settings.judges and alone

    def measure_ceilings(self) -> None:
        """Measure the peaks of the collected cases' devices, unless they are known or another process measures them."""
        if not self.settings.ceilings or not self.settings.first or self.peaks is not None:
            return
        wanted: dict[Device, set[str]] = {}
        for case in self.collected:
            if device := find_device(case.device).device:
                wanted.setdefault(device, set()).add(computing(computed_dtype(case, device)))
        for device, dtypes in wanted.items():  # a program's own float32 may be that
            if "float32" in dtypes and device.accelerator and not device.lacks("tf32"):
                dtypes.add("tf32")
        self.use_threads()
        self.peaks = ceilings.measure_ceilings(wanted, self.settings.effort)

    @property
    def ceilings(self) -> dict[str, Ceilings]:
        """The peaks that are known in a run's first process, by device name."""
        return self.peaks or {} if self.settings.ceilings and self.settings.first else {}

    def doubt(
        self, case: Case, work: Work, seconds: float, launches: bool = False, convolutions: float = 0.0
    ) -> list[Flag]:
        """Return ``implausible`` if the case exceeds its device's ceilings, even after they were measured once more.
        ``launches``: whether a call launches anything; ``convolutions``: their share of the FLOPs. A CPU isn't judged
        where the thread canary was slow, because its ceilings are then too low themselves."""
        if not (self.settings.judges and self.times):
            return []
        chosen = find_device(case.device).device
        used = [each for name in case.devices if (each := find_device(name).device)]
        if sum(each.accelerator for each in used) > 1:
            return []  # ceilings are those of one device
        if not any(each.accelerator for each in used) and any(disturbance.slow_threads(self.check_machine().canary)):
            return []
        floor, link = launches and case.implementation == TORCH, len({each.accelerator for each in used}) > 1
        dtype = computed_dtype(case, chosen) if chosen else case.dtype
        self.measure_ceilings()
        flags: list[Flag] = []
        for _ in range(2):
            known = self.ceilings.get(case.device)
            terms = floor, convolutions, link
            flags = list(disturbance.impossible(work, seconds, dtype, known, *terms)) if known else []
            if not flags or known is None or chosen is None or self.remeasured >= MOST_REMEASURED:
                break
            self.remeasured += 1
            # Products of this dtype alone: others take half a dozen seconds each where a CPU emulates them.
            again = ceilings.measure_ceilings({chosen: known.throughput.keys() & {dtype}}, self.settings.effort)
            self.ceilings[case.device] = known.raised(again.get(case.device, known))
        return flags

    def record(
        self, benchmark: Any, case: Case, devices: Sequence[Device], flags: Iterable[Flag], work: Work = _UNKNOWN,
        launches: bool = False, **fields: Any,
    ) -> None:  # fmt: skip
        """Judge the rounds that pytest-benchmark keeps, and write the case's :class:`Measurement` beside them.
        ``devices`` were waited for; ``flags`` are what was noticed during the rounds, and ``fields`` what was measured
        besides them, ``cpu_s`` that of a :class:`~.clock.Share`. ``launches``: whether a call is known to launch
        anything."""
        raised, stats, cpu_s = list(flags), benchmark.stats, fields.pop("cpu_s", math.inf)
        placed, spread = fields.pop("placed_blocks", ()), fields.pop("spread_blocks", ())
        unplaced = fields.pop("unplaced", "")
        wait_s = sum(self.rates.wait_s(device) for device in devices)
        if stats is not None:
            times, calls = stats.stats, stats.iterations
            if not times.min <= times.median <= times.max:
                raise UsageError("its median is none of its times: a test has replaced what computes it")
            if fields.get("latency_s") is None and calls == 1:
                fields["latency_s"] = times.median
            if self.settings.judges:
                groups = (placed or spread), each_block if spread else place_of
                level = levelled(times.data, *groups) if groups[0] else times.data
                raised += disturbance.uneven(level, light=self.light)
                raised += disturbance.short(times.median * calls, times.median, wait_s)
            if launches or work.flops or work.bytes:
                raised += self.doubt(case, work, times.median, launches, fields.get("convolution_share") or 0.0)
            index, rounds, latency_s = self.settings.process, times.rounds, fields.get("latency_s")
            cpu_s = cpu_s if 0 < cpu_s < math.inf and not any(device.accelerator for device in devices) else None
            judged = min(rounds, SAMPLES_KEPT), calls, times.iqr, latency_s, tuple(raised), cpu_s
            stretches = tuple(medians(times.data, spread, each_block))
            placements = tuple(medians(times.data, placed)), unplaced or None, stretches
            fields["processes"] = (Process(index, rounds, times.median, *judged, *placements),)
        self.raised.extend((case, flag) for flag in raised)
        measured = Measurement(**structs.asdict(case) | {"work": work, "wait_s": wait_s} | fields)
        benchmark.extra_info[KEY] = measured.as_dict()

    def begin(self) -> None:
        """Check the machine, and note time and load, before the first case."""
        self.before = self.before or environment.moment()
        self.check_machine()

    def check_machine(self) -> disturbance.SelfCheck:
        """Return the state of the machine before the first case; unknown without torch."""
        if self.light:
            return disturbance.SelfCheck()
        if self.self_check is None:
            threads = self.use_threads()  # whose choice may check the machine
            self.self_check = self.self_check or disturbance.SelfCheck.of(threads, "")
        return self.self_check

    def is_busy(self, since: disturbance.Moment) -> bool:
        """Whether other programs used the cores when this process started, or have since that moment."""
        flags = (*self.check_machine().flags, *disturbance.disturbed(since, disturbance.look(())))
        return any(flag.name == CONTENDED for flag in flags)

    def process_flags(self) -> list[Flag]:
        """Return the flags of this process: disturbances at its start apply to all that it measures."""
        flags = list(self.check_machine().flags)
        if self.accelerated and (texts := environment.unusual()):
            flags.append(Flag("switched", "; ".join(texts)))
        return flags

    @functools.cached_property
    def choices(self) -> list[Choice]:
        """The chosen devices. Raises :class:`UsageError` for an unknown kind, and for accelerators that an environment
        variable makes wait at each launch or that this torch has no kernels for: left out, they would seem absent."""
        chosen = select(self.settings.devices)
        for choice in chosen:
            if choice.device and choice.device.accelerator and (reason := choice.device.lacks("float32")):
                raise UsageError(f"{choice.name}: {reason}; --device cpu measures without it")
        if any(choice.device.accelerator for choice in chosen if choice.device):
            environment.require_free_launches()
        return chosen

    def require_devices(self) -> None:
        """Raise :class:`UsageError` if a required device is absent, so that a CPU run can't pass for a GPU run."""
        chosen = {choice.name for choice in self.choices}
        for choice in select(self.settings.required):
            if choice.device is None:
                raise UsageError(str(choice.reason))
            if choice.name not in chosen:
                raise UsageError(f"required device not measured: {choice.name} is not among {', '.join(chosen)}")

    @functools.cached_property
    def implementations(self) -> tuple[str, ...]:
        """Names of the requested libraries; empty if each test's own are measured. Raises :class:`UsageError` for a
        library that is unknown, isn't installed or supports none of the chosen devices."""
        names: dict[str, None] = {}
        for name in self.settings.implementations:
            if name == "all":
                names |= dict.fromkeys(each for each, library in LIBRARIES.items() if not library.why_absent())
                continue
            library = find_implementation(name)
            reasons = [library.why_not_on(choice.device) for choice in self.choices if choice.device]
            reason = library.why_absent() or (reasons[0] if reasons and all(reasons) else None)
            if reason:
                raise UsageError(f"implementation {name}: {reason}")
            names[name] = None
        return tuple(names)

    @property
    def accelerated(self) -> bool:
        """Whether anything but a CPU is measured."""
        return not self.light and any(choice.device.accelerator for choice in self.choices if choice.device)

    def use_threads(self) -> int:
        """Set the CPU threads of torch and NumPy alike, once, and return their number. A plain suite keeps its own
        number unless ``threads`` was given. A run without that option uses one thread where several are slower."""
        self.threads = self.threads or self._choose_threads()
        return self.threads

    def _choose_threads(self) -> int:
        keep_memory()
        if self.light:
            return self.settings.threads or cores()
        if self.plain and self.settings.threads is None:
            return torch.get_num_threads()
        asked = self.settings.threads or self.agreed_threads
        threads = environment.set_threads(asked)
        if asked is None and self.mode in (Mode.RUN, Mode.ALONE) and self.settings.judges and self.times:
            option = "--gpubench-threads" if self.mode is Mode.ALONE and not self.settings.brief else "--threads"
            self.self_check = disturbance.SelfCheck.of(threads, option)
            if notice := self.self_check.notice:
                self.notices.append(notice)
                return environment.set_threads(1)
        return threads

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Use this session's threads and keep freed memory; among a project's own tests, restore both afterwards."""
        if self.mode is not Mode.ALONE or self.light:
            yield
            return
        try:
            with environment.restoring_threads():
                environment.set_threads(self.use_threads())
                keep_memory()
                yield
        finally:
            keep_memory(False)

    def become_plain(self, threads: int) -> None:
        """Only time the calls of tests from now on, with memory as any program has it."""
        self.in_plain_process, self.times = True, False
        self.threads = environment.set_threads(threads)

    def describe_machine(self) -> dict[str, Any]:
        """Return static facts of the machine, read once, in the precision in which float32 cases are measured."""
        threads = self.use_threads()  # they are set before the facts are read
        if not self.machine and self.light:
            self.machine = environment.machine(self.settings.machine, light=True) | {"threads": threads}
        elif not self.machine:
            with matmul_precision("float32"):
                chosen = (choice.device for choice in self.choices)
                simulated = [device for device in chosen if device and device.simulated]
                self.machine = environment.machine(self.settings.machine, simulated)
        return self.machine

    def late_machine(self) -> dict[str, Any] | None:
        """Return the machine's facts with torch if a test imported it after they had been taken without."""
        return environment.machine(self.settings.machine) if self.light and "torch" in sys.modules else None
