"""Run files as one tidy frame, a row a case and run; and any frame as exact CSV text."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..runfile.reader import clean
from ..runfile.schema import Result, Run
from .metrics import METRICS, MeasuredCase

LEADING = ("run", "machine", "device", "device_name", "workload", "implementation")
CONFIGURATION = ("variant", "regime", "cache")
BEFORE_METRICS, AFTER_METRICS = ("dtype", "threads", "status", "reason"), ("check", "flags")
HIDDEN = ("_run", "_result")
"""Columns that no file shows, the Run and the Result that a row was made from."""
BASE, LINE, CROSSING = "_baseline", "_line", "_crossing"
"""In a table of pairs the Result of the baseline, in one of crossovers the Line and its Crossing; as hidden."""
PAIRED = ("differs", "baseline_s", "time_s", "speedup", "low", "high", "uncertainty")
ONE_SHOT_COLUMNS = (
    "baseline_one_shot_s",
    "one_shot_s",
    "one_shot_speedup",
    "one_shot_low",
    "one_shot_high",
    "one_shot_pinned_s",
    "one_shot_pinned_speedup",
    "break_even_calls",
)
CROSSED = ("size_parameter", "crossover", "kind", "processes", "note")
SIDE = ("run", "machine", "device", "implementation", "threads")
"""Columns that either side of a pair has; the baseline's are named ``baseline_…``."""
_RESERVED = {
    *LEADING,
    *CONFIGURATION,
    *BEFORE_METRICS,
    *AFTER_METRICS,
    *HIDDEN,
    BASE,
    *PAIRED,
    *ONE_SHOT_COLUMNS,
    *CROSSED,
}
_RESERVED |= {f"baseline_{name}" for name in SIDE}


def _reserved(column: str) -> bool:
    return column in _RESERVED or column in METRICS


def results_table(runs: Sequence[Run]) -> pd.DataFrame:
    """All cases of all runs, unmeasured ones too: the columns of results.csv, then HIDDEN. Unknown is None."""
    names = run_names([run.path for run in runs])
    parameters = columns_of({name for run in runs for result in run.results for name in result.case.params})
    columns = [*LEADING, *CONFIGURATION, *parameters.values(), *BEFORE_METRICS, *METRICS, *AFTER_METRICS, *HIDDEN]
    rows = [
        _row(name, run, result, parameters) for name, run in zip(names, runs, strict=True) for result in run.results
    ]
    return pd.DataFrame([[row.get(column) for column in columns] for row in rows], columns=columns, dtype=object)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Its rows, each by column name."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False, name=None)]


def parameter_columns(table: pd.DataFrame) -> list[str]:
    """The columns that hold the tests' own parameters."""
    return [column for column in table.columns if not _reserved(column)]


def csv_text(table: pd.DataFrame) -> str:
    """Every digit of every number, empty where unknown; texts can't act as formulas in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    shown = [column for column in table.columns if column not in (*HIDDEN, BASE, LINE, CROSSING)]
    writer.writerow([_cell(column) for column in shown])
    writer.writerows([_cell(value) for value in row] for row in table[shown].itertuples(index=False, name=None))
    return text.getvalue()


def run_names(paths: Sequence[Path]) -> list[str]:
    """File stems, with as many parent folders in front as tell them apart."""
    paths = [path.absolute() for path in paths]
    names = [clean(path.stem) for path in paths]
    for depth in range(1, max((len(path.parts) for path in paths), default=1)):
        repeated = {name for name, count in Counter(names).items() if count > 1}
        names = [
            "/".join([*path.parts[1:-1][-depth:], clean(path.stem)]) if name in repeated else name
            for name, path in zip(names, paths, strict=True)
        ]
    return names


def _row(name: str, run: Run, result: Result, parameters: dict[str, str]) -> dict[str, Any]:
    case, times = result.case, result.times
    row: dict[str, Any] = {
        "run": name,
        "machine": run.machine.label,
        "device": case.device,
        "device_name": run.machine.device(case.device).label or None,
        "workload": case.workload,
        "implementation": case.implementation or None,
        "variant": case.variant or None,
        "regime": case.regime or None,
        "cache": case.cache or None,
        **{parameters[key]: value for key, value in case.params.items()},
        "dtype": case.dtype or None,
        "threads": case.threads,
        "status": result.status,
        "reason": result.reason or None,
        "_run": run,
        "_result": result,
    }
    if times:
        measured = MeasuredCase(result, times, run)
        row |= {name: metric.of(measured) for name, metric in METRICS.items()}
        check = result.check
        row["check"] = (f"{check.status}: {check.reason}" if check.reason else check.status) if check else None
        row["flags"] = " ".join(flag.name for flag in result.flags) or None
    return row


def columns_of(names: Iterable[str]) -> dict[str, str]:
    """Column of each parameter; ``param_`` goes in front of one that is named like a column of ours."""
    columns: dict[str, str] = {}
    for name in sorted(names):
        column = name
        while _reserved(column) or column in columns.values() or (column != name and column in names):
            column = f"param_{column}"
        columns[name] = column
    return columns


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value
    if isinstance(value, bool):
        return json.dumps(value)
    return repr(value)
