"""A report in words, shown in a terminal through rich or written as Markdown."""

from __future__ import annotations

import html
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells

from ..format import writable
from .output import CHARTS, write_folder

if TYPE_CHECKING:
    from rich.console import Console

TABLES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html")
"""Those that every report writes."""
_STAR = re.compile(r"\S [A-Za-zµ/%]{1,12}\*|[×)]\*")
"""A quantity or a ratio with a star."""
_LEAST = 4
"""Width to which every column may shrink."""
_WORD = 30
"""Words up to this width come before prose."""
_JOINTS = re.compile(r"(?<=[–_/=\[:])(?=\S)|(?<=\.)(?=[^\W\d])|(?<=[^\W_]-)(?=\S)")
"""Where a word that is too long may be broken: in a range, in a name, never in a number."""
_QUANTITY = re.compile(r"[-+]?[\d.,]+ \S{1,12}")
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

    ``lead`` are sentences; ``warnings`` stand below them, before all tables. ``details`` are tables that are folded
    where that can be done. ``left_out`` is one line on what was not compared, empty where there is nothing.
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
        head = f"<details><summary>{html.escape(table.title)}</summary>"
        lines += [head, "", *markdown_table(table), "", "</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown_table(table: Table) -> list[str]:
    """Its lines, without the title."""
    head, *body = (f"| {' | '.join(map(escape, cells))} |" for cells in (table.columns, *table.rows))
    lines = [head, "|" + " --- |" * len(table.columns), *body]
    note = footnote(table)
    return [*lines, "", escape(note)] if note else lines


def rst_table(table: Table) -> list[str]:
    """A list-table: no cell has to be aligned, whatever its width."""
    lines = [f".. list-table:: {_rst(table.title)}", "   :header-rows: 1", ""]
    for row in (table.columns, *table.rows):
        lines += [f"   {'* -' if i == 0 else '  -'} {_rst(cell)}" for i, cell in enumerate(row)]
    note = footnote(table)
    return [*lines, "", _rst(note)] if note else lines


def _rst(cell: str) -> str:
    """Nothing in a cell is taken for markup."""
    return re.sub(r"([\\`*_|:<>@\[\]])", r"\\\1", cell.replace("\n", " "))


def html_table(table: Table) -> list[str]:
    """A table element with a caption, every name escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = ["<table>", f"<caption>{html.escape(table.title)}</caption>", f"<thead>{line(table.columns, 'th')}</thead>"]
    lines += ["<tbody>", *(line(row, "td") for row in table.rows), "</tbody>", "</table>"]
    note = footnote(table)
    return [*lines, f"<p>{html.escape(note)}</p>"] if note else lines


def escape(cell: str) -> str:
    """For Markdown: no name from a file may end a cell, be a link or a mention, or be taken for HTML."""
    cell = re.sub(r"([\\|`*_\[\]~#$])", r"\\\1", html.escape(cell, quote=False).replace("\n", " "))
    return re.sub(r"(@(?=\w)|:(?=//)|\bwww(?=\.)|\bGH(?=-\d))", r"\1<!-- -->", cell, flags=re.IGNORECASE)


def footnote(table: Table) -> str:
    """The note, and what the signs in the cells mean where it doesn't say so."""
    cells = [cell for row in table.rows for cell in row]
    words = [table.note] * bool(table.note)
    if "—" in cells and "—" not in table.note:
        words.append("— not known or not measured.")
    if any(_STAR.search(cell) for cell in cells) and "*" not in table.note:
        words.append("* noisy: may be far off.")
    return " ".join(words)


def warning_lines(warnings: Sequence[str], width: int, most: int = 3) -> list[str]:
    """Whole warnings in at most so many lines, of the first all its lines; and how many more there are."""
    lines: list[str] = []
    for shown, words in enumerate(warnings):
        wrapped = textwrap.wrap(f"WARNING: {words}", width, subsequent_indent="  ", break_long_words=False)
        if lines and len(lines) + len(wrapped) > most:
            return [*lines, f"and {len(warnings) - shown} more: see summary.md"]
        lines += wrapped
    return lines


def show_summary(summary: Summary, console: Console | None = None, verbose: bool = False) -> None:
    """The answer, then warnings, then tables; in a pipe without colours. Nothing in a cell is taken for markup."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    # rich takes COLUMNS=0 for a terminal in which nothing has room
    console = console or Console(width=shutil.get_terminal_size((120, 24)).columns)

    def plain(words: str, style: str = "") -> Text:
        return Text(writable(words, console.encoding), style)

    for words in summary.lead:
        console.print(plain(words))
    for line in warning_lines(summary.warnings, console.width):
        console.print(plain(line, "yellow"))
    for table in (*summary.tables, *(summary.details if verbose else ())):
        grid = RichTable(title=plain(table.title, "bold"), title_justify="left", caption_justify="left")
        if note := footnote(table):
            grid.caption = plain(note)
        head, *body = fit_columns([table.columns, *table.rows], console.width - 3 * len(table.columns) - 1)
        for column in head:
            grid.add_column(plain(column), overflow="fold")
        for row in body:
            grid.add_row(*map(plain, row))
        console.print(grid)


def fit_columns(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """The cells, the head included, with line breaks that make the columns together ``room`` wide.

    The widest columns shrink first: all down to their longest word (but what is longer than a third of the room gives
    way to the others' words), and only then to the longest piece of a word.
    """
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in columns]
    # ours: rich breaks a word that is too long anywhere, a number too, and half a number reads like a number
    kinds: tuple[Callable[[str], list[str]], ...] = (_words, _pieces, lambda _: ["-" * _LEAST])
    for parts in kinds:
        least = [max(cell_len(part) for cell in column for part in parts(cell)) for column in columns]
        if parts is _words:
            least = [min(each, max(_WORD, room // 3)) for each in least]
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


def save_report(
    folder: Path, tables: Mapping[str, str], charts: Mapping[str, bytes], runs: Iterable[Path] = ()
) -> list[Path]:
    """Write a report's tables and charts; ``runs`` are the files that it was made of. Raises UsageError."""
    return write_folder(folder, {**tables, **{f"{CHARTS}/{name}": chart for name, chart in charts.items()}}, runs)


def file_names(titles: Iterable[str]) -> list[str]:
    """A file name of plain letters for each title, no two alike even where case doesn't count."""
    names: list[str] = []
    for title in titles:
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", title).strip("-.")[:80] or "chart"
        taken = {name.lower() for name in names}
        names.append(next(name for i in count(1) if (name := f"{stem}-{i}" if i > 1 else stem).lower() not in taken))
    return names
