"""Widths of a table's columns on a terminal: names and numbers stay in one piece as long as there is any room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

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
