"""What several devices bring: each such case against the best single process, and against one device.

Time is compared per item, so that strong scaling (the work stays) and weak scaling (it grows with the devices) read
alike: speedup = items/s over the baseline's items/s. With the total work fixed that is t1 / tk, with the work per
device fixed k t1 / tk; efficiency is speedup / k either way.
"""

from __future__ import annotations

from collections.abc import Hashable

import pandas as pd

from ..format import counted, ratio_text, seconds_text
from ..runfile.schema import Parallel
from .judgement import TOO_NOISY, too_noisy
from .labels import Row, grouped
from .render import Table
from .speedup import times_and_ratio
from .table import HIDDEN, records

SINGLE, ONE_THREAD, REPLICATED = "single", "one thread", "data_parallel"
_DECLARED = ("method", "devices", "threads", "mode", "microbatches", "ideal_speedup", "interconnect")
"""Columns that a case's record holds as they are."""
_MEASURED = (
    "run", "machine", "device", "device_name", "workload", "dtype", "variant", "time_s", "item_per_s", *HIDDEN,
)  # fmt: skip
"""Columns that the results have."""
_RATIOS = ("speedup", "low", "high", "scaling", "scaling_low", "scaling_high")
_COLUMNS = (
    "run", "machine", "device", "device_name", "workload", "dtype", "variant", "method", "devices", "threads", "mode",
    "microbatches", "nbytes", "time_s", "item_per_s", "baseline_s", "baseline_threads", *_RATIOS, "efficiency",
    "efficiency_low", "efficiency_high", "ideal_speedup", "uncertainty", "algorithm_byte_per_s", "bus_byte_per_s",
    "rows", "phases", "interconnect",
)  # fmt: skip
"""Of scaling.csv. ``speedup``: over the best that is not parallel (on a CPU one process with all threads);
``scaling``: over one device (of a CPU: one thread); ``efficiency``: scaling / devices."""


def scaling_table(results: pd.DataFrame) -> pd.DataFrame:
    """A row for each case that says how it used several devices, or is one they are held against; then HIDDEN."""
    rows = [row for row in records(results) if row["_result"].times and _parallel(row) and _parallel(row).method]
    made = [_scaled(row, members) for members in grouped(rows, _job).values() for row in members]
    columns = [*_COLUMNS, *HIDDEN]
    return pd.DataFrame([[row.get(column) for column in columns] for row in made], columns=columns, dtype=object)


def _parallel(row: Row) -> Parallel:
    return row["_result"].parallel  # type: ignore[no-any-return]


def _job(row: Row) -> Hashable:
    """What cases have in common that differ only in how, and over how many devices, they do the same."""
    case = row["_result"].case
    kind = row["_run"].machine.device(case.device).kind
    name = case.workload.partition(".")[2] or case.workload
    return row["run"], kind, name, case.dtype, case.variant, _parallel(row).mode or "strong"


def _scaled(row: Row, members: list[Row]) -> Row:
    result, parallel = row["_result"], _parallel(row)
    scaled: Row = {
        **{name: row[name] for name in _MEASURED},
        **{name: getattr(parallel, name) for name in _DECLARED},
        "nbytes": result.params.get("nbytes"),
        "rows": "; ".join("+".join(map(str, batch)) for batch in parallel.rows) or None,
        "phases": "; ".join(f"{name} {seconds!r}" for name, seconds in parallel.phases.items()) or None,
    }
    if result.work.bytes and parallel.bus_share:
        scaled["algorithm_byte_per_s"] = result.work.bytes / row["time_s"]
        scaled["bus_byte_per_s"] = scaled["algorithm_byte_per_s"] * parallel.bus_share
    base = _fastest(row, members, SINGLE) or _fastest(row, members, REPLICATED)
    if base is not None and result.work.items:
        scaled |= _against(base, _fastest(row, members, ONE_THREAD) or base, row)
    return scaled


def _against(base: Row, device: Row, row: Row) -> Row:
    """Columns of the speedup over the best single process, and of the scaling over one device."""
    parallel = _parallel(row)
    *speedup, uncertainty = _ratio(base, row)
    *scaling, scaling_uncertainty = _ratio(device, row)
    cells: Row = dict(zip(_RATIOS, (*speedup, *scaling), strict=True))
    cells |= {"baseline_s": base["time_s"], "uncertainty": uncertainty or scaling_uncertainty}
    cells["baseline_threads"] = _parallel(base).threads or base["_result"].threads
    if parallel.method != SINGLE or device is base:  # all threads of a CPU are no single device
        names = ("efficiency", "efficiency_low", "efficiency_high")
        cells |= dict(zip(names, [value and value / parallel.devices for value in scaling], strict=True))
    return cells


def _fastest(row: Row, members: list[Row], method: str) -> Row | None:
    """The fastest per item of those that use one device by this method.

    Of the row's own workload where it has any: the least of several measurements of the same step is biased.
    """
    able = [other for other in members if _parallel(other).method == method and _parallel(other).devices == 1]
    able = [other for other in able if other["_result"].work.items]
    same = [other for other in able if other["workload"] == row["workload"]]
    return min(same or able, key=lambda other: other["time_s"] / other["_result"].work.items, default=None)


def _ratio(base: Row, row: Row) -> tuple[float, float | None, float | None, str | None]:
    """Items/s over the base's, with its range and the words for it; of the base itself exactly 1."""
    if base is row:
        return 1.0, None, None, None
    items = row["_result"].work.items / base["_result"].work.items
    _, _, ratio, uncertainty = times_and_ratio(base["_result"].times, row["_result"].times)
    return ratio.value * items, ratio.low * items, ratio.high * items, uncertainty


def several_devices(scaled: pd.DataFrame) -> Table:
    """For a summary: a row for each case of several devices that has a baseline."""
    rows = [row for row in records(scaled) if row["speedup"] is not None and row["method"] not in (SINGLE, ONE_THREAD)]
    threads = sorted({row["baseline_threads"] for row in rows if row["baseline_threads"]})
    columns = (
        "workload", "method", "devices", "scaling", "time", "vs. one device", "vs. single process",
        "efficiency", "ideal",
    )  # fmt: skip
    note = "On a CPU, one device is one process with one thread, and the single process has all"
    note += f" {' or '.join(map(str, threads))} threads. In brackets: "
    kinds = sorted({row["uncertainty"] for row in rows if row["uncertainty"]})
    return Table("Multi-device", columns, tuple(map(_cells, rows)), note + ", ".join(kinds) + ".")


def _cells(row: Row) -> tuple[str, ...]:
    threads = f" × {counted(row['threads'], 'thread')}" if row["threads"] else ""
    batches = row["microbatches"]
    return (
        row["workload"],
        row["method"] + (f", {batches} microbatch{'es' * (batches != 1)}" if batches else ""),
        f"{row['devices']}{threads}",
        row["mode"] or "—",
        seconds_text(row["time_s"]),
        _ranged(row["scaling"], row["scaling_low"], row["scaling_high"]),
        _ranged(row["speedup"], row["low"], row["high"]),
        f"{row['efficiency']:.0%}" if row["efficiency"] is not None else "—",
        ratio_text(row["ideal_speedup"]) if row["ideal_speedup"] else "—",
    )


def _ranged(value: float, low: float | None, high: float | None) -> str:
    """The baseline itself has no range; a range beyond a factor of four is no number."""
    if too_noisy(low, high):
        return TOO_NOISY
    return (
        ratio_text(value)
        if low is None or high is None
        else f"{ratio_text(value)} ({ratio_text(low)}–{ratio_text(high)})"
    )
