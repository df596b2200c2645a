"""The machines of a gallery: which runs may enter it, and what each machine is called there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path

from ..report import words
from ..report.study import Measured, Study, grouped
from ..runfile.quantities import bytes_text, counted, shorten
from ..runfile.schema import Run

MAINTAINERS = "maintainers"
"""Files in a folder of this name were measured by a gallery's maintainers, all others by its community."""


@dataclass(frozen=True, eq=False)
class Machine:
    """A run in a gallery. ``ident`` names its files; ``measured_by`` is empty where a gallery has one kind alone."""

    ident: str
    run: Run
    measured_by: str

    @property
    def study(self) -> Study:
        """The study of the run, made anew each time: the studies of all machines don't fit in memory."""
        return Study([self.run])

    @cached_property
    def called(self) -> list[str]:
        """``["H200", "Xeon, 64 threads"]``: its GPU and its CPU, each empty where it wasn't measured."""
        study = self.study
        return [study.names.of(rows[0]) if rows else "" for rows in (on_gpu(study.measured), on_cpu(study.measured))]

    @cached_property
    def name(self) -> str:
        """``H200 · Xeon, 64 threads``, or what the person who measured calls it."""
        label, labels = self.run.machine.label, [device.label for device in self.run.machine.devices]
        own = "" if any(part and part in label for part in labels) else label
        return shorten(own or " · ".join(filter(None, self.called)) or label, 60)

    @property
    def date(self) -> str:
        """The day on which it was measured."""
        return self.run.date or "on an unknown date"


def on_gpu(rows: Sequence[Measured]) -> list[Measured]:
    """Results of PyTorch on the first accelerator."""
    every = [row for row in rows if row.on_accelerator and not row.library]
    return [row for row in every if row.source == every[0].source]


def on_cpu(rows: Sequence[Measured]) -> list[Measured]:
    """Results of PyTorch on the CPU."""
    return [row for row in rows if not row.on_accelerator and not row.library]


def refusal(run: Run) -> str:
    """Why a run can't enter a gallery, which shows what was measured on known hardware; empty where it can."""
    machine = run.machine
    names = [machine.label, machine.cpu.model or "", *(device.label for device in machine.devices)]
    modelled = words.simulated([run]) or list(filter(words.MODELLED.search, names))
    if modelled:
        return f"times of {modelled[0]} come from a model, not from hardware"
    if run.plain:
        return "holds no facts of its machine: measure with gpubench run"
    if run.preset == "smoke":
        return "a smoke run: its times mean nothing"
    return "" if any(result.times for result in run.results) else "nothing was measured"


def admitted(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs that may be shown, and the others with the reasons."""
    found: dict[tuple[object, ...], Run] = {}
    left_out = []
    for run in runs:
        known = (run.started, *(device.label for device in run.machine.devices)) if run.started else (run.path,)
        if reason := refusal(run) or (f"the same run as {found[known].path}" if known in found else ""):
            left_out.append(f"{run.path}: {reason}")  # the card of a run is the same run
        else:
            found[known] = run
    return list(found.values()), left_out


def machines(runs: Sequence[Run], folder: Path) -> list[Machine]:
    """Return the machines of the runs, ordered by name; ``folder`` contains the runs."""
    paths = [run.path for run in runs]
    places = [path.relative_to(folder) if folder in path.parents else Path(path.name) for path in paths]
    maintained = [MAINTAINERS in place.parts[:-1] for place in places]
    found: dict[str, Machine] = {}
    for run, place, own in zip(runs, places, maintained, strict=True):
        path = place.with_suffix("").as_posix().removesuffix("/run")
        stem = re.sub(r"[^a-z0-9._]+", "-", path.lower()).strip("-.")[:80] or "machine"
        ident = next(each for i in count(1) if (each := f"{stem}-{i}" if i > 1 else stem) not in found)
        by = (MAINTAINERS if own else "community") if any(maintained) else ""
        found[ident] = Machine(ident, run, by)
    return sorted(found.values(), key=lambda machine: (machine.name.casefold(), machine.ident))


def labels(shown: Sequence[Machine]) -> dict[str, str]:
    """Return a label for each machine, unique together with its date. Machines of one name also get the first mark that
    differs."""
    called: dict[str, str] = {}
    for alike in grouped(shown, lambda machine: machine.name).values():
        marks = zip(*map(_marks, alike), strict=True)
        differing = next((each for each in marks if len(set(each)) > 1), ("",) * len(alike))
        called |= {m.ident: ", ".join(filter(None, (m.name, mark))) for m, mark in zip(alike, differing, strict=True)}
    counts = Counter((called[machine.ident], machine.date) for machine in shown)
    same = [machine.ident for machine in shown if counts[called[machine.ident], machine.date] > 1]
    return called | {ident: f"{called[ident]} ({ident})" for ident in same}


def _marks(machine: Machine) -> tuple[str, ...]:
    """Return what distinguishes CPUs of one name, the best-known properties first."""
    cpu = machine.run.machine.cpu
    clock = re.search(r"[\d.]+ ?[GM]Hz", cpu.model or "")
    cache = (cpu.cache_bytes or {}).get("l3")
    matrix = any(name.startswith("amx") for name in cpu.instructions or ())
    last = f"L3 {bytes_text(cache)}" if cache else ""
    return clock[0] if clock else "", "AMX" * matrix, counted(cpu.cores, "core") if cpu.cores else "", last
