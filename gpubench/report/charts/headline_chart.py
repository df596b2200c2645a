"""The headline: how much faster each kind of work is, or without a GPU how much of the measured peak it reaches."""

from __future__ import annotations

from collections.abc import Sequence

from ..labels import Row, flagged, grouped
from .material import ChartData, Notable
from .named_rows import NamedRow, NamedRows, RowMark
from .naming import warning
from .page import Figure, Key
from .panels import too_wide
from .small_print import STAR, caption

LEAST_VALUES = 3


def headline_figures(data: ChartData) -> list[Figure]:
    """One picture for each comparison that isn't with NumPy; shares of the peak where there is no other device."""
    figures = []
    for rank, rows in enumerate(data.comparisons):
        if all(row["baseline_implementation"] != row["implementation"] for row in rows) and data.baseline is None:
            continue
        figures += _speedups(data, rows, rank)
    return figures or _shares(data)


def _speedups(data: ChartData, pairs: list[Row], rank: int) -> list[Figure]:
    naming = data.naming
    found = data.notable(pairs)
    rows = [row for each in found for row in each.rows]
    if len(rows) < LEAST_VALUES:
        return []
    copies = any(row["one_shot_speedup"] for row in rows)
    base = naming.baseline(rows)
    devices = data.devices(rows)
    keys = [*data.keys(rows, "mark")]
    if copies:
        keys += [
            Key("data stays on the GPU", "muted", "mark"),
            Key("copied in and out for each call", "muted", "hollow"),
        ]
    entries = [_entry(data, each, rows) for each in found]
    faster = "GPU" if data.on_accelerators(rows) == rows else devices[0] if len(devices) == 1 else "other"
    slower = "CPU" if all(row["baseline_device"] == "cpu" for row in rows) and faster == "GPU" else base
    chart = NamedRows(
        tuple(entries), "", tuple(keys), (f"{_brief(slower)} faster", f"{_brief(faster)} faster"), tuple(rows)
    )
    title = _finding(data, found, devices, base)
    note = "Largest size of each workload; thick line: 95 % interval. " if len(devices) < 9 else ""
    subtitle = f"Speedup over {base}: each workload at its largest size, log scale"
    name = "headline" if rank == 0 else f"headline-{rank + 1}"
    words = caption(rows, data.naming, note, STAR)
    return [Figure(name, "headline", title, subtitle, words, chart, rank * 20, rank == 0, warning(rows))]


def _brief(name: str) -> str:
    return name.partition(",")[0]


def _entry(data: ChartData, each: Notable, rows: Sequence[Row]) -> NamedRow:
    marks = []
    for row in each.rows:
        role = data.naming.role(row)
        low, high = row["low"], row["high"]
        if too_wide(low, high):
            marks.append(RowMark(None, role, "unknown (too noisy)"))
            continue
        doubt = "*" if flagged(row) and not warning(rows) else ""
        marks.append(
            RowMark(row["speedup"], role, ratio_text(row["speedup"]) + doubt, low, high, row["one_shot_speedup"])
        )
    return NamedRow(each.group, each.name, each.detail, tuple(marks))


def ratio_text(value: float) -> str:
    """``130×``, ``0.24×``: two digits."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}×" if rounded >= 10 else f"{rounded:.1f}×" if rounded >= 1 else f"{rounded:.2g}×"


def _finding(data: ChartData, found: Sequence[Notable], devices: Sequence[str], base: str) -> str:
    """``H200: 19× to 280× as fast as Xeon, 2 threads``; of several devices each its range."""
    ranges = []
    for name in devices:
        own = [r["speedup"] for each in found for r in each.rows if data.naming.device(r) == name and r["speedup"]]
        low, high = ratio_text(min(own)), ratio_text(max(own))
        ranges.append(f"{_brief(name)}: {low} to {high}" if low != high else f"{_brief(name)}: {low}")
    return f"{'; '.join(ranges)} the speed of {base}"


def _shares(data: ChartData) -> list[Figure]:
    """What each device reaches of its measured peak."""
    naming = data.naming
    rows = [row for row in data.rows if row["utilisation"] and row["implementation"] != "numpy"]
    found = data.notable(rows)
    shown = [row for each in found for row in each.rows]
    if len(shown) < LEAST_VALUES:
        return []
    entries = []
    for each in found:
        marks = []
        for row in each.rows:
            share = 100 * row["utilisation"]
            above = share > 100
            words = (
                "— above the measured peak" if above else f"{share:.0f}%" + "*" * (flagged(row) and not warning(shown))
            )
            marks.append(RowMark(None if above else share, naming.role(row), words))
        entries.append(NamedRow(each.group, each.name, each.detail, tuple(marks)))
    devices = data.devices(shown)
    keys = data.keys(shown, "mark") if len(devices) > 1 else ()
    reached = []
    for group, members in grouped(found, lambda each: each.group).items():
        reached.append((max(map(_share, members)), group.partition(",")[0].lower()))
    reached.sort(reverse=True)
    shares = " and ".join(f"{share:.0f}% ({group})" for share, group in reached[:2])
    title = f"{devices[0]}, of its measured peak: {shares}"
    subtitle = "Share of the roofline limit that was measured at the start of the run; largest size of each workload"
    note = "No GPU used. Have one? Install a GPU build of PyTorch (pytorch.org/get-started), then run again. "
    small = caption(shown, naming, "" if data.on_accelerators(data.rows) else note, STAR)
    chart = NamedRows(tuple(entries), "%", keys, None, tuple(shown))
    return [Figure("headline", "headline", title, subtitle, small, chart, notice=warning(shown))]


def _share(each: Notable) -> float:
    return max((100 * row["utilisation"] for row in each.rows if row["utilisation"] <= 1), default=0.0)
