"""What several devices brought, in words."""

from __future__ import annotations

import pandas as pd

from ..quantity import seconds_text
from .labels import factor
from .scaling import ONE_THREAD, SINGLE
from .summary import Summary, Table
from .table import records


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
