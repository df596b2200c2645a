"""Rows as lines over a size, and which row stands for its workload: never a mean, always a setting with a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..runfile.kinds import WORK_KINDS, kind_of
from ..runfile.schema import Scalar
from .labels import Names, Row, family, flagged, grouped, setting
from .metrics import Rate, rate_of_work
from .table import size_of as size_of, size_parameter as size_parameter

Measure = Callable[[Row], tuple[float, float, float] | None]
"""Value, low and high of a row's quantity, or None where it has none."""

_TERMS = ("dtype", "variant", "regime", "cache", "differs")
"""What tells lines apart besides their source and the test's own parameters."""

_DTYPES = ("float32", "bfloat16", "float64", "tf32", "float16")
"""The first that a workload has stands for it; half precision, which many CPUs only emulate, never before float32."""
_NEVER_FIRST = "classic"
"""A family of the suite."""
_USUAL = ("out", "preallocated")
"""Settings that time the work alone, without allocating its result."""


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
    swept: list[Sweep] = []
    single: list[Row] = []
    known = (row for row in rows if row["_result"].times and measure(row))
    for workload, members in sorted(grouped(known, lambda row: row["workload"]).items()):
        size = size_parameter(members)
        if size is None:
            single += members
        else:
            swept.append(Sweep(workload, size, tuple(_lines(members, size, measure, names))))
    return swept, single


def _lines(rows: list[Row], size: str, measure: Measure, names: Names) -> Iterable[Line]:
    groups: dict[Any, list[tuple[Point, Row]]] = {}
    for row in rows:
        x, values = size_of(row, size), measure(row)
        if x is not None and values is not None:
            key = tuple((name, type(value), value) for name, value in _terms(row, names, size).items())
            groups.setdefault(key, []).append((Point(x, *values, flagged(row)), row))
    for members in groups.values():
        points, ordered = zip(*sorted(members, key=lambda member: member[0].x), strict=True)
        yield Line(_terms(ordered[-1], names, size), points, ordered[-1], ordered)


def _terms(row: Row, names: Names, size: str) -> dict[str, Scalar]:
    """What makes a row's line: its source, _TERMS and all parameters but the size, these marked by a colon."""
    params = {f":{name}": value for name, value in row["_result"].params.items() if name != size}
    return {"source": names.source(row), **{name: row.get(name) for name in _TERMS}, **params}


def time_of(row: Row) -> tuple[float, float, float]:
    """Median and quartiles of the rounds."""
    times = row["_result"].times
    return times.median_s, times.q1_s, times.q3_s


def rate_of(row: Row) -> Rate | None:
    """The rate by which people judge such a case."""
    return rate_of_work(row["_result"].work)


def arithmetic_order(row: Row) -> tuple[bool, int, bool]:
    """The plainest way to calculate first: eager, float32, warm caches."""
    case = row["_result"]
    dtype = _DTYPES.index(case.dtype) if case.dtype in _DTYPES else len(_DTYPES)
    return case.variant != "eager", dtype, case.cache != "hot"


def representative(rows: Sequence[Row]) -> Row:
    """Of a workload's rows on one device: the plainest setting at its largest size, the same on every machine."""
    size = size_parameter(list(rows))

    def order(row: Row) -> tuple[object, ...]:
        case = row["_result"]
        numbers = [-value for name, value in sorted(case.params.items()) if isinstance(value, int | float)]
        largest = -(size_of(row, size) or 0.0) if size else 0.0
        usual = not any(value in _USUAL for value in case.params.values())
        return *arithmetic_order(row), usual, largest, numbers

    return min(rows, key=order)


def representatives(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """By kind of work, in the order of WORK_KINDS, then the workloads of no kind: a row for each workload."""
    work = grouped((row for row in rows if kind_of(row["_result"]) is not None), lambda row: row["workload"])
    chosen = sorted(map(representative, work.values()), key=lambda row: family(row["workload"]) == _NEVER_FIRST)
    kinds = grouped(chosen, lambda row: kind_of(row["_result"]))
    return {kind: kinds[kind] for kind in (*WORK_KINDS, *kinds) if kind in kinds}


def slowest_first(rows: Iterable[Row]) -> list[list[Row]]:
    """Each workload's settings at the largest size that most devices have, a row for each device; the longest times
    lead."""
    shown = []
    for same in grouped(rows, _but_for_size).values():
        at = grouped(same, lambda row: size_of(row, row["size_name"] or "") or 0.0)
        shown.append(at[max(at, key=lambda size: (len(at[size]), size))])
    return sorted(shown, key=lambda same: -max(row["time_s"] for row in same))


def _but_for_size(row: Row) -> str:
    """A size that is a text, or nothing, is a setting like any other."""
    case, name = row["_result"], row["size_name"] or ""
    params = [each for each in case.params.items() if each[0] != name or size_of(row, name) is None]
    return repr((case.workload, case.dtype, case.variant, case.regime, case.cache, params))


def setting_of(row: Row) -> str:
    """``float32, out, n=4096``: the setting in which a row stands for its workload."""
    case = row["_result"]
    words = [word for word in (case.dtype, case.variant) if word not in (None, "", "eager")]
    return ", ".join([*words, *(setting(name, value) for name, value in case.params.items())])
