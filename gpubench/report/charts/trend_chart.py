"""A workload's times over its runs: a panel a case, its levels as lines, its changes marked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ..trend import LEAST_CHANGE, Series, Trend
from .page import (
    LEFT,
    NORMAL,
    RIGHT,
    SMALL,
    WIDTH,
    ChartData,
    Figure,
    Key,
    Page,
    Ticks,
    fitted,
    linear_ticks,
    text_width,
)

_HEIGHTS = {1: 3.2, 2: 2.2}
_BELOW, _ABOVE = 0.42, 0.34


@dataclass(frozen=True, slots=True)
class TrendChart:
    """A workload's series in time, a panel a case."""

    trend: Trend

    def draw(self, figure: Figure) -> Page:
        return draw_trend(figure, self.trend)


def trend_figures(data: ChartData) -> list[Figure]:
    """A figure for each workload in time."""
    found = []
    for each in data.trends:
        changes = sum(len(series.changes) for series in each.series)
        subtitle = f"{each.machine}: {changes} {'change' if changes == 1 else 'changes'} of level; lower is better"
        note = (
            "Point: geometric mean of the processes' medians of a run; line: median of a level. A change is one that "
            f"Pettitt's rank test finds at 1 % over all cases, of {LEAST_CHANGE:.0%} or more. "
        )
        note += "Cases without a change are left out. " if changes else ""
        note += f"{each.left_out} more cases are left out. " if each.left_out else ""
        name, title = f"trend-{each.workload}", f"{each.workload} in time"
        found.append(Figure(name, title, subtitle, note.strip(), TrendChart(each), rank=8))
    return found


def draw_trend(figure: Figure, trend: Trend) -> Page:
    columns = 1 if len(trend.series) == 1 else 2
    rows = math.ceil(len(trend.series) / columns)
    height = _HEIGHTS[columns]
    keys: list[Key] = [("a run", 0, None, 0), ("level", 6, 0, None)]
    if any(series.changes for series in trend.series):
        keys.append(("change", 1, 1, None))
    page = Page(figure.title, figure.subtitle, figure.caption, keys, rows * (height + _BELOW + _ABOVE))
    limits = [_limits(series) for series in trend.series]
    ticks = [linear_ticks(low, high, "s", 5) for low, high in limits]
    gutter = 0.12 + max(text_width(label, SMALL) for own in ticks for _, label in own)
    width = (WIDTH - LEFT - RIGHT) / columns - gutter - (0.15 if columns > 1 else 0)
    for i, series in enumerate(trend.series):
        row, column = divmod(i, columns)
        x = LEFT + gutter + column * (width + gutter + 0.3)
        y = page.top - (row + 1) * (height + _BELOW + _ABOVE) + _BELOW
        axes = page.axes(x, y, width, height)
        axes.set_ylim(*limits[i])
        _panel(page, axes, series, ticks[i], _most(series, width))
        page.text(x, y + height + 0.07, fitted(series.name, width, NORMAL), NORMAL, "text", weight="bold")
    return page


def _most(series: Series, width: float) -> int:
    """Dates that there is room for."""
    return max(2, int(width / (max(text_width(date, SMALL) for date in series.dates) + 0.3)))


def _limits(series: Series) -> tuple[float, float]:
    low, high = min(series.times), max(series.times)
    room = max(0.08 * (high - low), 0.05 * high)
    return max(0.0, low - room), high + room


def _panel(page: Page, axes: Axes, series: Series, ticks: Ticks, most: int) -> None:
    count = len(series.times)
    axes.set_xlim(-0.5 - 0.01 * count, count - 0.5 + 0.01 * count)
    axes.yaxis.set_major_locator(FixedLocator([place for place, _ in ticks]))
    axes.yaxis.set_ticklabels([label for _, label in ticks], parse_math=False)
    stride = max(1, math.ceil(count / most))
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, count, stride))))
    axes.xaxis.set_ticklabels(list(series.dates[::stride]), parse_math=False)
    axes.xaxis.set_minor_locator(NullLocator())
    page.grid(axes, "y")
    size = 4.0 if count <= 100 else 2.0
    (dots,) = axes.plot(range(count), series.times, marker="o", markersize=size, linestyle="", zorder=5)
    dots.set_clip_on(False)
    page.ink(dots.set_color, 0)
    dots.set_markeredgewidth(0)
    ends = [0, *series.changes, count]
    for start, end, level in zip(ends, ends[1:], series.levels, strict=False):
        (line,) = axes.plot([start - 0.5, end - 0.5], [level] * 2, linewidth=1.6, zorder=4)
        page.ink(line.set_color, 6)
    for change in series.changes:
        (mark,) = axes.plot([change - 0.5] * 2, axes.get_ylim(), linewidth=1.4, linestyle=(0, (5, 2)), zorder=2)
        page.ink(mark.set_color, 1)
