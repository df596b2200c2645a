"""Speedups: each case against the same case elsewhere, with its uncertainty, and with the copies of its data.

The same means equal workload, parameters and variant, and equal implementation unless the baseline is one. A ratio of
cases that differ in dtype, precision, regime, cache, threads or seed is no speedup: such pairs are left out unless
the difference is allowed and named. An unknown fact is no difference, except TF32 that is on at the other side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..devices.implementations import TORCH
from ..errors import UsageError
from ..runfile.schema import REGIMES, DeviceFacts, Result, Times
from ..runfile.utilisation import compute_dtype
from ..statistics import INTERVAL, Interval
from .labels import Row, grouped, library
from .table import BASE, HIDDEN, ONE_SHOT_COLUMNS, PAIRED, SIDE, parameter_columns, records

RESIDENT, ONE_SHOT = REGIMES
"""Data that stays on the device; what a single answer costs: the inputs copied in, one call, the outputs copied out."""
FALLBACK = "float32"
"""The baseline's dtype for a dtype that it lacks, where dtypes may differ."""
_WITHIN = "spread within one process"

_HALVES = {"float16": "fp16_", "bfloat16": "bf16_"}
_SWITCH = {True: "on", False: "off", None: "unknown"}
_OF_ACCELERATORS = ("cudnn_benchmark", "cudnn_deterministic", "variables")
"""Switches that change nothing of a CPU's times."""
_Rows = list[Row]
_Partners = Iterator[tuple[Row, list[_Rows]]]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a name given as ``--baseline`` stands for: ``role`` is a column of the results."""

    role: str
    name: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A case that has no comparable baseline; ``terms`` says in words what differs from the nearest, by term."""

    row: Row
    terms: dict[str, str]


@dataclass(frozen=True, slots=True)
class Pairs:
    """``table`` has a row a pair: the columns of speedup.csv, then HIDDEN (those of the other side) and BASE."""

    table: pd.DataFrame
    left_out: tuple[LeftOut, ...] = ()


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


def pair(table: pd.DataFrame, baseline: Baseline | None = None, allow: Collection[str] = ()) -> Pairs:
    """Pairs that differ in nothing, or only in the terms of ``allow``.

    A baseline implementation brings its own number of threads: NumPy's elementwise work has one.
    """
    parameters = parameter_columns(table)
    terms = ["workload", "variant", *parameters]
    allowed = set(allow)
    if baseline and baseline.role == "implementation":
        allowed.add("threads")
    else:
        terms.append("implementation")
    first = None if table.empty else str(table["run"].iloc[0])
    if baseline and baseline.role in ("machine", "run"):
        first = str(table.loc[table[baseline.role] == baseline.name, "run"].iloc[0])
    made: _Rows = []
    left_out = []
    for row, tiers in (each for group in _groups(table, terms) for each in _partners(group, baseline, first)):
        base, differing = _closest(row, tiers, allowed)
        if base is not None:
            made.append(_pair(base, row, differing))
        elif differing:
            left_out.append(LeftOut(row, differing))
    columns = ["device_name", "workload", "dtype", "variant", "setting", "size_name", "size", *PAIRED, "flags", "id"]
    columns += [*SIDE, *(f"baseline_{name}" for name in SIDE), "differs", "uncertainty", "regime", "cache"]
    columns += [*parameters, *(name for name in ONE_SHOT_COLUMNS if name not in PAIRED), *HIDDEN, BASE]
    frame = pd.DataFrame([[row[column] for column in columns] for row in made], columns=columns, dtype=object)
    return Pairs(frame, tuple(left_out))


def pair_or_libraries(table: pd.DataFrame, pairs: Pairs) -> Pairs:
    """The pairs, or where there are none those of libraries on the same device."""
    if not pairs.table.empty:
        return pairs
    return Pairs(pair(table, library_baseline(table)).table, pairs.left_out)


def library_baseline(table: pd.DataFrame) -> Baseline:
    """What libraries are held against: NumPy, or where it wasn't measured PyTorch."""
    return Baseline("implementation", "numpy" if (table["implementation"] == "numpy").any() else TORCH)


def leading(pairs: list[Row]) -> list[Row]:
    """Without those of another library than PyTorch on both sides, on an accelerator, unless there are no others."""
    others = {id(row) for row in pairs if library(row) and library(row) == library(row, "baseline_")}
    return [row for row in pairs if id(row) not in others or not on_accelerator(row)] or pairs


def _groups(table: pd.DataFrame, terms: list[str]) -> list[_Rows]:
    """Measured rows that are the same case; of one measured twice in a run, first pairs with first."""
    groups: dict[Hashable, _Rows] = {}
    repeats: Counter[Hashable] = Counter()
    for row in records(table[table["status"] == "ok"]):
        identity = tuple((type(row[term]), row[term]) for term in terms)
        itself = (identity, *(row[name] for name in (*SIDE, "dtype", "regime", "cache")))
        repeats[itself] += 1
        groups.setdefault((identity, repeats[itself]), []).append(row)
    return list(groups.values())


def times_and_ratio(base: Times, other: Times) -> tuple[float, float, Interval, str]:
    """Both times, their ratio and the words for its uncertainty.

    With two processes or more on either side a process is one observation, and a side's time is the geometric
    mean of their medians; else there is nothing but the spread of the rounds, which is no interval.
    """
    tops, bottoms = ([process.median_s for process in side.processes] for side in (base, other))
    if min(len(tops), len(bottoms)) < 2:
        quartiles = [(side.q1_s, side.median_s, side.q3_s) for side in (base, other)]
        return base.median_s, other.median_s, statistics.ratio_spread(*quartiles), _WITHIN
    counts = f"{len(tops)}" if len(tops) == len(bottoms) else f"{len(tops)} and {len(bottoms)}"
    ratio = statistics.ratio_interval(tops, bottoms)
    times = statistics.geometric_mean(tops), statistics.geometric_mean(bottoms)
    return *times, ratio, f"{INTERVAL}, {counts} processes"


def _pair(base: Row, other: Row, differing: dict[str, str]) -> Row:
    base_s, time_s, ratio, uncertainty = times_and_ratio(base["_result"].times, other["_result"].times)
    accelerated = on_accelerator(other) and not on_accelerator(base)
    copied = _one_shot(base["_result"], other["_result"], base_s, time_s) if accelerated else {}
    flags = dict.fromkeys(f"{other['flags'] or ''} {base['flags'] or ''}".split())
    made = {**other, **{f"baseline_{name}": base[name] for name in SIDE}, BASE: base["_result"]}
    made |= {"baseline_s": base_s, "time_s": time_s, "speedup": base_s / time_s, "low": ratio.low, "high": ratio.high}
    made |= {"uncertainty": uncertainty, "differs": ", ".join(differing.values()) or None}
    made |= {"flags": " ".join(flags) or None, "id": other["_result"].id}
    return made | (copied or dict.fromkeys(ONE_SHOT_COLUMNS))


def _closest(row: Row, tiers: Iterable[_Rows], allowed: set[str]) -> tuple[Row | None, dict[str, str]]:
    """The baseline of the first tier that has a fitting one, and what it differs in; else what is in the way."""
    nearest: dict[str, str] = {}
    for tier in tiers:
        candidates = [(_differences(base, row), base) for base in tier if base["dtype"] in (row["dtype"], FALLBACK)]
        fitting = [(differing, base) for differing, base in candidates if differing.keys() <= allowed]
        if fitting:
            differing, base = min(fitting, key=lambda entry: len(entry[0]))
            return base, differing
        for differing, _ in candidates:
            barred = {term: words for term, words in differing.items() if term not in allowed}
            if not nearest or len(barred) < len(nearest):
                nearest = barred
    return None, nearest


def _partners(rows: _Rows, baseline: Baseline | None, first: str | None) -> _Partners:
    """Each case that needs a baseline, and where to look for it; other runs are held against the ``first``."""
    runs = grouped(rows, lambda row: row["run"])
    others = runs.get(first, [])
    if baseline is None:
        yield from _against_cpu(rows, runs)
        yield from _against_run(rows, others, first)
    elif baseline.role in ("device", "implementation"):
        yield from _against(rows, runs, baseline)
    else:
        yield from _against_run(rows, others, first, any_kind=True)
        yield from _against_cpu(others, runs)


def _against_cpu(rows: _Rows, runs: dict[str, _Rows]) -> _Partners:
    """Each run's accelerators against its own CPU."""
    for row in rows:
        if on_accelerator(row):
            yield row, [[other for other in runs[row["run"]] if not on_accelerator(other)]]


def _against(rows: _Rows, runs: dict[str, _Rows], baseline: Baseline) -> _Partners:
    """Everything else in the same run; a run that lacks the baseline takes it from the first that has it."""
    anywhere = [row for row in rows if row[baseline.role] == baseline.name]
    elsewhere = [row for row in anywhere if row["run"] == anywhere[0]["run"]]
    for row in rows:
        if row[baseline.role] != baseline.name:
            same_run = [other for other in runs[row["run"]] if other[baseline.role] == baseline.name]
            yield row, [same_run, elsewhere]


def _against_run(rows: _Rows, others: _Rows, run: str | None, any_kind: bool = False) -> _Partners:
    """Other runs against this one: the same device, else the first of its kind, else an accelerator of another kind,
    else (``any_kind``) the CPU."""
    for row in (row for row in rows if row["run"] != run):
        same = [other for other in others if other["device"] == row["device"]]
        kin = [other for other in others if _device(other).kind == _device(row).kind]
        accelerators = [other for other in others if on_accelerator(other) and on_accelerator(row)]
        yield row, [same, kin, accelerators, [other for other in others if any_kind and not on_accelerator(other)]]


def _device(row: Row) -> DeviceFacts:
    return row["_run"].machine.device(row["device"])  # type: ignore[no-any-return]


def on_accelerator(row: Row) -> bool:
    """Whether a case ran on anything but a CPU."""
    return _device(row).accelerator


def _differences(base: Row, other: Row) -> dict[str, str]:
    """By term, in words, the other's value first: ``{"threads": "threads 2 against 1"}``."""
    differing = {
        term: f"{term} {other[term] or 'unknown'} against {base[term] or 'unknown'}"
        for term in ("dtype", "regime", "cache")
        if base[term] != other[term]
    }
    if words := _tf32(base, other) or _accumulation(base, other) or _switched(base, other):
        differing["precision"] = words
    states = {"threads": (other["threads"], base["threads"]), "seed": (other["_run"].seed, base["_run"].seed)}
    for term, values in states.items():
        if None not in values and values[0] != values[1]:
            differing[term] = f"{term} {values[0]} against {values[1]}"
    return differing


def _tf32(base: Row, other: Row) -> str | None:
    """Whether float32 products were shortened on one side only; dtypes that say so themselves are no difference."""
    dtypes = {base["dtype"], other["dtype"]}
    if dtypes == {"float32", "tf32"}:
        return None
    base_state, state = (_shortened(row) for row in (base, other))
    if dtypes == {"float32"} and base_state and state:  # a switch of the whole program, and CPUs have no TF32
        base_state, state = on_accelerator(base), on_accelerator(other)
    if (base_state is True) == (state is True):
        return None
    return f"TF32 {_SWITCH[state]} against {_SWITCH[base_state]}"


def _shortened(row: Row) -> bool | None:
    switch = row["_result"].precision.get("tf32")
    if row["dtype"] == "tf32":
        return switch is not False
    if row["dtype"] != "float32":
        return False
    known = switch if switch is not None else row["_run"].machine.tf32
    return known if isinstance(known, bool) else None


def _accumulation(base: Row, other: Row) -> str | None:
    """Switches of half-precision products that are known on both sides and differ."""
    dtypes = {compute_dtype(row["dtype"], row["variant"], row["_result"].precision) for row in (base, other)}
    prefix = _HALVES.get(dtypes.pop()) if len(dtypes) == 1 else None
    switches = [row["_result"].precision or row["_run"].machine.precision for row in (other, base)]
    for name in sorted(switches[0].keys() & switches[1].keys()):
        states = [known[name] for known in switches]
        if prefix and name.startswith(prefix) and None not in states and states[0] != states[1]:
            words = [_SWITCH[value] if isinstance(value, bool) else str(value) for value in states]
            return f"{name.replace('_', ' ')} {' against '.join(words)}"
    return None


def _switched(base: Row, other: Row) -> str | None:
    """The dtype of autocast, and switches that are known on both sides and differ: of accelerators, but for
    deterministic algorithms, which a CPU has too."""
    if base["variant"] == other["variant"] == "autocast":
        dtypes = [compute_dtype(row["dtype"], row["variant"], row["_result"].precision) for row in (other, base)]
        if dtypes[0] != dtypes[1]:
            return f"autocast in {' against '.join(dtypes)}"
    switches = [row["_result"].precision for row in (other, base)]
    accelerated = on_accelerator(base) and on_accelerator(other)
    for name in ("deterministic", *(_OF_ACCELERATORS if accelerated else ())):
        states = [known.get(name) for known in switches]
        if None not in states and states[0] != states[1]:
            words = [_SWITCH[value] if isinstance(value, bool) else str(value) or "none" for value in states]
            return f"{name.replace('_', ' ')} {' against '.join(words)}"
    return None


def _one_shot(base: Result, other: Result, base_s: float, time_s: float) -> dict[str, float | int | None]:
    """ONE_SHOT_COLUMNS of an accelerator against a CPU, which copies nothing: its one shot is one call.

    With two processes or more on either side a process is one observation, as with resident data.
    """
    cells: dict[str, float | int | None] = dict.fromkeys(ONE_SHOT_COLUMNS)
    copied, pinned = _copies_s(other), _copies_s(other, pinned=True)
    if base.times is None or other.times is None or copied is None:
        return cells
    tops, bottoms = (list(_calls_s(times).values()) for times in (base.times, other.times))
    if min(len(tops), len(bottoms)) < 2:
        tops, bottoms = ([times.latency_s or times.median_s] for times in (base.times, other.times))
    else:
        ratio = statistics.ratio_interval(tops, [copied + call for call in bottoms])
        cells |= {"one_shot_low": ratio.low, "one_shot_high": ratio.high}
    call = statistics.geometric_mean(tops)
    cells["baseline_one_shot_s"] = call
    for name, copies in (("one_shot", copied), ("one_shot_pinned", pinned)):
        if copies is not None:
            seconds = statistics.geometric_mean([copies + call for call in bottoms])
            cells |= {f"{name}_s": seconds, f"{name}_speedup": call / seconds}
    cells["break_even_calls"] = break_even_calls(copied, base_s, time_s)
    return cells


def _calls_s(times: Times) -> dict[int, float]:
    """By process: one call and its own wait."""
    return {process.index: process.latency_s or process.median_s for process in times.processes}


def break_even_calls(copied_s: float, base_s: float, time_s: float) -> int | None:
    """Calls on data that stays on the accelerator until the time saved is that of the copies; None for never."""
    if time_s >= base_s:
        return None
    calls = copied_s / (base_s - time_s)
    return max(1, math.ceil(calls * (1 - 1e-9)))  # 10.000000000000002 calls are 10


def _copies_s(result: Result, pinned: bool = False) -> float | None:
    """In and out, from and to pageable or page-locked host memory; None where one of them isn't known."""
    copies = result.transfer
    if copies is None:
        return None
    seconds = (copies.in_pinned_s, copies.out_pinned_s) if pinned else (copies.in_s, copies.out_s)
    needed = [each for each, nbytes in zip(seconds, (copies.in_bytes, copies.out_bytes), strict=True) if nbytes]
    return None if None in needed else sum(each for each in needed if each is not None)


def observations(result: Result, regime: str) -> dict[int, float]:
    """Seconds of a call by process: its median, or one call's latency with the copies of an accelerator."""
    if result.times is None:
        return {}
    if regime == RESIDENT:
        return {process.index: process.median_s for process in result.times.processes}
    copied = _copies_s(result) or 0.0
    return {index: copied + call for index, call in _calls_s(result.times).items()}


def speedup_of(row: Row) -> tuple[float, float, float]:
    """Value, low and high of a pair with resident data."""
    return row["speedup"], row["low"], row["high"]


def one_shot_of(row: Row) -> tuple[float, float, float] | None:
    """Value, low and high of a pair's one-shot speedup; without processes to tell, no range."""
    value = row["one_shot_speedup"]
    return None if value is None else (value, row["one_shot_low"] or value, row["one_shot_high"] or value)
