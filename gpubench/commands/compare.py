"""``gpubench compare``: read or measure both sides, judge, and end with a code that can block a merge."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..runfile import options
from ..runfile.matching import matcher
from ..runfile.quantities import seconds_of
from ..supervise.project import read_project
from .choice import add_expression, chosen

if TYPE_CHECKING:
    from ..compare.comparison import Comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    side = "a results file, or a folder of them; with --interleave, a Python or the folder of a checkout"
    add("base", metavar="BASE", help=f"before the change: {side}")
    add("new", metavar="NEW", help="the version to judge, in the same form as BASE")
    add_expression(parser)
    read = options.reader
    add("--threshold", type=read("threshold"), metavar="T", help="smallest slowdown that matters (default: 5%%)")
    add("--floor", type=seconds_of, metavar="TIME", help="a change smaller than that is none: 10us, 0.5 ms")
    add("--format", choices=("table", "markdown", "json"), default="table", help="what to print (default: table)")
    add("--fail-missing", action="store_true", help="also exit with 1 if new lacks, or failed, a benchmark of base")
    undecided = "also exit with 1 if a benchmark is inconclusive (by default CI passes then)"
    add("--fail-inconclusive", action="store_true", help=undecided)
    differ = "compare although the sides differ in this: machine (hardware, threads, precision)"
    add("--allow", action="append", choices=("machine",), default=[], metavar="WHAT", help=differ)
    measuring = parser.add_argument_group("measuring both alternately on this machine")
    add = measuring.add_argument
    in_turn = "alternate base and new (A B B A …): a few pairs of all, then fresh pairs of what looks changed"
    add("--interleave", action="store_true", help=in_turn)
    files = "benchmark files (default: those of each side's project; without any, the suite that comes with gpubench)"
    add("--paths", nargs="+", default=[], metavar="PATH", help=files)
    folder = "folder for the results files of all pairs (default: out-compare-1, -2 …)"
    add("-o", "--output", metavar="DIR", help=folder)
    add("--budget", type=read("budget"), metavar="S", help="time for measuring, in seconds (default: 900)")
    add("--pairs", type=read("pairs"), metavar="N", help="highest number of fresh pairs of a benchmark (default: 20)")
    options.declare(dict.fromkeys(options.GROUPS, measuring))
    parser.epilog = (
        "Exit code: 0 no proven slowdown; 1 a proven slowdown or an exceeded limit, with --fail-missing also a missing"
        " benchmark, with --fail-inconclusive also an inconclusive one; 2 unusable input, a limit without a time to"
        " check, or too little time or too busy a machine to confirm what looked changed; 3 nothing to compare. With"
        " --interleave, what follows -- goes to pytest unchanged."
    )


_DEFAULTS = {"threshold": 0.05, "floor": 0.0, "budget": 900.0, "pairs": 20}


def _fill(args: argparse.Namespace) -> None:
    """Fill in options that the command line leaves open: from the project's options, then from :data:`_DEFAULTS`."""
    project = read_project(Path.cwd(), upward=True)
    options.fill(args, project.options, project.file, "" if args.interleave else "threshold")
    try:
        args.limits = {name: seconds_of(str(limit)) for name, limit in project.limits.items()}
    except UsageError as error:
        raise UsageError(f"{project.file}: [tool.gpubench.limits]: {error}") from None
    for expression in args.limits:
        matcher(expression, f"{project.file}: [tool.gpubench.limits]")
    for name, value in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def main(args: argparse.Namespace) -> int:
    """Returns 0 without a proven slowdown, 1 with one, 3 for nothing to compare. Raises UsageError or RunFileError for
    input that can't be used."""
    _fill(args)
    comparison = replace(_compare(args), fail_missing=args.fail_missing, fail_inconclusive=args.fail_inconclusive)
    return _show(comparison, args.format)


def _compare(args: argparse.Namespace) -> Comparison:
    from ..compare.comparison import compare_sides, narrowed, of_a_part
    from ..compare.samples import Side, add_runs
    from ..compare.verdict import Terms

    terms = Terms(args.threshold, args.floor, limits=args.limits)
    if args.interleave:
        from ..compare.interleaved import compare_in_turn

        measured = compare_in_turn(args, terms, [*options.passed_on(args), *chosen(args), *args.pytest])
        chooses = args.expression or args.paths or args.pytest
        part = chooses or any(each.group == options.WHAT for each in options.given(args))
        return of_a_part(measured) if part else measured
    if args.pytest or args.paths or options.given(args):
        raise UsageError("options of measuring, --paths and what follows -- are for --interleave")
    for side in (sides := (Side("base"), Side("new"))):
        add_runs(side, [getattr(args, side.name)])
    comparison = compare_sides(*sides, terms, "machine" in args.allow)
    return comparison if args.expression is None else narrowed(comparison, args.expression)


def _show(comparison: Comparison, form: str) -> int:
    from ..compare import document
    from ..errors import clean

    if form == "table" and comparison.verdicts:
        document.show_table(comparison)
    elif form != "table":
        print((document.to_json if form == "json" else document.comparison_markdown)(comparison), end="")
    if not comparison.verdicts:
        print(clean(f"gpubench compare: {comparison.line}"), file=sys.stderr)
    return comparison.exit_code
