"""What tests of the reading half share: a run from a dictionary, and rows of the CSV files by column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpubench.report.columns import SCALING, crossover_columns, results_columns, speedup_columns
from gpubench.report.render import Column
from gpubench.report.study import Study
from gpubench.runfile.reader import read
from gpubench.runfile.schema import Run


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
