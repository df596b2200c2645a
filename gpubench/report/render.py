"""A table as a list of columns, drawn for a terminal, Markdown or CSV."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from rich.cells import cell_len

from .number import MISSING, Number, Sign, Start, State

Cell = str | int | Number | Start | None
S = TypeVar("S")
T = TypeVar("T")
_FORMULA = re.compile(r"(^|[;\t])(?=[=+\-@＝＋－＠])")
"""A place where a text could act as a formula in a spreadsheet, also in one that separates cells by semicolons."""
_SHORT_HEAD = 12
"""Characters of a head that isn't folded."""
_NAME = 16
"""The fewest characters of a line of a benchmark's name."""
_BREAK = re.compile(r"(?<=::)|(?<=[,/_.-])(?![\d\s])|(?=\[)|(?<= )(?<!\d )(?<![^\w\s,;:)\]] )(?! )")
"""Places where a name may go on in the next line: never within a word or a number, nor beside a sign or a unit."""
_SPACE = re.compile(r"(?<= )")
_GAP = "  "
UNBOUNDED = 10_000
"""Columns where there is no terminal."""


@dataclass(frozen=True)
class Column(Generic[T]):
    """``cell`` returns the cell of a row under this ``head``."""

    head: str
    cell: Callable[[T], object]

    def of(self, part: Callable[[S], T], prefix: str = "") -> Column[S]:
        """The same of things that have such a part, its name in front of the head."""
        return Column(f"{prefix}{self.head}", lambda thing: self.cell(part(thing)))


@dataclass(frozen=True, slots=True)
class Table:
    """A table of numbers and plain texts, which a page or Markdown escapes; the note explains the ``explained``
    signs."""

    title: str
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    note: str = ""
    explained: frozenset[Sign] = frozenset()

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells as texts."""
        return tuple(tuple("" if cell is None else str(cell) for cell in row) for row in self.cells)

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers alone, known or not, which stand at its right."""
        columns = zip(*self.cells, strict=True)
        return [all(isinstance(cell, Number | int) or not cell for cell in column) for column in columns]

    @property
    def signs(self) -> set[Sign]:
        """The signs beside numbers."""
        return {
            sign for row in self.cells for cell in row if isinstance(cell, Number | Start) for sign in cell.footnotes
        }

    @property
    def footnote(self) -> str:
        """The note, and the meaning of the signs that it doesn't explain."""
        signs = self.signs - self.explained
        return " ".join([*[self.note] * bool(self.note), *(f"{sign.footnote}." for sign in Sign if sign in signs)])


def table(
    title: str, columns: Iterable[Column[T]], things: Iterable[T], note: str = "", explained: Iterable[Sign] = ()
) -> Table:
    """Return a table with a row for each thing, without the columns that are empty in all rows."""
    things = list(things)
    cells: list[tuple[str, list[Any]]] = [(column.head, [column.cell(thing) for thing in things]) for column in columns]
    kept = [both for both in cells if any(cell not in (None, "", MISSING) for cell in both[1])]
    heads, body = tuple(head for head, _ in kept), zip(*(column for _, column in kept), strict=True)
    return Table(title, heads, tuple(body), note, frozenset(explained))


def listing(title: str, heads: Iterable[str], rows: Iterable[Sequence[str]], note: str = "") -> Table:
    """Return a table of texts that belong to these heads."""
    return table(title, [Column(head, itemgetter(i)) for i, head in enumerate(heads)], rows, note)


def screen_width() -> int:
    """Columns of the terminal; outside of one, in a log or a file, no line is folded."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def terminal(table: Table, width: int, title: bool = True, footnote: bool = True) -> list[str]:
    """Lines of at most ``width`` columns, or as many as numbers and words need: numbers at the right, long texts
    folded, the footnote below."""
    columns, rights = list[list[tuple[str, re.Pattern[str] | None]]](), list[bool]()
    for head, *cells in zip(table.columns, *table.cells, strict=True):
        texts = [("" if cell is None else str(cell), None if _is_number(cell) else _BREAK) for cell in cells]
        rights.append(bool(rights) and all(joints is None for text, joints in texts if text))
        columns.append([(head, _SPACE if len(head) > _SHORT_HEAD else None), *texts])
    widths = [max(cell_len(line) for text, _ in column for line in text.split("\n")) for column in columns]
    room = width - len(_GAP) * (len(widths) - 1)
    if sum(widths) > room:
        least = [max(cell_len(line) for cell in column for line in _fold(*cell, 0)) for column in columns]
        least[0] = max(least[0], min(_NAME, max((cell_len(text) for text, _ in columns[0][1:]), default=0)))
    while sum(widths) > room and (able := [i for i, few in enumerate(least) if widths[i] > few]):
        widest = max(able, key=lambda i: widths[i] + len(_GAP) * (i < len(widths) - 1))
        widths[widest] -= 1
    width += max(0, sum(widths) - room)
    lines = wrapped(table.title, width) * title
    for i, row in enumerate(zip(*columns, strict=True)):
        blocks = [_fold(text, joints, wide) for (text, joints), wide in zip(row, widths, strict=True)]
        padded = []
        for block, wide, right in zip(blocks, widths, rights, strict=True):
            empty = [""] * (max(map(len, blocks)) - len(block))
            spaced = [(line, " " * (wide - cell_len(line))) for line in ([*block, *empty] if i else [*empty, *block])]
            padded.append([space + line if right else line + space for line, space in spaced])
        lines += [_GAP.join(parts).rstrip() for parts in zip(*padded, strict=True)]
    return [*lines, *wrapped(table.footnote, width) * footnote]


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int) or (isinstance(cell, Number) and (cell.state is not State.UNKNOWN or not cell.words))


def _parts(text: str, joints: re.Pattern[str] | None) -> list[str]:
    return joints.split(text) if joints else [text]


def _fold(text: str, joints: re.Pattern[str] | None, width: int) -> list[str]:
    """Return the lines of a cell, of at most ``width`` columns, where the joints allow that."""
    lines = list[str]()
    for line in text.split("\n"):
        lines.append("")
        for part in [line] if cell_len(line) <= width else _parts(line, joints):
            if lines[-1] and cell_len(lines[-1] + part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return [line.rstrip() for line in lines]


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return the lines of a text, folded between words; none of an empty text."""
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def markdown(table: Table) -> list[str]:
    """Return the lines of the table as Markdown, without the title."""
    head, *body = (f"| {' | '.join(map(escape, cells))} |" for cells in (table.columns, *table.rows))
    lines = [head, "|" + " --- |" * len(table.columns), *body]
    return [*lines, "", escape(table.footnote)] if table.footnote else lines


def escape(cell: str) -> str:
    """Escape a cell for Markdown: no name from a file may end a cell, be a link or a mention, or be taken for HTML."""
    cell = re.sub(r"([\\|`*_\[\]~#$])", r"\\\1", html.escape(cell, quote=False).replace("\n", " "))
    return re.sub(r"(@(?=\w)|:(?=//)|\bwww(?=\.)|\bGH(?=-\d))", r"\1<!-- -->", cell, flags=re.IGNORECASE)


def csv_text(columns: Sequence[Column[T]], things: Iterable[T]) -> str:
    """Every digit of every number, empty where unknown; texts can't act as formulas in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(column.head) for column in columns])
    writer.writerows([_cell(column.cell(thing)) for column in columns] for thing in things)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return _FORMULA.sub(r"\1'", value)
    return json.dumps(value) if isinstance(value, bool) else value
