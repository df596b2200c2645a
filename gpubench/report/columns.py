"""The columns of the CSV files and DataFrames: exact values, and None where one is unknown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from . import words
from .number import LIMITS
from .render import Column, csv_text
from .study import PINNED, Crossing, Measured, Pair, Row, Scaled, Study

if TYPE_CHECKING:
    import pandas as pd

_Thing = TypeVar("_Thing")


def _at(path: str) -> Callable[[Any], Any]:
    """Return a function that gets the attribute at the path; None if a part is missing, or a text is empty."""
    names = path.split(".")

    def value(thing: Any) -> Any:
        for name in names:
            thing = getattr(thing, name, None)
        return None if thing == "" else thing

    return value


def _columns(heads: str, parent: str = "") -> list[Column[Any]]:
    """Return columns of attributes: ``head`` or ``head=path`` each, of things at the ``parent`` path."""
    parts = (word.partition("=") for word in heads.split())
    return [Column(head, _at(parent + (path or head))) for head, _, path in parts]


def _per(amount: str, unit: str) -> Callable[[Any], float | None]:
    def rate(row: Any) -> float | None:
        top, bottom = _at(amount)(row), _at(unit)(row)
        return top / bottom if top is not None and bottom else None

    return rate


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a measured benchmark. ``of`` gives its value in ``unit``, None if it is unknown."""

    name: str
    unit: str
    meaning: str
    of: Callable[[Measured], float | None]


_METRICS = (
    Metric("time_s", "s", "wall time, wait included: rounds' median, processes' median", _at("times.median_s")),
    Metric("low_s", "s", "low end of the 95 % interval over processes, of one over its placements; empty if too noisy",
           _at("shown_interval.low")),
    Metric("high_s", "s", "high end of the same interval", _at("shown_interval.high")),
    Metric("latency_s", "s", "median seconds for one call and its own wait", _at("times.latency_s")),
    Metric("p95_s", "s", "95th percentile of the wall time of single calls, from 20 of them on", _at("result.p95_s")),
    Metric("p99_s", "s", "99th percentile of the wall time of single calls, from 100 of them on", _at("result.p99_s")),
    Metric("first_call_s", "s", "the first call in its process: what it loads, compiles and allocates",
           _at("result.first_call_s")),
    Metric("device_s", "s", "seconds per call the device was busy, launch gaps excluded", _at("result.device_s")),
    Metric("launch_s", "s", "host seconds per call to enqueue the work", _at("result.launch_s")),
    Metric("copy_in_s", "s", "copying the inputs from pageable host memory to the device", _at("result.transfer.in_s")),
    Metric("copy_out_s", "s", "copying the outputs from the device to pageable host memory",
           _at("result.transfer.out_s")),
    Metric("copy_in_pinned_s", "s", "copying the inputs from page-locked host memory",
           _at("result.transfer.in_pinned_s")),
    Metric("copy_out_pinned_s", "s", "copying the outputs to page-locked host memory",
           _at("result.transfer.out_pinned_s")),
    Metric("iqr_s", "s", "interquartile range of the wall time between rounds", _at("times.iqr_s")),
    Metric("mean_s", "s", "mean over rounds of the wall time", _at("times.mean_s")),
    Metric("min_s", "s", "fastest round's wall time", _at("times.min_s")),
    Metric("rounds", "", "timed stretches", _at("times.rounds")),
    Metric("iterations", "", "calls in each round", _at("times.iterations")),
    Metric("flop_per_s", "FLOP/s", "FLOPs of the call / time_s", _per("result.work.flops", "time_s")),
    Metric("byte_per_s", "B/s", "minimum memory traffic of the call / time_s", _per("result.work.bytes", "time_s")),
    Metric("item_per_s", "1/s", "items of the call / time_s", _per("result.work.items", "time_s")),
    Metric("utilisation", "1", "least time that the device's measured peaks allow / time_s", _at("utilisation")),
    Metric("memory_bytes", "B", "most bytes the benchmark held on its device at once", _at("result.memory_bytes")),
    Metric("energy_j", "J", "energy per call, from the device's own counter, idle power included",
           _at("result.energy_j")),
    Metric("item_per_j", "1/J", "items of the call / energy per call", _per("result.work.items", "result.energy_j")),
    Metric("check_error", "1", "max|result - float64 reference| / max|reference|", _at("result.check.error")),
)  # fmt: skip
METRICS = {metric.name: metric for metric in _METRICS}
"""All metrics, by name: the columns of results.csv, and their table in docs/reading-a-report.md."""


def csv_files(study: Study) -> dict[str, str]:
    """Return the content of each CSV file by its name; scaling.csv is there only if several devices were used."""
    files = {
        "results.csv": csv_text(results_columns(study.rows), study.rows),
        "speedup.csv": csv_text(speedup_columns(study), study.pairs),
        "crossover.csv": csv_text(crossover_columns(study), study.crossings),
    }
    return files | ({"scaling.csv": csv_text(SCALING, study.scaled)} if study.scaled else {})


def frame(columns: Sequence[Column[_Thing]], things: Iterable[_Thing]) -> pd.DataFrame:
    """The columns as a DataFrame."""
    import pandas as pd

    heads = [column.head for column in columns]
    return pd.DataFrame([[column.cell(thing) for column in columns] for thing in things], columns=heads).infer_objects()


def results_columns(rows: Iterable[Row]) -> list[Column[Row]]:
    """Return the columns of results.csv, with the tests' own parameters in the middle."""
    first = _RESULTS.split()
    return [*map(_ROW.__getitem__, first), *_parameters(rows), *(_ROW[head] for head in _ROW if head not in first)]


def speedup_columns(study: Study) -> list[Column[Pair]]:
    """Return the columns of speedup.csv."""
    named = [column.of(attrgetter("other")) for column in _parameters(study.rows)]
    subject = _of("other", "device_name workload dtype variant setting size_name size")
    sides = [*_of("other", _SIDE), *_of("base", _SIDE, "baseline_")]
    return [*subject, *_RATIO, *sides, *_BASIS, *_of("other", "cache"), *named, *_COPIED]


def crossover_columns(study: Study) -> list[Column[Crossing]]:
    """Return the columns of crossover.csv; a parameter that is the size of a line is empty there."""
    subject = _of("line.last", "run machine device workload implementation variant cache")
    named = [
        Column(at.head, lambda line, at=at: None if at.head == line.line.size_name else at.cell(line.line.last))  # type: ignore[misc]
        for at in _parameters(pair.other for pair in study.pairs)
    ]
    base = _of("pair.base", "run machine device implementation", "baseline_")
    return [*subject, *named, *_of("line.last", "dtype"), *base, *_CROSSED]


def _of(part: str, heads: str, prefix: str = "") -> list[Column[Any]]:
    return [_ROW[head].of(attrgetter(part), prefix) for head in heads.split()]


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
    params = ((name, value) for name, value in row.result.params.items() if name != row.size_name)
    values = (value if isinstance(value, str) else f"{name}={json.dumps(value)}" for name, value in params)
    return ", ".join(values) or None


def _measured(cell: Callable[[Measured], object]) -> Callable[[Row], object]:
    return lambda row: cell(row) if isinstance(row, Measured) else None


_RESULTS = (
    "run machine device device_name family workload dtype variant setting size_name size time_s low_s high_s"
    " rate rate_unit utilisation status flags reason implementation cache threads"
)
_SIDE = "run machine device implementation threads"
"""Heads of columns: the first of results.csv, and the names of a side of a speedup."""
_CHECK = _at("result.check.status"), _at("result.check.reason")
_ROW: dict[str, Column[Row]] = {
    column.head: column
    for column in (
        *_columns("run=run_name machine=run.machine.label device=result.device device_name=facts.label"),
        Column("family", lambda row: row.result.workload.partition(".")[0]),
        *_columns("workload dtype variant", "result."),
        Column("setting", _setting),
        *_columns("size_name size rate=throughput.value rate_unit=rate.unit status=result.status"),
        Column("flags", _measured(lambda row: " ".join(row.flags) or None)),
        *_columns("reason implementation cache threads", "result."),
        *(Column(metric.name, _measured(metric.of)) for metric in _METRICS),
        Column("check", _measured(lambda row: ": ".join(filter(None, (of(row) for of in _CHECK))) or None)),
        *_columns("kind title pytest_id=fullname", "result."),
    )
}


def _end(pair: Pair | None, end: str) -> float | None:
    """Return an end of the speedup's range; None if the range is too wide for a number."""
    return _finite(getattr(pair.values, end)) if pair and pair.ratio.value is not None else None


def _finite(value: float | None) -> float | None:
    return None if value in (0, math.inf) else value


_RATIO: list[Column[Pair]] = [
    *_columns("speedup=ratio.value"),
    Column("low", lambda pair: _end(pair, "low")),
    Column("high", lambda pair: _end(pair, "high")),
    *_columns("shown=ratio.mark"),
    Column("limit", lambda pair: str(pair.ratio.state) if pair.ratio.state in LIMITS else None),
    *_columns("one_shot_speedup=copies.ratio.value baseline_s=compared.base_s time_s=compared.time_s"),
    Column("flags", lambda pair: " ".join(pair.flags) or None),
    Column("simulated", lambda pair: any(side.facts.simulated for side in pair.sides)),
    *_columns("id=other.result.id"),
]
_BASIS: list[Column[Pair]] = [
    Column("baseline_way", lambda pair: words.way(pair) or None),
    *_columns("differs"),
    Column("uncertainty", lambda pair: str(pair.uncertainty or "") or None),
]
_COPIED: list[Column[Pair]] = [
    Column("one_shot_low", lambda pair: _end(pair.copies, "low") if _at("copies.uncertainty")(pair) else None),
    Column("one_shot_high", lambda pair: _end(pair.copies, "high") if _at("copies.uncertainty")(pair) else None),
    *_columns("baseline_one_shot_s=copies.compared.base_s one_shot_s=copies.compared.time_s"),
    Column("one_shot_pinned_s", lambda pair: _at("compared.time_s")(pair.in_regime(PINNED))),
    Column("one_shot_pinned_speedup", lambda pair: _at("ratio.value")(pair.in_regime(PINNED))),
]


def _crossover(name: str) -> Callable[[Crossing], float | None]:
    def size(crossing: Crossing) -> float | None:
        unknown = crossing.crossover.size is None or crossing.doubtful
        return None if unknown else _finite(getattr(crossing.crossover, name))

    return size


_CROSSED: list[Column[Crossing]] = [
    *_columns("differs=pair.differs regime=pair.regime size_parameter=line.size_name"),
    Column("crossover", _crossover("size")),
    Column("low", _crossover("low")),
    Column("high", _crossover("high")),
    Column("kind", lambda crossing: "unsure" if crossing.doubtful else crossing.crossover.kind),
    *_columns("processes"),
    Column("baseline_way", lambda crossing: "; ".join(words.ways(crossing.whole.items)) or None),
]


def _link_rate(scaled: Scaled, share: float | None) -> float | None:
    """Bytes of a collective per second, as nccl-tests define them: with the share of the bus the bus bandwidth."""
    nbytes = scaled.row.result.work.bytes
    return nbytes / scaled.row.time_s * share if nbytes and share and scaled.parallel.bus_share else None


def _efficiency(name: str) -> Callable[[Scaled], float | None]:
    return lambda scaled: _at(f"efficiency.{name}")(scaled) if scaled.scaling and scaled.scaling.ends else None


SCALING: list[Column[Scaled]] = [
    *_of("row", "run machine device device_name workload dtype variant"),
    *_columns("method devices threads mode", "parallel."),
    Column("nbytes", lambda scaled: scaled.row.result.params.get("nbytes")),
    *_of("row", "time_s item_per_s"),
    *_columns("baseline_s=speedup.base.time_s baseline_threads=base_threads"),
    *_columns("speedup low=ends.low high=ends.high", "speedup."),
    *_columns("scaling=speedup scaling_low=ends.low scaling_high=ends.high", "scaling."),
    *_columns("efficiency=efficiency.value"),
    Column("efficiency_low", _efficiency("low")),
    Column("efficiency_high", _efficiency("high")),
    *_columns("ideal_speedup=parallel.ideal_speedup"),
    Column("uncertainty", lambda scaled: str(scaled.uncertainty or "") or None),
    Column("algorithm_byte_per_s", lambda scaled: _link_rate(scaled, 1.0)),
    Column("bus_byte_per_s", lambda scaled: _link_rate(scaled, scaled.parallel.bus_share)),
    Column("rows", lambda scaled: "; ".join("+".join(map(str, batch)) for batch in scaled.parallel.rows) or None),
    *_columns("interconnect=parallel.interconnect"),
]
_RESERVED = {column.head for columns in (_ROW.values(), _RATIO, _BASIS, _COPIED, _CROSSED) for column in columns}
_RESERVED |= {f"baseline_{head}" for head in _ROW}
"""Heads of columns that no parameter may have."""
