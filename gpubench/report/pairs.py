"""Speedups: each case against the same case elsewhere, with its uncertainty.

Equal means equal workload, parameters, dtype, variant and regime, and equal implementation unless the baseline
is one. What differs in any of these is never paired. Thread counts may differ, and are columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from .. import statistics
from ..errors import UsageError
from ..runfile import Times
from ..statistics import INTERVAL, Estimate
from .table import BASE, HIDDEN, LEADING, SETTINGS, parameter_columns, records

SIDE = ("run", "machine", "device", "implementation", "threads")
"""Columns that either side of a pair has; the baseline's are named ``baseline_…``."""
WITHIN = "spread within one process"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a name given as ``--baseline`` stands for: ``role`` is a column of the results."""

    role: str
    name: str


def resolve(table: pd.DataFrame, name: str | None) -> Baseline | None:
    """Raises UsageError for a name that the run files don't hold, naming those they do."""
    if name is None:
        return None
    known: list[str] = []
    for role in ("device", "implementation", "machine", "run"):
        values = list(dict.fromkeys(value for value in table[role] if value is not None))
        if name in values:
            return Baseline(role, name)
        known += [value for value in values if value not in known]
    raise UsageError(f"unknown baseline {name!r}: choose from {', '.join(known)}")


def pair(table: pd.DataFrame, baseline: Baseline | None = None) -> pd.DataFrame:
    """A row for each pair: the columns of speedup.csv, then HIDDEN (those of the other side) and BASE."""
    parameters = parameter_columns(table)
    terms = ["workload", *SETTINGS, *parameters, "dtype"]
    if baseline is None or baseline.role != "implementation":
        terms.append("implementation")
    measured = records(table[table["status"] == "ok"])
    cases: dict[Hashable, list[dict[str, Any]]] = {}
    seen: Counter[Hashable] = Counter()
    for row in measured:
        identity = tuple((type(row[term]), row[term]) for term in terms)
        itself = (identity, *(row[name] for name in LEADING))
        seen[itself] += 1  # a case met twice in a run pairs first with first, second with second
        cases.setdefault((identity, seen[itself]), []).append(row)
    first = None if table.empty else str(table["run"].iloc[0])
    if baseline and baseline.role in ("machine", "run"):
        first = str(table.loc[table[baseline.role] == baseline.name, "run"].iloc[0])
    rows = [_pair(base, other, terms) for group in cases.values() for base, other in _partners(group, baseline, first)]
    columns = [f"baseline_{name}" for name in SIDE] + list(SIDE)
    columns += ["workload", *SETTINGS, *parameters, "dtype"]
    columns += ["baseline_s", "time_s", "speedup", "low", "high", "uncertainty", *HIDDEN, BASE]
    return pd.DataFrame([[row[column] for column in columns] for row in rows], columns=columns, dtype=object)


def estimate(base: Times, other: Times) -> tuple[float, float, Estimate, str]:
    """Both times, their ratio and the words for its uncertainty.

    With two processes or more on either side a process is one observation, and a side's time is the geometric
    mean of their medians; else there is nothing but the spread of the rounds, which is no interval.
    """
    ours, theirs = ([process.median_s for process in side.processes] for side in (base, other))
    if min(len(ours), len(theirs)) < 2:
        quartiles = [(side.q1_s, side.median_s, side.q3_s) for side in (base, other)]
        return base.median_s, other.median_s, statistics.ratio_spread(*quartiles), WITHIN
    counts = f"{len(ours)}" if len(ours) == len(theirs) else f"{len(ours)} and {len(theirs)}"
    ratio = statistics.ratio_interval(ours, theirs)
    times = statistics.geometric_mean(ours), statistics.geometric_mean(theirs)
    return *times, ratio, f"{INTERVAL}, {counts} processes"


def _pair(base: dict[str, Any], other: dict[str, Any], terms: list[str]) -> dict[str, Any]:
    base_s, time_s, ratio, uncertainty = estimate(base["_result"].times, other["_result"].times)
    return {
        **{term: other[term] for term in terms},
        **{f"baseline_{name}": base[name] for name in SIDE},
        **{name: other[name] for name in (*SIDE, *HIDDEN)},
        BASE: base["_result"],
        "baseline_s": base_s,
        "time_s": time_s,
        "speedup": base_s / time_s,
        "low": ratio.low,
        "high": ratio.high,
        "uncertainty": uncertainty,
    }


Rows = list[dict[str, Any]]
Partners = Iterator[tuple[dict[str, Any], dict[str, Any]]]


def _partners(rows: Rows, baseline: Baseline | None, first: str | None) -> Partners:
    """All pairs (baseline, other) among equal cases; ``first`` is the run that other runs are held against."""
    if baseline is None:
        yield from _against_cpu(rows)
        yield from _against_run(rows, first)
    elif baseline.role in ("device", "implementation"):
        yield from _against(rows, baseline)
    else:
        yield from _against_run(rows, first, any_kind=True)
        yield from _against_cpu([row for row in rows if row["run"] == first])


def _against_cpu(rows: Rows) -> Partners:
    """Each run's accelerators against its own CPU."""
    for row in rows:
        base = _find(rows, run=row["run"], kind="cpu")
        if base and _kind(row) != "cpu":
            yield base, row


def _against(rows: Rows, baseline: Baseline) -> Partners:
    """Everything else in the same run; a run that lacks the baseline takes it from the first that has it."""
    for row in rows:
        if row[baseline.role] == baseline.name:
            continue
        wanted = {baseline.role: baseline.name}
        base = _find(rows, run=row["run"], **wanted) or _find(rows, **wanted)
        if base:
            yield base, row


def _against_run(rows: Rows, run: str | None, any_kind: bool = False) -> Partners:
    """Other runs against this one: the same device, else the first of its kind, else (``any_kind``) the CPU."""
    for row in rows:
        if row["run"] == run:
            continue
        base = _find(rows, run=run, device=row["device"]) or _find(rows, run=run, kind=_kind(row))
        base = base or (_find(rows, run=run, kind="cpu") if any_kind else None)
        if base:
            yield base, row


def _find(rows: Rows, kind: str | None = None, **wanted: str | None) -> dict[str, Any] | None:
    for row in rows:
        if all(row[name] == value for name, value in wanted.items()) and kind in (None, _kind(row)):
            return row
    return None


def _kind(row: dict[str, Any]) -> str:
    return str(row["_run"].machine.device(row["device"]).kind)
