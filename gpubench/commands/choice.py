"""``-k``: which benchmarks a command is about."""

from __future__ import annotations

import argparse

from ..runfile.matching import matcher


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
