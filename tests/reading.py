"""Shared by tests of the reading half: studies of made-up runs, and CSV files by column."""

from collections.abc import Iterable, Sequence
from typing import Any

from records import Made

from gpubench.report.answer import Answer
from gpubench.report.columns import SCALING, crossover_columns, results_columns, speedup_columns
from gpubench.report.render import Column, Table
from gpubench.report.study import Study
from gpubench.runfile.schema import Run


def study_of(*runs: Made | Run | dict[str, Any], **how: Any) -> Study:
    """Of runs as :mod:`records` makes them; several without a name are run0, run1, …."""
    return Study([_run(data, f"run{i}" if len(runs) > 1 else "run") for i, data in enumerate(runs)], **how)


def _run(data: Made | Run | dict[str, Any], name: str) -> Run:
    if isinstance(data, Made):
        return data.read(data.name or name)
    return data if isinstance(data, Run) else Made(data, name, 1).read()


def answered(*runs: Made | Run, **how: Any) -> Answer:
    return Answer(study_of(*runs, **how))


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


def ratios(found: Answer) -> dict[str, dict[str, str]]:
    """The speedup of each row, by device and label."""
    return {
        device: {row.label: pair.ratio.mark for row, pair in each.of(source)}
        for each in found.speedups
        for source, device in each.devices.items()
    }


def rows(table: Table) -> list[dict[str, str]]:
    """Cells by the head of their column."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]
