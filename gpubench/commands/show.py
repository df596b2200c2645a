"""``gpubench show``: any benchmark's time, spread and rates, in the terminal."""

from __future__ import annotations

import argparse
import shutil
import sys

from ..format import writable
from ..runfile.matching import matcher


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    add_expression(parser)


def add_expression(group: argparse._ActionsContainer) -> None:
    """Add ``-k``, by which benchmarks are chosen."""
    text = "only benchmarks whose name matches: ResNet-50, networks, n=64, 'sort and not numpy'; repeated: any of them"
    group.add_argument("-k", dest="expression", action=_AnyOf, metavar="EXPR", help=text)


class _AnyOf(argparse.Action):
    """Joins the expressions of several ``-k`` by ``or``."""

    def __call__(self, parser: object, args: argparse.Namespace, value: object, option: object = None) -> None:
        earlier = getattr(args, self.dest)
        setattr(args, self.dest, value if earlier is None else f"({earlier}) or ({value})")


def require_expression(args: argparse.Namespace) -> None:
    """Refuse a wrong expression before a file is read. Raises :class:`UsageError`."""
    if args.expression is not None:
        matcher(args.expression)


def chosen(args: argparse.Namespace) -> list[str]:
    """What ``-k`` says as an argument of pytest. Raises :class:`UsageError` for a wrong expression."""
    require_expression(args)
    return [] if args.expression is None else [f"--gpubench-match={args.expression}"]


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or where nothing matches."""
    require_expression(args)
    from ..report.screen import Ending, screen
    from ..report.study import Study
    from .report import read_all

    study = Study(read_all(args.runs), expression=args.expression)
    width = shutil.get_terminal_size((1000, 24)).columns  # in a pipe as wide as it needs, unless COLUMNS is set
    print(writable("\n".join(screen(study, Ending.EVERYTHING, width)), sys.stdout.encoding))
    return 0
