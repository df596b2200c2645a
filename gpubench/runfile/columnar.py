"""Lists of alike objects written as columns, as a card has them: each key once, and what repeats once.

Columns have the shape of one object. In the place of each value they have a list that goes through all objects: a value
is that of one object, ``[value, count]`` is that of ``count`` objects in a row, and ``[count]`` means that ``count``
objects have none. A list of objects within an object counts as an object with the keys ``0``, ``1``, ….
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

WHOLE = ("params", "phases")
"""Keys of objects that are treated as values: their own keys are the benchmark's, in an order that matters."""
MOST_CELLS = 5_000_000
"""The most cells, which are objects times columns: those of a run of 20,000 benchmarks with 250 values each."""
_NONE: Any = object()
"""Placeholder for a value that an object doesn't have."""


def as_columns(rows: Sequence[Any], name: str = "") -> Any:
    """Columns of the objects, which :func:`as_rows` takes apart again; ``name`` is the key that they stand at."""
    rows = [_by_place(row) for row in rows]
    found = [row for row in rows if row is not _NONE]
    if name in WHOLE or not all(isinstance(row, dict) and row for row in found):
        return list(_runs(rows))
    return {
        key: as_columns([_NONE if row is _NONE else row.get(key, _NONE) for row in rows], key)
        for key in dict.fromkeys(chain.from_iterable(found))
    }


def _by_place(value: Any) -> Any:
    """A list of objects as an object, anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return {str(place): each for place, each in enumerate(value)}
    return value


def _runs(values: Sequence[Any]) -> Iterator[Any]:
    for _, group in groupby(values, lambda value: _NONE if value is _NONE else json.dumps(value)):
        value, *more = group
        count = 1 + len(more)
        if value is _NONE:
            yield [count]
        else:
            yield [value, count] if more or isinstance(value, list) else value


def as_rows(columns: Mapping[str, Any], most: int) -> list[Any]:
    """The objects, at most ``most``. Raises ValueError for values that aren't columns of one length."""
    most = min(most, MOST_CELLS // max(1, _count(columns)))
    return [{} if row is _NONE else row for row in _rows(columns, most)]


def _count(columns: Any) -> int:
    return sum(map(_count, columns.values())) if isinstance(columns, dict) else 1


def _rows(columns: Any, most: int) -> list[Any]:
    if isinstance(columns, list):
        return list(_values(columns, most))
    if not isinstance(columns, dict):
        raise ValueError("a value that is no column")
    parts = [_rows(each, most) for each in columns.values()]
    if len({len(part) for part in parts}) > 1:
        raise ValueError("columns of several lengths")
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*parts, strict=True)]
    rows = [{name: value for name, value in row.items() if value is not _NONE} for row in rows]
    places = all(key.isdecimal() for key in columns)
    return [(list(row.values()) if places else row) if row else _NONE for row in rows]


def _values(column: Sequence[Any], most: int) -> Iterator[Any]:
    for entry in column:
        run = entry if isinstance(entry, list) else [entry, 1]
        count = run[-1] if run else 0
        if len(run) > 2 or not isinstance(count, int) or not 0 < count <= most:
            raise ValueError("a run that says neither a value nor how many there are, or of too many")
        most -= count
        yield from [run[0] if len(run) == 2 else _NONE] * count
