"""``gpubench export``: a results file in the formats of other tools; the time of each benchmark, smaller is better.

Benchmarks without a time are left out of the JSON formats, which can't express them, and named on stderr.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunFileError
from ..runfile.quantities import counted, listed
from .report import add_runs, read_study

if TYPE_CHECKING:
    from ..report.render import Table
    from ..report.rows import Measured, Row
    from ..report.study import Study

_OF_JSON = ("github-action-benchmark", "bmf")
EXPORT_FORMATS = (*_OF_JSON, "csv", "markdown")
_BEFORE_A_UNIT = re.compile(r"(?<=\d) (?=[A-Za-zµ])")
_ACTION_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add_runs(parser)
    formats = "github-action-benchmark (its customSmallerIsBetter), bmf (Bencher's metric format), csv, or markdown: a"
    formats += " table with one row for each workload"
    add("--to", choices=EXPORT_FORMATS, required=True, help=formats)
    add("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    from ..report.rows import Measured
    from ..runfile import writer

    if args.output:
        writer.require_new(args.output)
    study = read_study(args)
    content = exported(study, args.to, every=bool(args.expression))
    if args.output:
        writer.replace(Path(args.output), content.encode(errors="replace"))
    else:
        sys.stdout.write(content)
    left = [_name(row, study) for row in study.rows if not isinstance(row, Measured)]
    if left and args.to in _OF_JSON:
        print(f"gpubench export: not measured and left out: {listed(left, 5)}", file=sys.stderr)
    return 0


def exported(study: Study, to: str, every: bool = False) -> str:
    """The results in one of :data:`EXPORT_FORMATS`; csv is what ``gpubench report`` writes as results.csv."""
    from ..report import columns, render, tables, words
    from ..report.answer import Answer

    if to == "github-action-benchmark":
        return _json([_action_entry(name, row) for name, row in _measured(study)])
    if to == "bmf":
        return _json({name: {"latency": _latency(row)} for name, row in _measured(study)})
    if to == "csv":
        return render.csv_text(columns.results_columns(study.rows), study.rows)
    shown = [tables.beside_each_other(study, "benchmark")] if every else tables.answer_tables(Answer(study))
    lines = [line for each in map(_unbroken, shown) for line in (*render.markdown(each), "")]
    told = [each.title for each in shown if each.title and every] + [*dict.fromkeys(map(words.machine, study.runs))]
    told += filter(None, [words.simulated(row.facts for row in study.measured)])  # the rows say what is not verified
    return "\n".join([*lines, f"{render.escape('; '.join(told))}.", ""])


def _unbroken(table: Table) -> Table:
    """The table with no-break spaces, so that a narrow page doesn't part ``260 ms``."""
    rows = ((name, *(_BEFORE_A_UNIT.sub("\xa0", cell) for cell in cells)) for name, *cells in table.rows)
    return replace(table, rows=tuple(rows))


def _json(entries: Any) -> str:
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _action_entry(name: str, row: Measured) -> dict[str, Any]:
    """An entry for ``customSmallerIsBetter`` of github-action-benchmark. ``range`` is half the 95% interval, or with
    one process half the distance of the quartiles; ``extra`` states which. The action converts between these units when
    it compares a value with the previous one."""
    from ..report.words import cautions

    times, interval = row.times, row.interval
    calls, processes = counted(times.iterations, "call"), counted(len(times.processes), "process")
    made = f"{counted(times.rounds, 'round')} of {calls} in {processes}"
    spread_s, kind = times.iqr_s / 2, "half the interquartile range"
    if interval:
        spread_s, kind = (interval.high - interval.low) / 2, "half the 95% interval"
    flagged = [f"flagged: {', '.join(row.flags)}"] if row.result.flags else []
    extra = "; ".join([made, f"range: {kind}", *flagged, *cautions([row])])
    unit_s, unit = next((scale for scale in _ACTION_UNITS if row.time_s >= scale[0]), _ACTION_UNITS[-1])
    value, spread = row.time_s / unit_s, spread_s / unit_s
    return {"name": name, "unit": unit, "value": float(f"{value:.6g}"), "range": f"± {spread:#.3g}", "extra": extra}


def _latency(row: Measured) -> dict[str, float]:
    """The latency in nanoseconds, one of Bencher's built-in measures. Its limits are the ends of the 95% interval, or
    with one process the quartiles."""
    ends = (row.interval.low, row.interval.high) if row.interval else (row.times.q1_s, row.times.q3_s)
    values = {"value": row.time_s, "lower_value": ends[0], "upper_value": ends[1]}
    return {name: seconds * 1e9 for name, seconds in values.items()}


def _measured(study: Study) -> Iterator[tuple[str, Measured]]:
    """Each benchmark with a unique name. Raises RunFileError where there is none."""
    names: Counter[str] = Counter()
    for row in study.measured:
        name = _name(row, study)
        names[name] += 1
        yield name if names[name] == 1 else f"{name} #{names[name]}", row
    if not names:
        paths = ", ".join(str(run.path) for run in study.runs)
        raise RunFileError(f"{paths}: benchmarks: expected a measured benchmark, found none")


def _name(row: Row, study: Study) -> str:
    """The name of a benchmark, with the name of its run where there are several runs; a simulated one says so."""
    from ..compare.samples import key_of
    from ..report.words import simulated

    name = f"{row.run_name}: " * study.several_runs + str(key_of(row.result))
    return name + " (simulated)" * bool(simulated([row.facts]))
