"""A workload's times over its runs: a panel a case, its levels as lines, its changes marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from ...runfile.matching import shown_name
from ..trend import LEAST_CHANGE, Series, Trend
from .material import ChartData
from .page import MARGIN, MOST_PANELS, Figure, Key, Page, grid, linear_axis, text_width
from .theme import TINY

_HEIGHTS = {1: 260.0, 2: 190.0, 3: 165.0}
_MOST_DEFAULT = 4


@dataclass(frozen=True, slots=True)
class TrendChart:
    """A workload's series in time."""

    trend: Trend

    def draw(self, figure: Figure, theme: str) -> Page:
        """Up to two columns of panels."""
        series = self.trend.series[:MOST_PANELS]
        rows, columns = grid(len(series))
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
    axes.set_xlim(-0.5 - 0.01 * count, count - 0.5 + 0.01 * count)
    axes.set_title(series.name, pad=5)
    linear_axis(axes.yaxis, "s", 4)
    wide = max(text_width(date, TINY) for date in series.dates) + 14
    stride = max(1, math.ceil(count / max(2, int(width / wide))))
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, count, stride))))
    axes.xaxis.set_ticklabels(list(series.dates[::stride]))
    axes.grid(True, axis="y")
    ink = page.ink("accelerator0")
    axes.plot(range(count), series.times, "o", markersize=4 if count <= 100 else 2, color=ink, markeredgewidth=0,
              clip_on=False, zorder=5)  # fmt: skip
    ends = [0, *series.changes, count]
    for start, end, level in zip(ends, ends[1:], series.levels, strict=False):
        axes.plot([start - 0.5, end - 0.5], [level] * 2, linewidth=1.6, color=page.ink("muted"), zorder=4)
    for change, before, after in zip(series.changes, series.levels, series.levels[1:], strict=False):
        axes.axvline(change - 0.5, linewidth=1.4, linestyle=(0, (4, 2)), color=page.ink("accelerator1"), zorder=2)
        page.note(axes, f"{after / before - 1:+.0%}", (change - 0.5, 1), (4, -2), xycoords=("data", "axes fraction"),
                  va="top", fontweight="bold", color=page.ink("accelerator1"))  # fmt: skip


def _finding(every: Sequence[Series]) -> str:
    """``20% to 22% longer since 2026-01-15`` where each case changed once and all in one direction."""
    changes = sum(len(series.changes) for series in every)
    ratios = [series.levels[1] / series.levels[0] for series in every if len(series.changes) == 1]
    if changes != len(every) or len(ratios) < len(every) or min(ratios) < 1 < max(ratios):
        return f"{changes} changes" if changes else "no change detected"
    sizes = sorted({round(100 * abs(ratio - 1)) for ratio in ratios})
    since = sorted({series.dates[series.changes[0]] for series in every})
    how_much = " to ".join(dict.fromkeys((f"{sizes[0]}%", f"{sizes[-1]}%")))
    when = " or ".join(dict.fromkeys((since[0], since[-1])))
    return f"{how_much} {'longer' if ratios[0] > 1 else 'less'} since {when}"


def trend_figures(data: ChartData) -> list[Figure]:
    """One a workload; those with the greatest changes first."""
    figures = []
    for rank, each in enumerate(data.trends):
        changes = sum(len(series.changes) for series in each.series)
        note = (
            "Point: geometric mean of the processes' medians of a run; line: median of a level. A change: rank-sum "
            f"test at 1% over all benchmarks, of {LEAST_CHANGE:.0%} or more. "
        )
        note += "Benchmarks without a change are left out. " if changes else ""
        left = each.left_out + len(each.series[MOST_PANELS:])
        note += f"{left} more benchmarks are left out. " if left else ""
        title, subtitle = (
            f"{shown_name(each.workload)} over time: {_finding(each.series)}",
            f"{each.machine}: time per call; lower is better",
        )
        chart = TrendChart(each)
        name, shown = f"trend-{each.workload}", rank < _MOST_DEFAULT
        figures.append(Figure(name, "trend", title, subtitle, note.strip(), chart, 8 + rank / 1000, shown))
    return figures
