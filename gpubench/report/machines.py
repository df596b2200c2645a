"""Machines side by side: like devices against each other, each GPU against its own CPU, and what differs.

A ratio between a GPU of one machine and a CPU of another says nothing about either, so the baseline is chosen by
device. A kind of work is told by the same rule as on a card of :mod:`.answer`: of all benchmarks that most devices have
measured, each at the largest size that they have in common, the one in the middle, and the range.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from ..format import counted
from ..runfile.matching import WORK_KINDS, kind_of
from ..runfile.schema import Run
from .judgement import ABOVE_PEAK, TOO_NOISY, known_speedups, middle, speedup_words, withheld
from .labels import (
    Row,
    arithmetic,
    brief_name,
    device_label,
    flagged,
    grouped,
    listed,
    shorten,
    times_range,
    times_text,
)
from .render import Table
from .speedup import Baseline, on_accelerator, pair
from .sweep import arithmetic_order, representative, setting_of
from .table import records

DeviceOfRun = tuple[str, str]
"""A run and its device."""
MOST_COLUMNS = 6
"""Devices or machines of a table; the others are in speedup.csv."""
GPUS_TITLE = "GPU against GPU"
_MOST_ROWS, _MOST_NAMED = 40, 3
_MACHINE, _BUSY = "machine", "machine busy"
_SWITCH = {True: "on", False: "off"}


@dataclass(frozen=True, slots=True)
class SharedBenchmark:
    """A workload that each device of ``rows`` has measured in the same setting."""

    workload: str
    rows: dict[DeviceOfRun, Row]

    @property
    def name(self) -> str:
        """``matmul.square float32, out, n=4096``."""
        first = next(iter(self.rows.values()))
        return f"{shorten(first['workload'])} {setting_of(first)}".strip()


@dataclass(frozen=True, slots=True)
class WorkLine:
    """A kind of work in one arithmetic, with all its shared benchmarks; ``leading`` is the one that stands for it."""

    kind: str
    arithmetic: str
    leading: bool
    benchmarks: tuple[SharedBenchmark, ...]

    @property
    def name(self) -> str:
        """``Running networks``; ``Running networks, autocast``."""
        plain = self.arithmetic in ("", "float32") or self.kind not in WORK_KINDS
        return self.kind if self.leading and plain else f"{self.kind}, {self.short}"

    @property
    def short(self) -> str:
        """``bfloat16``, ``autocast``: what the line differs in from others of its kind."""
        return self.arithmetic.removeprefix("float32 ") or "no dtype"

    @property
    def middle(self) -> SharedBenchmark:
        """The one that stands for the line where only one can: of those that most devices have without a result above
        its measured peak, the one in the middle by how far the devices are apart."""
        counts = [sum(not doubtful(row) for row in each.rows.values()) for each in self.benchmarks]
        best = [each for each, count in zip(self.benchmarks, counts, strict=True) if count == max(counts)]
        return sorted(best, key=lambda each: _apart(each.rows))[(len(best) - 1) // 2]

    @property
    def contents(self) -> str:
        """The benchmark, or how many there are."""
        if len(self.benchmarks) == 1:
            return self.benchmarks[0].name
        names = [each.workload.rpartition(".")[2] for each in self.benchmarks]
        return f"median of {len(names)}: {listed([shorten(name, 24) for name in sorted(names)], _MOST_NAMED)}"


@dataclass(frozen=True)
class Ratio:
    """How much faster a device does a line's work than another: ``pairs`` are its benchmarks on both."""

    line: WorkLine
    device: DeviceOfRun
    base: DeviceOfRun
    pairs: tuple[Row, ...]

    @cached_property
    def known(self) -> list[Row]:
        """Pairs that aren't too noisy, by their speedup."""
        return known_speedups(self.pairs)

    @property
    def typical(self) -> Row | None:
        """The pair in the middle, which is a measured one."""
        return middle(self.known) if self.known else None

    @property
    def across(self) -> bool:
        """Whether two devices of one kind are compared, and not a GPU with its CPU."""
        return on_accelerator(self.pairs[0]) == bool(self.pairs[0]["baseline_device"] != "cpu")

    @property
    def words(self) -> str:
        """``8.0× (7.9× to 8.1×)``, the interval of one benchmark, or the range over several."""
        row = self.typical
        if row is None:
            return TOO_NOISY
        count, every = len(self.known), len(self.line.benchmarks)
        share = f"; {count} of {every}" if count < every else ""
        ends = times_range(self.known[0]["speedup"], self.known[-1]["speedup"])
        several = f"{times_text(row['speedup'])} ({ends}{share})"
        return (several if every > 1 else speedup_words(row)) + "*" * flagged(row)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Several devices: what work they share, what they are called, and how much faster each is than another."""

    lines: tuple[WorkLine, ...]
    names: dict[DeviceOfRun, str]
    ratios: tuple[Ratio, ...]

    @property
    def of_gpus(self) -> list[Ratio]:
        """Those of GPUs against the GPU that most are held against."""
        ratios = [each for each in self.ratios if each.across and on_accelerator(each.pairs[0])]
        return _against_one(ratios)


def side_by_side(results: pd.DataFrame, allow: Collection[str] = ()) -> SideBySide:
    """``results`` is made by :func:`.table.results_table`; ``allow`` are terms in which compared results may differ.

    Machines rarely have the same number of threads: CPUs are compared all the same, and the difference is named.
    """
    lines = work_lines(results)
    found = _shared_pairs(results, lines, allow)
    by_result = grouped(found, lambda row: id(row["_result"]))
    ratios = []
    for line in lines:
        results_of = [row["_result"] for each in line.benchmarks for row in each.rows.values()]
        members = [row for result in results_of for row in by_result.get(id(result), [])]
        sides = grouped(members, lambda row: (_device_of_run(row), _baseline(row)))
        ratios += [Ratio(line, device, base, tuple(rows)) for (device, base), rows in sides.items()]
    return SideBySide(tuple(lines), device_names(results), tuple(ratios))


def machine_tables(compared: SideBySide, results: pd.DataFrame) -> tuple[Table, ...]:
    """Like devices of several machines, each GPU against its own CPU, and what differs; of one run only its GPUs."""
    cpus = [each for each in compared.ratios if each.across and not on_accelerator(each.pairs[0])]
    own = [each for each in compared.ratios if not each.across and each.device[0] == each.base[0]]
    tables = [_ratio_table(GPUS_TITLE, compared.of_gpus, compared)]
    if results["run"].nunique() > 1:
        tables.append(_ratio_table("CPU against CPU", _against_one(cpus), compared))
        tables.append(_ratio_table("Each GPU against the CPU of its own machine", own, compared))
        tables.append(differences(results))
    return tuple(table for table in tables if table.rows)


def _against_one(ratios: list[Ratio]) -> list[Ratio]:
    """Those against the device that most are held against."""
    bases = Counter(each.base for each in ratios)
    return [each for each in ratios if each.base == bases.most_common(1)[0][0]]


def work_lines(results: pd.DataFrame) -> list[WorkLine]:
    """By kind of work and arithmetic the benchmarks that most devices have, each at the largest size that these devices
    have in common; the plainest arithmetic of a kind leads."""
    measured = [row for row in records(results) if row["_result"].times and row["implementation"] != "numpy"]
    work = [row for row in measured if kind_of(row["workload"])]
    shared: dict[tuple[str, str], list[SharedBenchmark]] = {}
    for (workload, done), rows in grouped(work, lambda row: (row["workload"], arithmetic(row))).items():
        cases = [_by_device(same) for same in grouped(rows, _setting).values()]
        most = max(map(len, cases))
        by_first = {id(next(iter(case.values()))): case for case in cases if len(case) == most}
        first = representative([next(iter(case.values())) for case in by_first.values()])
        shared.setdefault((str(kind_of(workload)), done), []).append(SharedBenchmark(workload, by_first[id(first)]))
    kinds = grouped(shared, lambda key: key[0])
    lines = []
    for kind in (*WORK_KINDS, *(kind for kind in kinds if kind not in WORK_KINDS)):
        keys = sorted(kinds.get(kind, ()), key=lambda key: arithmetic_order(next(iter(shared[key][0].rows.values()))))
        for key in keys:
            most = max(len(each.rows) for each in shared[key])
            members = tuple(each for each in shared[key] if len(each.rows) == most)
            lines.append(WorkLine(*key, key == keys[0], members))
    return lines


def _by_device(rows: Iterable[Row]) -> dict[DeviceOfRun, Row]:
    """The first row of each device."""
    return {device: members[0] for device, members in grouped(rows, _device_of_run).items()}


def first_rows(results: pd.DataFrame) -> dict[DeviceOfRun, Row]:
    """The first measured row of each device."""
    return _by_device(row for row in records(results) if row["_result"].times)


def _device_of_run(row: Row) -> DeviceOfRun:
    return row["run"], row["device"]


def _baseline(row: Row) -> DeviceOfRun:
    return row["baseline_run"], row["baseline_device"]


def _setting(row: Row) -> str:
    case = row["_result"].case
    return json.dumps([case.dtype, case.variant, case.regime, case.cache, case.params], sort_keys=True)


def doubtful(row: Row) -> bool:
    """Whether a result is above its measured peak by more than noise, which can't be."""
    return withheld(row) == ABOVE_PEAK


def _apart(case: dict[DeviceOfRun, Row]) -> float:
    times: list[float] = [row["time_s"] for row in case.values()]
    return max(times) / min(times)


def _shared_pairs(results: pd.DataFrame, lines: Iterable[WorkLine], allow: Collection[str]) -> list[Row]:
    """Pairs of the shared benchmarks alone: each accelerator with its own CPU, each device with its like in the first
    run, and GPUs of one run with its first. Results above their measured peak are left out."""
    shared = [row for line in lines for each in line.benchmarks for row in each.rows.values()]
    if not shared:
        return []
    kept = {id(row["_result"]) for row in shared if not doubtful(row)}
    chosen = results[[id(result) in kept for result in results["_result"]]]
    pairs = records(pair(chosen, None, {"threads", *allow}).table)
    for run, rows in grouped(shared, lambda row: row["run"]).items():
        gpus = {row["device"]: row["_run"].machine.device(row["device"]).label for row in rows if on_accelerator(row)}
        if len(set(gpus.values())) > 1:  # those of one model are equal but for noise
            against = pair(chosen[chosen["run"] == run], Baseline("device", next(iter(gpus))), allow)
            pairs += [row for row in records(against.table) if on_accelerator(row)]
    return pairs


def device_names(results: pd.DataFrame) -> dict[DeviceOfRun, str]:
    """``H200``; ``Xeon, 2 threads``; with the run's name where two are called the same."""
    names = {}
    for device, row in first_rows(results).items():
        threads = 0 if on_accelerator(row) else row["_run"].machine.threads
        name = brief_name(device_label(row["_run"], row["device"]))
        names[device] = f"{name}, {counted(threads, 'thread')}" if threads else name
    counts = Counter(names.values())
    inside = Counter((run, names[run, device]) for run, device in names)
    return {
        (run, device): name
        + f" {device}" * (inside[run, name] > 1)
        + f" · {shorten(run, 24)}" * (counts[name] > inside[run, name])
        for (run, device), name in names.items()
    }


def _ratio_table(title: str, ratios: list[Ratio], compared: SideBySide) -> Table:
    """A row a line of work, and how much faster each device is: than the CPU of its own machine, else than the device
    that all are held against, whose column has ones."""
    if not ratios:
        return Table(title, (), ())
    names, across = compared.names, ratios[0].across
    against = {each.device: each.base for each in ratios}
    devices, base = list(against)[:MOST_COLUMNS], ratios[0].base
    body = []
    for line, members in grouped(ratios, lambda each: each.line.name).items():
        cells = {each.device: each.words for each in members}
        body.append((line, members[0].line.contents, *["1×"] * across, *(cells.get(each, "—") for each in devices)))
    used = [row for each in ratios for row in each.known]
    words = (f"{names[device]} against {names[against[device]]}" for device in devices)
    note = f"Speedup over {names[base]}" if across else f"Speedup: {'; '.join(words)}"
    note += (
        f". In brackets: {listed(sorted({row['uncertainty'] for row in used}), 2)}; of several benchmarks, of which "
    )
    note += "the median is given, their range."
    if differing := sorted({row["differs"] for row in used if row["differs"]}):
        note += f" Compared although they differ: {listed(differing, 3)}."
    if any("—" in row for row in body):
        note += " — not measured on both, or above the measured peak."
    if any("*" in cell for row in body for cell in row[2:]):
        note += " * noisy, see the flags below."
    if len(against) > MOST_COLUMNS:
        note += f" {len(against) - MOST_COLUMNS} more devices are in speedup.csv."
    heads = ("work", "benchmarks", *[names[base]] * across, *map(names.__getitem__, devices))
    return Table(title, heads, tuple(body[:_MOST_ROWS]), note)


def differences(results: pd.DataFrame) -> Table:
    """What the runs don't agree in, a row a fact and a column a run; the note says in what they agree."""
    runs: dict[str, Run] = dict(zip(results["run"], results["_run"], strict=True))
    shown = list(runs)[:MOST_COLUMNS]
    facts = {name: _facts(run) for name, run in runs.items()}
    body, agreed = [], []
    for fact in dict.fromkeys(fact for known in facts.values() for fact in known):
        values = [known.get(fact, "unknown") for known in facts.values()]
        if len(set(values)) > 1:
            body.append((fact, *values[:MOST_COLUMNS]))
        elif fact not in (_MACHINE, _BUSY):
            agreed.append(fact)
    note = f"The same everywhere: {', '.join(agreed)}." if agreed else ""
    if len(runs) > len(shown):
        note += f" {len(runs) - len(shown)} more runs are in the table of machines."
    several = len({run.machine.label for run in runs.values()}) > 1
    title = f"What differs between the {'machines' if several else 'runs'}"
    return Table(title, ("what", *map(shorten, shown)), tuple(body), note.strip())


def _facts(run: Run) -> dict[str, str]:
    """What may explain a difference and isn't the device itself; what the file doesn't know is left out."""
    machine = run.machine
    drivers = dict.fromkeys(device.driver for device in machine.devices if device.accelerator and device.driver)
    known = {
        _MACHINE: machine.label,
        "PyTorch": machine.torch,
        "CPU threads": machine.threads,
        "GPU driver": ", ".join(drivers),
        "TF32": machine.tf32,
        **{name.replace("_", " "): value for name, value in machine.precision.items() if name != "tf32"},
        "preset": run.preset,
        "processes": run.processes,
        "seed": None if run.seed is None else str(run.seed),
        "gpubench": run.version,
        _BUSY: "yes" if any(flag.name == "contended" for flag in run.flags) else "no",
    }
    facts = {name: _SWITCH[value] if isinstance(value, bool) else str(value or "") for name, value in known.items()}
    return {name: shorten(words) for name, words in facts.items() if words}
