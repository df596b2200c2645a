"""The report in words: one structure, shown in a terminal through rich or written as Markdown."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from .. import statistics
from ..quantity import seconds_text, text
from ..runfile import Run
from ..schema import TIMERS
from ..statistics import INTERVAL
from .labels import Names, Row, case_name, family, listed, shorten, size_label, size_text
from .output import CHARTS
from .pairs import Baseline, pair
from .series import Line, rate_of, speedup_of, sweeps
from .table import records

if TYPE_CHECKING:
    from rich.console import Console

    from .figures import Figure

MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are plain text: whoever shows them escapes them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """``charts`` are (title, file stem) for the pictures that were drawn in ``picture`` format."""

    tables: tuple[Table, ...]
    charts: tuple[tuple[str, str], ...] = ()
    picture: str = "svg"


def summarise(
    runs: Sequence[Run],
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    figures: Sequence[Figure],
    formats: Sequence[str],
) -> Summary:
    names = Names(results)
    rows = records(results)
    tables = [_machines(results, runs), _speedups(records(speedups), names)]
    if speedups.empty:
        numpy = pair(results, Baseline("implementation", "numpy"))
        tables.append(_speedups(records(numpy), names))
    tables += [_rates(rows, names), _totals(rows, names), _unmeasured(rows), _method(runs, rows)]
    charts = tuple((figure.title, figure.name) for figure in figures)
    return Summary(tuple(table for table in tables if table.rows), charts, formats[0] if formats else "svg")


def _machines(results: pd.DataFrame, runs: Sequence[Run]) -> Table:
    rows = []
    for name, run in zip(dict.fromkeys(results["run"]), (run for run in runs if run.results), strict=True):
        devices = [f"{device.name}: {device.label}" if device.label else device.name for device in run.machine.devices]
        cells = (run.machine.torch, str(run.machine.threads or ""), run.date)
        measured = sum(result.times is not None for result in run.results)
        rows.append((name, run.machine.label, "; ".join(devices), *(cell or "—" for cell in cells), str(measured)))
    return Table("Machines", ("run", "machine", "devices", "torch", "threads", "date", "cases measured"), tuple(rows))


def _speedups(rows: list[Row], names: Names) -> Table:
    """Per family and device: what it brings at the largest sizes, at best, and from which size on."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (names.baseline(row), names.source(row), family(row["workload"]), _precision(row))
        groups.setdefault(key, []).append(row)
    body = []
    for (baseline, source, kind, precision), members in sorted(groups.items()):
        swept, single = sweeps(members, speedup_of, names)
        largest = [line.points[-1].y for sweep in swept for line in sweep.lines] + [row["speedup"] for row in single]
        best = max(members, key=lambda row: row["speedup"])
        spread = f"{factor(best['speedup'])} ({factor(best['low'])}–{factor(best['high'])})"
        crossings = [(line, sweep.size) for sweep in swept for line in sweep.lines]
        body.append(
            (
                kind,
                precision,
                source,
                baseline,
                factor(statistics.geometric_mean(largest)),
                f"{spread} {case_name(best)}",
                _crossovers(crossings),
            )
        )
    kinds = sorted({row["uncertainty"] for row in rows})
    note = "Largest sizes: geometric mean over each setting's largest size. In brackets: " + ", ".join(kinds)
    if not all(kind.startswith(INTERVAL) for kind in kinds):
        note += " (a spread is no confidence interval)"
    columns = ("family", "dtype", "device", "against", "speedup at largest sizes", "best", "faster from")
    return Table("Speedup", columns, tuple(body), note + ".")


def _crossovers(lines: list[tuple[Line, str]]) -> str:
    """``n ≈ 1200–40k (4 of 6 settings); never: 1``."""
    sizes: dict[str, list[float]] = {}
    kinds = [line.crossover.kind for line, _ in lines]
    for line, size in lines:
        if line.crossover.size:
            sizes.setdefault(size, []).append(line.crossover.size)
    words = []
    for size, values in sorted(sizes.items()):
        ends = list(dict.fromkeys(size_text(value, size) for value in (min(values), max(values))))
        words.append(f"{size_label(size)} ≈ {' … '.join(ends)} ({len(values)} of {len(lines)})")
    if above := kinds.count("above"):
        words.append(f"at every size ({above} of {len(lines)})")
    if below := kinds.count("below"):
        words.append(f"never ({below} of {len(lines)})")
    return "; ".join(words) or "—"


def _rates(rows: list[Row], names: Names) -> Table:
    """The highest rate of each family, dtype and source: what the machine was seen to do."""
    best: dict[tuple[str, ...], tuple[float, Row]] = {}
    for row in rows:
        rate = rate_of(row) if row["_result"].times else None
        values = rate.measure(row) if rate else None
        if rate and values:
            name = row["workload"] if rate.kind == "items" else family(row["workload"])
            key = (name, names.source(row), _precision(row), rate.unit)
            if key not in best or values[0] > best[key][0]:
                best[key] = values[0], row
    ranked = sorted(best.items(), key=lambda entry: entry[0])
    body = [(*key[:3], text(value, key[3]), case_name(row)) for key, (value, row) in ranked]
    note = "Work of a call / median wall time; bytes are compulsory traffic (inputs read once, outputs written once)."
    if len(body) > MOST_ROWS:
        note += f" {len(body) - MOST_ROWS} more are in results.csv."
    return Table("Highest rates", ("workload", "device", "dtype", "rate", "reached by"), tuple(body[:MOST_ROWS]), note)


def _totals(rows: list[Row], names: Names) -> Table:
    """Jobs of many equal steps, of which one was measured."""
    body = []
    for row in rows:
        steps, times = row["_result"].steps, row["_result"].times
        if steps and times:
            total = seconds_text(steps * times.median_s)
            body.append((case_name(row), names.source(row), f"{steps:,}", text(times.median_s, "s"), total))
    note = "Derived, not measured: the time of one step times the number of steps."
    return Table("Whole jobs", ("job", "device", "steps", "one step", "all steps"), tuple(body), note)


def _precision(row: Row) -> str:
    """``float32``, ``float32 autocast``: rows that differ in it are never summed up in one number."""
    variant = row["variant"] if row["variant"] not in (None, "eager") else ""
    return f"{row['dtype'] or ''} {variant}".strip()


def _unmeasured(rows: list[Row]) -> Table:
    """Reasons that differ in their numbers alone are one; the first case's stands for them."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["status"] != "ok":
            shape = re.sub(r"\d+([.,]\d+)*(e[+-]?\d+)?", "#", row["reason"] or "")
            groups.setdefault((row["status"], shape), []).append(row)
    body = []
    for (status, _), members in sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]), group[0][1])):
        reasons = {row["reason"] or "no reason given" for row in members}
        reason = ("e.g. " if len(reasons) > 1 else "") + shorten(members[0]["reason"] or "no reason given", 200)
        workloads = sorted({f"{row['workload']} on {row['device']}" for row in members})
        body.append((status, str(len(members)), reason, listed(workloads, 4)))
    return Table("Not measured", ("status", "cases", "reason", "which"), tuple(body))


_PRESETS = {"smoke": "smoke: tries every case's code, its times are not for comparing"}


def _method(runs: Sequence[Run], rows: list[Row]) -> Table:
    def join(values: Sequence[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, ""))) or "unknown"

    times = [row["_result"].times for row in rows if row["_result"].times]
    waited = ", the wait for the device included" if all(time.timer in TIMERS for time in times) else ""
    tf32 = {True: "on", False: "off", None: "unknown"}
    named = " but for cases of dtype tf32" if any(row["dtype"] == "tf32" for row in rows) else ""
    checks = [row["_result"].check for row in rows if row["_result"].check]
    body = [
        ("clock", join(sorted({time.timer for time in times}))),
        ("time", "median over rounds of the wall time of a call" + waited),
        ("processes", join([run.processes for run in runs])),
        ("TF32", join([tf32[run.machine.tf32] for run in runs]) + named),
        ("answers checked", f"{checks.count('passed')} of {len(times)} cases" if checks else "unknown"),
        ("preset", join([run.preset and _PRESETS.get(run.preset, run.preset) for run in runs])),
        ("gpubench", join([run.version for run in runs])),
    ]
    return Table("How it was measured", ("what", "how"), tuple(row for row in body if row[1] != "unknown"))


def factor(value: float) -> str:
    """``12.3×``; three digits, as many as a ratio of noisy times deserves."""
    if value < 1 or value >= 1e6:
        return f"{value:.3g}×"
    return f"{float(f'{value:.3g}'):,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}×"


def markdown(summary: Summary) -> str:
    lines = ["# Benchmark report", ""]
    for table in summary.tables:
        lines += [f"## {table.title}", "", _markdown_row(table.columns), "|" + " --- |" * len(table.columns)]
        lines += [_markdown_row(row) for row in table.rows]
        lines += ["", *([_escape(table.note), ""] if table.note else [])]
    if summary.charts:
        lines += ["## Charts", ""]
    for title, name in summary.charts:
        light, dark = (f"{CHARTS}/{name}-{theme}.{summary.picture}" for theme in ("light", "dark"))
        alt = html.escape(title)
        source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        lines += [f'<picture>{source}<img alt="{alt}" src="{light}"></picture>', ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def show(summary: Summary, console: Console | None = None) -> None:
    """In a pipe the same without colours; nothing in a cell is taken for markup."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = console or Console(width=None if sys.stdout.isatty() else 120)
    for table in summary.tables:
        grid = RichTable(title=Text(table.title, "bold"), title_justify="left", caption_justify="left")
        if table.note:
            grid.caption = Text(table.note)
        for column in table.columns:
            grid.add_column(column, overflow="fold")
        for row in table.rows:
            grid.add_row(*(Text(cell) for cell in row))
        console.print(grid)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(cell: str) -> str:
    """No name from a file may end a cell, start a link or be taken for HTML."""
    return re.sub(r"([\\|`*_\[\]~#$])", r"\\\1", html.escape(cell, quote=False).replace("\n", " "))


def markdown_table(table: Table) -> list[str]:
    """Its lines, without the title."""
    lines = [_markdown_row(table.columns), "|" + " --- |" * len(table.columns), *map(_markdown_row, table.rows)]
    return [*lines, "", escape(table.note)] if table.note else lines


def escape(cell: str) -> str:
    """For Markdown: see :func:`_escape`."""
    return _escape(cell)
