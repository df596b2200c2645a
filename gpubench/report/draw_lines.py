"""Small multiples of lines over a size, on logarithmic axes."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from ..statistics import Crossover
from .figures import Figure
from .labels import size_label, size_text
from .lines import LineChart, LinePanel
from .page import LEFT, NORMAL, RIGHT, SMALL, WIDTH, Key, Page, fitted, text_width
from .scales import Ticks, log_ticks, padded, shown, size_ticks
from .theme import dashes, marker

_HEIGHTS = {1: 4.1, 2: 2.9, 3: 2.3, 4: 1.9}
_BELOW, _ABOVE = 0.46, 0.34
_STRIP = 0.13
"""Share of a speedup panel kept free of data at either end: below for the name of the region, above for crossovers."""


def draw_lines(figure: Figure, chart: LineChart) -> Page:
    panels = chart.panels
    columns = _columns(len(panels))
    rows = math.ceil(len(panels) / columns)
    height = _HEIGHTS[columns]
    one = chart.one_colour
    keys: list[Key] = [
        (word, colour, None if chart.styles else rank, None if one else colour)
        for rank, (word, colour) in enumerate(chart.colours)
    ]
    keys += [(word, None, style, style if one else None) for word, style in chart.styles if word]
    page = Page(figure.title, figure.subtitle, figure.caption, keys, rows * (height + _BELOW + _ABOVE))
    ends = [_ends(panel, chart.slower is not None) for panel in panels]
    shared = (min(low for low, _ in ends), max(high for _, high in ends))
    together = math.log10(shared[1] / shared[0]) <= 5
    if together:
        ends = [shared] * len(panels)
    limits = [_limits(own, chart.slower is not None) for own in ends]
    ticks = [log_ticks(low, high, chart.unit, 7 if columns < 3 else 5) for low, high in ends]
    gutter = 0.12 + max(text_width(label, SMALL) for own in ticks for _, label in own)
    gap = 0.28 if together else gutter + 0.25
    width = (WIDTH - LEFT - RIGHT - gutter - gap * (columns - 1)) / columns
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        x = LEFT + gutter + column * (width + gap)
        y = page.top - (row + 1) * (height + _BELOW + _ABOVE) + _BELOW
        axes = page.axes(x, y, width, height)
        _panel(page, axes, chart, panel, limits[i], ticks[i], width)
        if together and column:
            axes.tick_params(labelleft=False)
        page.text(x, y + height + 0.07, fitted(panel.title, width * 0.95, NORMAL), NORMAL, "text", weight="bold")
        size = size_label(panel.size)
        page.text(x + width, y - 0.35, fitted(size, width, SMALL), SMALL, "muted", ha="right")
    return page


def _columns(count: int) -> int:
    """Rows as full as can be: 5 panels are 3 and 2."""
    if count <= 4:
        return {1: 1, 2: 2, 3: 3, 4: 2}[count]
    return 3 if count in (5, 6, 9) else 4


def _ends(panel: LinePanel, speedup: bool) -> tuple[float, float]:
    """The part of the axis that may hold data and ticks."""
    values = shown(panel.values, panel.ranges)
    return padded([*values, 1.0], share=0.02, least=3.0) if speedup else padded(values)


def _limits(ends: tuple[float, float], speedup: bool) -> tuple[float, float]:
    """With a strip above and below for words, in charts of speedups."""
    room = (ends[1] / ends[0]) ** (_STRIP / (1 - 2 * _STRIP)) if speedup else 1.0
    return ends[0] / room, ends[1] * room


def _panel(
    page: Page, axes: Axes, chart: LineChart, panel: LinePanel, limits: tuple[float, float], ticks: Ticks, width: float
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = [point.x for curve in panel.curves for point in curve.line.points]
    left, right = padded(sizes, least=2.0)
    axes.set_xlim(left, right)
    axes.set_ylim(*limits)
    label = max(text_width(size_text(size, panel.size), SMALL) for size in set(sizes))
    marks = size_ticks(sizes, panel.size, max(2, int(width * 0.9 / (label + 0.12))))
    for axis, places in ((axes.xaxis, marks), (axes.yaxis, ticks)):
        axis.set_major_locator(FixedLocator([place for place, _ in places]))
        axis.set_minor_locator(NullLocator())
        axis.set_ticklabels([label for _, label in places], parse_math=False)
    page.grid(axes, "y")
    if chart.slower is not None:
        _region(page, axes, chart.slower, limits[0], width)
    for rank, curve in enumerate(panel.curves):
        points = curve.line.points
        x, y = [point.x for point in points], [point.y for point in points]
        band = axes.fill_between(
            x, [p.low for p in points], [p.high for p in points], alpha=0.18, linewidth=0, zorder=2
        )
        page.ink(band.set_facecolor, curve.colour)
        if chart.slower is not None:  # the strips are for words
            band.set_clip_path(Rectangle((0, _STRIP), 1, 1 - 2 * _STRIP, transform=axes.transAxes))
        style = curve.style if chart.styles else [colour for _, colour in chart.colours].index(curve.colour)
        shape = marker(curve.style if chart.one_colour else curve.colour)
        (line,) = axes.plot(
            x, y, linestyle=dashes(style), marker=shape, linewidth=1.6, markersize=4.8, zorder=3 + rank * 0.01
        )
        page.ink(line.set_color, curve.colour)
        page.ink(line.set_markeredgecolor, "page")
        line.set_markeredgewidth(0.6)
        doubted = [point for point in points if point.flagged]
        (hollow,) = axes.plot(
            [p.x for p in doubted],
            [p.y for p in doubted],
            marker=shape,
            markersize=4.8,
            linestyle="",
            markeredgewidth=1.2,
            zorder=3.5,
        )
        page.ink(hollow.set_markerfacecolor, "page")
        page.ink(hollow.set_markeredgecolor, curve.colour)
    if chart.slower is not None:
        _crossovers(page, axes, panel, (left, right), limits, width)


def _region(page: Page, axes: Axes, slower: str, low: float, width: float) -> None:
    """The line at 1×, and below it the region where the baseline is the faster one."""
    region = axes.axhspan(low, 1.0, zorder=0, linewidth=0)
    page.ink(region.set_facecolor, "shade")
    page.ink(axes.axhline(1.0, linewidth=1.2, zorder=2).set_color, "muted")
    words = fitted(f"{slower} is faster", width - 0.1, SMALL)
    label = axes.text(0.02, 0.03, words, transform=axes.transAxes, fontsize=SMALL, style="italic", parse_math=False)
    page.ink(label.set_color, "muted")


def _crossovers(
    page: Page, axes: Axes, panel: LinePanel, ends: tuple[float, float], limits: tuple[float, float], width: float
) -> None:
    """A diamond on the line at 1× for each, with its interval, and their sizes in the free strip above the data."""
    found = [(curve, curve.crossing.crossover) for curve in panel.curves if curve.crossing]
    marked = [(curve, known, known.size) for curve, known in found if known.size]
    if not marked:
        return
    for curve, known, size in marked:
        if known.low is not None and known.high is not None:
            reach = [max(known.low, ends[0]), min(known.high, ends[1])]
            (bar,) = axes.plot(reach, [1.0, 1.0], linewidth=4.0, solid_capstyle="butt", alpha=0.55, zorder=4)
            page.ink(bar.set_color, curve.colour)
        (mark,) = axes.plot([size], [1.0], marker="D", markersize=6, linestyle="", markeredgewidth=1.4, zorder=5)
        page.ink(mark.set_markerfacecolor, "page")
        page.ink(mark.set_markeredgecolor, curve.colour)

    def place(size: float) -> float:
        return math.log(size / ends[0]) / math.log(ends[1] / ends[0])

    sizes = sorted(size for _, _, size in marked)
    words = " … ".join(dict.fromkeys(size_text(size, panel.size) for size in (sizes[0], sizes[-1])))
    if len(marked) == 1:
        words += _interval(marked[0][1], ends, panel.size)
    words = f"◆ {words}"
    told = f"{words}, by line" if sizes[0] < sizes[-1] else words
    words = told if text_width(told, SMALL) <= width - 0.1 else fitted(words, width - 0.1, SMALL)
    half = text_width(words, SMALL) / width / 2
    middle = (place(sizes[0]) + place(sizes[-1])) / 2
    at = min(max(middle, half + 0.01), 1 - half - 0.01)
    top = limits[1] * (limits[0] / limits[1]) ** (_STRIP * 0.75)
    for size in (sizes[0], sizes[-1]):
        (drop,) = axes.plot([size, size], [1.0, top], linestyle=(0, (1, 2)), linewidth=0.9, zorder=1)
        page.ink(drop.set_color, "muted")
    label = axes.text(
        at, 0.985, words, transform=axes.transAxes, fontsize=SMALL, ha="center", va="top", parse_math=False
    )
    page.ink(label.set_color, "text")


def _interval(known: Crossover, ends: tuple[float, float], name: str) -> str:
    """`` (900–1.2k)``; an end beyond what was measured is an ellipsis, and with both there nothing is known."""
    if known.low is None or known.high is None:
        return ""
    if known.low <= ends[0] and known.high >= ends[1]:
        return " (may be anywhere)"
    low, high = (size_text(end, name) if ends[0] < end < ends[1] else "…" for end in (known.low, known.high))
    return f" ({low}–{high})"
