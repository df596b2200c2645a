"""``gpubench show``: any benchmark's time, spread and rates, in the terminal."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import Any

from .. import options
from ..errors import GpubenchError, UsageError
from ..format import aligned, seconds_text, text
from ..runfile.matching import matcher
from .env import writable

_COLUMNS = ("benchmark", "device", "time", "spread", "rates", "% of peak")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    options.add_expression(parser)
    parser.epilog = "Spread: half the 95% confidence interval, or (~) of one process half its interquartile range."


def main(args: argparse.Namespace) -> int:
    """Returns 0, or 2 with one line on stderr for what can't be read or where nothing matches."""
    from ..report.table import records, results_table
    from .report import read_all

    try:
        matches = matcher(args.expression) if args.expression is not None else None
        runs = read_all(args.runs)
        rows = [row for row in records(results_table(runs)) if not matches or matches(searchable_names(row))]
        if not rows:
            raise UsageError(f"no benchmark matches {args.expression!r}")
    except GpubenchError as error:
        print(f"gpubench show: {error}", file=sys.stderr)
        return 2
    several = len({row["run"] for row in rows}) > 1
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    measured = [_cells(row, several) for row in rows if row["_result"].times]
    if measured:
        _print("\n".join(aligned([_COLUMNS, *measured], width)))
    for row in rows:
        if not row["_result"].times:
            _print(f"  {_name(row, several)}  {row['device']}  {row['status']}: {row['reason'] or 'no reason given'}")
    if any(row["_result"].flags for row in rows):
        print("* flagged while it was measured, see summary.md")
    return 0


def _print(text: str) -> None:
    print(writable(text, sys.stdout.encoding))


def searchable_names(row: dict[str, Any]) -> list[str]:
    """What ``-k`` looks at."""
    case = row["_result"].case
    return [case.id, case.device, case.implementation, row["_result"].fullname]


def _name(row: dict[str, Any], several: bool) -> str:
    name = row["_result"].case.id + (" numpy" if row["implementation"] == "numpy" else "")
    return f"{row['run']}: {name}" if several else name


def _cells(row: dict[str, Any], several: bool) -> tuple[str, ...]:
    rates = [text(row[name], unit) for name, unit in _RATES.items() if row.get(name)]
    if row.get("item_per_s"):
        rates.append(text(row["item_per_s"], f"{row['_result'].work.unit}/s"))
    star = "*" if row["_result"].flags else ""
    share = row["utilisation"]
    peak = "" if share is None else f"{share:.0%}" if share <= 1 else "—"
    return (
        _name(row, several),
        row["device"],
        seconds_text(row["_result"].times.median_s) + star,
        _spread(row),
        " ".join(rates),
        peak,
    )


_RATES = {"flop_per_s": "FLOP/s", "byte_per_s": "B/s"}


def _spread(row: dict[str, Any]) -> str:
    if row["low_s"] is not None and row["high_s"] is not None:
        return f"±{(row['high_s'] - row['low_s']) / 2 / row['_result'].times.median_s:.1%}"
    return "" if row["iqr_s"] is None else f"~{row['iqr_s'] / 2 / row['_result'].times.median_s:.1%}"
