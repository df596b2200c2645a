"""The headline: how much faster each kind of work is, or without a GPU how much of the measured peak it reaches."""

from __future__ import annotations

from collections.abc import Sequence

from ..labels import Row, grouped
from .layouts import NamedRow, NamedRows, RowMark, too_wide
from .material import ChartData, Notable
from .page import Figure, Key
from .wording import STAR, caption, doubts, warning

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
    found = data.notable(pairs)
    rows = [row for each in found for row in each.rows]
    if len(rows) < LEAST_VALUES:
        return []
    base, devices = data.naming.baseline(rows), data.devices(rows)
    keys = data.keys(rows, "mark")
    if any(row["one_shot_speedup"] for row in rows):
        keys += (
            Key("data stays on the GPU", "muted", "mark"),
            Key("copied in and out for each call", "muted", "hollow"),
        )
    faster = "GPU" if data.on_accelerators(rows) == rows else devices[0] if len(devices) == 1 else "other"
    slower = "CPU" if all(row["baseline_device"] == "cpu" for row in rows) and faster == "GPU" else base
    sides = (f"{_brief(slower)} faster", f"{_brief(faster)} faster")
    chart = NamedRows(tuple(_entry(data, each, rows) for each in found), "", keys, sides)
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
        if too_wide(row["low"], row["high"]):
            marks.append(RowMark(None, role, "unknown (too noisy)"))
        else:
            words = ratio_text(row["speedup"]) + "*" * bool(doubts([row], rows))
            marks.append(RowMark(row["speedup"], role, words, row["low"], row["high"], row["one_shot_speedup"]))
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
    found = data.notable(row for row in data.rows if row["utilisation"] and row["implementation"] != "numpy")
    shown = [row for each in found for row in each.rows]
    if len(shown) < LEAST_VALUES:
        return []
    entries = []
    for each in found:
        marks = []
        for row in each.rows:
            share = 100 * row["utilisation"]
            words = f"{share:.0f}%" + "*" * bool(doubts([row], shown))
            known = (share, data.naming.role(row), words)
            marks.append(RowMark(*known) if share <= 100 else RowMark(None, known[1], "— above the measured peak"))
        entries.append(NamedRow(each.group, each.name, each.detail, tuple(marks)))
    devices = data.devices(shown)
    reached = [
        (max(map(_share, members)), group.partition(",")[0].lower())
        for group, members in grouped(found, lambda each: each.group).items()
    ]
    shares = " and ".join(f"{share:.0f}% ({group})" for share, group in sorted(reached, reverse=True)[:2])
    title = f"{devices[0]}, of its measured peak: {shares}"
    subtitle = "Share of the roofline limit that was measured at the start of the run; largest size of each workload"
    note = "No GPU used. Have one? Install a GPU build of PyTorch (pytorch.org/get-started), then run again. "
    small = caption(shown, data.naming, "" if data.on_accelerators(data.rows) else note, STAR)
    chart = NamedRows(tuple(entries), "%", data.keys(shown, "mark") if len(devices) > 1 else ())
    return [Figure("headline", "headline", title, subtitle, small, chart, notice=warning(shown))]


def _share(each: Notable) -> float:
    return max((100 * row["utilisation"] for row in each.rows if row["utilisation"] <= 1), default=0.0)
