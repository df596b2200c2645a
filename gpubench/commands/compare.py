"""``gpubench compare``: read or measure both sides, judge, and end with a code that can block a merge."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..errors import GpubenchError, UsageError

if TYPE_CHECKING:
    from ..compare.comparison import Comparison

_FORMATS = ("table", "md", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    sides = "results files, or folders of them; with --interleave, a Python or the folder of a checkout"
    parser.add_argument("--base", nargs="+", required=True, metavar="RUN", help=f"results before the change: {sides}")
    parser.add_argument(
        "--new",
        nargs="+",
        required=True,
        metavar="RUN",
        help="results after the change; more runs give a clearer verdict",
    )
    parser.add_argument(
        "--threshold", type=threshold, default=0.05, metavar="T", help="smallest slowdown that matters (default: 5%%)"
    )
    parser.add_argument("--format", choices=_FORMATS, default="table", help="what to print (default: table)")
    parser.add_argument("--svg", metavar="FILE", help="draw the changes, sorted; FILE-dark.svg is for dark pages")
    parser.add_argument(
        "--github-summary", action="store_true", help="append the Markdown to $GITHUB_STEP_SUMMARY as well"
    )
    parser.add_argument(
        "--fail-missing",
        action="store_true",
        help="exit with 1 also if new lacks, or failed, a benchmark of base",
    )
    parser.add_argument(
        "--across-machines", action="store_true", help="compare although machines or configurations differ"
    )
    parser.add_argument(
        "--normalise",
        action="store_true",
        help="with --across-machines: compare times relative to each machine's measured peaks",
    )
    measuring = parser.add_argument_group("measuring both alternately on this machine")
    measuring.add_argument("--interleave", action="store_true", help="alternate base and new (A B B A …) until the"
                           " result is conclusive")  # fmt: skip
    measuring.add_argument(
        "--paths", nargs="+", default=[], metavar="PATH", help="benchmark files (default: the suite)"
    )
    measuring.add_argument("-o", "--output", metavar="DIR", help="folder for the results files of all pairs (default:"
                           " out/compare-1, -2 …)")  # fmt: skip
    measuring.add_argument(
        "--budget", type=float, default=900.0, metavar="S", help="time for measuring, in seconds (default: 900)"
    )
    measuring.add_argument("--pairs", type=int, default=20, metavar="N", help="highest number of pairs (default: 20)")
    options.add_expression(measuring)
    options.declare(dict.fromkeys(options.GROUPS, measuring))
    parser.epilog = (
        "Exit code: 0 no proven slowdown; 1 a proven one (or, with --fail-missing, a missing benchmark);"
        " 2 unusable input; 3 nothing to compare. With --interleave, what follows -- goes to pytest unchanged."
    )


def threshold(text: str) -> float:
    """``5%`` or ``0.05``."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"invalid threshold {text!r}: write 5% or 0.05")
    return value


def main(args: argparse.Namespace) -> int:
    """Returns 0 without a proven slowdown, 1 with one, 2 for input that can't be used, 3 for nothing to compare."""
    try:
        _require_writable(args)
        if args.interleave:
            from ..compare.interleaved import compare_in_turn

            pytest_options = [*options.passed_on(args), *options.chosen(args), *args.pytest]
            comparison = compare_in_turn(args, pytest_options)
        else:
            comparison = _read_and_compare(args)
        return _show(replace(comparison, fail_missing=args.fail_missing), args)
    except GpubenchError as error:
        print(f"gpubench compare: {error}", file=sys.stderr)
        return 2


def _read_and_compare(args: argparse.Namespace) -> Comparison:
    if args.normalise and not args.across_machines:
        raise UsageError("--normalise is for --across-machines: on one machine there is nothing to normalise")
    if args.pytest or args.paths or args.expression or options.given(args):
        raise UsageError("options of measuring, --paths, -k and what follows -- are for --interleave")
    from ..compare.comparison import compare_sides
    from ..compare.samples import read_side

    base, new = read_side("base", args.base), read_side("new", args.new)
    return compare_sides(base, new, args.threshold, args.across_machines, args.normalise)


def _require_writable(args: argparse.Namespace) -> None:
    """Before anything is measured: what is asked for beside the verdict can be written."""
    if args.github_summary:
        from ..compare.document import step_summary

        step_summary()
    if args.svg:
        path = Path(args.svg)
        if path.suffix.lower() not in (".svg", ".png"):
            raise UsageError(f"{path}: a picture is .svg or .png")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"{path}: can't be written there")


def _show(comparison: Comparison, args: argparse.Namespace) -> int:
    from ..compare.comparison import EXIT_NOTHING
    from ..compare.document import append_step_summary, comparison_markdown, show_table, to_json

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without … is no reason to fail
    if args.format == "json":
        sys.stdout.write(to_json(comparison))
    elif args.format == "md":
        sys.stdout.write(comparison_markdown(comparison))
    else:
        show_table(comparison)
    if comparison.exit_code == EXIT_NOTHING:
        print(f"gpubench compare: {comparison.line}", file=sys.stderr)
    sys.stdout.flush()
    if args.svg and comparison.verdicts:
        from ..compare.chart import save_chart

        save_chart(comparison, Path(args.svg))
    if args.github_summary:
        append_step_summary(comparison_markdown(comparison))
    return comparison.exit_code
