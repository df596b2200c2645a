"""The state of one measuring process: its settings, the tools of its measurements, and the cases without a result."""

from __future__ import annotations

import contextlib
import datetime
import functools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..devices import Choice, Device, find_device, select
from ..devices.cpu import cores, keep_memory
from ..devices.implementations import LIBRARIES, find_implementation
from ..devices.lazy import torch
from ..errors import UsageError
from ..runfile.flags import CONTENDED, Flag
from ..runfile.schema import Case, Ceilings
from . import ceilings, disturbance, environment
from .budget import CEILINGS_S, COMPILE_S, ENERGY_S, PRESET_SETTINGS, RANKS_S, RANKS_START_S, Preset, Rates
from .precision import computed_dtype, computing, matmul_precision
from .run_settings import Mode, Settings

BRIEF_BUDGET_S = 8.0
"""Seconds of budget for a single expression: its user wants that one time, and waits."""
_USING_ACCELERATORS = {"torch", "jax", "cupy", "numba.cuda"}
"""Modules whose import shows that a suite may compute on a GPU; torch then describes the GPUs."""


class Unmeasured(NamedTuple):
    """A case without a result, and why."""

    case: Case
    status: str
    reason: str


@dataclass
class Session:
    """The settings of one measuring process, and its state.

    ``unmeasured`` are the cases without a result, by full name; ``planned`` the benchmarks of a list, with the reasons
    of those that will be skipped; ``collected`` the cases to measure, ``raised`` their flags, ``checked`` the families
    of cases whose check passed. ``begun``: whether a case with the fixture ``gpubench`` has begun; ``times``: whether
    anything is timed, since without rounds the machine isn't checked. ``absent`` are libraries that tests name but that
    aren't installed, with how to install them; ``notices`` are shown before anything is measured.

    ``only_plain_tests``: no measured test uses the fixture, so threads stay as the suite has set them. A
    ``plain_process`` times a benchmark's calls in a process that returns freed memory; ``in_plain_process`` and
    ``plain_s``, the seconds of a call, are that process's own.

    ``agreed_threads`` are the CPU threads that an earlier process of the run chose, ``threads`` those in use, once they
    are set. ``peaks`` are those that this process or an earlier one has measured, by device name; ``remeasured`` counts
    how often, because a result exceeded them. ``self_check``, ``before`` (time and load) and ``machine`` (its static
    facts) are read once.
    """

    settings: Settings
    mode: Mode = Mode.IN_PYTEST
    unmeasured: dict[str, Unmeasured] = field(default_factory=dict)
    planned: list[dict[str, Any]] = field(default_factory=list)
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

    @functools.cached_property
    def without_torch(self) -> bool:
        """Whether nothing that is measured uses torch or another library that computes on accelerators. Then torch
        isn't imported, which takes seconds and makes garbage collection up to three times as slow, and the machine is
        described without its accelerators."""
        return self.only_plain_tests and not _USING_ACCELERATORS.intersection(sys.modules)

    @property
    def preset(self) -> Preset:
        """The preset, with the values that pytest-benchmark's own options override."""
        given = {name: getattr(self.settings, name) for name in ("max_time", "min_rounds", "min_time")}
        preset = PRESET_SETTINGS[self.settings.preset].adjusted({k: v for k, v in given.items() if v is not None})
        return replace(preset, budget=max(preset.budget, BRIEF_BUDGET_S)) if self.settings.brief else preset

    def estimated_s(self, timed: Iterable[tuple[Case, bool]]) -> float:
        """Estimate the seconds that these cases, each with whether it needs several processes, and the ceilings take in
        a run's first process on an idle machine, if no case is skipped or slow."""
        known, settings = list(timed), self.settings
        seconds = sum(RANKS_S if several else self.preset.case_s for _, several in known)
        seconds += RANKS_START_S * any(several for _, several in known)
        seconds += COMPILE_S * sum(case.variant == "compile" for case, _ in known)
        if settings.first and settings.preset == "full":
            counters = {str(each.device) for each in self.choices if each.device and each.device.energy_j() is not None}
            seconds += ENERGY_S * sum(case.device in counters for case, several in known if not several)
        unmeasured = {case.device for case in self.collected if settings.ceilings and self.peaks is None}
        return seconds + CEILINGS_S[settings.effort] * len(unmeasured)

    @property
    def spreads(self) -> bool:
        """Whether the rounds of the only benchmark on a CPU are spread over a longer time: a single expression."""
        settings, on_cpu = self.settings, sum(case.device == "cpu" for case in self.collected)
        single = settings.brief and settings.processes == on_cpu == 1
        return single and settings.max_time is None and settings.flags_rounds

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

    def begin(self) -> None:
        """Check the machine, and note time and load, before the first case."""
        self.before = self.before or environment.moment()
        self.check_machine()

    def check_machine(self) -> disturbance.SelfCheck:
        """Return the state of the machine before the first case; unknown without torch."""
        if self.self_check is None and not self.without_torch:
            threads = self.use_threads()  # whose choice may check the machine
            self.self_check = self.self_check or disturbance.SelfCheck.of(threads, "")
        return self.self_check or disturbance.SelfCheck()

    def is_busy(self, since: disturbance.Counters) -> bool:
        """Whether other programs used the cores when this process started, or have since that moment."""
        flags = (*self.check_machine().flags, *disturbance.disturbed(since, disturbance.read_counters(())))
        return any(flag.name == CONTENDED for flag in flags)

    def process_flags(self) -> list[Flag]:
        """Return the flags of this process: disturbances at its start apply to all that it measures."""
        accelerated = not self.without_torch and any(each.device.accelerator for each in self.choices if each.device)
        texts = environment.unusual() if accelerated else []
        return [*self.check_machine().flags, *([Flag("switched", "; ".join(texts))] if texts else [])]

    @functools.cached_property
    def choices(self) -> list[Choice]:
        """The chosen devices. Raises :class:`UsageError` for an unknown kind, and for accelerators that an environment
        variable makes wait at each launch or that this torch has no kernels for: left out, they would seem absent."""
        chosen = select(self.settings.devices)
        accelerators = [choice for choice in chosen if choice.device and choice.device.accelerator]
        for choice in accelerators:
            if choice.device and (reason := choice.device.lacks("float32")):
                raise UsageError(f"{choice.name}: {reason}; --device cpu measures without it")
        if accelerators:
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
            if reason := library.why_absent() or (reasons[0] if reasons and all(reasons) else None):
                raise UsageError(f"implementation {name}: {reason}")
            names[name] = None
        return tuple(names)

    def use_threads(self) -> int:
        """Set the CPU threads of torch and NumPy alike, once, and return their number. A plain suite keeps its own
        number unless ``threads`` was given. A run without that option uses one thread where several are slower."""
        settings, asked = self.settings, self.settings.threads or self.agreed_threads
        if self.threads:
            return self.threads
        keep_memory()
        if self.without_torch:
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
        if self.mode is not Mode.IN_PYTEST or self.without_torch:
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
        if not self.machine and self.without_torch:
            self.machine = environment.machine(label, full=False) | {"threads": threads}
        elif not self.machine:
            with matmul_precision("float32"):
                simulated = [each.device for each in self.choices if each.device and each.device.simulated]
                self.machine = environment.machine(label, simulated)
        return self.machine

    def late_machine(self) -> dict[str, Any] | None:
        """Return the machine's facts with torch if a test imported it after they had been taken without."""
        return environment.machine(self.settings.machine) if self.without_torch and "torch" in sys.modules else None
