"""``gpubench export``: a results file in the formats of other tools; the median of each benchmark, smaller is better.

Benchmarks without a time are left out of the two JSON formats, which have no way to say so, and named on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunFileError

if TYPE_CHECKING:
    from ..runfile.schema import Run, Times

_TABLES = {"markdown": "markdown_table", "rst": "rst_table", "html": "html_table"}
"""Functions of :mod:`gpubench.report.render`."""
EXPORT_FORMATS = ("github-action-benchmark", "bmf", "csv", *_TABLES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("run", metavar="RUN", help="results file")
    parser.add_argument(
        "--to",
        choices=EXPORT_FORMATS,
        required=True,
        help="github-action-benchmark (its customSmallerIsBetter), bmf (Bencher's metric format), csv, or a table with "
        "one row for each workload: markdown, rst, html",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    from ..compare.samples import key_of
    from ..runfile.reader import read
    from ..runfile.writer import replace

    run = read(args.run)
    content = exported(run, args.to)
    if args.output:
        replace(Path(args.output), content.encode(errors="replace"))
    else:
        sys.stdout.write(content)
    left = [str(key_of(result)) for result in run.results if result.times is None]
    if left and args.to in ("github-action-benchmark", "bmf"):
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        print(f"gpubench export: not measured and left out: {', '.join(left[:5])}{more}", file=sys.stderr)
    return 0


def exported(run: Run, to: str) -> str:
    """The run in one of :data:`EXPORT_FORMATS`; csv is what ``gpubench report`` writes as results.csv."""
    if to == "github-action-benchmark":
        return _json([_action_entry(*each) for each in _measured(run)])
    if to == "bmf":
        return _json({name: {"latency": _latency(times)} for name, times in _measured(run)})
    from ..report import findings, render, table

    results = table.results_table([run])
    if to == "csv":
        return table.csv_text(results)
    return "\n".join([*getattr(render, _TABLES[to])(findings.overview(results)), ""])


def _json(entries: Any) -> str:
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _action_entry(name: str, times: Times) -> dict[str, Any]:
    """For its tool ``customSmallerIsBetter``; ``range`` is the quartiles' half distance."""
    extra = f"{times.rounds} rounds of {times.iterations} calls in {len(times.processes)} processes"
    return {"name": name, "unit": "s", "value": times.median_s, "range": f"± {times.iqr_s / 2:.3g}", "extra": extra}


def _latency(times: Times) -> dict[str, float]:
    """Of Bencher's built-in measures the one in nanoseconds, between the quartiles."""
    values = {"value": times.median_s, "lower_value": times.q1_s, "upper_value": times.q3_s}
    return {name: seconds * 1e9 for name, seconds in values.items()}


def _measured(run: Run) -> Iterator[tuple[str, Times]]:
    """Each case under a name of its own. Raises RunFileError where there is none."""
    from ..compare.samples import key_of

    names: Counter[str] = Counter()
    for result in run.results:
        if result.times:
            name = str(key_of(result))
            names[name] += 1
            yield name if names[name] == 1 else f"{name} #{names[name]}", result.times
    if not names:
        raise RunFileError(f"{run.path}: benchmarks: expected a measured benchmark, found none")
