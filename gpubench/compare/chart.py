"""All changes of a comparison, sorted, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.ticker import FixedLocator, NullLocator

from ..report.charts.draw import render
from ..report.charts.page import (
    DARK,
    LEFT,
    LIGHT,
    RIGHT,
    SMALL,
    WIDTH,
    Figure,
    Key,
    Page,
    fitted,
    linear_ticks,
    log_ticks,
    marker,
    text_width,
)
from ..runfile.writer import replace
from .comparison import Comparison, change_text
from .verdict import FASTER, INCONCLUSIVE, SAME, SLOWER, Verdict, percent

MOST_ROWS = 80
_LOOKS = {SLOWER: 1, FASTER: 2, SAME: 0, INCONCLUSIVE: 6}
"""The theme's colour and marker of each verdict."""
_ROW, _FOOT, _WIDEST = 0.22, 0.45, 4.2
_REACH = (1 / 20, 20.0)
"""An interval beyond that is cut off at the chart's edge: it says no more than that nothing is known."""


def save(comparison: Comparison, path: Path) -> None:
    """Write ``path`` for a light page, and beside it ``…-dark`` for a dark one. Raises UsageError."""
    kind = path.suffix.removeprefix(".").lower()
    verdicts = sorted(comparison.verdicts, key=lambda each: (-each.ratio.value, each.key))
    left = len(verdicts) - MOST_ROWS
    shown = verdicts if left <= 0 else [*verdicts[: MOST_ROWS // 2], *verdicts[-MOST_ROWS // 2 :]]
    caption = (
        "Point: ratio of the geometric means of the processes' medians; line: its 95 % interval, missing where one "
        f"process a side says nothing of it; shaded: less than {percent(comparison.threshold)}, the threshold."
    )
    caption += f" {left} benchmarks between the largest and the smallest changes are left out." if left > 0 else ""
    figure = Figure(path.stem, "Did it change?", f"Time after / time before: {comparison.line}", caption)
    files = render([figure], (kind,), partial(_draw, verdicts=shown, threshold=comparison.threshold))
    for theme, target in ((LIGHT, path), (DARK, path.with_name(f"{path.stem}-dark{path.suffix}"))):
        replace(target, files[f"{path.stem}-{theme}.{kind}"])


def _draw(figure: Figure, verdicts: Sequence[Verdict], threshold: float) -> Page:
    used = [word for word in _LOOKS if any(each.verdict == word for each in verdicts)]
    keys: list[Key] = [(word, _LOOKS[word], None, _LOOKS[word]) for word in used]
    height = _ROW * len(verdicts) + 0.1
    page = Page(figure.title, figure.subtitle, figure.caption, keys, height + _FOOT)
    notes = [change_text(each.ratio.value) for each in verdicts]
    labels = [fitted(str(each.key), _WIDEST, SMALL) for each in verdicts]
    x = LEFT + max(text_width(label, SMALL) for label in labels) + 0.12
    beside = max(text_width(note, SMALL) for note in notes) + 0.15
    width = WIDTH - RIGHT - x - beside
    axes = page.axes(x, page.top - height, width, height)
    low, high = _limits(verdicts, threshold)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(height, 0)
    ticks = log_ticks(low, high, "", 8) if high / low >= 2 else linear_ticks(low, high, "", 8)
    axes.xaxis.set_major_locator(FixedLocator([place for place, _ in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_ticklabels([label for _, label in ticks], parse_math=False)
    page.grid(axes, "x")
    band = axes.axvspan(1 / (1 + threshold), 1 + threshold, zorder=0, linewidth=0)
    page.ink(band.set_facecolor, "shade")
    page.ink(axes.axvline(1.0, linewidth=1.2, zorder=2).set_color, "muted")
    middles = [0.05 + _ROW * (i + 0.5) for i in range(len(verdicts))]
    axes.yaxis.set_major_locator(FixedLocator(middles))
    axes.yaxis.set_ticklabels(labels, parse_math=False)
    for each, middle, note in zip(verdicts, middles, notes, strict=True):
        look = _LOOKS[each.verdict]
        if each.ratio.low > 0 and math.isfinite(each.ratio.high):
            ends = [max(each.ratio.low, low), min(each.ratio.high, high)]
            (line,) = axes.plot(ends, [middle] * 2, linewidth=1.6, zorder=4)
            page.ink(line.set_color, look)
        place = min(max(each.ratio.value, low), high)
        (point,) = axes.plot([place], [middle], marker=marker(look), markersize=5.5, linestyle="", zorder=5)
        page.ink(point.set_color, look)
        page.text(WIDTH - RIGHT, page.top - middle, note, SMALL, "text", ha="right", va="center_baseline")
    page.text(x + width, page.top - height - 0.35, "time after / time before", SMALL, "muted", ha="right")
    return page


def _limits(verdicts: Sequence[Verdict], threshold: float) -> tuple[float, float]:
    """Room for every estimate, for intervals within reach, and for the threshold."""
    values = [1 / (1 + 2 * threshold), 1 + 2 * threshold, *(each.ratio.value for each in verdicts)]
    for each in verdicts:
        values += [end for end in (each.ratio.low, each.ratio.high) if _REACH[0] < end < _REACH[1]]
    room = (max(values) / min(values)) ** 0.04
    return min(values) / room, max(values) * room
