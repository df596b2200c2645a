"""The two sides of a comparison: what each process of each run saw of a case, and the facts of its machine."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import folders
from ..records import Process, Result, Run
from ..runfile import read
from ..schema import Work

SMOKE = "smoke"
"""The preset that only tries every case's code."""
FASTEST = 0.1
"""The share of a process's rounds that stands for it undisturbed."""
LATE = 1.5
"""A round that takes so many times the median was held up by something."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What makes two cases the same one; ``name`` is the case's id, or the full name of another's benchmark."""

    name: str
    device: str
    implementation: str

    def __str__(self) -> str:
        device = "" if self.device in ("", "cpu") else f" on {self.device}"
        return f"{self.name}{device}{'' if self.implementation in ('', 'torch') else f' ({self.implementation})'}"


@dataclass(frozen=True, slots=True)
class Observation:
    """One process's word on a case, in seconds per call: the median of its rounds, their fastest tenth, the fastest.

    ``late`` is the share of its rounds that were held up, ``process`` tells the processes of a side apart. That of a
    ``smoke`` run has too few rounds to say anything; in a ``contended`` one more threads were slower than one.
    """

    median_s: float
    fast_s: float
    least_s: float
    late: float = 0.0
    process: tuple[int, int] = (0, 0)
    smoke: bool = False
    contended: bool = False

    def scaled(self, factor: float) -> Observation:
        return replace(
            self, median_s=self.median_s * factor, fast_s=self.fast_s * factor, least_s=self.least_s * factor
        )


@dataclass(slots=True)
class Side:
    """Runs that are taken together. ``runs`` hold no results: with their samples a thousand wouldn't fit in memory."""

    name: str
    runs: list[Run] = field(default_factory=list)
    cases: dict[Key, list[Observation]] = field(default_factory=dict)
    work: dict[Key, tuple[Work, str]] = field(default_factory=dict)
    unmeasured: dict[Key, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    contents: dict[bytes, Path] = field(default_factory=dict)

    def processes(self) -> float:
        """Processes in a run, on average."""
        return sum(run.processes for run in self.runs) / len(self.runs)


def read_side(name: str, paths: Iterable[str | Path]) -> Side:
    """Read run files, and folders of them, one after the other. Raises UsageError or RunFileError.

    A file that is there twice, under whatever name, counts once: it would pass for a further process.
    """
    side = Side(name)
    for run in _runs(paths):
        content = folders.identity(run.path)
        if content in side.contents:
            side.notes.append(f"{name}: {run.path} is a copy of {side.contents[content]}: counted once")
            continue
        side.contents[content] = run.path
        side.runs.append(replace(run, results=()))
        _add(side, run)
    for key in set(side.unmeasured) & set(side.cases):
        del side.unmeasured[key]  # some run measured it
    return side


def _runs(paths: Iterable[str | Path]) -> Iterator[Run]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from folders.runs(path, read)
        else:
            yield read(path)


def _add(side: Side, run: Run) -> None:
    keys = [key_of(result) for result in run.results]
    several = {key for key, count in Counter(keys).items() if count > 1}
    for key, result in zip(keys, run.results, strict=True):
        if key in several:
            side.unmeasured[key] = "several cases of this name in a run: none can be told from the other"
        elif result.times is None:
            side.unmeasured.setdefault(key, f"{result.status}: {result.reason}" if result.reason else result.status)
        else:
            processes = result.times.processes
            side.cases.setdefault(key, []).extend(_observation(process, len(side.runs), run) for process in processes)
            side.work[key] = result.work, result.case.dtype


def key_of(result: Result) -> Key:
    """What a case is known by on either side."""
    case = result.case
    if not case.implementation:
        return Key(result.fullname, case.device, "")
    regime = "" if case.regime == "resident" else f" {case.regime}"
    return Key(f"{case.id}{regime}", case.device, case.implementation)


def _observation(process: Process, number: int, run: Run) -> Observation:
    samples = sorted(process.samples)
    samples = samples[bisect_right(samples, 0.0) :] or [process.median_s]
    late = 1 - bisect_right(samples, LATE * process.median_s) / len(samples)
    fast = samples[int(FASTEST * (len(samples) - 1))]
    contended = process.index in run.slow_threads
    return Observation(
        process.median_s, fast, samples[0], late, (number, process.index), run.preset == SMOKE, contended
    )


def merged(side: Side, more: Side) -> None:
    """Add the runs of ``more`` to a side."""
    for key, observations in more.cases.items():
        moved = (replace(each, process=(each.process[0] + len(side.runs), each.process[1])) for each in observations)
        side.cases.setdefault(key, []).extend(moved)
    side.runs += more.runs
    side.work |= more.work
    side.unmeasured |= {key: reason for key, reason in more.unmeasured.items() if key not in side.cases}
