"""The two sides of a comparison: what each process of each run saw of a case, and the facts of its machine."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from ..errors import UsageError
from ..runfile import folder
from ..runfile.reader import read
from ..runfile.schema import Ceilings, Process, Result, Run, Work
from ..runfile.utilisation import utilisation

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
        content = folder.identity(run.path)
        if content in side.contents:
            side.notes.append(f"{name}: {run.path} is a copy of {side.contents[content]}: counted once")
            continue
        side.contents[content] = run.path
        side.runs.append(structs.replace(run, results=()))
        _add(side, run)
    for key in set(side.unmeasured) & set(side.cases):
        del side.unmeasured[key]  # some run measured it
    return side


def _runs(paths: Iterable[str | Path]) -> Iterator[Run]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from folder.runs(path, read)
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
            each = zip(result.times.processes, result.times.samples, strict=True)
            side.cases.setdefault(key, []).extend(_observation(*seen, len(side.runs), run) for seen in each)
            side.work[key] = result.work, result.case.dtype


def key_of(result: Result) -> Key:
    """What a case is known by on either side."""
    case = result.case
    if not case.implementation:
        return Key(result.fullname, case.device, "")
    regime = "" if case.regime == "resident" else f" {case.regime}"
    return Key(f"{case.id}{regime}", case.device, case.implementation)


def _observation(process: Process, kept: Sequence[float], number: int, run: Run) -> Observation:
    samples = sorted(kept)
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


# May two sides be compared? What their machines have in common, and in what they differ.


_MODES = {"tf32": "TF32", "float32_matmul": "float32 matmul precision"} | {
    f"{name}_reduced_precision_reduction": f"{name} reduced-precision reduction" for name in ("fp16", "bf16")
}


@dataclass(frozen=True, slots=True)
class Differences:
    """``machine``: other hardware or other terms of measuring, ``software``: what may well be the change itself."""

    machine: tuple[str, ...]
    software: tuple[str, ...]


def differences(base: Side, new: Side, devices: Iterable[str]) -> Differences:
    """Of what matters to cases on these ``devices``, and of the CPU always: it launches what a GPU runs.

    What one side doesn't know is no difference. Facts that differ within a side are told as well.
    """
    names = sorted(set(devices))
    facts: dict[str, list[dict[str, str | None]]] = {side.name: _facts(side.runs, names) for side in (base, new)}
    found: dict[str, str] = {}
    for fact in dict.fromkeys(name for side in facts.values() for each in side for name in each):
        values = {
            side: sorted({value for each in own if (value := each.get(fact)) is not None})
            for side, own in facts.items()
        }
        known = {value for side in values.values() for value in side}
        if len(known) > 1 and all(values.values()):
            ours, theirs = (" and ".join(side) for side in values.values())
            found[fact] = f"{fact} {ours} → {theirs}" if ours != theirs else f"{fact} {ours} on either side"
        elif len(known) > 1:
            found[fact] = f"{fact} {' and '.join(sorted(known))} on one side"
    software = {fact: text for fact, text in found.items() if fact == "torch" or fact.endswith(" driver")}
    return Differences(tuple(text for fact, text in found.items() if fact not in software), tuple(software.values()))


def _facts(runs: Iterable[Run], names: list[str]) -> list[dict[str, str | None]]:
    return list({tuple(facts.items()): facts for facts in (_of_run(run, names) for run in runs)}.values())


def _of_run(run: Run, names: list[str]) -> dict[str, str | None]:
    machine = run.machine
    facts: dict[str, str | None] = {}
    used = [machine.device(name) for name in sorted({"cpu", *names})]
    for device in used:
        facts[_called(device.name)] = device.label or None
        facts[f"{device.name} driver"] = device.driver
    facts["torch"] = machine.torch
    facts["threads"] = None if machine.threads is None else str(machine.threads)
    accelerated = any(device.accelerator for device in used)
    for name in _MODES if accelerated else ("float32_matmul",):
        value = machine.precision.get(name)
        words = {True: "on", False: "off"}
        facts[_MODES[name]] = words[value] if isinstance(value, bool) else None if value is None else str(value)
    return facts


def _called(name: str) -> str:
    return "CPU" if name == "cpu" else name


def presets(base: Side, new: Side) -> str | None:
    """A line where the sides were measured with different care."""
    used = [sorted({run.preset for run in side.runs if run.preset}) for side in (base, new)]
    if all(used) and used[0] != used[1]:
        return f"presets differ: base {', '.join(used[0])}, new {', '.join(used[1])}; only cases of both are compared"
    return None


def doubts(base: Side, new: Side) -> list[str]:
    """A line for what keeps runs, or processes of them, from being evidence."""
    found = []
    tried = [side.name for side in (base, new) if any(run.preset == SMOKE for run in side.runs)]
    if tried:
        found.append(f"smoke runs prove nothing, their rounds are too few ({' and '.join(tried)}): measure quick ones")
    for side in (base, new):
        slow, of = sum(len(run.slow_threads) for run in side.runs), sum(run.processes for run in side.runs)
        if slow:
            found.append(f"{side.name}: in {slow} of {of} processes more threads were slower than one (thread canary)")
    return found


# Ratios between machines in units of what each can do: the ceilings that each run measured.


def scale(base: Side, new: Side, keys: Sequence[Key]) -> tuple[dict[Key, float], list[Key]]:
    """By what to multiply each case's ratio, and the cases for which that isn't known.

    The ratio of times becomes a ratio of times in units of the least time that each machine's ceilings allow
    (:func:`gpubench.runfile.utilisation.utilisation`).
    """
    known = [_ceilings(side) for side in (base, new)]
    found: dict[Key, float] = {}
    for key in keys:
        least = [_least_s(*side.work[key], own.get(key.device)) for side, own in zip((base, new), known, strict=True)]
        if least[0] and least[1]:
            found[key] = least[0] / least[1]
    return found, [key for key in keys if key not in found]


def _least_s(work: Work, dtype: str, ceilings: Ceilings | None) -> float | None:
    if ceilings is None or (work.flops and dtype not in ceilings.throughput):
        return None
    use = utilisation(work, 1.0, dtype, ceilings)
    return use.fraction if use else None


def _ceilings(side: Side) -> dict[str, Ceilings]:
    """By device, the best over the side's runs. Raises UsageError for a side that measured none."""
    found: dict[str, Ceilings] = {}
    for run in side.runs:
        for name, own in run.ceilings.items():
            found[name] = found[name].raised(own) if name in found else own
    if not found:
        raise UsageError(f"{side.name}: no ceilings in {side.runs[0].path}: --normalise needs runs that measured them")
    return found
