"""What one pytest session measures with: its devices, dtypes, preset, seed; and what it could not measure."""

from __future__ import annotations

import datetime
import functools
import os
from dataclasses import dataclass, field
from typing import Any

from ..devices import Choice, Device, select
from ..errors import UsageError
from ..schema import DTYPES, PRESETS, VARIANTS, Case
from . import environment
from .budget import PRESETS as PRESET_SETTINGS, Preset, Rates
from .clock import DeviceClock
from .precision import matmul_precision


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as given, checked for spelling."""

    devices: tuple[str, ...] = ("auto",)
    required: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    preset: str = "quick"
    seed: int = 0
    threads: int | None = None
    ranks_deadline: float = 60.0
    machine: str | None = None
    max_time: float | None = None
    min_rounds: int | None = None
    plan: bool = False
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` on a value that doesn't exist, naming those that do."""
        for what, values, known in (
            ("dtype", self.dtypes, DTYPES),
            ("variant", self.variants, VARIANTS),
            ("preset", (self.preset,), PRESETS),
        ):
            for value in values:
                if value not in known:
                    raise UsageError(f"unknown {what} {value!r}: choose from {', '.join(known)}")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads must be 1 or more, not {self.threads}")
        most = 8 * (os.cpu_count() or 1) + 64
        if self.threads is not None and self.threads > most:
            raise UsageError(f"threads must be at most {most} on this machine, not {self.threads}")
        if self.seed < 0:
            raise UsageError(f"the seed must be 0 or more, not {self.seed}")


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A case that gave no number: its row in the run file, and why."""

    case: Case
    name: str
    fullname: str
    status: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The case's keys, then its own; JSON-ready."""
        own = {"name": self.name, "fullname": self.fullname, "status": self.status, "reason": self.reason}
        return self.case.as_dict() | own


@dataclass
class Session:
    """State of one measuring process. torch is imported by the first question that needs it."""

    asked: Asked
    unmeasured: list[Unmeasured] = field(default_factory=list)
    begun: dict[str, Case] = field(default_factory=dict)
    planned: list[dict[str, Any]] = field(default_factory=list)
    started: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat())
    rates: Rates = field(default_factory=Rates)
    _waits: dict[Device, float] = field(default_factory=dict)

    @property
    def preset(self) -> Preset:
        """The preset, with what pytest-benchmark's own options override."""
        own = {"max_time": self.asked.max_time, "min_rounds": self.asked.min_rounds}
        return PRESET_SETTINGS[self.asked.preset].adjusted({k: v for k, v in own.items() if v is not None})

    def share(self, preset: Preset) -> Preset:
        """One process's share of a preset: rounds are split over the processes, not multiplied."""
        return preset.split(self.asked.processes)

    @property
    def first(self) -> bool:
        """Whether this process does what need be done once: count the work, check the answers."""
        return self.asked.process == 0

    @functools.cached_property
    def choices(self) -> list[Choice]:
        """The devices asked for; raises :class:`UsageError` for a kind that doesn't exist."""
        return select(self.asked.devices)

    def require_devices(self) -> None:
        """Raise :class:`UsageError` if a required device is absent: then a CPU run can't pass for a GPU run."""
        chosen = {choice.name for choice in self.choices}
        for choice in select(self.asked.required):
            if choice.device is None:
                raise UsageError(f"required device absent: {choice.reason}")
            if choice.name not in chosen:
                raise UsageError(f"required device not measured: {choice.name} is not among {', '.join(chosen)}")

    @functools.cached_property
    def threads(self) -> int:
        """CPU threads in use, set on first asking for torch and NumPy alike."""
        return environment.set_threads(self.asked.threads)

    def wait_s(self, device: Device) -> float:
        """Seconds that one wait for the device takes, measured once."""
        if not device.accelerator:
            return 0.0
        if device not in self._waits:
            self._waits[device] = DeviceClock([device]).wait_s()
        return self._waits[device]

    @functools.cached_property
    def before(self) -> dict[str, Any]:
        """Load, clocks and free memory when the first case began."""
        return environment.moment()

    @functools.cached_property
    def machine(self) -> dict[str, Any]:
        """Static facts, taken once, in the precision that float32 cases are measured in."""
        with matmul_precision("float32"):
            return environment.machine(self.asked.machine)
