"""Speedups: each case against the same case elsewhere, with its uncertainty.

The same means equal workload, parameters and variant, and equal implementation unless the baseline is one. What else
may not differ silently is :mod:`.parity`'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..errors import UsageError
from ..records import Device, Times
from ..statistics import INTERVAL, Estimate
from . import one_shot
from .labels import Row
from .parity import FALLBACK, LeftOut, differences
from .table import (
    BASE,
    HIDDEN,
    LEADING,
    ONE_SHOT_COLUMNS,
    PAIRED,
    SETTINGS,
    SIDE,
    parameter_columns,
    records,
)

WITHIN = "spread within one process"

Rows = list[Row]
Partners = Iterator[tuple[Row, list[Rows]]]


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


@dataclass(frozen=True, slots=True)
class Pairs:
    """``table`` has a row a pair: the columns of speedup.csv, then HIDDEN (those of the other side) and BASE."""

    table: pd.DataFrame
    left_out: tuple[LeftOut, ...] = ()


def pair(table: pd.DataFrame, baseline: Baseline | None = None, allow: Collection[str] = ()) -> Pairs:
    """Pairs that differ in no term of parity, or in those of ``allow`` alone.

    A named implementation brings its own number of threads: NumPy's elementwise work has one.
    """
    parameters = parameter_columns(table)
    terms = ["workload", "variant", *parameters]
    allowed = set(allow)
    if baseline and baseline.role == "implementation":
        allowed.add("threads")
    else:
        terms.append("implementation")
    groups: dict[Hashable, Rows] = {}
    seen: Counter[Hashable] = Counter()
    for row in records(table[table["status"] == "ok"]):
        identity = tuple((type(row[term]), row[term]) for term in terms)
        itself = (identity, *(row[name] for name in (*LEADING, "dtype", "regime", "cache", "threads")))
        seen[itself] += 1  # a case met twice in a run pairs first with first, second with second
        groups.setdefault((identity, seen[itself]), []).append(row)
    first = None if table.empty else str(table["run"].iloc[0])
    if baseline and baseline.role in ("machine", "run"):
        first = str(table.loc[table[baseline.role] == baseline.name, "run"].iloc[0])
    made: Rows = []
    left_out = []
    for group in groups.values():
        for row, tiers in _partners(group, baseline, first):
            base, differing = _closest(row, tiers, allowed)
            if base is None:
                left_out += [LeftOut(row, differing)] if differing else []
            else:
                made.append(_pair(base, row, differing))
    columns = [f"baseline_{name}" for name in SIDE] + list(SIDE)
    columns += ["workload", *SETTINGS, *parameters, "dtype", *PAIRED, *ONE_SHOT_COLUMNS, *HIDDEN, BASE]
    frame = pd.DataFrame([[row[column] for column in columns] for row in made], columns=columns, dtype=object)
    return Pairs(frame, tuple(left_out))


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


def _pair(base: Row, other: Row, differing: dict[str, str]) -> Row:
    base_s, time_s, ratio, uncertainty = estimate(base["_result"].times, other["_result"].times)
    accelerated = on_accelerator(other) and not on_accelerator(base)
    moved = one_shot.columns(base["_result"], other["_result"], base_s, time_s) if accelerated else {}
    return {
        **other,
        **{f"baseline_{name}": base[name] for name in SIDE},
        BASE: base["_result"],
        "differs": ", ".join(differing.values()) or None,
        "baseline_s": base_s,
        "time_s": time_s,
        "speedup": base_s / time_s,
        "low": ratio.low,
        "high": ratio.high,
        "uncertainty": uncertainty,
        **(moved or dict.fromkeys(ONE_SHOT_COLUMNS)),
    }


def _closest(row: Row, tiers: Iterable[Rows], allowed: set[str]) -> tuple[Row | None, dict[str, str]]:
    """The baseline of the first tier that has a fitting one, and what it differs in; else what is in the way."""
    nearest: dict[str, str] = {}
    for tier in tiers:
        found = [(differences(base, row), base) for base in tier if base["dtype"] in (row["dtype"], FALLBACK)]
        fitting = [(differing, base) for differing, base in found if differing.keys() <= allowed]
        if fitting:
            differing, base = min(fitting, key=lambda entry: len(entry[0]))
            return base, differing
        for differing, _ in found:
            barred = {term: words for term, words in differing.items() if term not in allowed}
            if not nearest or len(barred) < len(nearest):
                nearest = barred
    return None, nearest


def _partners(rows: Rows, baseline: Baseline | None, first: str | None) -> Partners:
    """Each case that wants a baseline, and where to look for it; ``first`` is the run that others are held against."""
    runs: dict[str, Rows] = {}
    for row in rows:
        runs.setdefault(row["run"], []).append(row)
    if baseline is None:
        yield from _against_cpu(rows, runs)
        yield from _against_run(rows, runs.get(first or "", []), first)
    elif baseline.role in ("device", "implementation"):
        yield from _against(rows, runs, baseline)
    else:
        yield from _against_run(rows, runs.get(first or "", []), first, any_kind=True)
        yield from _against_cpu(runs.get(first or "", []), runs)


def _against_cpu(rows: Rows, runs: dict[str, Rows]) -> Partners:
    """Each run's accelerators against its own CPU."""
    for row in rows:
        if on_accelerator(row):
            yield row, [[other for other in runs[row["run"]] if not on_accelerator(other)]]


def _against(rows: Rows, runs: dict[str, Rows], baseline: Baseline) -> Partners:
    """Everything else in the same run; a run that lacks the baseline takes it from the first that has it."""
    anywhere = [row for row in rows if row[baseline.role] == baseline.name]
    elsewhere = [row for row in anywhere if row["run"] == anywhere[0]["run"]]
    for row in rows:
        if row[baseline.role] != baseline.name:
            own = [other for other in runs[row["run"]] if other[baseline.role] == baseline.name]
            yield row, [own, elsewhere]


def _against_run(rows: Rows, others: Rows, run: str | None, any_kind: bool = False) -> Partners:
    """Other runs against this one: the same device, else the first of its kind, else (``any_kind``) the CPU."""
    for row in rows:
        if row["run"] != run:
            tiers = [[other for other in others if other["device"] == row["device"]]]
            tiers.append([other for other in others if _device(other).kind == _device(row).kind])
            yield row, [*tiers, [other for other in others if not on_accelerator(other)] if any_kind else []]


def _device(row: Row) -> Device:
    return row["_run"].machine.device(row["device"])  # type: ignore[no-any-return]


def on_accelerator(row: Row) -> bool:
    """Whether a case ran on anything but a CPU."""
    return _device(row).accelerator
