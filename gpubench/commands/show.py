"""``gpubench show``: the time, spread and rates of any benchmark in the terminal; for many benchmarks, a summary
first."""

from __future__ import annotations

import argparse
import shutil

from .report import add_runs, read_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add_runs(parser)


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or where nothing matches."""
    from ..report.screen import everything

    width = shutil.get_terminal_size((1000, 24)).columns  # in a pipe as wide as it needs, unless COLUMNS is set
    print("\n".join(everything(read_study(args), width)))
    return 0
