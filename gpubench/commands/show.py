"""``gpubench show``: any benchmark's time, spread and rates, in the terminal."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING, Any

from ..format import aligned, seconds_text, text, writable
from ..runfile.kinds import names_of
from ..runfile.matching import matcher, nothing_matches, shown_name

if TYPE_CHECKING:
    import pandas as pd

    from ..runfile.schema import Result, Run

_COLUMNS = ("benchmark", "device", "time", "spread", "throughput", "% of peak")
_RATES = {"flop_per_s": "FLOP/s", "byte_per_s": "B/s"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    add_expression(parser)
    parser.epilog = "Spread: half the 95% confidence interval, or (~) of one process half its interquartile range."


def add_expression(group: argparse._ActionsContainer) -> None:
    """Add ``-k``, by which benchmarks are chosen."""
    text = (
        "only benchmarks whose name matches: matmul.square, networks, n=64, 'resnet50 and not compile'; repeated: any"
        " of them"
    )
    group.add_argument("-k", dest="expression", action=_AnyOf, metavar="EXPR", help=text)


class _AnyOf(argparse.Action):
    """Joins the expressions of several ``-k`` by ``or``."""

    def __call__(self, parser: object, args: argparse.Namespace, value: object, option: object = None) -> None:
        earlier = getattr(args, self.dest)
        setattr(args, self.dest, value if earlier is None else f"({earlier}) or ({value})")


def chosen(args: argparse.Namespace) -> list[str]:
    """What ``-k`` says as an argument of pytest. Raises :class:`UsageError` for a wrong expression."""
    if args.expression is None:
        return []
    matcher(args.expression)
    return [f"--gpubench-match={args.expression}"]


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or where nothing matches."""
    from ..report.table import records, results_table
    from .report import read_all

    chosen(args)  # a wrong expression is refused before a file is read
    rows = records(selected(results_table(read_all(args.runs)), args.expression))
    several = len({row["run"] for row in rows}) > 1
    width = shutil.get_terminal_size((1000, 24)).columns  # in a pipe as wide as it needs, unless COLUMNS is set
    measured = [_cells(row, several) for row in rows if row["_result"].times]
    shown = _with_content([_COLUMNS, *measured])
    if sum(max(map(len, column)) + 2 for column in zip(*shown, strict=True)) > width:  # names are worth more than rates
        shown = _with_content([(*cells[:4], cells[5]) for cells in (_COLUMNS, *measured)])
    lines = aligned(shown, width) if measured else []
    for row in rows:
        if not row["_result"].times:
            why = row["reason"] or "no reason given"
            lines.append(f"  {_name(row, several)}  {row['device']}  {row['status']}: {why}")
    if any(row["_result"].flags for row in rows):
        lines.append("* noisy: may be far off; why: the flags in summary.md")
    if any("~" in cells[3] for cells in measured):
        lines.append("~ of one process: half its interquartile range")
    if any("—" in cells[5] for cells in measured):
        lines.append("— above the measured peak, which can't be")
    print(writable("\n".join(lines), sys.stdout.encoding))
    return 0


def _with_content(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Without the columns that hold nothing: of a plain test neither the device nor its work may be known."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))


def selected(results: pd.DataFrame, expression: str | None, timed: bool = False) -> pd.DataFrame:
    """The rows that ``-k`` chooses, of those with a time if ``timed``. Raises UsageError where there is none."""
    if expression is None:
        return results
    matches = matcher(expression)

    def fits(run: Run, result: Result) -> bool:
        names = [result.case.id, result.device, result.implementation, result.fullname, *names_of(result)]
        return matches([*names, run.machine.device(result.device).label]) and bool(result.times or not timed)

    chosen = [fits(*each) for each in zip(results["_run"], results["_result"], strict=True)]
    if not any(chosen):
        raise nothing_matches(expression, (each.workload for each in results["_result"] if each.times or not timed))
    return results[chosen]


def _name(row: dict[str, Any], several: bool) -> str:
    from ..report.labels import library

    name = " ".join(filter(None, [shown_name(row["_result"].case.id), library(row)]))
    return f"{row['run']}: {name}" if several else name


def _cells(row: dict[str, Any], several: bool) -> tuple[str, ...]:
    result, share = row["_result"], row["utilisation"]
    units = _RATES | {"item_per_s": f"{result.work.unit}/s"}
    rates = " ".join(text(row[name], unit) for name, unit in units.items() if row.get(name))
    time = seconds_text(result.times.median_s) + "*" * bool(result.flags)
    peak = "" if share is None else f"{share:.0%}" if share <= 1 else "—"
    simulated = row["_run"].machine.device(row["device"]).simulated
    device = row["device"] + " (simulated)" * simulated
    return _name(row, several), device, time, _spread(row), rates, peak


def _spread(row: dict[str, Any]) -> str:
    if row["low_s"] is not None and row["high_s"] is not None:
        spread = (row["high_s"] - row["low_s"]) / 2 / row["_result"].times.median_s
        return f"±{spread:.1%}" if spread <= 1 else "too noisy"
    return "" if row["iqr_s"] is None else f"~{row['iqr_s'] / 2 / row['_result'].times.median_s:.1%}"
