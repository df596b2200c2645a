"""``gpubench show``: the time, spread and rates of any benchmark in the terminal; for many benchmarks, a summary
first."""

from __future__ import annotations

import argparse
import shutil

from .choice import add_expression


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    add_expression(parser)


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or where nothing matches."""
    from ..report.screen import everything
    from ..report.study import Study
    from .report import read_all

    study = Study(read_all(args.runs), expression=args.expression)
    width = shutil.get_terminal_size((1000, 24)).columns  # in a pipe as wide as it needs, unless COLUMNS is set
    print("\n".join(everything(study, width)))
    return 0
