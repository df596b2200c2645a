"""``-k``: the option that chooses benchmarks."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import UsageError
from ..runfile.matching import matcher


def add_expression(group: argparse._ActionsContainer) -> None:
    """Add ``-k``, which chooses benchmarks."""
    text = "only benchmarks whose name matches: ResNet-50, networks, n=64, 'sort and not numpy'; repeated: any of them"
    group.add_argument("-k", dest="expression", action=_AnyOf, metavar="EXPR", help=text)


class _AnyOf(argparse.Action):
    """Joins the expressions of several ``-k`` by ``or``; a wrong one is refused before a file is read."""

    def __call__(
        self, parser: argparse.ArgumentParser, args: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        try:
            matcher(value)
        except UsageError as error:
            parser.error(str(error))
        earlier = getattr(args, self.dest)
        setattr(args, self.dest, value if earlier is None else f"({earlier}) or ({value})")


def chosen(args: argparse.Namespace) -> list[str]:
    """The expression of ``-k`` as an argument of pytest."""
    return [] if args.expression is None else [f"--gpubench-match={args.expression}"]
