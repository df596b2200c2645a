"""``gpubench export``: a results file in the formats of other tools; the median of each benchmark, smaller is better.

Benchmarks without a time are left out of the two JSON formats, which have no way to say so, and named on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpubenchError, RunFileError

if TYPE_CHECKING:
    from ..runfile.schema import Result, Run, Times

EXPORT_FORMATS = ("github-action-benchmark", "bmf", "csv", "markdown", "rst", "html")


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


_NANOSECONDS = 1e9


def main(args: argparse.Namespace) -> int:
    """Returns 0, or 2 for what can't be read or written."""
    from ..compare.samples import key_of
    from ..runfile.reader import read
    from ..runfile.writer import replace

    try:
        run = read(args.run)
        content = _FORMATS[args.to](run)
        if args.output:
            replace(Path(args.output), content.encode(errors="replace"))
        else:
            sys.stdout.write(content)
    except GpubenchError as error:
        print(f"gpubench export: {error}", file=sys.stderr)
        return 2
    left = [result for result in run.results if result.times is None]
    if left and args.to in ("github-action-benchmark", "bmf"):
        names = ", ".join(str(key_of(result)) for result in left[:5])
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        print(f"gpubench export: not measured and left out: {names}{more}", file=sys.stderr)
    return 0


def to_github_action_benchmark(run: Run) -> str:
    """For its tool ``customSmallerIsBetter``; ``range`` is the quartiles' half distance."""
    entries = [
        {
            "name": name,
            "unit": "s",
            "value": times.median_s,
            "range": f"± {times.iqr_s / 2:.3g}",
            "extra": f"{times.rounds} rounds of {times.iterations} calls in {len(times.processes)} processes",
        }
        for name, times in _measured(run)
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_bmf(run: Run) -> str:
    """Bencher Metric Format: the built-in measure ``latency``, which is in nanoseconds, between the quartiles."""
    entries = {
        name: {
            "latency": {
                "value": times.median_s * _NANOSECONDS,
                "lower_value": times.q1_s * _NANOSECONDS,
                "upper_value": times.q3_s * _NANOSECONDS,
            }
        }
        for name, times in _measured(run)
    }
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(run: Run) -> str:
    """The table that ``gpubench report`` writes as results.csv."""
    from ..report import table

    return table.csv_text(table.results_table([run]))


def _written_by(name: str) -> Callable[[Run], str]:
    """One row for each workload, written by that function of :mod:`gpubench.report.render`."""

    def write(run: Run) -> str:
        from ..report import findings, render, table

        lines: list[str] = getattr(render, name)(findings.overview(table.results_table([run])))
        return "\n".join(lines) + "\n"

    return write


def _measured(run: Run) -> Iterator[tuple[str, Times]]:
    """Each case under a name of its own. Raises RunFileError where there is none."""
    from ..compare.samples import key_of

    measured: list[tuple[Result, Times]] = [(result, result.times) for result in run.results if result.times]
    if not measured:
        raise RunFileError(f"{run.path}: benchmarks: expected a measured benchmark, found none")
    seen: Counter[str] = Counter()
    for result, times in measured:
        name = str(key_of(result))
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}", times


_FORMATS: dict[str, Callable[[Run], str]] = {
    "github-action-benchmark": to_github_action_benchmark,
    "bmf": to_bmf,
    "csv": to_csv,
    "markdown": _written_by("markdown_table"),
    "rst": _written_by("rst_table"),
    "html": _written_by("html_table"),
}
