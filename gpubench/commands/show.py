"""``gpubench show``: the time, spread and rates of any benchmark in the terminal; for many benchmarks, a summary
first. Also a table for a page, and all values for a program."""

from __future__ import annotations

import argparse

from .report import add_runs, read_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add_runs(parser)
    formats = (
        "table (default), markdown: a table for a page, with -k every size, or csv: what report writes as results.csv"
    )
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table", help=formats)


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for files that can't be read, or where nothing matches."""
    from ..report.render import csv_text, screen_width
    from ..report.screen import everything, page_table

    study = read_study(args)
    if args.format == "csv":
        from ..report.columns import results_columns

        print(csv_text(results_columns(study.rows), study.rows), end="")
    elif args.format == "markdown":
        print("\n".join(page_table(study, every=bool(args.expression))))
    else:
        print("\n".join(everything(study, screen_width())))
    return 0
