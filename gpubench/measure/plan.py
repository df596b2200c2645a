"""The frozen values that a measured call passes through: :class:`Plan`, :class:`Prepared`, :class:`Rounds`, and the
results file's :class:`~gpubench.runfile.schema.Measurement`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..devices import CPU, Device
from ..devices.implementations import TORCH, Implementation
from ..runfile.flags import Flag
from ..runfile.schema import Case, Check, Work
from .budget import Preset
from .calls import Given
from .clock import DeviceClock
from .copies import CallCopy, copy_call
from .disturbance import Counters
from .rounds import Bound
from .session import Session
from .verify import Reference
from .work import Call, Counted, Request


@dataclass(frozen=True, slots=True)
class Declared:
    """The test's declarations: whether it names its dtypes, whether its call writes into its arguments, whether it is
    measured with the program's own switches of float32 products, and whether garbage is collected within a round."""

    dtype: bool = False
    writing: bool = False
    own_switches: bool = False
    collects: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A call before anything is done: ``request`` in the conditions of ``case`` on ``home``, for as long as ``preset``
    allows. ``begun`` and ``held_bytes`` are the machine's counters and the device's allocated bytes before the data
    were made. ``flush`` empties the caches before a round. ``times``: whether anything is timed. ``data_dtype``: the
    dtype of the data if the call computes in another one. ``name`` is the benchmark's full name."""

    request: Request
    case: Case
    home: Device
    preset: Preset
    session: Session
    library: Implementation
    clock: DeviceClock
    begun: Counters
    name: str
    declared: Declared
    flush: Callable[[], Any] | None
    held_bytes: int | None
    data_dtype: str | None
    times: bool

    @property
    def family(self) -> tuple[str, ...]:
        """Equal for cases that differ only in size: checking one of them is nearly as good as checking all."""
        case = self.case
        return case.workload, case.device, case.dtype, case.implementation, case.variant

    @property
    def counts(self) -> bool:
        """Whether the work of a call is counted: once, by the first process of a run."""
        return (self.session.settings.first or self.home.simulated) and self.case.implementation == TORCH

    @property
    def repeats(self) -> bool:
        """Whether calls follow one another with nothing between them: no setup, and no flush of a cold cache."""
        return self.request.setup is None and self.flush is None

    @property
    def spreads(self) -> bool:
        """Whether the rounds are spread over a longer time: those of a single expression, and on a CPU."""
        settings, on_cpu = self.session.settings, sum(case.device == "cpu" for case in self.session.collected)
        single = settings.brief and settings.processes == on_cpu == 1 and self.home == CPU
        return single and settings.max_time is None and settings.flags_rounds

    def is_busy(self) -> bool:
        """Return whether other programs used the cores when this process started, or have since the case began."""
        return self.session.is_busy(self.begun)

    def copy(self, call: Call) -> CallCopy:
        """Return a copy of the call, of at most a quarter of the free memory. Raises :class:`.Uncopyable`."""
        free = [memory.free for device in {self.home, CPU} if (memory := device.memory())]
        limit = min(free) // 4 if free else None
        return copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)

    def next_call(self, call: Call) -> Bound:
        """Prepare a round, untimed, by the test's setup and the flush; return its call."""
        args, kwargs = (call.args, call.kwargs) if self.request.setup is None else self.request.arguments()
        if self.flush is not None:
            self.flush()
        return call.function, args, kwargs


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that is checked and warm: its ``case`` is final.

    ``work`` is declared and counted; ``uncounted`` is the reason why it couldn't be counted. ``given`` holds the inputs
    as they were before the first call, which took ``first_s`` (compiling included); ``expected`` is the reference that
    its result passed. ``call_s`` and ``round_s``: seconds of a warm call, and of a round of one call with its setup;
    ``before``: the machine's counters before them.
    """

    plan: Plan
    call: Call
    case: Case
    data_dtype: str | None
    work: Work
    counted: Counted | None
    uncounted: str
    check: Check
    expected: Reference | None
    given: Given | None
    before: Counters
    first_s: float
    call_s: float
    round_s: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a call: ``result`` is that of a call after them; ``check`` is that of the first result and a later
    one. ``placed`` and ``spread`` are the numbers of rounds of each block, at placements and over time; ``unplaced`` is
    the reason for a single placement. ``latency_s`` and ``cpu_s`` are seconds of one call."""

    flags: tuple[Flag, ...] = ()
    check: Check | None = None
    result: Any = None
    latency_s: float | None = None
    cpu_s: float = math.inf
    placed: tuple[int, ...] = ()
    spread: tuple[int, ...] = ()
    unplaced: str = ""
