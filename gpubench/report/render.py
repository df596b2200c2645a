"""A report in words: one structure, shown in a terminal through rich or written as Markdown.

The widths of a terminal's columns are ours: rich breaks a word that is too long anywhere, a number too, and half a
number reads like a number.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from .output import CHARTS

if TYPE_CHECKING:
    from rich.console import Console


_LEAST = 4
"""Width to which every column may shrink."""
_JOINTS = re.compile(r"(?<=[–_/=])(?=\S)|(?<=\.)(?=[^\W\d])")
"""Where a word that is too long may be broken: in a range, in a name, never in a number."""
_QUANTITY = re.compile(r"[\d.,]+ \S{1,12}")
"""A number and its unit count as one word."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are plain text: what shows them escapes them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """``charts`` are (title, file stem) for the pictures that were drawn in ``picture`` format.

    ``lead`` are sentences, ``warnings`` stand before all tables, ``details`` are tables that are folded where that can
    be done. ``left_out`` is one line on what was not compared, empty where there is nothing.
    """

    tables: tuple[Table, ...]
    charts: tuple[tuple[str, str], ...] = ()
    picture: str = "svg"
    themes: Sequence[str] = ("light", "dark")
    left_out: str = ""
    lead: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    details: tuple[Table, ...] = ()


def summary_markdown(summary: Summary) -> str:
    """summary.md: what leads, the tables, the charts in light or dark as the reader's page, the details folded."""
    lines = ["# Benchmark report", ""]
    lines += [line for words in summary.lead for line in (escape(words), "")]
    lines += [line for words in summary.warnings for line in (f"> **Warning:** {escape(words)}", "")]
    for table in summary.tables:
        lines += [f"## {escape(table.title)}", "", *markdown_table(table), ""]
    if summary.charts:
        lines += ["## Charts", ""]
    for title, name in summary.charts:
        first, *dark = (f"{CHARTS}/{name}-{theme}.{summary.picture}" for theme in summary.themes)
        source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark[0]}">' if dark else ""
        lines += [f'<picture>{source}<img alt="{html.escape(title)}" src="{first}"></picture>', ""]
    for table in summary.details:
        lines += [f"<details><summary>{html.escape(table.title)}</summary>", "", *markdown_table(table), ""]
        lines += ["</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown_table(table: Table) -> list[str]:
    """Its lines, without the title."""
    lines = [_markdown_row(table.columns), "|" + " --- |" * len(table.columns), *map(_markdown_row, table.rows)]
    return [*lines, "", escape(table.note)] if table.note else lines


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escape, cells)) + " |"


def rst_table(table: Table) -> list[str]:
    """A list-table: no cell has to be aligned, whatever its width."""
    lines = [f".. list-table:: {_rst(table.title)}", "   :header-rows: 1", ""]
    for row in (table.columns, *table.rows):
        lines += [f"   {'* -' if i == 0 else '  -'} {_rst(cell)}" for i, cell in enumerate(row)]
    return [*lines, "", _rst(table.note)] if table.note else lines


def _rst(cell: str) -> str:
    """Nothing in a cell is taken for markup."""
    return re.sub(r"([\\`*_|:<>\[\]])", r"\\\1", cell.replace("\n", " "))


def html_table(table: Table) -> list[str]:
    """A table element with a caption, every name escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = ["<table>", f"<caption>{html.escape(table.title)}</caption>", f"<thead>{line(table.columns, 'th')}</thead>"]
    lines += ["<tbody>", *(line(row, "td") for row in table.rows), "</tbody>", "</table>"]
    return [*lines, f"<p>{html.escape(table.note)}</p>"] if table.note else lines


def escape(cell: str) -> str:
    """For Markdown: no name from a file may end a cell, start a link or be taken for HTML."""
    return re.sub(r"([\\|`*_\[\]~#$])", r"\\\1", html.escape(cell, quote=False).replace("\n", " "))


def show_summary(summary: Summary, console: Console | None = None, verbose: bool = False) -> None:
    """Warnings first; in a pipe the same without colours. Nothing in a cell is taken for markup."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = console or Console(width=None if sys.stdout.isatty() else 120)
    for words in summary.warnings:
        console.print(Text(f"WARNING: {words}", "yellow"))
    for words in summary.lead:
        console.print(Text(words))
    for table in (*summary.tables, *(summary.details if verbose else ())):
        grid = RichTable(title=Text(table.title, "bold"), title_justify="left", caption_justify="left")
        if table.note:
            grid.caption = Text(table.note)
        head, *body = fit_columns([table.columns, *table.rows], console.width - 3 * len(table.columns) - 1)
        for column in head:
            grid.add_column(Text(column), overflow="fold")
        for row in body:
            grid.add_row(*map(Text, row))
        console.print(grid)


def fit_columns(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """The cells, the head included, with line breaks that make the columns together ``room`` wide.

    The widest columns shrink first: all down to their longest word, and only then to the longest piece of a word.
    """
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in columns]
    kinds: tuple[Callable[[str], list[str]], ...] = (_words, _pieces, lambda _: ["-" * _LEAST])
    for parts in kinds:
        least = [max(cell_len(part) for cell in column for part in parts(cell)) for column in columns]
        while sum(widths) > room and any(width > bound for width, bound in zip(widths, least, strict=True)):
            widest = max((width, i) for i, width in enumerate(widths) if width > least[i])[1]
            widths[widest] -= 1
    return [[wrap_cell(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _words(cell: str) -> list[str]:
    return [cell] if _QUANTITY.fullmatch(cell) else cell.split() or [""]


def _pieces(cell: str) -> list[str]:
    return [piece for word in cell.split() or [""] for piece in _JOINTS.split(word)]


def wrap_cell(cell: str, width: int) -> str:
    """Broken at spaces; a longer word at its joints, and a longer piece anywhere."""
    lines = [""]
    for word in cell.split() if cell_len(cell) > width else [cell]:
        joined = f"{lines[-1]} {word}".lstrip()
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] * bool(lines[-1])
        for piece in _JOINTS.split(word):
            if cell_len(lines[-1] + piece) <= width:
                lines[-1] += piece
            else:
                lines[-1:] = [*lines[-1:] * bool(lines[-1]), *chop_cells(piece, width)]
    return "\n".join(lines)
