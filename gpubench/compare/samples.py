"""The two sides of a comparison: the observations of each process, and the facts of its machine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from ..errors import UsageError
from ..report.words import benchmark
from ..runfile.facts import is_unknown, plain_memory_note
from ..runfile.flags import CONTENDED, WAITING
from ..runfile.quantities import moment_of
from ..runfile.runs import read_runs
from ..runfile.schema import Run, Times

SMOKE = "smoke"  # the preset that only tries each case's code
SCREEN, CONFIRM = "screen", "confirm"
"""The stages of ``compare --interleave``: all benchmarks, then fresh runs of the suspects."""
UNEVEN = 1.15
"""Median over fastest round above which rounds beside other programs may have waited. Recorded: of 49 processes with
threads that waited in all rounds, 43; the others lasted whole ticks."""
TICK_S, ON_TICK, STEADY, MOST_TICKS_S = 1e-3, 0.04, 0.002, 0.1
"""A tick of a scheduler's clock, or a part of it; rounds that waited for ticks end within this fraction of one, have an
interquartile range of at most this share of their median, and last at most so long."""
_LONGEST = 80  # most characters of an id with a name for people, which may be cut; a longer id stays whole
MOSTLY = 0.5  # other programs count as using the cores of a process if this share of its cases is flagged for it


@dataclass(frozen=True, slots=True, order=True)
class CaseKey:
    """The identity of a case on both sides; ``name`` is its id, or the full name of a benchmark without gpubench."""

    name: str
    device: str
    implementation: str

    @property
    def names(self) -> list[str]:
        """All names by which the case can be chosen."""
        return [self.name, self.device or "cpu", self.implementation]

    @property
    def place(self) -> str:
        """`` on cuda:0 (numpy)``: the device and the library, except the CPU and torch."""
        device = "" if self.device in ("", "cpu") else f" on {self.device}"
        return f"{device}{'' if self.implementation in ('', 'torch') else f' ({self.implementation})'}"

    def __str__(self) -> str:
        return f"{self.name}{self.place}"


@dataclass(frozen=True, slots=True)
class Observation:
    """A process's seconds per call of a case: the median of its rounds, their lower quartile, the fastest.

    ``process`` numbers run and process within a side. A ``smoke`` run has too few rounds to prove anything; in a
    ``contended`` process more threads were slower than one. ``busy`` means that other programs used the cores while
    this case was timed. Rounds are ``uneven`` if waiting for other programs may explain their times. ``stage`` is the
    run's, empty where there are no stages.
    """

    median_s: float
    quartile_s: float
    least_s: float
    process: tuple[int, int] = (0, 0)
    smoke: bool = False
    contended: bool = False
    busy: bool = False
    uneven: bool = False
    stage: str = ""


Cases = Mapping[CaseKey, Sequence[Observation]]


class Unmeasured(NamedTuple):
    """Why a case has no number: the ``status`` that its run recorded, or this comparison's, and the run's reason."""

    status: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}" if self.detail else self.status


ABSENT, SKIPPED, STOPPED = Unmeasured("not in the results"), "skipped", "not measured any more"


def busy_processes(side: Cases) -> set[tuple[int, int]]:
    """The processes in which other programs used the cores during most cases."""
    flags: defaultdict[tuple[int, int], list[bool]] = defaultdict(list)
    for one in (one for observations in side.values() for one in observations):
        flags[one.process].append(one.busy)
    return {process for process, busy in flags.items() if sum(busy) >= MOSTLY * len(busy)}


@dataclass(slots=True)
class Side:
    """The runs of base or new. ``runs`` hold no results: the samples of a thousand runs don't fit in memory.

    By case, ``fullnames`` are pytest's names of the tests, ``shown`` the names that reports show. ``plain_memory`` is a
    note on calls that take another time in a process that returns freed memory."""

    name: str
    runs: list[Run] = field(default_factory=list)
    cases: dict[CaseKey, list[Observation]] = field(default_factory=dict)
    unmeasured: dict[CaseKey, Unmeasured] = field(default_factory=dict)
    fullnames: dict[CaseKey, str] = field(default_factory=dict)
    shown: dict[CaseKey, str] = field(default_factory=dict)
    plain_memory: str = ""


def add_runs(side: Side, paths: Iterable[str | Path]) -> None:
    """Read runs into a side, one after the other. Raises UsageError or RunFileError."""
    for run in read_runs(paths):
        side.runs.append(structs.replace(run, results=()))
        side.plain_memory = plain_memory_note(run.results) or side.plain_memory
        keys = [
            CaseKey(result.id, result.device, result.implementation)
            if result.implementation
            else CaseKey(result.fullname, "", "")
            for result in run.results
        ]
        counts = Counter(keys)
        for key, result in zip(keys, run.results, strict=True):
            if key.implementation and len(key.name) <= _LONGEST:
                side.shown[key] = benchmark(result) + key.place
            if counts[key] > 1:
                side.unmeasured[key] = Unmeasured("several benchmarks in one run have this name")
            elif result.times is None:
                side.unmeasured[key] = Unmeasured(result.status, result.reason or "")
            else:
                side.cases.setdefault(key, []).extend(_observations(result.times, len(side.runs), run))
                side.fullnames[key] = result.fullname


def _observations(times: Times, number: int, run: Run) -> Iterable[Observation]:
    for process, kept in zip(times.processes, times.samples, strict=True):
        samples, median_s = [seconds for seconds in sorted(kept) if seconds > 0.0], process.median_s
        quartile_s = least_s = median_s
        if samples:
            quartile_s, least_s = min(samples[(len(samples) - 1) // 4], median_s), samples[0]
        elif len(times.processes) == 1:  # a plain file may have statistics alone
            quartile_s, least_s = times.q1_s, times.min_s or median_s
        flags = {flag.name for flag in process.flags}
        # Rounds that waited agree with each other, and with whole ticks of a scheduler, better than computing does.
        ticks, iqr_s = median_s / TICK_S, process.iqr_s or times.iqr_s
        on_ticks = median_s < MOST_TICKS_S and iqr_s <= STEADY * median_s and abs(ticks - round(ticks)) <= ON_TICK
        waits = (run.plain or CONTENDED in flags) and (median_s > UNEVEN * least_s or on_ticks)
        yield Observation(
            median_s, quartile_s, least_s, (number, process.index), run.preset == SMOKE,
            process.index in run.slow_threads, CONTENDED in flags, WAITING in flags or waits, run.stage or "",
        )  # fmt: skip


def measured_in_turn(base: Side, new: Side, fresh: bool) -> bool:
    """Whether the time stamps of the runs, or of the ``fresh`` ones, alternate: A B A B … or A B B A …, two pairs or
    more."""
    runs = [(run, side) for side in (base, new) for run in side.runs if (run.stage == CONFIRM) == fresh]
    sides = {moment: side.name for run, side in runs if (moment := moment_of(run.started))}
    if len(sides) < max(4, len(runs)) or len(runs) % 2:
        return False
    order = [sides[moment] for moment in sorted(sides)]
    return all(one != other for one, other in zip(order[::2], order[1::2], strict=True))


def is_staged(base: Side, new: Side) -> bool:
    """Whether ``compare --interleave`` measured all runs."""
    return all(run.stage for side in (base, new) for run in side.runs)


def stopped_cases(base: Side, new: Side) -> dict[CaseKey, tuple[str, Unmeasured]]:
    """Cases that one side didn't measure any more in the latest pair in which the other one did, with the side and the
    reason; only of sides that ``compare --interleave`` measured in pairs."""
    stopped: dict[CaseKey, tuple[str, Unmeasured]] = {}
    if len(base.runs) != len(new.runs) or not is_staged(base, new):
        return stopped
    for key in base.cases.keys() & new.cases.keys():
        latest = [max(one.process[0] for one in side.cases[key]) for side in (base, new)]
        if latest[0] != latest[1]:
            side = base if latest[0] < latest[1] else new
            stopped[key] = side.name, Unmeasured(STOPPED, str(side.unmeasured.get(key, ABSENT)))
    return stopped


def sides_of_unknown_cpu(base: Side, new: Side) -> str:
    """The sides with a run that doesn't name its CPU, unless ``compare --interleave`` measured all on one machine."""
    if is_staged(base, new):
        return ""
    labels = {side.name: [run.machine.device("cpu").label for run in side.runs] for side in (base, new)}
    return " and ".join(name for name, of in labels.items() if any(map(is_unknown, of)))


def doubts(base: Side, new: Side) -> list[str]:
    """A line for each reason why runs, or some of their processes, prove little or nothing. Raises UsageError where one
    side is simulated: a model's times aren't evidence about hardware."""
    simulated = {
        side.name for side in (base, new) for run in side.runs if any(d.simulated for d in run.machine.devices)
    }
    if len(simulated) == 1:
        name = simulated.pop()
        raise UsageError(f"{name} was measured on a simulated device (demo): it can't be compared with hardware")
    lines = []
    before, after = (", ".join(sorted({run.preset for run in side.runs if run.preset})) for side in (base, new))
    if before and after and before != after:
        lines.append(f"presets differ: base {before}, new {after}; only benchmarks of both are compared")
    if tried := " and ".join(side.name for side in (base, new) if any(run.preset == SMOKE for run in side.runs)):
        lines.append(f"smoke runs prove nothing, they take too few rounds ({tried}): use --preset quick")
    counts = len(base.runs), len(new.runs)
    if counts[0] != counts[1] and is_staged(base, new):
        lines.append(f"half a pair: base has {counts[0]} results files, new {counts[1]}; --interleave was killed")
    for side in (base, new):
        slow, total = sum(len(run.slow_threads) for run in side.runs), sum(run.processes for run in side.runs)
        if slow:
            words = f"all threads were slower than one in {slow} of {total} processes: use --threads 1"
            lines.append(f"{side.name}: {words}")
        if count := len(busy_processes(side.cases)):
            lines.append(f"{side.name}: other programs used the cores in {count} of {total} processes")
    return lines
