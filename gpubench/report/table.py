"""Run files as one tidy frame, a row a case and run; and any frame as exact CSV text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import RunFileError
from ..runfile.reader import clean
from ..runfile.schema import MOST_NAMES, Result, Run, Scalar
from ..runfile.utilisation import PLAUSIBLE
from .metrics import METRICS, MeasuredCase, rate_of_work

LEADING = (
    "run", "machine", "device", "device_name", "family", "workload", "dtype", "variant", "setting", "size_name", "size",
    "time_s", "low_s", "high_s", "rate", "rate_unit", "utilisation", "status", "flags", "reason",
)  # fmt: skip
"""What results.csv begins with; the tests' own parameters and the other metrics follow CONFIGURATION."""
_TERMS = ("dtype", "variant", "implementation", "regime", "cache")
_ROWS_AT_ONCE = 10_000
CONFIGURATION = ("implementation", "regime", "cache", "threads")
HIDDEN = ("_run", "_result")
"""Columns that no file shows, the Run and the Result that a row was made from."""
BASE, LINE, CROSSING = "_baseline", "_line", "_crossing"
"""In a table of pairs the Result of the baseline, in one of crossovers the Line and its Crossing; as hidden."""
PAIRED = ("speedup", "low", "high", "one_shot_speedup", "break_even_calls", "baseline_s", "time_s")
ONE_SHOT_COLUMNS = (
    "one_shot_speedup", "break_even_calls", "one_shot_low", "one_shot_high", "baseline_one_shot_s", "one_shot_s",
    "one_shot_pinned_s", "one_shot_pinned_speedup",
)  # fmt: skip
_CROSSED = ("size_parameter", "crossover", "kind", "processes", "note")
SIDE = ("run", "machine", "device", "implementation", "threads")
"""Columns that either side of a pair has; the baseline's are named ``baseline_…``."""
_FORMULA = re.compile(r"(^|[;\t])(?=[=+\-@＝＋－＠])")
"""Where a text could act in a spreadsheet, also in one whose cells end at a semicolon."""
IMPLAUSIBLE = "implausible"
"""A flag that a report raises too, where the peaks were measured too low to do it while measuring."""
_RESERVED = {*LEADING, *CONFIGURATION, *METRICS, "check", *HIDDEN, BASE, LINE, CROSSING, "id"}
_RESERVED |= {*PAIRED, "differs", "uncertainty", *ONE_SHOT_COLUMNS, *_CROSSED, *(f"baseline_{name}" for name in SIDE)}


def results_table(runs: Sequence[Run]) -> pd.DataFrame:
    """All cases of all runs, unmeasured ones too: the columns of results.csv, then HIDDEN. Unknown is None."""
    names = run_names([run.path for run in runs])
    named = {name for run in runs for result in run.results for name in result.params}
    if len(named) > MOST_NAMES:  # a column each, in every row
        raise RunFileError(f"{len(named)} different names of parameters: a table holds {MOST_NAMES}; report fewer runs")
    parameters = columns_of(named)
    more = [name for name in METRICS if name not in LEADING]
    columns = [*LEADING, *CONFIGURATION, *parameters.values(), *more, "check", *HIDDEN]
    workloads: dict[str, list[dict[str, Any]]] = {}
    for each in (each for run in runs for each in run.results):
        workloads.setdefault(each.workload, []).append({"_result": each})
    sizes = {workload: size_parameter(members) for workload, members in workloads.items()}
    empty = dict.fromkeys(columns)
    rows = [  # lists: a dictionary of so many columns takes four times as much memory
        list((empty | _row(name, run, each, parameters) | _sized(each, sizes[each.workload])).values())
        for name, run in zip(names, runs, strict=True)
        for each in run.results
    ]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def _sized(result: Result, size: str | None) -> dict[str, Scalar]:
    """Its size, the workload's unless that has none, and the other parameters in words."""
    size = size or result.size
    words = [_setting(name, value) for name, value in result.params.items() if name != size]
    return {"size_name": size, "size": result.params.get(size) if size else None, "setting": ", ".join(words) or None}


def _setting(name: str, value: Scalar) -> str:
    return value if isinstance(value, str) else f"{name}={json.dumps(value)}"


def size_parameter(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The cases' own ``size`` if it varies, else the only whole number that does, as 0.5 is a share and no size; None
    where there is no such axis."""
    named = {row["_result"].size for row in rows}
    if len(named) == 1 and (name := named.pop()) is not None:
        return name if _varies(rows, name) else None
    names = {name for row in rows for name in row["_result"].params}
    numeric = [name for name in names if _varies(rows, name) and all(_whole(row, name) for row in rows)]
    return numeric[0] if len(numeric) == 1 else None


def size_of(row: Mapping[str, Any], name: str) -> float | None:
    """The parameter's value where it can stand on a logarithmic axis."""
    value = row["_result"].params.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _whole(row: Mapping[str, Any], name: str) -> bool:
    return float(row["_result"].params[name]).is_integer()


def _varies(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    sizes = [size_of(row, name) for row in rows]
    return None not in sizes and len(set(sizes)) > 1


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Its rows, each by column name."""
    names = list(table.columns)
    return [dict(zip(names, row, strict=True)) for row in table.to_numpy(dtype=object).tolist()]


def parameter_columns(table: pd.DataFrame) -> list[str]:
    """The columns that hold the tests' own parameters."""
    return [column for column in table.columns if column not in _RESERVED]


def csv_text(table: pd.DataFrame) -> str:
    """Every digit of every number, empty where unknown; texts can't act as formulas in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    shown = [column for column in table.columns if column not in (*HIDDEN, BASE, LINE, CROSSING)]
    writer.writerow([_cell(column) for column in shown])
    for start in range(0, len(table), _ROWS_AT_ONCE):
        part = table.iloc[start : start + _ROWS_AT_ONCE]
        writer.writerows(zip(*(_cells(part[column].tolist()) for column in shown), strict=True))
    return text.getvalue()


def run_names(paths: Sequence[Path]) -> list[str]:
    """File stems, with as many parent folders in front as tell them apart."""
    paths = [path.absolute() for path in paths]
    names = [clean(path.stem) for path in paths]
    for depth in range(1, max((len(path.parts) for path in paths), default=1)):
        repeated = {name for name, count in Counter(names).items() if count > 1}
        names = [
            clean("/".join([*path.parts[1:-1][-depth:], path.stem])) if name in repeated else name
            for name, path in zip(names, paths, strict=True)
        ]
    return names


def _row(name: str, run: Run, result: Result, parameters: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": name, "machine": run.machine.label, "_run": run, "_result": result}
    row |= {column: getattr(result, column) for column in ("device", "workload", "threads", "status")}
    row |= {column: getattr(result, column) or None for column in (*_TERMS, "reason")}
    row |= {"device_name": run.machine.device(result.device).label or None, "family": result.workload.partition(".")[0]}
    row |= {parameters[key]: value for key, value in result.params.items()}
    if result.times:
        measured = MeasuredCase(result, result.times, run)
        row |= {name: metric.of(measured) for name, metric in METRICS.items()}
        rate = rate_of_work(result.work)
        values = rate.measure(row) if rate else None
        row |= {"rate": values[0], "rate_unit": rate.unit} if rate and values else {}
        check = result.check
        row["check"] = (f"{check.status}: {check.reason}" if check.reason else check.status) if check else None
        flags = [flag.name for flag in result.flags]
        flags += [IMPLAUSIBLE] * ((row["utilisation"] or 0) > PLAUSIBLE and IMPLAUSIBLE not in flags)
        row["flags"] = " ".join(flags) or None
    return row


def columns_of(names: Iterable[str]) -> dict[str, str]:
    """Column of each parameter; ``param_`` goes in front of one that is named like a column of ours."""
    columns: dict[str, str] = {}
    for name in sorted(names):
        column = name
        while column in _RESERVED or column in columns.values() or (column != name and column in names):
            column = f"param_{column}"
        columns[name] = column
    return columns


def _cells(values: list[Any]) -> list[str]:
    """Those of a column, most of which has one kind of values, or the same texts many times."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return [""] * len(values)
    if kinds <= {int, float}:
        return ["" if value is None else repr(value) for value in values]
    if kinds == {str}:
        cells = {value: _cell(value) for value in set(values)}
        return [cells[value] for value in values]
    return [_cell(value) for value in values]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return _FORMULA.sub(r"\1'", value)
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else repr(value)
