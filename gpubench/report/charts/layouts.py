"""The layouts of charts: panels of lines over a size, named rows with marks on one axis, and bars of a step's parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.markers import CARETDOWN, CARETLEFT, CARETRIGHT, CARETUP
from matplotlib.ticker import MaxNLocator

from ...runfile.quantities import shorten
from ..number import PERCENT, SECONDS, size_label, size_text
from .page import NORMAL, PAGE_WIDTH, PX, SMALL, TINY, Figure, Key, Page, log_ticks, set_ticks, size_ticks, text_width

_HEIGHTS = {1: 330.0, 2: 250.0, 3: 180.0}
"""Pixels of a row of panels, by the number of rows."""
_AXIS = 52.0
"""Pixels above and below the rows: the words of the axis."""
_WORD = 14.0
"""Pixels between labels at the ends of lines, and of the line below a panel's title."""
_BEYOND = 10.0
"""How many times beyond the outermost values an interval is shown: a wider one would flatten the lines."""
_TOGETHER = 5
"""Decades that panels with a common axis may span."""
_ROW, _MARK, _HEAD = 25.0, 15.0, 26.0
"""Pixels of a named row, of each further mark in it, and of a group's heading."""
_LONGEST_NAME = 56
"""Characters of a row's name."""
PARTS = {
    "waiting for data": "accelerator1", "own Python": "cpu1", "Python, launches": "cpu0", "operators": "accelerator0",
}  # fmt: skip
"""The parts of a profiled step, and their roles."""
Ends = tuple[float, float]


class Dot(NamedTuple):
    """A value of a line with the ends of its interval, and the text that hovering shows.

    ``y`` is NaN where nothing is drawn, and the text is the reason. A ``limit`` is the end of the interval next to 1×.
    """

    x: float
    y: float
    low: float
    high: float
    title: str
    flagged: bool = False
    limit: bool = False


class Mark(NamedTuple):
    """The crossing of a curve and 1×: a diamond where ``low`` = ``high``, a bar between them where no more is known."""

    low: float
    high: float
    words: str


class Curve(NamedTuple):
    """A line and its looks; ``label`` stands at its end. A dashed one has no bars at its points and no hollow
    points."""

    dots: tuple[Dot, ...]
    role: str
    label: str
    dashed: bool = False
    mark: Mark | None = None

    @property
    def points(self) -> tuple[Dot, ...]:
        """The values that are drawn."""
        return tuple(dot for dot in self.dots if not math.isnan(dot.y))

    @property
    def type(self) -> tuple[float, bool]:
        """The size of the label's type, and whether it is bold."""
        return TINY if self.dashed else SMALL, not self.dashed


class Panel(NamedTuple):
    """Curves over one size, whose parameter ``size`` names."""

    title: str
    size: str
    curves: tuple[Curve, ...]

    @property
    def crossings(self) -> str:
        """The sizes at which the curves of a single device cross 1×."""
        marks = [curve.mark.words for curve in self.curves if curve.mark]
        return f"1× at {', '.join(marks)}" if marks and len({curve.role for curve in self.curves}) == 1 else ""


@dataclass(frozen=True, slots=True)
class LinePanels:
    """``unit`` is empty for a ratio, whose ``slower`` names the side that is faster below 1; both axes are
    logarithmic."""

    panels: tuple[Panel, ...]
    unit: str
    keys: tuple[Key, ...] = ()
    slower: str = ""

    @property
    def height(self) -> float:
        """Pixels of the panels."""
        rows = math.ceil(len(self.panels) / 2)
        return _HEIGHTS[min(rows, 3)] * rows

    def draw(self, page: Page) -> None:
        """Draw up to two columns of panels, with one axis of values where they are alike."""
        limits = [self._limits(panel) for panel in self.panels]
        widest = min(low for low, _ in limits), max(high for _, high in limits)
        shared = widest[1] <= widest[0] * 10**_TOGETHER
        limits = [widest] * len(limits) if shared else limits
        ticks = [log_ticks(*ends, self.unit, 6 if len(limits) < 5 else 5) for ends in limits]
        left = 12 + max(text_width(words, TINY) for labels in ticks for words in labels.values())
        curves = [curve for panel in self.panels for curve in panel.curves]
        right = 12 + max(text_width(curve.label, *curve.type) for curve in curves)
        crossed = any(panel.crossings for panel in self.panels)
        above = 10 + 15 * any(panel.title for panel in self.panels) + _WORD * crossed
        lefts = [left + 18, 14 if shared else left][: len(limits)]
        every = page.panels(len(limits), lefts, right, above, below=40)
        for i, (panel, axes, ends, labels) in enumerate(zip(self.panels, every, limits, ticks, strict=True)):
            if i % 2 == 0:
                axes.set_ylabel({"": "speedup", SECONDS: "time per call"}.get(self.unit, self.unit))
            axes.set_title(panel.title, pad=5 + _WORD * PX * crossed)
            axes.tick_params("y", labelleft=i % 2 == 0 or not shared)
            self._draw_panel(page, axes, panel, ends)
            set_ticks(axes.yaxis, labels)

    def _limits(self, panel: Panel) -> Ends:
        """Return the limits of the values: of a ratio a sixth of the axis or more is below 1×, where words stand."""
        values = [point.y for curve in panel.curves for point in curve.points]
        ends = [
            end for curve in panel.curves if not curve.dashed for dot in curve.points for end in (dot.low, dot.high)
        ]
        low, high = _padded(values, ends, [1.0] * bool(self.slower), 0.06, 3.0 if self.slower else 1.25)
        return (min(low, high**-0.2), high) if self.slower else (low, high)

    def _draw_panel(self, page: Page, axes: Axes, panel: Panel, limits: Ends) -> None:
        sizes = [point.x for curve in panel.curves for point in curve.points]
        ends = [end for curve in panel.curves if curve.mark for end in (curve.mark.low, curve.mark.high)]
        xlim = _padded([*sizes, *ends], (), (), 0.04, 2.0)
        axes.set(xscale="log", yscale="log", xlim=xlim, ylim=limits, xlabel=size_label(panel.size))
        box = axes.get_position()
        width, height = box.width * PAGE_WIDTH, box.height * page.height
        set_ticks(axes.xaxis, size_ticks(sizes, panel.size, width))
        axes.grid(True, axis="y")
        page.note(axes, panel.crossings, (0, 1), (0, 5), xycoords="axes fraction", color=page.ink(panel.curves[0].role))
        if self.slower:
            axes.axhspan(limits[0], 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
            axes.axhline(1.0, linewidth=1.3, zorder=2, color=page.ink("muted"))
            words = f"{self.slower} faster"
            words = words if text_width(words, TINY) < width / 2 else "slower"  # a curve would cross long ones
            first, last = (min(curve.points[end].y for curve in panel.curves) for end in (0, -1))
            beside, side = (0.98, "right") if last >= first else (0.02, "left")  # where there is room below the lines
            page.note(axes, words, (beside, 0), (0, 2), xycoords="axes fraction", ha=side, zorder=1.5, style="italic")
        for rank, curve in enumerate(panel.curves):
            _draw_curve(page, axes, curve, 3 + rank * 0.01, panel.size)
        low, span = limits[0], math.log(limits[1] / limits[0])
        places = [math.log(curve.points[-1].y / low) / span * height for curve in panel.curves]
        for curve, place in zip(panel.curves, spread(places, _WORD, 4, height - 4), strict=True):
            size, bold = curve.type
            looks = {"fontsize": size * PX, "fontweight": "bold" if bold else "normal", "va": "center", "zorder": 7}
            at, ink = (1, place / height), page.ink(curve.role)
            page.add(page.note(axes, curve.label, at, (3, 0), xycoords="axes fraction", color=ink, **looks), curve.role)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least ``gap``, as little as that takes, kept between ``low`` and ``high``.

    In the order of the places; where there isn't room for all, evenly from ``low`` to ``high``. Isotonic regression of
    the places less their gaps, by its min-max formula (R. Barlow et al., Statistical Inference under Order
    Restrictions, 1972). Neither adjustText nor matplotlib-label-lines keeps labels in one column beside lines.
    """
    order, count = sorted(range(len(places)), key=places.__getitem__), len(places)
    gap = min(gap, (high - low) / max(1, count - 1))
    bare, moved = [places[i] - rank * gap for rank, i in enumerate(order)], [0.0] * count
    for rank, i in enumerate(order):
        ends = (min(fmean(bare[j:k]) for k in range(rank + 1, count + 1)) for j in range(rank + 1))
        moved[i] = min(max(*ends, low), high - (count - 1) * gap) + rank * gap
    return moved


def _padded(values: Sequence[float], ends: Sequence[float], more: Sequence[float], share: float, least: float) -> Ends:
    """Limits of a logarithmic axis of the values, of the ends of intervals as far as they are shown, and of ``more``: a
    share of its length free on either side, ``least`` a factor between its ends."""
    low, high = min(values) / _BEYOND, max(values) * _BEYOND
    every = [*values, *(min(max(end, low), high) for end in ends if end > 0), *more]
    low, high = min(every), max(every)
    if high / low < least:
        low, high = math.sqrt(low * high / least), math.sqrt(low * high * least)
    room = (high / low) ** share
    return low / room, high * room


def _draw_curve(page: Page, axes: Axes, curve: Curve, order: float, size_name: str) -> None:
    # a limit on the line would look like a fall, and a line through what isn't drawn like a value
    joined = [(dot.x, math.nan if dot.limit else dot.y) for dot in curve.dots]
    style, width = ((0, (4, 2.2)), 1.3) if curve.dashed else ("-", 1.9)
    page.line(axes, joined, curve.role, linestyle=style, linewidth=width, zorder=order)
    for dot in curve.points:
        looks: dict[str, Any] = {"markersize": 3.6 if curve.dashed else 6.0, "zorder": order + 0.5}
        if dot.limit:
            looks |= {"marker": "^" if dot.y > 1 else "v", "markersize": 5.0 if curve.dashed else 8.0}
            looks |= {"color": page.ink("muted")} if curve.dashed else {}
        looks["hollow"] = dot.limit or (dot.flagged and not curve.dashed)
        told = f"{size_label(size_name)} = {size_text(dot.x, size_name)}: {dot.title}"
        page.mark(axes, (dot.x, dot.y), curve.role, told, **looks)
        if not curve.dashed:
            _draw_interval(page, axes, dot.x, (dot.low, dot.high), axes.get_ylim(), curve.role)
    if curve.mark and curve.mark.low < curve.mark.high:
        ends = curve.mark.low, curve.mark.high
        _draw_interval(page, axes, 1.0, ends, ends, curve.role, upright=False)
    elif curve.mark:
        looks = {"marker": "D", "markersize": 5.5 if curve.dashed else 8.0, "zorder": 8}
        page.mark(axes, (curve.mark.low, 1.0), curve.role, curve.mark.words, **looks)


def _draw_interval(
    page: Page, axes: Axes, at: float, ends: Ends, limits: Ends, role: str, upright: bool = True
) -> None:
    """A bar between the ends, cut at the limits of the axis, with an arrow where it goes on."""
    cut = [min(max(end, limits[0]), limits[1]) for end in ends]
    places = [(at, end) if upright else (end, at) for end in cut]
    page.line(axes, places, role, linewidth=4, alpha=0.35, zorder=3)
    markers = (CARETDOWN, CARETUP) if upright else (CARETLEFT, CARETRIGHT)
    for end, within, place, marker in zip(ends, cut, places, markers, strict=True):
        if end != within:
            page.line(axes, [place], role, marker=marker, markersize=9, markeredgewidth=0, alpha=0.6, zorder=3)


class RowMark(NamedTuple):
    """A value with its interval, and a ``second`` on the same line: the value with copies, or the ideal share. No
    ``value``: the end nearest to 1 of the interval is the limit; a ``modelled`` one is its bar alone."""

    value: float | None
    role: str
    words: str
    low: float | None = None
    high: float | None = None
    second: float | None = None
    modelled: bool = False
    title: str = ""

    @property
    def ends(self) -> list[float]:
        """The known ends of the interval."""
        return [end for end in (self.low, self.high) if end]

    @property
    def limit(self) -> float | None:
        """The end that is known of a mark without a value."""
        return min(self.ends, key=lambda end: abs(math.log(end))) if self.value is None and self.ends else None


class NamedRow(NamedTuple):
    """A row: the heading above it, its name, and its marks from top to bottom."""

    group: str
    name: str
    marks: tuple[RowMark, ...]


@dataclass(frozen=True, slots=True)
class NamedRows:
    """``unit`` is empty for ratios, "%" for bars on a linear axis; ``sides`` are the words left and right of 1×."""

    entries: tuple[NamedRow, ...]
    unit: str = ""
    keys: tuple[Key, ...] = ()
    sides: tuple[str, str] | None = None

    @property
    def height(self) -> float:
        """Pixels of the rows, their headings, the axis below and the words above."""
        return self._pitch * len(self.entries) + _HEAD * len({row.group for row in self.entries} - {""}) + _AXIS

    @property
    def _pitch(self) -> float:
        return max(_ROW, _MARK * max(len(row.marks) for row in self.entries) + 6)

    def draw(self, page: Page) -> None:
        """Draw names and values as two columns left of the axis, headings in bold, and a mark for each value."""
        names: list[tuple[float, str, str]] = []
        marks: list[tuple[float, RowMark]] = []
        y, group = 0.0, ""
        for entry in self.entries:
            if entry.group != group:
                group = entry.group
                names.append((y + _HEAD * 0.6, group, "bold"))
                y += _HEAD
            middle = y + self._pitch / 2
            names.append((middle, shorten(entry.name, _LONGEST_NAME), "normal"))
            marks += [(middle + (i - (len(entry.marks) - 1) / 2) * _MARK, mark) for i, mark in enumerate(entry.marks)]
            y += self._pitch
        left = 24 + max(text_width(mark.words, SMALL, bold=True) for _, mark in marks)
        left += max(text_width(words, NORMAL, weight == "bold") for _, words, weight in names)
        (axes,) = page.panels(1, [left])
        axes.set(ylim=(y, 0), yticks=())
        beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "va": "center", "color": page.ink("text")}
        for at, words, weight in names:
            page.note(axes, words, (0, at), (-left * PX, 0), fontsize=NORMAL * PX, fontweight=weight, **beside)
        room = axes.get_position().width * PAGE_WIDTH
        limits = self._scale(page, axes, [mark for _, mark in marks], room)
        for at, mark in marks:
            looks = {"fontsize": SMALL * PX, "fontweight": "bold", "ha": "right", **beside}
            page.note(axes, mark.words, (0, at), (-6, 0), **looks)
            self._draw_mark(page, axes, mark, at, limits)

    def _scale(self, page: Page, axes: Axes, marks: Sequence[RowMark], room: float) -> Ends:
        """Set the axis of ``room`` pixels and return the ends at which bars are cut."""
        axes.grid(True, axis="x")
        values = [value for mark in marks for value in (mark.value, mark.limit, mark.second) if value] or [1.0]
        if self.unit == PERCENT:
            high = 1.04 * max(100.0, *values, *(min(mark.high or 0.0, 2 * (mark.value or 0.0)) for mark in marks))
            axes.set_xlim(0, high)
            axes.xaxis.set_major_locator(MaxNLocator(6))
            axes.xaxis.set_major_formatter("{x:g}%")
            return 0, high
        limits = _padded(values, [end for mark in marks for end in mark.ends], [1.0] * bool(self.sides), 0.04, 2.0)
        axes.set(xscale="log", xlim=limits)
        set_ticks(axes.xaxis, log_ticks(*limits, self.unit, 5, room))
        if self.sides:
            axes.axvspan(limits[0], 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
            axes.axvline(1.0, linewidth=1.4, zorder=2, color=page.ink("muted"), solid_capstyle="butt")
            sides = f"◂ {self.sides[0]}", f"{self.sides[1]} ▸"
            if sum(text_width(side, TINY) for side in sides) > room:
                sides = "◂ slower", "faster ▸"
            for at, side in enumerate(sides):
                looks = {"xycoords": "axes fraction", "ha": ("left", "right")[at], "va": "top"}
                page.note(axes, side, (at, 0), (0, -22 * PX), **looks)
        return limits

    def _draw_mark(self, page: Page, axes: Axes, mark: RowMark, y: float, limits: Ends) -> None:
        """A mark or a bar with its interval, and the second value as a tick; a triangle for a limit."""
        title, share, ends = mark.title or mark.words, self.unit == PERCENT, mark.ends
        looks = {"color": page.ink("text"), "zorder": 4} if share else {"zorder": 5}
        if share and mark.value is not None:
            (bar,) = axes.barh([y], [mark.value], height=12, color=page.ink(mark.role), zorder=3)
            page.add(bar, mark.role, title)
            if ends:
                page.line(axes, [(min(end, limits[1]), y) for end in ends], mark.role, linewidth=1.2, **looks)
        elif len(ends) == 2 and mark.modelled:
            page.line(axes, [(end, y) for end in ends], mark.role, title, linewidth=7, alpha=0.5)
        elif len(ends) == 2:
            _draw_interval(page, axes, y, (ends[0], ends[1]), limits, mark.role, upright=False)
        if mark.limit and not mark.modelled:
            page.mark(axes, (mark.limit, y), mark.role, title, marker=">" if mark.limit > 1 else "<", hollow=True)
        if mark.value is not None and mark.second is not None:
            if not share:
                page.line(axes, [(mark.second, y), (mark.value, y)], mark.role, linewidth=1.4, alpha=0.6, zorder=3)
            page.line(axes, [(mark.second, y - 6), (mark.second, y + 6)], mark.role, linewidth=2.4, **looks)
        if mark.value is not None and not share:
            page.mark(axes, (mark.value, y), mark.role, title)


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Rows of the parts of a step in seconds: a name, the parts by PARTS, the end of the range, the words beside it."""

    rows: tuple[tuple[str, tuple[float, ...], float, str], ...]
    keys: tuple[Key, ...] = tuple(Key(name, role, "bar") for name, role in PARTS.items())

    @property
    def height(self) -> float:
        """Pixels of the rows and of the axis."""
        return 34.0 * len(self.rows) + 40

    def draw(self, page: Page) -> None:
        """Draw one bar a row, the range as a pale end."""
        (axes,) = page.panels(1, [12 + max(text_width(name, TINY) for name, *_ in self.rows)])
        for i, (_, parts, high, words) in enumerate(self.rows):
            left = 0.0
            for seconds, role in zip((*parts, max(0.0, high - sum(parts))), (*PARTS.values(), ""), strict=True):
                ink, alpha = page.ink(role or "accelerator0"), 1 if role else 0.3
                axes.barh(-i, seconds, left=left, height=0.6, color=ink, alpha=alpha)
                left += seconds
            page.note(axes, words, (left, -i), (4, 0), va="center")
        axes.set_yticks([-i for i in range(len(self.rows))], [row[0] for row in self.rows])
        axes.set(xlim=(0, 1.25 * max(max(sum(parts), high) for _, parts, high, _ in self.rows)))
        axes.set_xlabel("seconds of a step")
        axes.grid(True, axis="x")


def stacked_figure(answer: str, rows: Iterable[tuple[str, tuple[float, ...], float, str]], note: str) -> Figure:
    """Return the picture of a profile: the ``answer``, and a row of each device."""
    return Figure("profile", "profile", answer, "Parts of a mean step", note, StackedBars(tuple(rows)))
