"""Every number of a measured case: its column in results.csv, its unit, its label and how to find it.

:data:`METRICS` is the only place that knows them. The columns of results.csv, the tables of a summary, the axes of
charts and docs/metrics.md are made from it, so a new metric is one entry here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from ..runfile.quantities import text
from .rows import Measured

Number = float | int | None


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a case. ``of`` gives its value in ``unit``, None where it is unknown.

    ``in_summary`` shows it beside the highest rates, where any of them has a value.
    """

    name: str
    unit: str
    label: str
    meaning: str
    of: Callable[[Measured], Number]
    in_summary: bool = False

    def words(self, value: Number) -> str:
        """The value for people: ``1.50 GB``, ``73%`` of a share, a dash where it is unknown."""
        if self.unit != SHARE or value is None:
            return text(value, self.unit.replace("1/", "/"))
        return "<1%" if value < 0.01 else f"{value:.0%}" if value < 10 else f"{value:,.0f}×"


SHARE = "1"
"""Unit of a share of a whole."""


def _percentile(share: float) -> Callable[[Measured], Number]:
    """By the nearest rank, of all processes' kept samples; None where a sample is of several calls, or where there are
    too few for one to lie beyond it."""

    def of(row: Measured) -> Number:
        if any((process.iterations or 1) > 1 for process in row.times.processes):
            return None
        samples = sorted(seconds for each in row.times.samples for seconds in each)
        rank = math.ceil(share * len(samples))
        return samples[rank - 1] if rank < len(samples) else None

    return of


def _copy(name: str) -> Callable[[Measured], Number]:
    return lambda row: getattr(row.result.transfer, name, None)


def _per(amount: float | None, unit: float | None) -> Number:
    return amount / unit if amount is not None and unit else None


_METRICS = (
    Metric("time_s", "s", "Time per call", "wall time, wait included: rounds' median, processes' median",
           attrgetter("times.median_s")),
    Metric("low_s", "s", "Low end", "of the 95 % interval of the processes' medians; none from one process",
           lambda row: row.interval.low if row.interval else None),
    Metric("high_s", "s", "High end", "of the same interval", lambda row: row.interval.high if row.interval else None),
    Metric("latency_s", "s", "Latency", "median seconds for one call and its own wait", attrgetter("times.latency_s")),
    Metric("p95_s", "s", "95th percentile", "of the wall time of single calls, from 20 of them on", _percentile(0.95)),
    Metric("p99_s", "s", "99th percentile", "of the wall time of single calls, from 100 of them on", _percentile(0.99)),
    Metric("first_call_s", "s", "First call", "the first call in its process: what it loads, compiles and allocates",
           attrgetter("result.first_call_s")),
    Metric("device_s", "s", "Device time per call", "seconds per call the device was busy, launch gaps excluded",
           attrgetter("result.device_s")),
    Metric("launch_s", "s", "Launch overhead", "host seconds per call to enqueue the work",
           attrgetter("result.launch_s")),
    Metric("copy_in_s", "s", "Copy in", "the inputs from pageable host memory to the device", _copy("in_s")),
    Metric("copy_out_s", "s", "Copy out", "the outputs from the device to pageable host memory", _copy("out_s")),
    Metric("copy_in_pinned_s", "s", "Copy in, pinned", "the inputs from page-locked host memory to the device",
           _copy("in_pinned_s")),
    Metric("copy_out_pinned_s", "s", "Copy out, pinned", "the outputs from the device to page-locked host memory",
           _copy("out_pinned_s")),
    Metric("iqr_s", "s", "Interquartile range", "spread of the wall time between rounds", attrgetter("times.iqr_s")),
    Metric("mean_s", "s", "Mean time per call", "mean over rounds of the wall time", attrgetter("times.mean_s")),
    Metric("min_s", "s", "Shortest time per call", "fastest round's wall time", attrgetter("times.min_s")),
    Metric("rounds", "", "Rounds", "timed stretches", attrgetter("times.rounds")),
    Metric("iterations", "", "Iterations", "calls in each round", attrgetter("times.iterations")),
    Metric("flop_per_s", "FLOP/s", "Throughput", "FLOPs of the call / time_s",
           lambda row: _per(row.result.work.flops, row.time_s)),
    Metric("byte_per_s", "B/s", "Bandwidth", "minimum memory traffic of the call / time_s",
           lambda row: _per(row.result.work.bytes, row.time_s)),
    Metric("item_per_s", "1/s", "Rate", "items of the call / time_s",
           lambda row: _per(row.result.work.items, row.time_s)),
    Metric("utilisation", SHARE, "% of peak", "least time that the device's measured peaks allow / time_s",
           attrgetter("utilisation"), in_summary=True),
    Metric("memory_bytes", "B", "Peak memory", "most bytes the benchmark held on its device at once",
           attrgetter("result.memory_bytes"), in_summary=True),
    Metric("energy_j", "J", "Energy per call", "from the device's own energy counter, idle power included",
           attrgetter("result.energy_j"), in_summary=True),
    Metric("item_per_j", "1/J", "Items/J", "items of the call / energy per call",
           lambda row: _per(row.result.work.items, row.result.energy_j), in_summary=True),
    Metric("check_error", SHARE, "Error", "max|result - float64 reference| / max|reference|",
           attrgetter("result.check_error")),
)  # fmt: skip
METRICS = {metric.name: metric for metric in _METRICS}
