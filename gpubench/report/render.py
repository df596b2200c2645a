"""Widths of a table's columns on a terminal: names and numbers stay in one piece as long as there is any room."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from .output import CHARTS

_LEAST = 4
_PIECES = re.compile(r"(?<=[–_/=])(?=\S)|(?<=\.)(?=[^\W\d])")
"""Where a word that is too long may be broken: in a range, in a name, never in a number."""

_QUANTITY = re.compile(r"[\d.,]+ \S{1,12}")
"""A number and its unit: one word."""


def fitted(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """The cells, the first row being the head, with line breaks that make the columns together ``room`` wide.

    Columns are first as wide as their longest word, or where that is too much their longest piece of a word; what is
    left goes to those that would gain by it.
    """
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)]
    widest = [max(map(cell_len, column)) for column in columns]
    if sum(widest) <= room:
        return [list(row) for row in rows]
    widths = [max(cell_len(word) for cell in column for word in _words(cell)) for column in columns]
    if sum(widths) > room:
        pieces = [
            max(cell_len(piece) for cell in column for word in cell.split() or [""] for piece in _PIECES.split(word))
            for column in columns
        ]
        widths = _shrunk(widths, pieces, room)
    if sum(widths) > room:
        widths = _shrunk(widths, [_LEAST] * len(widths), room)
    wanted = [most - least for most, least in zip(widest, widths, strict=True)]
    spare = max(0, room - sum(widths))
    widths = [width + spare * want // max(1, sum(wanted)) for width, want in zip(widths, wanted, strict=True)]
    return [[wrapped(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _shrunk(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widest column narrower by one, until they fit or all are at their least."""
    found = list(widths)
    while sum(found) > room and any(own > bound for own, bound in zip(found, least, strict=True)):
        widest = max((own, i) for i, own in enumerate(found) if own > least[i])[1]
        found[widest] -= 1
    return found


def _words(cell: str) -> list[str]:
    return [cell] if _QUANTITY.fullmatch(cell) else cell.split() or [""]


def wrapped(cell: str, width: int) -> str:
    """At spaces; a longer word at the ends of its pieces, and a longer piece anywhere."""
    lines = [""]
    for word in cell.split() if cell_len(cell) > width else [cell]:
        joined = f"{lines[-1]} {word}".lstrip()
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] * bool(lines[-1])
        for piece in _PIECES.split(word):
            if cell_len(lines[-1] + piece) <= width:
                lines[-1] += piece
            else:
                lines[-1:] = [*lines[-1:] * bool(lines[-1]), *chop_cells(piece, width)]
    return "\n".join(lines)


# The report in words: one structure, shown in a terminal through rich or written as Markdown.


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
