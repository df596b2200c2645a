"""``gpubench export``: a results file in the formats of other tools; the time of each benchmark, smaller is better.

Benchmarks without a time are left out of the two JSON formats, which have no way to say so, and named on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunFileError
from .show import add_expression, chosen, selected

if TYPE_CHECKING:
    import pandas as pd

    from ..runfile.schema import Result, Times

_TABLES = {"markdown": "markdown_table", "md": "markdown_table", "rst": "rst_table", "html": "html_table"}
"""Functions of :mod:`gpubench.report.render`."""
EXPORT_FORMATS = ("github-action-benchmark", "bmf", "csv", *_TABLES)
_ACTION_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    add_expression(parser)
    formats = (
        "github-action-benchmark (its customSmallerIsBetter), bmf (Bencher's metric format), csv, or a table with one"
        " row for each workload: markdown or md, rst, html"
    )
    add("--to", choices=EXPORT_FORMATS, required=True, help=formats)
    add("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    from ..report.table import records, results_table
    from ..runfile import writer
    from .report import read_all

    chosen(args)  # a wrong expression is refused before a file is read
    if args.output:
        writer.require_new(args.output)
    results = selected(results_table(read_all(args.runs)), args.expression)
    content = exported(results, args.to)
    if args.output:
        writer.replace(Path(args.output), content.encode(errors="replace"))
    else:
        sys.stdout.write(content)
    left = [_name(row, results) for row in records(results) if not row["_result"].times]
    if left and args.to in ("github-action-benchmark", "bmf"):
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        print(f"gpubench export: not measured and left out: {', '.join(left[:5])}{more}", file=sys.stderr)
    return 0


def exported(results: pd.DataFrame, to: str) -> str:
    """The results in one of :data:`EXPORT_FORMATS`; csv is what ``gpubench report`` writes as results.csv."""
    from ..report import findings, render, table

    if to == "github-action-benchmark":
        return _json([_action_entry(*each) for each in _measured(results)])
    if to == "bmf":
        return _json({name: {"latency": _latency(times)} for name, _, times in _measured(results)})
    if to == "csv":
        return table.csv_text(results)
    shown = findings.overview(results)
    notes = [f"{line}." for line in dict.fromkeys(map(findings.machine_line, results["_run"]))]
    notes += [shown.note] * bool(shown.note)
    if any("*" in cell for row in shown.rows for cell in row):
        notes.append("* flagged while it was measured: the column flags of --to csv says why.")
    return "\n".join([*getattr(render, _TABLES[to])(replace(shown, note=" ".join(notes))), ""])


def _json(entries: Any) -> str:
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _action_entry(name: str, result: Result, times: Times) -> dict[str, Any]:
    """For its tool ``customSmallerIsBetter``; ``range`` is the quartiles' half distance. It converts between these
    units when it compares a value with the one before."""
    extra = f"{times.rounds} rounds of {times.iterations} calls in {len(times.processes)} processes"
    extra += f"; flagged: {', '.join(flag.name for flag in result.flags)}" if result.flags else ""
    unit_s, unit = next((scale for scale in _ACTION_UNITS if times.median_s >= scale[0]), _ACTION_UNITS[-1])
    value, spread = times.median_s / unit_s, times.iqr_s / 2 / unit_s
    return {"name": name, "unit": unit, "value": float(f"{value:.6g}"), "range": f"± {spread:#.3g}", "extra": extra}


def _latency(times: Times) -> dict[str, float]:
    """Of Bencher's built-in measures the one in nanoseconds, between the quartiles."""
    values = {"value": times.median_s, "lower_value": times.q1_s, "upper_value": times.q3_s}
    return {name: seconds * 1e9 for name, seconds in values.items()}


def _measured(results: pd.DataFrame) -> Iterator[tuple[str, Result, Times]]:
    """Each case under a name of its own. Raises RunFileError where there is none."""
    from ..report.table import records

    names: Counter[str] = Counter()
    for row in records(results):
        if times := row["_result"].times:
            name = _name(row, results)
            names[name] += 1
            yield name if names[name] == 1 else f"{name} #{names[name]}", row["_result"], times
    if not names:
        paths = ", ".join(dict.fromkeys(str(run.path) for run in results["_run"]))
        raise RunFileError(f"{paths}: benchmarks: expected a measured benchmark, found none")


def _name(row: dict[str, Any], results: pd.DataFrame) -> str:
    """With the name of its run where there are several."""
    from ..compare.samples import key_of

    return f"{row['run']}: " * (results["run"].nunique() > 1) + str(key_of(row["_result"]))
