"""Rows as lines over a size: which parameter is the x axis, and which rows make one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..runfile.schema import Scalar
from .labels import Names, Row, flagged
from .metrics import Rate, rate_of_work
from .table import size_of as size_of, size_parameter as size_parameter

Measure = Callable[[Row], tuple[float, float, float] | None]
"""Value, low and high of a row's quantity, or None where it has none."""

_TERMS = ("dtype", "variant", "regime", "cache", "differs")
"""What tells lines apart besides their source and the test's own parameters."""


@dataclass(frozen=True, slots=True)
class Point:
    """``flagged`` where something was wrong while it was measured."""

    x: float
    y: float
    low: float
    high: float
    flagged: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one device, dtype and so on; ``row`` is its largest size's."""

    terms: dict[str, Scalar]
    points: tuple[Point, ...]
    row: Row
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """All lines of one workload; ``size`` names the parameter on the x axis."""

    workload: str
    size: str
    lines: tuple[Line, ...]


def sweeps(rows: Iterable[Row], measure: Measure, names: Names) -> tuple[list[Sweep], list[Row]]:
    """The workloads that were measured at several sizes, and the rows of all others."""
    by_workload: dict[str, list[Row]] = {}
    for row in rows:
        if row["_result"].times and measure(row):
            by_workload.setdefault(row["workload"], []).append(row)
    swept: list[Sweep] = []
    single: list[Row] = []
    for workload, members in sorted(by_workload.items()):
        size = size_parameter(members)
        if size is None:
            single += members
        else:
            swept.append(Sweep(workload, size, tuple(_lines(members, size, measure, names))))
    return swept, single


def _terms(row: Row, names: Names, size: str) -> dict[str, Scalar]:
    """What makes a row's line: its source, _TERMS and all parameters but the size, these marked by a colon."""
    params = {f":{name}": value for name, value in row["_result"].params.items() if name != size}
    return {"source": names.source(row), **{name: row.get(name) for name in _TERMS}, **params}


def varying(lines: Iterable[Line]) -> list[str]:
    """Names of the terms in which the lines differ, in a fixed order."""
    values: dict[str, set[Any]] = {}
    lines = list(lines)
    for name in dict.fromkeys(name for line in lines for name in line.terms):
        values[name] = {(type(line.terms.get(name)), line.terms.get(name)) for line in lines}
    return [name for name, different in values.items() if len(different) > 1]


def time_of(row: Row) -> tuple[float, float, float]:
    """Median and quartiles of the rounds."""
    times = row["_result"].times
    return times.median_s, times.q1_s, times.q3_s


def rate_of(row: Row) -> Rate | None:
    """The rate by which people judge such a case."""
    return rate_of_work(row["_result"].work)


def speedup_of(row: Row) -> tuple[float, float, float]:
    """Value, low and high of a pair with resident data."""
    return row["speedup"], row["low"], row["high"]


def _lines(rows: list[Row], size: str, measure: Measure, names: Names) -> list[Line]:
    groups: dict[Any, list[tuple[Point, Row]]] = {}
    for row in rows:
        x, values = size_of(row, size), measure(row)
        if x is not None and values is not None:
            key = tuple((name, type(value), value) for name, value in _terms(row, names, size).items())
            groups.setdefault(key, []).append((Point(x, *values, flagged(row)), row))
    lines = []
    for members in groups.values():
        members.sort(key=lambda member: member[0].x)
        points, ordered = zip(*members, strict=True)
        lines.append(Line(_terms(ordered[-1], names, size), points, ordered[-1], ordered))
    return lines
