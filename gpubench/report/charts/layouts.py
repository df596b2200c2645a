"""The two layouts that charts share: panels of lines over a size, and named rows with marks on one axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.markers import CARETDOWN, CARETLEFT, CARETRIGHT, CARETUP
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ...runfile.quantities import shorten
from ..number import size_label, size_text
from ..study import Point
from .page import MARGIN, NORMAL, PAGE_WIDTH, PX, SMALL, TINY, Key, Page, log_axis, size_axis, spread, text_width

_HEIGHTS = {1: 330.0, 2: 250.0, 3: 180.0}
"""Pixels of a row of panels, by the number of rows."""
_AXIS = 52.0
"""Pixels of a panel's title, ticks and the name of its sizes."""
_WORD = 14.0
"""Pixels between labels at the ends of lines."""
_BEYOND = 10.0
"""How many times beyond the outermost values an interval is shown: a wider one would flatten the lines."""
_TOGETHER = 5
"""Decades that panels with a common axis may span."""
_ROW, _MARK, _HEAD = 25.0, 15.0, 26.0
"""Pixels of a named row, of each further mark in it, and of a group's heading."""
_LONGEST_NAME = 46
"""Characters of a row's name."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The crossing of a curve and 1×: a diamond where ``low`` = ``high``, a bar between them where no more is known."""

    low: float
    high: float
    words: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line and its looks; ``label`` stands at its end, ``titles`` are the values of its points. A dashed one has no
    bars at its points and no hollow points.

    ``left_out`` are the sizes without a point, each with the reason: the line is broken there. It is ``cut`` if the
    largest size is one of them: then ``label`` has the reason. At the sizes ``limits`` it is at least as far from 1×,
    within its interval.
    """

    points: tuple[Point, ...]
    role: str
    label: str
    dashed: bool = False
    left_out: tuple[tuple[float, str], ...] = ()
    cut: bool = False
    mark: Mark | None = None
    limits: tuple[float, ...] = ()
    titles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one size, whose parameter ``size`` names."""

    title: str
    size: str
    curves: tuple[Curve, ...]


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
        every = page.panels(len(self.panels), sharey=shared)
        for panel, axes, ends in zip(self.panels, every, limits, strict=True):
            self._draw_panel(page, axes, panel, widest if shared else ends)

    def _limits(self, panel: Panel) -> tuple[float, float]:
        """Return the limits of the values: of a ratio a sixth of the axis or more is below 1×, where words stand."""
        values = [point.y for curve in panel.curves for point in curve.points]
        low, high = min(values) / _BEYOND, max(values) * _BEYOND
        barred = [point for curve in panel.curves if not curve.dashed for point in curve.points]
        values += [min(max(end, low), high) for point in barred for end in (point.low, point.high) if end > 0]
        low, high = _pad([*values, *([1.0] if self.slower else [])], 0.06, 3.0 if self.slower else 1.25)
        return (min(low, high**-0.2), high) if self.slower else (low, high)

    def _draw_panel(self, page: Page, axes: Axes, panel: Panel, limits: tuple[float, float]) -> None:
        sizes = [point.x for curve in panel.curves for point in curve.points]
        marks = [curve.mark for curve in panel.curves if curve.mark]
        ends = [end for mark in marks for end in (mark.low, mark.high)]
        axes.set(xscale="log", yscale="log", xlim=_pad([*sizes, *ends], 0.04, 2.0), ylim=limits)
        columns, rows = min(len(self.panels), 2), math.ceil(len(self.panels) / 2)
        words = max(text_width(curve.label, TINY) for curve in panel.curves)
        width = (PAGE_WIDTH - 2 * MARGIN) / columns - 70 - words
        size_axis(axes.xaxis, sizes, panel.size, width)
        log_axis(axes.yaxis, *limits, self.unit, 6 if rows < 3 else 4)
        axes.grid(True, axis="y")
        axes.set_xlabel(size_label(panel.size))
        below = ScaledTranslation(0, -22 * PX / 72, page.canvas.dpi_scale_trans)
        axes.xaxis.set_label_coords(0.5, 0, axes.transAxes + below)  # not sought anew in each layout
        axes.set_title(panel.title, pad=5)
        if self.slower:
            self._draw_slower(page, axes, limits[0], width)
        worded = len({curve.role for curve in panel.curves}) == 1
        for rank, curve in enumerate(panel.curves):
            _draw_curve(page, axes, curve, 3 + rank * 0.01, panel.size, limits)
            _draw_crossing(page, axes, curve, width, worded)
        _label_ends(page, axes, panel.curves, self.height / rows - _AXIS)

    def _draw_slower(self, page: Page, axes: Axes, low: float, width: float) -> None:
        axes.axhspan(low, 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
        axes.axhline(1.0, linewidth=1.3, zorder=2, color=page.ink("muted"))
        words = f"{self.slower} faster"
        words = words if text_width(words, TINY) < width / 2 else "slower"  # a curve would cross long ones
        # most lines rise to the right, so there is room below them
        page.note(axes, words, (0.98, 0), (0, 2), xycoords="axes fraction", ha="right", va="bottom", zorder=1.5,
                  style="italic")  # fmt: skip


def _pad(values: Sequence[float], share: float = 0.06, least: float = 1.25) -> tuple[float, float]:
    """Limits of a logarithmic axis: a share of its length free on either side, ``least`` a factor between ends."""
    low, high = min(values), max(values)
    if high / low < least:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(least), middle * math.sqrt(least)
    room = (high / low) ** share
    return low / room, high * room


def _draw_curve(
    page: Page, axes: Axes, curve: Curve, order: float, size_name: str, limits: tuple[float, float]
) -> None:
    # a limit on the line would look like a fall, and a line through what isn't drawn like a value
    joined = [(point.x, math.nan if point.x in curve.limits else point.y) for point in curve.points]
    joined += [(size, math.nan) for size, _ in curve.left_out if curve.points[0].x < size < curve.points[-1].x]
    style, width = ((0, (4, 2.2)), 1.3) if curve.dashed else ("-", 1.9)
    page.line(axes, sorted(joined), curve.role, linestyle=style, linewidth=width, zorder=order)
    for point, title in zip(curve.points, curve.titles, strict=True):
        told = f"{size_label(size_name)} = {size_text(point.x, size_name)}: {title}"
        limit = point.x in curve.limits
        looks: dict[str, Any] = {"markersize": 3.6 if curve.dashed else 6.0, "zorder": order + 0.5}
        if limit:
            looks |= {"marker": "^" if point.y > 1 else "v", "markersize": 5.0 if curve.dashed else 8.0}
            looks |= {"color": page.ink("muted")} if curve.dashed else {}
        looks["hollow"] = limit or (point.flagged and not curve.dashed)
        page.mark(axes, (point.x, point.y), curve.role, told, **looks)
        if not curve.dashed:
            _draw_interval(page, axes, point.x, (point.low, point.high), limits, curve.role)


def _draw_interval(
    page: Page, axes: Axes, at: float, ends: tuple[float, float], limits: tuple[float, float], role: str,
    upright: bool = True,
) -> None:  # fmt: skip
    """A bar between the ends, cut at the limits of the axis, with an arrow where it goes on."""
    cut = [min(max(end, limits[0]), limits[1]) for end in ends]
    places = [(at, end) if upright else (end, at) for end in cut]
    page.line(axes, places, role, linewidth=4, alpha=0.35, zorder=3)
    markers = (CARETDOWN, CARETUP) if upright else (CARETLEFT, CARETRIGHT)
    for end, within, place, marker in zip(ends, cut, places, markers, strict=True):
        if end != within:
            page.line(axes, [place], role, marker=marker, markersize=9, markeredgewidth=0, alpha=0.6, zorder=3)


def _draw_crossing(page: Page, axes: Axes, curve: Curve, width: float, worded: bool) -> None:
    """The crossover, smaller if the data is copied, and its size: above the line at 1×, or below with copies. The axes
    are ``width`` pixels wide."""
    if curve.mark is None:
        return
    low, high, ink = curve.mark.low, curve.mark.high, page.ink(curve.role)
    if low < high:
        _draw_interval(page, axes, 1.0, (low, high), (low, high), curve.role, upright=False)
    else:
        size = 5.5 if curve.dashed else 8.0
        page.mark(axes, (low, 1.0), curve.role, curve.mark.words, marker="D", markersize=size, zorder=8)
    if worded:  # beside the line, which mostly rises to the right
        up, (left, right) = not curve.dashed, axes.get_xlim()
        share = math.log(low * high / left**2) / 2 / math.log(right / left)
        wide = text_width(curve.mark.words, TINY) + 12
        leftwards = share * width > wide if up else (1 - share) * width < wide
        page.note(
            axes, curve.mark.words, (math.sqrt(low * high), 1.0), (-5 if leftwards else 5, 4 if up else -4), color=ink,
            ha="right" if leftwards else "left", va="bottom" if up else "top", zorder=9, bbox=page.halo(),
            fontweight="bold" if up else "normal",
        )  # fmt: skip


def _label_ends(page: Page, axes: Axes, curves: Sequence[Curve], height: float) -> None:
    """Write the last values at the right, moved apart."""
    scale = axes.transData + axes.transAxes.inverted()
    ends = [float(scale.transform((curve.points[-1].x, curve.points[-1].y))[1]) * height for curve in curves]
    for curve, place in zip(curves, spread(ends, _WORD, 4, height - 4), strict=True):
        size, weight = TINY if curve.dashed else SMALL, "normal" if curve.dashed or curve.cut else "bold"
        label = axes.text(
            1.01, place / height, curve.label, transform=axes.transAxes, va="center", fontsize=size * PX,
            fontweight=weight, color=page.ink(curve.role), zorder=7,
        )  # fmt: skip
        page.add(label, curve.role)


@dataclass(frozen=True, slots=True)
class RowMark:
    """A value with its interval, and a ``second`` on the same line: the value with copies, or the ideal share. No
    ``value``: the end nearest to 1 of the interval is the limit; the bar of a ``modelled`` one is hatched."""

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


@dataclass(frozen=True, slots=True)
class NamedRow:
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
        return self._rows_height + _AXIS

    @property
    def _pitch(self) -> float:
        return max(_ROW, _MARK * max(len(row.marks) for row in self.entries) + 6)

    @property
    def _rows_height(self) -> float:
        return self._pitch * len(self.entries) + _HEAD * len({row.group for row in self.entries} - {""})

    def draw(self, page: Page) -> None:
        """Draw names and values as two columns of tick labels, and a mark for each value."""
        (axes,) = page.panels(1)
        axes.set_ylim(self._rows_height, 0)
        names, values = [], []
        for at, entry in self._places():
            names.append((at, shorten(entry.name, _LONGEST_NAME) if isinstance(entry, NamedRow) else entry))
            marks = entry.marks if isinstance(entry, NamedRow) else ()
            values += [(at + (i - (len(marks) - 1) / 2) * _MARK, mark) for i, mark in enumerate(marks)]
        self._label_rows(page, axes, names, [(y, mark.words) for y, mark in values])
        limits = self._scale(page, axes)
        for y, mark in values:
            (self._draw_share if self.unit == "%" else self._draw_ratio)(page, axes, mark, y, limits)

    def _places(self) -> Iterator[tuple[float, NamedRow | str]]:
        """The middle of each row and of each heading, from the top."""
        y, group = 0.0, ""
        for entry in self.entries:
            if entry.group != group:
                group = entry.group
                yield y + _HEAD * 0.6, group
                y += _HEAD
            yield y + self._pitch / 2, entry
            y += self._pitch

    def _label_rows(
        self, page: Page, axes: Axes, names: Sequence[tuple[float, str]], values: Sequence[tuple[float, str]]
    ) -> None:
        """Names at the left, headings bold, and values at the foot of their bars."""
        axis, headings = axes.yaxis, {entry.group for entry in self.entries}
        axis.remove_overlapping_locs = False  # type: ignore[attr-defined]
        axes.set_yticks(*zip(*names, strict=True))
        axes.set_yticks(*zip(*values, strict=True), minor=True)
        wide = max(text_width(words, SMALL * 1.12) for _, words in values) + 16
        wide += max(text_width(words, NORMAL) for _, words in names)
        axes.tick_params("y", which="major", pad=wide * PX, labelsize=NORMAL * PX, labelcolor=page.ink("text"))
        axes.tick_params("y", which="minor", pad=6, labelsize=SMALL * PX, labelcolor=page.ink("text"))
        for label, (_, words) in zip(axes.get_yticklabels(), names, strict=True):
            label.set(ha="left", fontweight="bold" if words in headings else "normal")
        for label in axes.get_yticklabels(minor=True):
            label.set_fontweight("bold")

    def _scale(self, page: Page, axes: Axes) -> tuple[float, float]:
        """Set the axis and return the ends at which bars are cut."""
        axes.grid(True, axis="x")
        marks = [mark for entry in self.entries for mark in entry.marks]
        values = [each for mark in marks for each in (mark.value, mark.limit, mark.second) if each] or [1.0]
        if self.unit == "%":
            high = 1.04 * max(100.0, *values, *(min(mark.high or 0.0, 2 * (mark.value or 0.0)) for mark in marks))
            axes.set_xlim(0, high)
            axes.xaxis.set_major_locator(MaxNLocator(6))
            axes.xaxis.set_major_formatter("{x:g}%")
            return 0, high
        low, high = min(values) / _BEYOND, max(values) * _BEYOND
        values += [min(max(end, low), high) for mark in marks for end in mark.ends]
        low, high = _pad([*values, *([1.0] if self.sides else [])], 0.04, 2.0)
        axes.set(xscale="log", xlim=(low, high))
        log_axis(axes.xaxis, low, high, self.unit, 5)
        if self.sides:
            axes.axvspan(low, 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
            axes.axvline(1.0, linewidth=1.4, zorder=2, color=page.ink("muted"), solid_capstyle="butt")
            axes.set_xlabel(f"◂ {self.sides[0]} \u2003 {self.sides[1]} ▸", fontsize=TINY * PX)
        return low, high

    def _draw_share(self, page: Page, axes: Axes, mark: RowMark, y: float, limits: tuple[float, float]) -> None:
        """A bar, and the ideal as a tick."""
        if mark.value is None:
            return
        (bar,) = axes.barh([y], [mark.value], height=12, color=page.ink(mark.role), zorder=3)
        page.add(bar, mark.role, mark.title or mark.words)
        if mark.ends:
            ends = [(min(end, limits[1]), y) for end in mark.ends]
            page.line(axes, ends, mark.role, color=page.ink("text"), linewidth=1.2, zorder=4)
        if mark.second is not None:
            ideal = [(mark.second, y - 9), (mark.second, y + 9)]
            page.line(axes, ideal, mark.role, color=page.ink("text"), linewidth=2.4, zorder=5)

    def _draw_ratio(self, page: Page, axes: Axes, mark: RowMark, y: float, limits: tuple[float, float]) -> None:
        """A mark with its interval, and the second value as a tick; a triangle for a limit."""
        title, ends = mark.title or mark.words, mark.ends
        if len(ends) == 2 and mark.modelled:
            (bar,) = axes.barh([y], [ends[1] - ends[0]], height=9, left=ends[0], **page.hatched(mark.role), zorder=4)
            page.add(bar, mark.role, title)
        elif len(ends) == 2:
            _draw_interval(page, axes, y, (ends[0], ends[1]), limits, mark.role, upright=False)
        if mark.limit and not mark.modelled:
            page.mark(axes, (mark.limit, y), mark.role, title, marker=">" if mark.limit > 1 else "<", hollow=True)
        if mark.value is None:
            return
        if mark.second is not None:
            page.line(axes, [(mark.second, y), (mark.value, y)], mark.role, linewidth=1.4, alpha=0.6, zorder=3)
            page.line(axes, [(mark.second, y - 6), (mark.second, y + 6)], mark.role, linewidth=2.4, zorder=5)
        page.mark(axes, (mark.value, y), mark.role, title)
