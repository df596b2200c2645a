"""What two cases differ in although they do the same work: dtype, precision, regime, cache, threads, seed.

A ratio of unlike cases is no speedup. They are left out of it unless someone allows the difference, which is then
named beside the ratio. What a file doesn't say is no difference, but for TF32: on at one side and unknown at the
other is one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..errors import UsageError
from ..runfile.schema import REGIMES, Device, Result, Scalar, Times
from ..runfile.utilisation import compute_dtype
from ..statistics import INTERVAL, Estimate
from .labels import Row
from .table import BASE, HIDDEN, LEADING, ONE_SHOT_COLUMNS, PAIRED, SETTINGS, SIDE, parameter_columns, records

FALLBACK = "float32"
"""The dtype that stands in for one that the baseline doesn't have, where dtypes may differ."""

_HALVES = {"float16": "fp16_", "bfloat16": "bf16_"}
_SWITCH = {True: "on", False: "off", None: "unknown"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pair that was not made: the case, and for each term in the way what differs in words."""

    row: Row
    terms: dict[str, str]


def differences(base: Row, other: Row) -> dict[str, str]:
    """By term, in words, the other's value first: ``{"threads": "threads 2 against 1"}``."""
    found = {}
    for term in ("dtype", "regime", "cache"):
        if base[term] != other[term]:
            found[term] = f"{term} {other[term] or 'unknown'} against {base[term] or 'unknown'}"
    if words := _tf32(base, other) or _accumulation(base, other):
        found["precision"] = words
    for term, ours, theirs in (
        ("threads", other["threads"], base["threads"]),
        ("seed", other["_run"].seed, base["_run"].seed),
    ):
        if None not in (ours, theirs) and ours != theirs:
            found[term] = f"{term} {ours} against {theirs}"
    return found


def _tf32(base: Row, other: Row) -> str | None:
    """Whether float32 products were shortened on one side only; where the dtypes say so themselves, they do."""
    dtypes = {base["dtype"], other["dtype"]}
    if dtypes == {"float32", "tf32"}:
        return None
    theirs, ours = (_shortened(row) for row in (base, other))
    if dtypes == {"float32"} and theirs and ours:  # a switch of the whole program, and CPUs have no TF32
        theirs, ours = (row["_run"].machine.device(row["device"]).accelerator for row in (base, other))
    return f"TF32 {_SWITCH[ours]} against {_SWITCH[theirs]}" if (theirs is True) != (ours is True) else None


def _shortened(row: Row) -> bool | None:
    own = row["_result"].precision.get("tf32")
    if row["dtype"] == "tf32":
        return own is not False
    if row["dtype"] != "float32":
        return False
    known = own if own is not None else row["_run"].machine.tf32
    return known if isinstance(known, bool) else None


def _accumulation(base: Row, other: Row) -> str | None:
    """Switches of half-precision products that are known on both sides and differ."""
    dtypes = {compute_dtype(row["dtype"], row["variant"]) for row in (base, other)}
    prefix = _HALVES.get(dtypes.pop()) if len(dtypes) == 1 else None
    if prefix is None:
        return None
    theirs, ours = (_switches(row, prefix) for row in (base, other))
    for name in sorted(theirs.keys() & ours.keys()):
        if None not in (ours[name], theirs[name]) and ours[name] != theirs[name]:
            states = [_SWITCH[value] if isinstance(value, bool) else str(value) for value in (ours[name], theirs[name])]
            return f"{name.replace('_', ' ')} {' against '.join(states)}"
    return None


def _switches(row: Row, prefix: str) -> dict[str, Scalar]:
    known = row["_result"].precision or row["_run"].machine.precision
    return {name: value for name, value in known.items() if name.startswith(prefix)}


# What a single answer costs: the inputs copied to the device, one call, the outputs copied back.
#
# Resident data hides the copies, which decide whether moving one call to an accelerator pays at all.


RESIDENT, ONE_SHOT = REGIMES


def columns(base: Result, other: Result, base_s: float, time_s: float) -> dict[str, float | int | None]:
    """Of an accelerator against a CPU. The baseline copies nothing: its one shot is one call.

    As with resident data, two processes or more on either side count as one observation each.
    """
    found: dict[str, float | int | None] = dict.fromkeys(ONE_SHOT_COLUMNS)
    copied, pinned = copies_s(other), copies_s(other, pinned=True)
    if base.times is None or other.times is None or copied is None:
        return found
    ours, theirs = (list(calls_s(side.times).values()) for side in (base, other) if side.times)
    if min(len(ours), len(theirs)) < 2:
        ours, theirs = [base.times.latency_s or base.times.median_s], [other.times.latency_s or other.times.median_s]
    else:
        ratio = statistics.ratio_interval(ours, [copied + call for call in theirs])
        found |= {"one_shot_low": ratio.low, "one_shot_high": ratio.high}
    call = statistics.geometric_mean(ours)
    found["baseline_one_shot_s"] = call
    for name, copies in (("one_shot", copied), ("one_shot_pinned", pinned)):
        if copies is not None:
            seconds = statistics.geometric_mean([copies + call for call in theirs])
            found |= {f"{name}_s": seconds, f"{name}_speedup": call / seconds}
    found["break_even_calls"] = break_even_calls(copied, base_s, time_s)
    return found


def calls_s(times: Times) -> dict[int, float]:
    """By process: one call and its own wait."""
    return {process.index: process.latency_s or process.median_s for process in times.processes}


def break_even_calls(copied_s: float, base_s: float, time_s: float) -> int | None:
    """Calls on data that stays after which the accelerator has made up for the copies; None where it never does."""
    if time_s >= base_s:
        return None
    calls = copied_s / (base_s - time_s)
    return max(1, math.ceil(calls * (1 - 1e-9)))  # 10.000000000000002 calls are 10


def copies_s(result: Result, pinned: bool = False) -> float | None:
    """In and out, from and to pageable or page-locked host memory; None where one of them isn't known."""
    moved = result.transfer
    if moved is None:
        return None
    ways = ((moved.in_bytes, moved.in_pinned_s), (moved.out_bytes, moved.out_pinned_s))
    if not pinned:
        ways = ((moved.in_bytes, moved.in_s), (moved.out_bytes, moved.out_s))
    if any(nbytes and seconds is None for nbytes, seconds in ways):
        return None
    return sum(seconds for nbytes, seconds in ways if nbytes and seconds is not None)


def observations(result: Result, regime: str) -> dict[int, float]:
    """Seconds of a call by process: its median, or one call's latency with the copies of an accelerator."""
    if result.times is None:
        return {}
    if regime == RESIDENT:
        return {process.index: process.median_s for process in result.times.processes}
    copied = copies_s(result) or 0.0
    return {index: copied + call for index, call in calls_s(result.times).items()}


def speedup_of(row: Row) -> tuple[float, float, float] | None:
    """Value, low and high of a pair's one-shot speedup; without processes to tell, no range."""
    value = row["one_shot_speedup"]
    return None if value is None else (value, row["one_shot_low"] or value, row["one_shot_high"] or value)


# Speedups: each case against the same case elsewhere, with its uncertainty.
#
# The same means equal workload, parameters and variant, and equal implementation unless the baseline is one. What else
# may not differ silently is :mod:`.parity`'s business.


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
    moved = columns(base["_result"], other["_result"], base_s, time_s) if accelerated else {}
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
