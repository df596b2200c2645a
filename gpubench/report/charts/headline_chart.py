"""The headline: how much faster each kind of work is, without a GPU how much of the measured peak it reaches, or of
benchmarks that declare no work how long each takes."""

from __future__ import annotations

from collections.abc import Sequence

from ...runfile.kinds import kind_of
from ..answer import time_text
from ..judgement import ABOVE_PEAK, peak_text, withheld
from ..labels import Row, grouped, library, listed, times_range, times_text
from ..speedup import leading
from ..sweep import slowest_first
from .layouts import NamedRows, RowMark, row_pitch, rows_height
from .material import LEAST_VALUES, ChartData, Notable, by_file, marked, plainest, slowest_words
from .page import Figure, Key
from .wording import caption, hollow_marks, warning

_ROOM = 550
"""Pixels that the rows of a picture of 700 have."""


def headline_figures(data: ChartData) -> list[Figure]:
    """One picture for each comparison that isn't with another library on the same device; shares of the peak where
    there is no other device, and times where no peak is known."""
    figures = []
    for rank, rows in enumerate(data.comparisons):
        if all(row["baseline_implementation"] != row["implementation"] for row in rows) and data.baseline is None:
            continue
        figures += _speedups(data, leading(rows), rank)
    return figures or _shares(data) or _times(data)


def _speedups(data: ChartData, pairs: list[Row], rank: int) -> list[Figure]:
    found = data.notable(pairs)
    if not found:
        return []
    rows = [row for each in found for row in each.rows]
    base, devices = data.naming.baseline(rows), data.devices(rows)
    keys = data.keys(rows, "mark")
    on_gpus = len(data.on_accelerators(rows)) == len(rows)
    if any(row["one_shot_speedup"] for row in rows):
        copied = Key("copied in and out for each call", "muted", "hollow")
        keys = (*keys, Key("data stays on the GPU", "muted", "mark"), copied)
    sides = f"{_brief(base)} faster", f"{_brief(devices[0])} faster"
    if on_gpus and all(row["baseline_device"] == "cpu" for row in rows):
        sides = "CPU faster", "GPU faster"
    elif len(devices) > 1:
        sides = f"slower than {_brief(base)}", f"faster than {_brief(base)}"
    chart = NamedRows(marked(found, lambda row: _ratio(data, row, rows)), "", keys, sides)
    title = _finding(data, found, base)
    note = f"Thick line: {listed(sorted({row['uncertainty'] for row in rows}))}. "
    subtitle = f"Speedup over {base}: each workload at its largest size, log scale"
    name = "headline" if rank == 0 else f"headline-{rank + 1}"
    words = caption(rows, data.naming, note, "*")
    return [Figure(name, "headline", title, subtitle, words, chart, rank * 20, rank == 0, warning(rows))]


def _brief(name: str) -> str:
    return name.partition(",")[0]


def _ratio(data: ChartData, row: Row, rows: Sequence[Row]) -> RowMark:
    role = data.naming.role(row)
    if reason := withheld(row):
        return RowMark(None, role, reason.replace(ABOVE_PEAK, f"— {ABOVE_PEAK}"))
    words = times_text(row["speedup"]) + "*" * bool(hollow_marks([row], rows))
    return RowMark(row["speedup"], role, words, row["low"], row["high"], row["one_shot_speedup"])


def _finding(data: ChartData, found: Sequence[Notable], base: str) -> str:
    """``H200: 19× to 280× as fast as Xeon, 2 threads, in float32``; of several devices each its range."""
    ranges = []
    sound = [row for each in plainest(found) for row in each.rows if not withheld(row)]
    for name, rows in grouped(sound, data.naming.device).items():
        words = times_range(*(end(row["speedup"] for row in rows) for end in (min, max)))
        ranges.append(f"{_brief(name)}: {words}{' as fast' * (not words.endswith(' slower'))}")
    if not ranges:
        return f"Speedup over {base}: unknown, too noisy"
    as_fast = len(ranges) == 1 and " slower" not in ranges[0]
    return f"{'; '.join(ranges)}{' as' if as_fast else ', against'} {base}{leading_dtype(found)}"


def leading_dtype(found: Sequence[Notable]) -> str:
    """``, in float32`` where rows of other dtypes stand beside those that a title is made from; else empty."""
    first, every = ({row["dtype"] for each in part for row in each.rows} for part in (plainest(found), found))
    return f", in {listed(sorted(first))}" if first != every else ""


def _shares(data: ChartData) -> list[Figure]:
    """What each device reaches of its measured peak."""
    found = data.notable(row for row in data.rows if row["utilisation"] and not library(row))
    if not found:
        return []
    shown = [row for each in found for row in each.rows]
    devices = data.devices(shown)
    reached = []
    for group, members in grouped(plainest(found), lambda each: each.group).items():
        possible = [100 * row["utilisation"] for each in members for row in each.rows if row["utilisation"] <= 1]
        reached.append((max(possible, default=0.0), group.partition(",")[0].lower()))
    shares = " and ".join(f"{share:.0f}% ({group})" for share, group in sorted(reached, reverse=True)[:2])
    title = f"{devices[0]}, of its measured peak{leading_dtype(found)}: {shares}"
    subtitle = "Share of the roofline limit that was measured at the start of the run; largest size of each workload"
    small = caption(shown, data.naming, "" if data.on_accelerators(data.rows) else "No GPU used. ", "*")
    keys = data.keys(shown, "mark") if len(devices) > 1 else ()
    chart = NamedRows(marked(found, lambda row: _share(data, row, shown)), "%", keys)
    return [Figure("headline", "headline", title, subtitle, small, chart, notice=warning(shown))]


def _share(data: ChartData, row: Row, shown: Sequence[Row]) -> RowMark:
    share, role = 100 * row["utilisation"], data.naming.role(row)
    if share > 100:
        return RowMark(None, role, f"— {ABOVE_PEAK}")
    return RowMark(share, role, peak_text(row["utilisation"]) + "*" * bool(hollow_marks([row], shown)))


def _times(data: ChartData) -> list[Figure]:
    """The time of each benchmark at its largest size, as many as a picture holds."""
    every = slowest_first(row for row in data.rows if kind_of(row["_result"]))
    if len(every) < LEAST_VALUES:
        return []
    pitch = row_pitch(max(map(len, every)))
    counts = range(LEAST_VALUES, len(every))
    count = next((n for n in counts if rows_height(by_file(every[: n + 1], every), pitch) > _ROOM), len(every))
    shown = every[:count]
    used = [row for rows in shown for row in rows]
    found = by_file(shown, every)
    entries = marked(found, lambda row: _time(data, row, used))
    least, most = (time_text(end(row["time_s"] for rows in every for row in rows), False) for end in (min, max))
    devices = data.keys(used, "mark")
    chart = NamedRows(entries, "s", devices if len(devices) > 1 else ())
    known = any(mark.low is not None for entry in entries for mark in entry.marks)
    words = caption(used, data.naming, "Thick line: 95% confidence interval. " * known, "*")
    subtitle = f"Time per call, {slowest_words(found, len(every))}; log scale"
    sized = ", each at its largest size," * any(row["size"] is not None for row in used)
    title = f"{len(every)} benchmarks{sized} take {least} to {most} per call"
    return [Figure("headline", "headline", title, subtitle, words, chart, notice=warning(used))]


def _time(data: ChartData, row: Row, shown: Sequence[Row]) -> RowMark:
    words = time_text(row["time_s"], bool(hollow_marks([row], shown)))
    return RowMark(row["time_s"], data.naming.role(row), words, row["low_s"], row["high_s"])
