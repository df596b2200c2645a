"""A measuring process: its settings, which stay, and its state, which the methods of :class:`Session` change."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NamedTuple

from ..devices import Choice, Device, find_device, select
from ..devices.cpu import cores, keep_memory
from ..devices.implementations import LIBRARIES, find_implementation
from ..devices.lazy import torch
from ..errors import UsageError
from ..runfile.flags import CONTENDED, Flag
from ..runfile.schema import Case, Ceilings
from . import disturbance, environment, probes
from .budget import CEILINGS_S, COMPILE_S, ENERGY_S, PRESET_SETTINGS, RANKS_S, RANKS_START_S, Preset, Rates
from .precision import computed_dtype, computing, matmul_precision

BRIEF_BUDGET_S = 8.0
"""Seconds of budget for a single expression: its user wants that one time, and waits."""
_USING_ACCELERATORS = {"torch", "jax", "cupy", "numba.cuda"}
"""Modules that, once imported, show that a suite may compute on a GPU; torch then describes the GPUs."""


class Mode(Enum):
    """A session of pytest lists benchmarks (``PLAN``), or skips them, as pytest-benchmark is missing (``OFF``). It
    measures them for ``gpubench run`` or ``time``, plain ones too (``RUN``), and another process measures the rest. Or
    it measures benchmarks with the fixture among a project's tests (``IN_PYTEST``)."""

    PLAN = auto()
    RUN = auto()
    IN_PYTEST = auto()
    OFF = auto()


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a run; more threads than this machine may have raise :class:`UsageError`."""

    devices: tuple[str, ...] = ("auto",)
    required: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    preset: str = "quick"
    seed: int = 0
    threads: int | None = None
    ranks_deadline: float = 60.0
    machine: str | None = None
    cache: str = "hot"
    ceilings: bool = True
    max_time: float | None = None
    min_rounds: int | None = None
    min_time: float | None = None
    brief: bool = False
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        most = 8 * (os.cpu_count() or 1) + 64
        if self.threads is not None and self.threads > most:
            raise UsageError(f"threads must be at most {most} on this machine, not {self.threads}")

    @property
    def effort(self) -> str:
        """How long peaks are measured."""
        return "brief" if self.brief else self.preset

    @property
    def first(self) -> bool:
        """Whether this process does the work done once per run: count the work and check the results."""
        return self.process == 0

    @property
    def flags_rounds(self) -> bool:
        """Whether rounds are judged: in ``smoke`` they are too few and too short."""
        return self.preset != "smoke"


class Unmeasured(NamedTuple):
    """A case without a result, and why."""

    case: Case
    status: str
    reason: str


@dataclass
class Session:
    """The state of a process that measures with these settings.

    ``unmeasured`` are the cases without a result, by full name; ``collected`` the cases to measure, ``raised``
    their flags, ``checked`` the families of cases that passed. ``begun``: whether a case with the fixture has begun;
    ``times``: whether anything is timed. ``absent`` libraries are named by tests but aren't installed; ``notices`` are
    shown before anything is measured.

    ``only_plain_tests``: no measured test uses the fixture, so threads stay as the suite has set them. A
    ``plain_process`` times a benchmark's calls in a process that returns freed memory; ``in_plain_process`` and
    ``plain_s``, the seconds of a call, are that process's own.

    ``agreed_threads`` are the CPU threads that an earlier process of the run chose, ``threads`` those in use.
    ``peaks``, by device name, may be an earlier process's; ``remeasured`` counts their repetitions because a result
    exceeded them. ``self_check``, ``before`` (time and load) and ``machine`` (its static facts) are read once. Without
    torch (``skips_torch``), which takes seconds to import and makes garbage collection up to three times
    as slow, the machine is described without its accelerators.
    """

    settings: Settings
    mode: Mode = Mode.IN_PYTEST
    unmeasured: dict[str, Unmeasured] = field(default_factory=dict)
    collected: list[Case] = field(default_factory=list)
    raised: list[tuple[Case, Flag]] = field(default_factory=list)
    checked: set[tuple[str, ...]] = field(default_factory=set)
    begun: bool = False
    times: bool = True
    absent: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    only_plain_tests: bool = False
    plain_process: Any = None
    in_plain_process: bool = False
    plain_s: float | None = None
    agreed_threads: int | None = None
    threads: int | None = None
    rates: Rates = field(default_factory=Rates)
    peaks: dict[str, Ceilings] | None = None
    remeasured: int = 0
    self_check: disturbance.SelfCheck | None = None
    started: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat())
    before: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    skips_torch: bool = False
    choices: list[Choice] = field(default_factory=list)
    _libraries: tuple[str, ...] | None = None

    def note_tests(self, only_plain: bool) -> None:
        """Note whether no measured test uses the fixture. This process does without torch if nothing that is measured
        uses it, or another library that computes on accelerators."""
        self.only_plain_tests = only_plain
        self.skips_torch = only_plain and not _USING_ACCELERATORS.intersection(sys.modules)

    @property
    def preset(self) -> Preset:
        """The preset, with the values that pytest-benchmark's own options override."""
        given = {name: getattr(self.settings, name) for name in ("max_time", "min_rounds", "min_time")}
        preset = PRESET_SETTINGS[self.settings.preset].adjusted({k: v for k, v in given.items() if v is not None})
        return replace(preset, budget=max(preset.budget, BRIEF_BUDGET_S)) if self.settings.brief else preset

    def estimated_s(self, timed: Iterable[tuple[Case, bool]]) -> float:
        """Estimate the seconds of these cases, each with whether it needs several processes, and of the ceilings in a
        run's first process on an idle machine, if no case is skipped or slow."""
        known, settings = list(timed), self.settings
        seconds = sum(RANKS_S if several else self.preset.case_s for _, several in known)
        seconds += RANKS_START_S * any(several for _, several in known)
        seconds += COMPILE_S * sum(case.variant == "compile" for case, _ in known)
        if settings.first and settings.preset == "full":
            counters = {str(each) for each in self.present() if each.energy_j() is not None}
            seconds += ENERGY_S * sum(case.device in counters for case, several in known if not several)
        unmeasured = {case.device for case in self.collected if settings.ceilings and self.peaks is None}
        return seconds + CEILINGS_S[settings.effort] * len(unmeasured)

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
        self.peaks = probes.measure_ceilings(wanted, self.settings.effort, self.notices.append)

    @property
    def ceilings(self) -> dict[str, Ceilings]:
        """The peaks that are known in a run's first process, by device name."""
        return self.peaks or {} if self.settings.ceilings and self.settings.first else {}

    def begin(self) -> None:
        """Check the machine, and note time and load, before the first case."""
        self.before = self.before or environment.moment()
        self.check_machine()

    def check_machine(self) -> disturbance.SelfCheck:
        """Return the state of the machine before the first case; unknown without torch."""
        if self.self_check is None and not self.skips_torch:
            threads = self.use_threads()  # whose choice may check the machine
            self.self_check = self.self_check or disturbance.SelfCheck.of(threads, "")
        return self.self_check or disturbance.SelfCheck()

    def is_busy(self, since: disturbance.Counters) -> bool:
        """Whether other programs used the cores when this process started, or have since that moment."""
        flags = (*self.check_machine().flags, *disturbance.disturbed(since, disturbance.read_counters(())))
        return any(flag.name == CONTENDED for flag in flags)

    def process_flags(self) -> list[Flag]:
        """Return the flags of this process: disturbances at its start apply to all that it measures."""
        accelerated = not self.skips_torch and any(each.accelerator for each in self.present())
        texts = environment.unusual() if accelerated else []
        return [*self.check_machine().flags, *([Flag("switched", "; ".join(texts))] if texts else [])]

    def choose_devices(self) -> list[Choice]:
        """Return the chosen devices, found once. Raises :class:`UsageError` for an unknown kind, and for accelerators
        that wait at each launch or that torch has no kernels for: left out, they would seem absent."""
        if not self.choices:
            chosen = select(self.settings.devices)
            accelerators = [choice.device for choice in chosen if choice.device and choice.device.accelerator]
            for device in accelerators:
                if reason := device.lacks("float32"):
                    raise UsageError(f"{device}: {reason}; choose the device cpu to measure without it")
            for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
                if accelerators and (value := os.environ.get(name, "0")) not in ("", "0"):
                    why = "makes each launch wait for its work, which no program does"
                    raise UsageError(f"{name}={value} {why}: unset it")
            self.choices = chosen
        return self.choices

    def present(self) -> list[Device]:
        """Return the chosen devices that this machine has."""
        return [choice.device for choice in self.choose_devices() if choice.device]

    def require_devices(self) -> None:
        """Raise :class:`UsageError` if a required device is absent, so that a CPU run can't pass for a GPU run."""
        chosen = {choice.name for choice in self.choose_devices()}
        for choice in select(self.settings.required):
            if choice.device is None:
                raise UsageError(str(choice.reason))
            if choice.name not in chosen:
                raise UsageError(f"required device not measured: {choice.name} is not among {', '.join(chosen)}")

    def choose_libraries(self) -> tuple[str, ...]:
        """Return the names of the requested libraries, found once; empty if each test's own are measured. Raises
        :class:`UsageError` for a library that is unknown, isn't installed or supports none of the chosen devices."""
        if self._libraries is not None:
            return self._libraries
        names: dict[str, None] = {}
        for name in self.settings.implementations:
            if name == "all":
                names |= dict.fromkeys(each for each, library in LIBRARIES.items() if not library.why_absent())
                continue
            library = find_implementation(name)
            reasons = [*map(library.why_not_on, self.present())]
            if reason := library.why_absent() or (reasons[0] if reasons and all(reasons) else None):
                raise UsageError(f"implementation {name}: {reason}")
            names[name] = None
        self._libraries = tuple(names)
        return self._libraries

    def use_threads(self) -> int:
        """Set the CPU threads of torch and NumPy alike, once, and return their number. A plain suite keeps its own
        number unless ``threads`` was given. A run without that option uses one thread where several are slower."""
        settings, asked = self.settings, self.settings.threads or self.agreed_threads
        if self.threads:
            return self.threads
        keep_memory()
        if self.skips_torch:
            self.threads = settings.threads or cores()
        elif self.only_plain_tests and settings.threads is None:
            self.threads = torch.get_num_threads()
        else:
            self.threads = environment.set_threads(asked)
            if asked is None and self.mode in (Mode.RUN, Mode.IN_PYTEST) and settings.flags_rounds and self.times:
                option = "--gpubench-threads" if self.mode is Mode.IN_PYTEST and not settings.brief else "--threads"
                self.self_check = disturbance.SelfCheck.of(self.threads, option)
                if notice := self.self_check.notice:
                    self.notices.append(notice)
                    self.threads = environment.set_threads(1)
        return self.threads

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Use this session's threads and keep freed memory; among a project's own tests, restore both afterwards."""
        if self.mode is not Mode.IN_PYTEST or self.skips_torch:
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
        threads, label = self.use_threads(), self.settings.machine  # threads are set before the facts are read
        if not self.machine and self.skips_torch:
            self.machine = environment.machine(label, full=False) | {"threads": threads}
        elif not self.machine:
            with matmul_precision("float32"):
                simulated = [each for each in self.present() if each.simulated]
                self.machine = environment.machine(label, simulated)
        return self.machine

    def late_machine(self) -> dict[str, Any] | None:
        """Return the machine's facts with torch if a test imported it after they had been taken without."""
        return environment.machine(self.settings.machine) if self.skips_torch and "torch" in sys.modules else None
