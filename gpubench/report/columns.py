"""The columns of the CSV files and DataFrames: exact values, and None where one is unknown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from . import output, words
from .number import LIMITS
from .render import Column, csv_text
from .study import PINNED, Crossing, Measured, Pair, Row, Scaled, Study, ends

if TYPE_CHECKING:
    import pandas as pd

_Thing = TypeVar("_Thing")


# The numbers of a measured benchmark ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a measured benchmark. ``of`` gives its value in ``unit``, None where it is unknown."""

    name: str
    unit: str
    meaning: str
    of: Callable[[Measured], float | None]


def _copy(name: str) -> Callable[[Measured], float | None]:
    return lambda row: getattr(row.result.transfer, name, None)


def _per(amount: float | None, unit: float | None) -> float | None:
    return amount / unit if amount is not None and unit else None


_METRICS = (
    Metric("time_s", "s", "wall time, wait included: rounds' median, processes' median", attrgetter("times.median_s")),
    Metric("low_s", "s", "low end of the 95 % interval of the processes' medians; not of one process, nor if too noisy",
           lambda row: row.shown_interval.low if row.shown_interval else None),
    Metric("high_s", "s", "high end of the same interval",
           lambda row: row.shown_interval.high if row.shown_interval else None),
    Metric("latency_s", "s", "median seconds for one call and its own wait", attrgetter("times.latency_s")),
    Metric("p95_s", "s", "95th percentile of the wall time of single calls, from 20 of them on",
           attrgetter("result.p95_s")),
    Metric("p99_s", "s", "99th percentile of the wall time of single calls, from 100 of them on",
           attrgetter("result.p99_s")),
    Metric("first_call_s", "s", "the first call in its process: what it loads, compiles and allocates",
           attrgetter("result.first_call_s")),
    Metric("device_s", "s", "seconds per call the device was busy, launch gaps excluded",
           attrgetter("result.device_s")),
    Metric("launch_s", "s", "host seconds per call to enqueue the work", attrgetter("result.launch_s")),
    Metric("copy_in_s", "s", "copying the inputs from pageable host memory to the device", _copy("in_s")),
    Metric("copy_out_s", "s", "copying the outputs from the device to pageable host memory", _copy("out_s")),
    Metric("copy_in_pinned_s", "s", "copying the inputs from page-locked host memory", _copy("in_pinned_s")),
    Metric("copy_out_pinned_s", "s", "copying the outputs to page-locked host memory", _copy("out_pinned_s")),
    Metric("iqr_s", "s", "interquartile range of the wall time between rounds", attrgetter("times.iqr_s")),
    Metric("mean_s", "s", "mean over rounds of the wall time", attrgetter("times.mean_s")),
    Metric("min_s", "s", "fastest round's wall time", attrgetter("times.min_s")),
    Metric("rounds", "", "timed stretches", attrgetter("times.rounds")),
    Metric("iterations", "", "calls in each round", attrgetter("times.iterations")),
    Metric("flop_per_s", "FLOP/s", "FLOPs of the call / time_s", lambda row: _per(row.result.work.flops, row.time_s)),
    Metric("byte_per_s", "B/s", "minimum memory traffic of the call / time_s",
           lambda row: _per(row.result.work.bytes, row.time_s)),
    Metric("item_per_s", "1/s", "items of the call / time_s", lambda row: _per(row.result.work.items, row.time_s)),
    Metric("utilisation", "1", "least time that the device's measured peaks allow / time_s", attrgetter("utilisation")),
    Metric("memory_bytes", "B", "most bytes the benchmark held on its device at once",
           attrgetter("result.memory_bytes")),
    Metric("energy_j", "J", "energy per call, from the device's own counter, idle power included",
           attrgetter("result.energy_j")),
    Metric("item_per_j", "1/J", "items of the call / energy per call",
           lambda row: _per(row.result.work.items, row.result.energy_j)),
    Metric("check_error", "1", "max|result - float64 reference| / max|reference|",
           lambda row: row.result.check.error if row.result.check else None),
)  # fmt: skip
METRICS = {metric.name: metric for metric in _METRICS}
"""All metrics, by name: the columns of results.csv, and their table in docs/reading-a-report.md."""


# The files ------------------------------------------------------------------------------------------------------------


def csv_files(study: Study) -> dict[str, str]:
    """Return the content of each CSV file by its name; scaling.csv is there only if several devices were used."""
    files = {
        "results.csv": csv_text(results_columns(study.rows), study.rows),
        "speedup.csv": csv_text(speedup_columns(study), study.pairs),
        "crossover.csv": csv_text(crossover_columns(study), study.crossings),
    }
    return files | ({output.SCALING: csv_text(SCALING, study.scaled)} if study.scaled else {})


def frame(columns: Sequence[Column[_Thing]], things: Iterable[_Thing]) -> pd.DataFrame:
    """The columns as a DataFrame."""
    import pandas as pd

    heads = [column.head for column in columns]
    return pd.DataFrame([[column.cell(each) for column in columns] for each in things], columns=heads).infer_objects()


def results_columns(rows: Iterable[Row]) -> list[Column[Row]]:
    """Return the columns of results.csv, with the tests' own parameters in the middle."""
    first = (*_RESULTS.split(), *_SETUP.split())
    last = [head for head in _ROW if head not in first]
    return [*map(_ROW.__getitem__, first), *_parameters(rows), *map(_ROW.__getitem__, last)]


def speedup_columns(study: Study) -> list[Column[Pair]]:
    """Return the columns of speedup.csv."""
    named = [column.of(attrgetter("other")) for column in _parameters(study.rows)]
    what = _of("other", "device_name workload dtype variant setting size_name size")
    sides = [*_of("other", _SIDE), *_of("base", _SIDE, "baseline_")]
    return [*what, *_RATIO, *sides, *_BASIS, *_of("other", "cache"), *named, *_COPIED]


def crossover_columns(study: Study) -> list[Column[Crossing]]:
    """Return the columns of crossover.csv."""
    what = _of("line.last", "run machine device workload implementation variant cache")
    named = [_but_for_size(column) for column in _parameters(pair.other for pair in study.pairs)]
    base = _of("pair.base", "run machine device implementation", "baseline_")
    return [*what, *named, *_of("line.last", "dtype"), *base, *_CROSSED]


def _of(part: str, heads: str, prefix: str = "") -> list[Column[Any]]:
    return [_ROW[head].of(attrgetter(part), prefix) for head in heads.split()]


def _but_for_size(column: Column[Row]) -> Column[Crossing]:
    return Column(
        column.head, lambda found: None if column.head == found.line.size_name else column.cell(found.line.last)
    )


def _parameters(rows: Iterable[Row]) -> list[Column[Row]]:
    """A column for each parameter; ``param_`` goes in front of one that is named like a column of ours."""
    names = sorted({name for row in rows for name in row.result.params})
    columns: dict[str, Column[Row]] = {}
    for name in names:
        head = name
        while head in _RESERVED or head in columns or (head != name and head in names):
            head = f"param_{head}"
        columns[head] = Column(head, lambda row, name=name: row.result.params.get(name))  # type: ignore[misc]
    return list(columns.values())


def _setting(row: Row) -> str | None:
    """Return the parameters except the size, exact."""
    told = ((name, value) for name, value in row.result.params.items() if name != row.size_name)
    return ", ".join(value if isinstance(value, str) else f"{name}={json.dumps(value)}" for name, value in told) or None


def _check(row: Row) -> str | None:
    check = row.result.check if isinstance(row, Measured) else None
    return None if check is None else f"{check.status}: {check.reason}" if check.reason else check.status


def _measured(cell: Callable[[Measured], object]) -> Callable[[Row], object]:
    return lambda row: cell(row) if isinstance(row, Measured) else None


_RESULTS = (
    "run machine device device_name family workload dtype variant setting size_name size time_s low_s high_s"
    " rate rate_unit utilisation status flags reason"
)
_SETUP, _SIDE = "implementation cache threads", "run machine device implementation threads"
"""Heads of columns: the first of results.csv, and the names of a side of a speedup."""
_ROW: dict[str, Column[Row]] = {
    column.head: column
    for column in (
        Column("run", attrgetter("run_name")),
        Column("machine", attrgetter("run.machine.label")),
        Column("device", attrgetter("result.device")),
        Column("device_name", lambda row: row.facts.label or None),
        Column("family", lambda row: row.result.workload.partition(".")[0]),
        Column("workload", attrgetter("result.workload")),
        Column("dtype", lambda row: row.result.dtype or None),
        Column("variant", lambda row: row.result.variant or None),
        Column("setting", _setting),
        Column("size_name", attrgetter("size_name")),
        Column("size", attrgetter("size")),
        Column("rate", _measured(lambda row: row.throughput and row.throughput.value)),
        Column("rate_unit", _measured(lambda row: row.throughput and row.rate and row.rate.unit)),
        Column("status", attrgetter("result.status")),
        Column("flags", _measured(lambda row: " ".join(row.flags) or None)),
        Column("reason", lambda row: row.result.reason or None),
        Column("implementation", lambda row: row.result.implementation or None),
        Column("cache", lambda row: row.result.cache or None),
        Column("threads", attrgetter("result.threads")),
        *(Column(metric.name, _measured(metric.of)) for metric in _METRICS),
        Column("check", _check),
        Column("kind", lambda row: row.result.kind or None),
        Column("title", lambda row: row.result.title or None),
        Column("pytest_id", lambda row: row.result.fullname or None),
    )
}
_RATIO: list[Column[Pair]] = [
    Column("speedup", lambda pair: _drawn(pair)),
    Column("low", lambda pair: _bound(pair, "low")),
    Column("high", lambda pair: _bound(pair, "high")),
    Column("shown", attrgetter("ratio.mark")),
    Column("limit", lambda pair: str(pair.ratio.state) if pair.ratio.state in LIMITS else None),
    Column("one_shot_speedup", lambda pair: _drawn(pair.copies)),
    Column("baseline_s", lambda pair: pair.base_s),
    Column("time_s", lambda pair: pair.time_s),
    Column("flags", lambda pair: " ".join(pair.flags) or None),
    Column(
        "simulated", lambda pair: any(side.facts.simulated or bool(words.modelled(side.facts)) for side in pair.sides)
    ),
    Column("id", lambda pair: pair.other.result.id),
]
_BASIS: list[Column[Pair]] = [
    Column("baseline_way", lambda pair: words.way(pair) or None),
    Column("differs", lambda pair: pair.differs or None),
    Column("uncertainty", lambda pair: str(pair.uncertainty or "")),
]
_COPIED: list[Column[Pair]] = [
    Column("one_shot_low", lambda pair: _proven(pair.copies, "low")),
    Column("one_shot_high", lambda pair: _proven(pair.copies, "high")),
    Column("baseline_one_shot_s", lambda pair: pair.copies and pair.copies.base_s),
    Column("one_shot_s", lambda pair: pair.copies and pair.copies.time_s),
    Column("one_shot_pinned_s", lambda pair: (pinned := pair.in_regime(PINNED)) and pinned.time_s),
    Column("one_shot_pinned_speedup", lambda pair: _drawn(pair.in_regime(PINNED))),
]


def _drawn(pair: Pair | None) -> float | None:
    """Return the speedup that is shown, or the limit where only a limit is known; None where nothing is known."""
    return pair.ratio.value if pair else None


def _bound(pair: Pair, end: str) -> float | None:
    """Return an end of the speedup's range; None where the range is too wide for a number."""
    return None if _drawn(pair) is None else _known(getattr(pair.values, end))


def _proven(pair: Pair | None, end: str) -> float | None:
    return _bound(pair, end) if pair and pair.uncertainty else None


def _known(value: float | None) -> float | None:
    return None if value in (0, math.inf) else value


def _end(value: float | None, found: Crossing) -> float | None:
    return None if found.crossover.size is None or found.doubtful else _known(value)


_CROSSED: list[Column[Crossing]] = [
    Column("differs", lambda found: found.pair.differs or None),
    Column("regime", lambda found: found.pair.regime),
    Column("size_parameter", lambda found: found.line.size_name),
    Column("crossover", lambda found: _end(found.crossover.size, found)),
    Column("low", lambda found: _end(found.crossover.low, found)),
    Column("high", lambda found: _end(found.crossover.high, found)),
    Column("kind", lambda found: "unsure" if found.doubtful else found.crossover.kind),
    Column("processes", lambda found: found.processes),
    Column("baseline_way", lambda found: "; ".join(words.ways(found.whole.items)) or None),
]  # fmt: skip


def _of_parallel(name: str) -> Column[Scaled]:
    return Column(name, lambda each: getattr(each.parallel, name))


def _over(base: Callable[[Scaled], Pair | None], name: str, low: str, high: str) -> list[Column[Scaled]]:
    def end(each: Scaled, place: int) -> float | None:
        pair = base(each)
        known = ends(pair) if pair else None
        return known[place] if known else None

    value: Column[Scaled] = Column(name, lambda each: (pair := base(each)) and pair.speedup)
    return [value, Column(low, lambda each: end(each, 0)), Column(high, lambda each: end(each, 1))]


def _efficiency_end(each: Scaled, name: str) -> float | None:
    return getattr(each.efficiency, name) if each.efficiency and each.scaling and ends(each.scaling) else None


def _link_rate(each: Scaled, share: float | None) -> float | None:
    """Bytes of a collective per second, as nccl-tests define them: with the share of the bus the bus bandwidth."""
    nbytes = each.row.result.work.bytes
    return nbytes / each.row.time_s * share if nbytes and share and each.parallel.bus_share else None


SCALING: list[Column[Scaled]] = [
    *_of("row", "run machine device device_name workload dtype variant"),
    *map(_of_parallel, ("method", "devices", "threads", "mode", "microbatches")),
    Column("nbytes", lambda each: each.row.result.params.get("nbytes")),
    Column("time_s", lambda each: each.row.time_s),
    Column("item_per_s", METRICS["item_per_s"].of).of(attrgetter("row")),
    Column("baseline_s", lambda each: each.speedup and each.speedup.base.time_s),
    Column("baseline_threads", lambda each: each.base_threads),
    *_over(attrgetter("speedup"), "speedup", "low", "high"),
    *_over(attrgetter("scaling"), "scaling", "scaling_low", "scaling_high"),
    Column("efficiency", lambda each: each.efficiency and each.efficiency.value),
    Column("efficiency_low", lambda each: _efficiency_end(each, "low")),
    Column("efficiency_high", lambda each: _efficiency_end(each, "high")),
    _of_parallel("ideal_speedup"),
    Column("uncertainty", lambda each: str(each.uncertainty or "") or None),
    Column("algorithm_byte_per_s", lambda each: _link_rate(each, 1.0)),
    Column("bus_byte_per_s", lambda each: _link_rate(each, each.parallel.bus_share)),
    Column("rows", lambda each: "; ".join("+".join(map(str, batch)) for batch in each.parallel.rows) or None),
    Column("phases", lambda each: "; ".join(f"{n} {s!r}" for n, s in each.parallel.phases.items()) or None),
    _of_parallel("interconnect"),
]
_OURS = (_ROW.values(), _RATIO, _BASIS, _COPIED, _CROSSED)
_RESERVED = {column.head for columns in _OURS for column in columns} | {f"baseline_{head}" for head in _ROW}
"""Heads of columns that no parameter may have."""
