"""One number a workload, one panel under the other: bars, or dots beside a table.

Bars start where nothing is: at 0, or at 1× for a ratio. Values too far apart for a linear axis are dots on a
logarithmic one, where a bar's length would mean nothing; their figures stand in columns beside them.
"""

from __future__ import annotations

import itertools
import math

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ..quantity import text
from .bars import Bar, BarChart, BarPanel
from .figures import Figure
from .labels import factor
from .page import LEFT, NORMAL, RIGHT, SMALL, WIDTH, Key, Page, fitted, text_width
from .scales import Ticks, linear_ticks, log_ticks, padded, shown
from .theme import marker

_THICK, _BETWEEN = 0.17, 0.11
_ROW = 0.25
_HEAD, _FOOT = 0.32, 0.42
_WIDEST_LABEL, _WIDEST_COLUMN = 4.4, 1.3
_NARROWEST = 3.0
_LINEAR = 25.0
"""Largest over smallest value that a linear axis can still show."""


def draw_bars(figure: Figure, chart: BarChart) -> Page:
    heights = [_height(panel) for panel in chart.panels]
    dots = any(_scattered(panel) for panel in chart.panels)
    keys: list[Key] = [(word, colour, None, colour) for word, colour in chart.colours]
    heads = [_HEAD if panel.title or _scattered(panel) else 0.05 for panel in chart.panels]
    page = Page(
        figure.title,
        figure.subtitle,
        figure.caption,
        keys,
        sum(heights) + sum(heads) + _FOOT * len(heads),
        "line" if dots else "bar",
    )
    labels = [text_width(group.label, SMALL) for panel in chart.panels for group in panel.groups]
    x = LEFT + min(max(labels), _WIDEST_LABEL) + 0.12
    y = page.top
    for panel, height, head in zip(chart.panels, heights, heads, strict=True):
        y -= height + head
        if panel.title:
            page.text(LEFT, y + height + 0.08, panel.title, NORMAL, "text", weight="bold")
        if _scattered(panel):
            axes = _dots(page, panel, chart, x, y, height)
        else:
            axes = _bars(page, panel, x, y, height, chart.slower)
        axes.yaxis.set_ticklabels(
            [fitted(group.label, _WIDEST_LABEL, SMALL) for group in panel.groups], parse_math=False
        )
        y -= _FOOT
    return page


def _scattered(panel: BarPanel) -> bool:
    values = [bar.value for group in panel.groups for bar in group.bars]
    return bool(panel.unit) and max(values) / min(values) > _LINEAR


def _height(panel: BarPanel) -> float:
    if _scattered(panel):
        return _ROW * len(panel.groups)
    return sum(_THICK * len(group.bars) + _BETWEEN for group in panel.groups) + _BETWEEN


def _dots(page: Page, panel: BarPanel, chart: BarChart, x: float, y: float, height: float) -> Axes:
    used = {bar.colour for group in panel.groups for bar in group.bars}
    columns = [(word, colour) for word, colour in chart.colours if colour in used]
    named, widths = _columns(panel, columns, WIDTH - RIGHT - x - _NARROWEST)
    width = WIDTH - RIGHT - x - sum(widths)
    axes = page.axes(x, y, width, height)
    low, high = padded([bar.value for group in panel.groups for bar in group.bars])
    axes.set_xscale("log")
    _frame(page, axes, (low, high), height, _ticks(low, high, panel.unit, width))
    middles = [_ROW * (i + 0.5) for i in range(len(panel.groups))]
    axes.yaxis.set_major_locator(FixedLocator(middles))
    page.grid(axes, "both")
    for group, middle in zip(panel.groups, middles, strict=True):
        for bar in group.bars:
            (mark,) = axes.plot([bar.value], [middle], marker=marker(bar.colour), markersize=6, linestyle="", zorder=5)
            page.ink(mark.set_markerfacecolor, "page" if bar.flagged else bar.colour)
            page.ink(mark.set_markeredgecolor, bar.colour if bar.flagged else "page")
            mark.set_markeredgewidth(1.4 if bar.flagged else 1.0)
    end = x + width
    for (word, colour), column in zip(columns, widths, strict=False):
        end += column
        if named:
            page.text(end, y + height + 0.08, word, SMALL, "muted", ha="right")
        else:
            page.mark(end - 0.05, y + height + 0.12, colour)
        for words, middle in zip(_column(panel, colour), middles, strict=True):
            page.text(end, y + height - middle, words, SMALL, "text", ha="right", va="center_baseline")
    return axes


def _columns(panel: BarPanel, columns: list[tuple[str, int]], room: float) -> tuple[bool, list[float]]:
    """Whether the columns of figures are headed by their names, and their widths.

    Where names are too long the marker of the legend stands for them; where there is no room for all columns there
    are none, since a missing one would look like a source without figures.
    """
    figures = [max(text_width(words, SMALL) for words in _column(panel, colour)) for _, colour in columns]
    heads = [text_width(word, SMALL) for word, _ in columns]
    widths = [max(pair) + 0.22 for pair in zip(figures, heads, strict=True)]
    if max(heads) <= _WIDEST_COLUMN and sum(widths) <= room:
        return True, widths
    widths = [figure + 0.22 for figure in figures]
    return False, widths if sum(widths) <= room else []


def _ticks(low: float, high: float, unit: str, width: float) -> Ticks:
    """As many as there is room for between their words: steps of 1-2-5 are not equally wide."""
    inch = width / math.log(high / low)
    for most in range(max(2, int(width / 0.8)), 2, -1):
        ticks = log_ticks(low, high, unit, most)
        if all(
            inch * math.log(right / left) > 0.12 + (text_width(before, SMALL) + text_width(after, SMALL)) / 2
            for (left, before), (right, after) in itertools.pairwise(ticks)
        ):
            return ticks
    return log_ticks(low, high, unit, 2)


def _column(panel: BarPanel, colour: int) -> list[str]:
    """The values of one source, group by group."""
    found = [next((bar for bar in group.bars if bar.colour == colour), None) for group in panel.groups]
    return [text(bar.value, panel.unit) if bar else "—" for bar in found]


def _bars(page: Page, panel: BarPanel, x: float, y: float, height: float, slower: str | None) -> Axes:
    bars = [bar for group in panel.groups for bar in group.bars]
    ratio = not panel.unit
    start = 1.0 if ratio else 0.0
    values = [text(bar.value, panel.unit) if panel.unit else factor(bar.value) for bar in bars]
    notes = [f"{value}   {bar.note}" if bar.note else value for value, bar in zip(values, bars, strict=True)]
    first, second = (max(text_width(w, SMALL) for w in words) for words in (values, [bar.note for bar in bars]))
    room = 0.24 + first + second + 0.16 if ratio else 0.16 + max(text_width(note, SMALL) for note in notes)
    width = WIDTH - RIGHT - x - (room if ratio else 0.0)
    axes = page.axes(x, y, width, height)
    ends = shown(panel.values, panel.ranges)
    low, high = padded([*ends, 1.0], 0.04, 2.0) if ratio else (0.0, ends[1] / (1 - min(room / width, 0.6)))
    axes.set_xscale("log" if ratio else "linear")
    ticks = log_ticks(low, high, "", 8) if ratio else linear_ticks(low, high, panel.unit, 7)
    _frame(page, axes, (low, high), height, ticks)
    page.grid(axes, "x")
    axes.spines["left"].set_visible(not ratio)
    if slower is not None:
        page.ink(axes.axvspan(low, 1.0, zorder=0, linewidth=0).set_facecolor, "shade")
        page.ink(axes.axvline(1.0, linewidth=1.2, zorder=4).set_color, "muted")
    top, centres = _BETWEEN, []
    words = iter(zip(values, notes, strict=True))
    for group in panel.groups:
        centres.append(top + _THICK * len(group.bars) / 2)
        for bar in group.bars:
            middle, (value, note) = top + _THICK / 2, next(words)
            _bar(page, axes, bar, middle, start)
            if ratio:  # not beside the bar, where they would be taken for the value of the last dot
                at, row = x + width + 0.12 + first, y + height - middle
                page.text(at, row, value, SMALL, "text", ha="right", va="center_baseline")
                page.text(at + 0.16, row, bar.note, SMALL, "muted", va="center_baseline")
            else:
                _beside(page, axes, bar, middle, note)
            top += _THICK
        top += _BETWEEN
    axes.yaxis.set_major_locator(FixedLocator(centres))
    return axes


def _bar(page: Page, axes: Axes, bar: Bar, middle: float, start: float) -> None:
    (patch,) = axes.barh([middle], [bar.value - start], height=_THICK * 0.86, left=start, zorder=3)
    page.ink(patch.set_facecolor, "page" if bar.flagged else bar.colour)
    if bar.flagged:
        page.ink(patch.set_edgecolor, bar.colour)
        patch.set_linewidth(1.2)
    if bar.range:
        (whisker,) = axes.plot(bar.range, [middle] * 2, marker="|", markersize=5, linewidth=1.0, zorder=5)
        page.ink(whisker.set_color, "text")
    if bar.points:
        count = len(bar.points)
        (dots,) = axes.plot(bar.points, [middle] * count, marker="o", markersize=3.2, linestyle="", zorder=5)
        page.ink(dots.set_markerfacecolor, "text")
        dots.set_markeredgewidth(0)  # a rim would make them look hollow, which means flagged


def _beside(page: Page, axes: Axes, bar: Bar, middle: float, note: str) -> None:
    words = axes.annotate(
        note, (bar.value, middle), (6, 0), textcoords="offset points", va="center", fontsize=SMALL, parse_math=False
    )
    page.ink(words.set_color, "text")


def _frame(page: Page, axes: Axes, limits: tuple[float, float], height: float, ticks: list[tuple[float, str]]) -> None:
    axes.set_xlim(*limits)
    axes.set_ylim(height, 0)
    axes.xaxis.set_major_locator(FixedLocator([place for place, _ in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_ticklabels([label for _, label in ticks], parse_math=False)
