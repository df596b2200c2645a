"""A workload's times over its runs: a panel a case, its levels as lines, its changes marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from ...runfile.quantities import shorten, text
from .. import words
from ..study import CHANGE_LEVEL, LEAST_CHANGE, Measured, Series, Study, Trend
from .page import MARGIN, MOST_PANELS, PX, SMALL, TINY, Figure, Key, Page, grid, linear_axis, text_width

_HEIGHTS = {1: 260.0, 2: 190.0, 3: 165.0}
_MOST_DEFAULT = 4


@dataclass(frozen=True, slots=True)
class TrendChart:
    """A workload's series in time."""

    trend: Trend

    def draw(self, figure: Figure, theme: str) -> Page:
        """Up to two columns of panels."""
        series = self.trend.series[:MOST_PANELS]
        rows, columns = grid(len(series), figure.narrow)
        keys = [Key("a run", "accelerator0", "mark"), Key("level", "muted", "rule")]
        if any(each.changes for each in series):
            keys.append(Key("change", "accelerator1", "dashed"))
        page = Page(figure, theme, rows * _HEIGHTS[min(rows, 3)], keys)
        for each, axes in zip(series, page.panels(len(series)), strict=True):
            _draw_series(page, axes, each, (page.width - 2 * MARGIN) / columns - 80)
        return page


def _draw_series(page: Page, axes: Axes, series: Series, width: float) -> None:
    count = len(series.times)
    low, high = min(series.times), max(series.times)
    room = max(0.08 * (high - low), 0.05 * high)
    axes.set_ylim(max(0.0, low - room), high + room)
    last = text(series.times[-1], "s")
    beside = text_width(last, SMALL * 1.12) + 12
    axes.set_xlim(-0.5 - 0.01 * count, count - 0.5 + count * beside / (width - beside))
    axes.set_title(_name(series.last), pad=5)
    linear_axis(axes.yaxis, "s", 4)
    wide = max(text_width(date, TINY) for date in series.dates) + 14
    stride = max(1, math.ceil(count / max(2, int(width / wide))))
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, count, stride))))
    axes.xaxis.set_ticklabels(list(series.dates[::stride]))
    axes.grid(True, axis="y")
    ink = page.ink("accelerator0")
    axes.plot(range(count), series.times, "o", markersize=6 if count <= 100 else 2, color=ink, markeredgewidth=0,
              clip_on=False, zorder=5)  # fmt: skip
    page.note(axes, last, (count - 1, series.times[-1]), (7, 0), va="center", fontsize=SMALL * PX, fontweight="bold",
              color=ink, zorder=6)  # fmt: skip
    ends = [0, *series.changes, count]
    for start, end, level in zip(ends, ends[1:], series.levels, strict=False):
        axes.plot([start - 0.5, end - 0.5], [level] * 2, linewidth=1.2, color=page.ink("muted"), zorder=4)
    for change, before, after in _changes(series):
        axes.axvline(change - 0.5, linewidth=1.4, linestyle=(0, (4, 2)), color=page.ink("accelerator1"), zorder=2)
        page.note(axes, f"{after / before - 1:+.0%}", (change - 0.5, 1), (4, -2), xycoords=("data", "axes fraction"),
                  va="top", fontweight="bold", color=page.ink("accelerator1"))  # fmt: skip


def _name(row: Measured) -> str:
    where = [f"on {row.result.device}" * (row.result.device != "cpu"), row.library]
    return shorten(" ".join(filter(None, [words.benchmark(row.result), *where])), 60)


def _finding(every: Sequence[Series]) -> str:
    """``Greatest change: +22% since 2026-01-15``."""
    changed = [
        (after / before - 1, series.dates[place]) for series in every for place, before, after in _changes(series)
    ]
    if not changed:
        return f"No change proven in {len(every[0].times)} runs"
    share, since = max(changed, key=lambda change: abs(math.log1p(change[0])))
    return f"Greatest change: {share:+.0%} since {since}"


def _changes(series: Series) -> list[tuple[int, float, float]]:
    """Return the index at which each change begins, and the levels before and after it."""
    return list(zip(series.changes, series.levels, series.levels[1:], strict=False))


def trend_figures(study: Study) -> list[Figure]:
    """Return a picture for each workload; those with the greatest changes come first."""
    figures = []
    for rank, each in enumerate(study.trends):
        note = (
            "Point: median of a run's processes; line: median of a level. A change: rank-sum "
            f"test at {CHANGE_LEVEL:.0%} over all benchmarks, of {LEAST_CHANGE:.0%} or more. "
        )
        note += "Benchmarks without a change are left out. " * any(series.changes for series in each.series)
        left = len(each.series[MOST_PANELS:])
        note += f"{left} more benchmarks are left out. " * bool(left)
        subtitle = f"{_finding(each.series)}. {each.last.run.machine.label}; lower is better"
        workload = words.name(each.last.result)
        title, name = f"{workload}: time per call of each run", f"trend-{workload}"
        shown, chart = rank < _MOST_DEFAULT, TrendChart(each)
        figures.append(Figure(name, "trend", title, subtitle, note.strip(), chart, 8 + rank / 1000, shown))
    return figures
