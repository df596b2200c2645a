"""What several devices bring: each case of several against the best that is not parallel, and against one device.

Time is compared per item, so that strong scaling (the work stays) and weak scaling (it grows with the devices) read
alike: speedup = items/s over the baseline's items/s. With the total work fixed that is t1 / tk, with the work per
device fixed k t1 / tk; efficiency is speedup / k either way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from ..format import seconds_text
from ..runfile.schema import Parallel, Result
from .labels import factor
from .render import Summary, Table
from .speedup import estimate
from .table import HIDDEN, records

Row = dict[str, Any]
SINGLE, ONE_THREAD, REPLICATED = "single", "one thread", "data_parallel"
COLUMNS = (
    "run", "machine", "device", "device_name", "workload", "dtype", "variant", "method", "devices", "threads", "mode",
    "microbatches", "nbytes", "time_s", "item_per_s", "baseline_s", "baseline_threads", "speedup", "low", "high",
    "scaling", "scaling_low", "scaling_high", "efficiency", "efficiency_low", "efficiency_high", "ideal_speedup",
    "uncertainty", "algorithm_byte_per_s", "bus_byte_per_s", "rows", "phases", "interconnect",
)  # fmt: skip
"""Of scaling.csv. ``speedup``: over the best that is not parallel (on a CPU one process with all threads);
``scaling``: over one device (of a CPU: one thread); ``efficiency``: scaling / devices."""


def frame(results: pd.DataFrame) -> pd.DataFrame:
    """A row for each case that says how it used several devices, or is one they are held against; then HIDDEN."""
    rows = [row for row in records(results) if row["_result"].times and _parallel(row) and _parallel(row).method]
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(_job(row), []).append(row)
    found = [_scaled(row, members) for members in groups.values() for row in members]
    columns = [*COLUMNS, *HIDDEN]
    return pd.DataFrame([[row.get(column) for column in columns] for row in found], columns=columns, dtype=object)


def _parallel(row: Row) -> Parallel:
    return row["_result"].parallel  # type: ignore[no-any-return]


def _job(row: Row) -> Hashable:
    """What cases have in common that differ only in how, and over how many devices, they do the same."""
    case, parallel = row["_result"].case, _parallel(row)
    kind = row["_run"].machine.device(case.device).kind
    name = case.workload.partition(".")[2] or case.workload
    return row["run"], kind, name, case.dtype, case.variant, parallel.mode or "strong"


def _scaled(row: Row, members: list[Row]) -> Row:
    result: Result = row["_result"]
    parallel, times = _parallel(row), result.times
    assert times is not None
    scaled: Row = {
        **{name: row[name] for name in ("run", "machine", "device", "device_name", "workload", *HIDDEN)},
        "dtype": row["dtype"],
        "variant": row["variant"],
        "method": parallel.method,
        "devices": parallel.devices,
        "threads": parallel.threads,
        "mode": parallel.mode,
        "microbatches": parallel.microbatches,
        "nbytes": result.case.params.get("nbytes"),
        "time_s": times.median_s,
        "item_per_s": result.work.items / times.median_s if result.work.items else None,
        "ideal_speedup": parallel.ideal_speedup,
        "rows": "; ".join("+".join(map(str, batch)) for batch in parallel.rows) or None,
        "phases": "; ".join(f"{name} {seconds!r}" for name, seconds in parallel.phases.items()) or None,
        "interconnect": parallel.interconnect,
    }
    if result.work.bytes and parallel.bus_share:
        scaled["algorithm_byte_per_s"] = result.work.bytes / times.median_s
        scaled["bus_byte_per_s"] = scaled["algorithm_byte_per_s"] * parallel.bus_share
    base = _best(row, members, SINGLE) or _best(row, members, REPLICATED)
    one = _best(row, members, ONE_THREAD) or base
    if base is not None and one is not None and result.work.items:
        scaled["baseline_s"] = base["_result"].times.median_s
        scaled["baseline_threads"] = _parallel(base).threads or base["_result"].case.threads
        *speedup, uncertainty = _ratio(base, row)
        *scaling, of_scaling = _ratio(one, row)
        scaled |= dict(zip(("speedup", "low", "high"), speedup, strict=True))
        scaled |= dict(zip(("scaling", "scaling_low", "scaling_high"), scaling, strict=True))
        scaled["uncertainty"] = uncertainty or of_scaling
        if not (parallel.method == SINGLE and one is not base):  # all threads of a CPU are no single device
            names = ("efficiency", "efficiency_low", "efficiency_high")
            shares = [value and value / parallel.devices for value in scaling]
            scaled |= dict(zip(names, shares, strict=True))
    return scaled


def _best(row: Row, members: list[Row], method: str) -> Row | None:
    """The fastest per item of those that use one device by this method: of the row's own workload where it has any,
    since the least of several measurements of the same step is biased."""
    found = [other for other in members if _parallel(other).method == method and _parallel(other).devices == 1]
    found = [other for other in found if other["_result"].work.items]
    own = [other for other in found if other["workload"] == row["workload"]]

    def per_item(other: Row) -> float:
        result: Result = other["_result"]
        assert result.times is not None
        assert result.work.items
        return result.times.median_s / result.work.items

    return min(own or found, key=per_item, default=None)


def _ratio(base: Row, row: Row) -> tuple[float, float | None, float | None, str | None]:
    """Items/s over the base's, with its range and what that is; of the base itself 1, which no sample can change."""
    if base is row:
        return 1.0, None, None, None
    items = row["_result"].work.items / base["_result"].work.items
    _, _, ratio, uncertainty = estimate(base["_result"].times, row["_result"].times)
    return ratio.value * items, ratio.low * items, ratio.high * items, uncertainty


# What several devices brought, in words.


def told(scaled: pd.DataFrame) -> Table:
    """A row for each case of several devices that has something to be held against."""
    body = []
    found = [row for row in records(scaled) if row["speedup"] is not None and row["method"] not in (SINGLE, ONE_THREAD)]
    for row in found:
        times = _ranged(row["scaling"], row["scaling_low"], row["scaling_high"])
        best = _ranged(row["speedup"], row["low"], row["high"])
        each = f" × {row['threads']} thread{'s' if row['threads'] != 1 else ''}" if row["threads"] else ""
        count = row["microbatches"]
        pieces = f", {count} microbatch{'es' * (count != 1)}" if count else ""
        body.append(
            (
                row["workload"],
                f"{row['method']}{pieces}",
                f"{row['devices']}{each}",
                row["mode"] or "—",
                seconds_text(row["time_s"]),
                times,
                best,
                f"{row['efficiency']:.0%}" if row["efficiency"] is not None else "—",
                factor(row["ideal_speedup"]) if row["ideal_speedup"] else "—",
            )
        )
    threads = sorted({row["baseline_threads"] for row in found if row["baseline_threads"]})
    columns = (
        "workload", "method", "devices", "scaling", "a step", "against one device", "against the best not parallel",
        "efficiency", "ideal",
    )  # fmt: skip
    note = "One device of a CPU is one process with one thread; the best that is not parallel there is one process"
    note += f" with {' or '.join(map(str, threads))} threads. In brackets: "
    kinds = sorted({row["uncertainty"] for row in found if row["uncertainty"]})
    return Table("Several devices", columns, tuple(body), note + ", ".join(kinds) + ".")


def _ranged(value: float, low: float | None, high: float | None) -> str:
    """The baseline itself has no range."""
    return factor(value) if low is None or high is None else f"{factor(value)} ({factor(low)}–{factor(high)})"


def added(summary: Summary, scaled: pd.DataFrame) -> Summary:
    """The summary with that table after the machines; unchanged where there is nothing to tell."""
    table = told(scaled)
    if not table.rows:
        return summary
    return Summary((*summary.tables[:1], table, *summary.tables[1:]), summary.charts, summary.picture)
