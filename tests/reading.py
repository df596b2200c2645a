"""What tests of the reading half share: made-up runs of a CPU and a GPU, studies of them, and CSV files by column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import records

from gpubench.report import words
from gpubench.report.answer import Answer
from gpubench.report.columns import SCALING, crossover_columns, results_columns, speedup_columns
from gpubench.report.render import Column, Table
from gpubench.report.study import Study
from gpubench.runfile.reader import read
from gpubench.runfile.schema import Case, Run


def run_of(folder: Path, data: dict[str, Any], name: str = "run") -> Run:
    """The run that :mod:`records` made, read from a file."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(data))
    return read(path)


def study_of(folder: Path, *files: dict[str, Any], **how: Any) -> Study:
    """Of such runs."""
    return Study([run_of(folder, data, f"run{i}") for i, data in enumerate(files)], **how)


def by_column(columns: Sequence[Column[Any]], things: Iterable[Any]) -> list[dict[str, Any]]:
    """Exact values by the head of their column."""
    return [{column.head: column.cell(thing) for column in columns} for thing in things]


def results(study: Study) -> list[dict[str, Any]]:
    return by_column(results_columns(study.rows), study.rows)


def speedups(study: Study) -> list[dict[str, Any]]:
    return by_column(speedup_columns(study), study.pairs)


def crossovers(study: Study) -> list[dict[str, Any]]:
    return by_column(crossover_columns(study), study.crossings)


def scaled(study: Study) -> list[dict[str, Any]]:
    return by_column(SCALING, study.scaled)


BOTH = (records.CPU, records.GPU)


def mark(workload: str, device: str, seconds: float, n: int = 64, copies: float | None = None, dtype: str = "float32",
         spread: float = 0.01, **how: Any) -> dict[str, Any]:  # fmt: skip
    """Three processes, ``spread`` apart; ``copies`` each way; a call alone takes what it takes in a row."""
    terms = {name: how.pop(name) for name in ("threads", "variant", "implementation", "kind", "title") if name in how}
    case = Case(workload, device, dtype, {"n": n}, size="n", devices=(device,), **terms)
    medians = how.pop("medians", (seconds * (1 - spread), seconds, seconds * (1 + spread)))
    if copies is not None:
        how["transfer"] = {"in_bytes": n, "out_bytes": n, "in_s": copies, "out_s": copies}
    made = records.benchmark(case, seconds, medians=medians, **how)
    for process in made["extra_info"]["gpubench"]["processes"]:
        process["latency_s"] = process["median_s"]
    return made


SIZES = (1, 10, 100)


def sweep(workload: str = "aa.mm", times: tuple[float, float] = (1e-6, 1e-7), **how: Any) -> list[dict[str, Any]]:
    """The same on a CPU and on a GPU, at three sizes; ``times`` are those of a unit of size."""
    sides = zip(("cpu", "cuda:0"), times, strict=True)
    return [mark(workload, device, time * n, n, **how) for device, time in sides for n in SIZES]


def both(workload: str, cpu: float, gpu: float, **how: Any) -> list[dict[str, Any]]:
    """The same on a CPU and on a GPU."""
    same = {name: how[name] for name in ("n", "dtype", "variant", "title") if name in how}
    return [mark(workload, "cpu", cpu, **same), mark(workload, "cuda:0", gpu, **how)]


def run(folder: Path, marks: list[dict[str, Any]], name: str = "run", preset: str = "quick", **how: Any) -> Run:
    """A run of three processes."""
    how = {"devices": BOTH, "processes": 3} | how
    threads = how.pop("machine_threads", 2)
    data = records.run_file(marks, **how)
    data["gpubench"]["preset"] = preset
    data["machine_info"]["gpubench"]["threads"] = threads
    return run_of(folder, data, name)


def answered(folder: Path, marks: list[dict[str, Any]], **how: Any) -> Answer:
    return Answer(Study([run(folder, marks, **how)]))


def ratios(found: Answer) -> dict[str, dict[str, str]]:
    """The speedup of each row, by device and label."""
    return {
        device: {row.label: words.ratio(pair) for row, pair in each.of(source)}
        for each in found.speedups
        for source, device in each.devices.items()
    }


def rows(table: Table) -> list[dict[str, str]]:
    """Cells by the head of their column."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
