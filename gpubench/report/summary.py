"""The report in words: one structure, shown in a terminal through rich or written as Markdown."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output import CHARTS

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are plain text: whoever shows them escapes them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """``charts`` are (title, file stem) for the pictures that were drawn in ``picture`` format.

    ``left_out`` is one line on the pairs that were not made, empty where there are none.
    """

    tables: tuple[Table, ...]
    charts: tuple[tuple[str, str], ...] = ()
    picture: str = "svg"
    left_out: str = ""


def markdown(summary: Summary) -> str:
    lines = ["# Benchmark report", ""]
    for table in summary.tables:
        lines += [f"## {table.title}", "", _markdown_row(table.columns), "|" + " --- |" * len(table.columns)]
        lines += [_markdown_row(row) for row in table.rows]
        lines += ["", *([_escape(table.note), ""] if table.note else [])]
    if summary.charts:
        lines += ["## Charts", ""]
    for title, name in summary.charts:
        light, dark = (f"{CHARTS}/{name}-{theme}.{summary.picture}" for theme in ("light", "dark"))
        alt = html.escape(title)
        source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        lines += [f'<picture>{source}<img alt="{alt}" src="{light}"></picture>', ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def show(summary: Summary, console: Console | None = None) -> None:
    """In a pipe the same without colours; nothing in a cell is taken for markup."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from .columns import fitted

    console = console or Console(width=None if sys.stdout.isatty() else 120)
    for table in summary.tables:
        grid = RichTable(title=Text(table.title, "bold"), title_justify="left", caption_justify="left")
        if table.note:
            grid.caption = Text(table.note)
        head, *body = fitted([table.columns, *table.rows], console.width - 3 * len(table.columns) - 1)
        for column in head:
            grid.add_column(Text(column), overflow="fold")
        for row in body:
            grid.add_row(*map(Text, row))
        console.print(grid)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(cell: str) -> str:
    """No name from a file may end a cell, start a link or be taken for HTML."""
    return re.sub(r"([\\|`*_\[\]~#$])", r"\\\1", html.escape(cell, quote=False).replace("\n", " "))


def markdown_table(table: Table) -> list[str]:
    """Its lines, without the title."""
    lines = [_markdown_row(table.columns), "|" + " --- |" * len(table.columns), *map(_markdown_row, table.rows)]
    return [*lines, "", escape(table.note)] if table.note else lines


def escape(cell: str) -> str:
    """For Markdown: see :func:`_escape`."""
    return _escape(cell)
