"""The settings of a run: the options, and what a session of pytest does with benchmarks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, auto

from ..errors import UsageError


class Mode(Enum):
    """A session of pytest lists benchmarks (``PLAN``), or skips them, as pytest-benchmark is missing (``OFF``). It
    measures them for ``gpubench run`` or ``time``, plain ones too (``RUN``): it may choose its threads, and another
    process measures what it can't. Or it measures those with the fixture among a project's tests (``IN_PYTEST``)."""

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
        """Whether this process does what is done once per run: count the work and check the results."""
        return self.process == 0

    @property
    def flags_rounds(self) -> bool:
        """Whether rounds are judged: those of ``smoke`` are too few and too short."""
        return self.preset != "smoke"
