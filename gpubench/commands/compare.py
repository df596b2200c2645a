"""``gpubench compare``: read or measure both sides, judge, and end with a code that can block a merge."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..runfile import options
from ..supervise.project import read_project
from .reading import add_expression, chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    side = "a results file, or a folder of them; with --interleave, a Python or the folder of a checkout"
    add("base", metavar="BASE", help=f"before the change: {side}")
    add("new", metavar="NEW", help="the version to judge, in the same form as BASE")
    add_expression(parser)
    read = options.reader
    add("--threshold", type=read("threshold"), metavar="T", help="smallest slowdown that matters (default: 5%%)")
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
    pairs = "highest number of fresh pairs of a benchmark (default: 20)"
    add("--pairs", type=read("pairs"), metavar="N", help=pairs)
    options.declare(dict.fromkeys(options.GROUPS, measuring))
    parser.epilog = (
        "Exit code: 0 no proven slowdown; 1 a proven slowdown, with --fail-missing also a missing benchmark, with"
        " --fail-inconclusive also an inconclusive one; 2 unusable input, or a side that can't"
        " be measured; 3 nothing to compare. Only times are compared, not memory. With --interleave, what follows --"
        " goes to pytest unchanged."
    )


def main(args: argparse.Namespace) -> int:
    """Returns 0 without a proven slowdown, 1 with one, 3 for nothing to compare. Raises UsageError or RunFileError for
    input that can't be used."""
    from ..compare.comparison import compare_sides, narrowed, show
    from ..compare.evidence import THRESHOLD, Terms
    from ..compare.samples import Side, add_runs

    project, base, new = read_project(Path.cwd(), upward=True), Side("base"), Side("new")
    options.fill(args, project.options, project.file, "" if args.interleave else "threshold")
    measuring, words = options.given(args), [*options.passed_on(args), *chosen(args), *args.pytest]
    terms = Terms(args.threshold or THRESHOLD)
    if args.interleave and args.allow:
        raise UsageError("--allow is for results files: --interleave measures both on one machine")
    if args.interleave:
        from ..compare.interleaved import compare_in_turn

        found = compare_in_turn(args, terms, words)
    elif args.pytest or args.paths or measuring or {args.output, args.budget, args.pairs} != {None}:
        raise UsageError("-o, --budget, --pairs, --paths, measuring options and what follows -- are for --interleave")
    else:
        add_runs(base, [args.base])
        add_runs(new, [args.new])
        found = compare_sides(base, new, terms, "machine" in args.allow)
        if args.expression is not None:
            found = narrowed(found, args.expression)
    comparison = replace(found, fail_missing=args.fail_missing, fail_inconclusive=args.fail_inconclusive)
    return show(comparison, args.format)
