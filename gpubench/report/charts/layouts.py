"""The two layouts that charts share: panels of lines over a size, and named rows with marks on one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.markers import CARETDOWN, CARETLEFT, CARETRIGHT, CARETUP
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from ..number import size_label
from ..study import Point
from .page import (
    MARGIN,
    NORMAL,
    PX,
    SMALL,
    TINY,
    Figure,
    Key,
    Page,
    log_axis,
    shorten_to,
    size_axis,
    spread,
    text_width,
)

_HEIGHTS = {1: 330.0, 2: 250.0, 3: 180.0}
"""Pixels of a row of panels, by the number of rows."""
_WORD = 14.0
"""Pixels between labels at the ends of lines."""
_BEYOND = 10.0
"""How many times beyond the outermost values an interval is shown: a wider one would flatten the lines."""
_TOGETHER = 5
"""Decades that panels with a common axis may span."""
_LIMITS = {True: "^", False: "v"}
"""matplotlib's markers of a least and a greatest speedup: triangles that point on."""
_ROW, _MARK, _HEAD, _AXIS = 25.0, 15.0, 24.0, 26.0
"""Pixels of a named row, of each further mark in it, of a group's heading, and of the axis below."""
_MOST_LABEL = 330.0
"""Pixels of a row's name and setting beside each other."""
_ROWS_BEYOND = 20.0
"""How many times beyond the outermost value an interval is cut: a wider one only means that nothing is known."""
_MOST_WORDED = 2
"""Crossovers of a panel beyond which their sizes stand in the subtitle alone: on the lines they can't be read."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The crossing of a curve and 1×: a diamond where ``low`` = ``high``, a bar between them where no more is known."""

    low: float
    high: float
    words: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line and its looks; ``label`` stands at its end. A dashed one has no bars at its points and no hollow points.

    ``left_out`` are the sizes without a point, each with the reason: the line is broken there. It is ``cut`` where the
    largest size is one of them: then ``label`` says what is known. At the sizes ``limits`` it is at least as far from
    1×, within its interval.
    """

    points: tuple[Point, ...]
    role: str
    label: str
    dashed: bool = False
    left_out: tuple[tuple[float, str], ...] = ()
    cut: bool = False
    mark: Mark | None = None
    limits: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one size, whose parameter ``size`` names; those without points aren't drawn."""

    title: str
    size: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class LinePanels:
    """``unit`` is empty for a ratio, whose ``slower`` names what is faster below 1; both axes are logarithmic."""

    panels: tuple[Panel, ...]
    unit: str
    keys: tuple[Key, ...] = ()
    slower: str = ""

    def draw(self, figure: Figure, theme: str) -> Page:
        """Up to two columns of panels, with one axis of values where they are alike."""
        rows = math.ceil(len(self.panels) / 2)
        page = Page(figure, theme, _HEIGHTS[min(rows, 3)] * rows, self.keys)
        limits = [self._limits(panel) for panel in self.panels]
        widest = min(low for low, _ in limits), max(high for _, high in limits)
        shared = widest[1] <= widest[0] * 10**_TOGETHER
        every = page.panels(len(self.panels), shared)
        labels, sides = [], []
        for panel, axes, ends in zip(self.panels, every, limits, strict=True):
            sides.append(self._panel(page, axes, panel, widest if shared else ends, 6 if rows < 3 else 4))
            labels.append([_label_end(page, axes, curve) for curve in panel.curves])
        page.lay_out()  # how high the axes are is known from here on
        for panel, axes, notes, side in zip(self.panels, every, labels, sides, strict=True):
            _part_labels(page, axes, notes)
            _draw_marks(page, axes, panel.curves, side)
        return page

    def _limits(self, panel: Panel) -> tuple[float, float]:
        """Return the limits of the values: of a ratio a sixth of the axes or more is below 1×, where words stand."""
        values = [point.y for curve in panel.curves for point in curve.points]
        low, high = min(values) / _BEYOND, max(values) * _BEYOND
        barred = [point for curve in panel.curves if not curve.dashed for point in curve.points]
        values += [min(max(end, low), high) for point in barred for end in (point.low, point.high) if end > 0]
        low, high = _pad([*values, *([1.0] if self.slower else [])], 0.06, 3.0 if self.slower else 1.25)
        return (min(low, high**-0.2), high) if self.slower else (low, high)

    def _panel(self, page: Page, axes: Axes, panel: Panel, limits: tuple[float, float], most: int) -> str:
        """Draw a panel and return the words below 1×."""
        words, sizes = "", [point.x for curve in panel.curves for point in curve.points]
        marks = [end for curve in panel.curves if curve.mark for end in (curve.mark.low, curve.mark.high)]
        axes.set(xscale="log", yscale="log", xlim=_pad([*sizes, *marks], 0.04, 2.0), ylim=limits)
        width = (
            (page.width - 2 * MARGIN) / min(len(self.panels), 2)
            - 60
            - max(text_width(c.label, TINY) for c in panel.curves)
        )
        size_axis(axes.xaxis, sizes, panel.size, width)
        log_axis(axes.yaxis, *limits, self.unit, most)
        axes.grid(True, axis="y")
        axes.set_xlabel(size_label(panel.size), labelpad=1)
        if panel.title:
            axes.set_title(panel.title, pad=5)
        if self.slower:
            axes.axhspan(limits[0], 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
            axes.axhline(1.0, linewidth=1.3, zorder=2, color=page.ink("muted"))
            words = f"{self.slower} faster"
            words = words if text_width(words, TINY) < width / 2 else "slower"  # a curve would cross long ones
            # most lines rise to the right, so there is room below them
            page.note(axes, words, (0.98, 0), (0, 2), xycoords="axes fraction", ha="right", va="bottom", zorder=1.5,
                      style="italic")  # fmt: skip
        for rank, curve in enumerate(panel.curves):
            _draw_curve(page, axes, curve, 3 + rank * 0.01, limits)
            for point in () if curve.dashed else curve.points:
                if point.flagged and point.x not in curve.limits:
                    page.mark(axes, point.x, point.y, curve.role, hollow=True, markersize=6.0, zorder=3.5 + rank * 0.01)
        return words


def _pad(values: Sequence[float], share: float = 0.06, least: float = 1.25) -> tuple[float, float]:
    """Limits of a logarithmic axis: a share of its length free on either side, ``least`` a factor between ends."""
    low, high = min(values), max(values)
    if high / low < least:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(least), middle * math.sqrt(least)
    room = (high / low) ** share
    return low / room, high * room


def _draw_curve(page: Page, axes: Axes, curve: Curve, order: float, limits: tuple[float, float]) -> None:
    x, y = [point.x for point in curve.points], [point.y for point in curve.points]
    # a limit on the line would look like a fall, and a line through what isn't drawn like a value
    joined = [(point.x, math.nan if point.x in curve.limits else point.y) for point in curve.points]
    joined += [(size, math.nan) for size, _ in curve.left_out if x[0] < size < x[-1]]
    if not curve.dashed:
        spans = [[max(0.0, point.y - max(point.low, limits[0])) for point in curve.points]]
        spans.append([max(0.0, min(point.high, limits[1]) - point.y) for point in curve.points])
        axes.errorbar(x, y, spans, fmt="none", ecolor=page.ink(curve.role), elinewidth=4, alpha=0.35, zorder=order)
        for point in curve.points:
            cut = [(limits[0], CARETDOWN)] * (point.low < limits[0]) + [(limits[1], CARETUP)] * (point.high > limits[1])
            for end, arrow in cut:
                _draw_arrow(axes, (point.x, end), arrow, page.ink(curve.role), order)
    shape, size = page.shape(curve.role), 3.6 if curve.dashed else 6.0
    axes.plot(
        *zip(*sorted(joined), strict=True), linestyle=(0, (4, 2.2)) if curve.dashed else "-",
        linewidth=1.3 if curve.dashed else 1.9, marker=shape, markersize=size, color=page.ink(curve.role),
        markeredgecolor=page.ink("page"), markeredgewidth=0.7, zorder=order, clip_on=False,
    )  # fmt: skip
    for point in curve.points:
        if point.x in curve.limits:
            shape, ink = _LIMITS[point.y > 1], page.ink(curve.role)
            axes.plot([point.x], [point.y], marker=shape, markersize=8, color=ink, markerfacecolor=page.ink("page"),
                      markeredgewidth=1.4, zorder=order + 1, clip_on=False)  # fmt: skip


def _draw_arrow(axes: Axes, at: tuple[float, float], arrow: int, ink: str, order: float) -> None:
    """The end of a bar that goes on beyond the axis."""
    looks: dict[str, Any] = {"markersize": 9, "markeredgewidth": 0, "alpha": 0.6, "clip_on": False}
    axes.plot([at[0]], [at[1]], marker=arrow, color=ink, zorder=order, **looks)


def _label_end(page: Page, axes: Axes, curve: Curve) -> Text:
    size, weight = TINY if curve.dashed else SMALL, "normal" if curve.dashed or curve.cut else "bold"
    return axes.text(
        axes.get_xlim()[1], curve.points[-1].y, curve.label, va="center", fontsize=size * PX, fontweight=weight,
        color=page.ink(curve.role), zorder=7,
    )  # fmt: skip


def _part_labels(page: Page, axes: Axes, labels: Sequence[Text]) -> None:
    height, scale = page.size(axes)[1], axes.transData + axes.transAxes.inverted()
    ends = [float(scale.transform(label.get_position())[1]) * height for label in labels]
    for label, place in zip(labels, spread(ends, _WORD, 4, height - 4), strict=True):
        label.set_y(scale.inverted().transform((1.0, place / height))[1])


def _draw_marks(page: Page, axes: Axes, curves: Sequence[Curve], side: str) -> None:
    """The crossovers, smaller where the data is copied, and their words, which don't lie on those of the ``side``."""
    marked = [(curve.mark, curve) for curve in curves if curve.mark]
    for mark, curve in marked:
        ink = page.ink(curve.role)
        if mark.low < mark.high:
            thick = 3 if curve.dashed else 5
            axes.plot([mark.low, mark.high], [1.0, 1.0], linewidth=thick, alpha=0.55, color=ink, zorder=4)
        else:
            size = 5.5 if curve.dashed else 8
            axes.plot([mark.low], [1.0], "D", markersize=size, color=ink, markeredgecolor=page.ink("page"), zorder=8)
    width, wide = page.size(axes)[0], text_width(side, TINY)
    taken, covered = [(0.98 * width - wide, 8.0, wide)], 3 * page.covered(axes)  # farther away rather than on a line
    for mark, curve in marked if len(marked) <= _MOST_WORDED else ():
        weight = "normal" if curve.dashed else "bold"
        at = (math.sqrt(mark.low * mark.high), 1.0)
        page.name(axes, mark.words, at, taken, covered, color=page.ink(curve.role), fontweight=weight)


@dataclass(frozen=True, slots=True)
class RowMark:
    """A value with its interval, and a ``second`` on the same line: that of another way, or what a share could be at
    best. No ``value``: only ``words``, beside the interval if there is one; that of a ``modelled`` one is hatched."""

    value: float | None
    role: str
    words: str
    low: float | None = None
    high: float | None = None
    second: float | None = None
    modelled: bool = False


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row: the heading it stands under, its name, its setting, and its marks from top to bottom."""

    group: str
    name: str
    detail: str
    marks: tuple[RowMark, ...]


@dataclass(frozen=True, slots=True)
class NamedRows:
    """``unit`` is empty for ratios, "%" for bars on a linear axis; ``sides`` are the words left and right of 1×."""

    entries: tuple[NamedRow, ...]
    unit: str = ""
    keys: tuple[Key, ...] = ()
    sides: tuple[str, str] | None = None

    def draw(self, figure: Figure, theme: str) -> Page:
        """Marks in the middle, the value beside its mark."""
        head = 20.0 if self.sides else 4.0
        page = Page(figure, theme, head + rows_height(self.entries), self.keys)
        beside = max(text_width(mark.words, SMALL * 1.12) for entry in self.entries for mark in entry.marks) + 12
        axes, middles = row_axes(page, self.entries, beside * 0.6, head)
        limits = self._scale(page, axes, beside)
        for entry, middle in zip(self.entries, middles, strict=True):
            for i, mark in enumerate(entry.marks):
                _draw_mark(page, axes, mark, middle + (i - (len(entry.marks) - 1) / 2) * _MARK, limits)
        return page

    def _scale(self, page: Page, axes: Axes, beside: float) -> tuple[float, float]:
        """Set the axis and return the ends at which bars are cut. Of a mark without a value the end nearest to 1 is
        known."""
        axes.grid(True, axis="x")
        marks = [mark for entry in self.entries for mark in entry.marks]
        bars = [[end for end in (mark.low, mark.high) if end] for mark in marks if mark.value is None]
        certain = (min(ends, key=lambda end: abs(math.log(end))) for ends in bars if ends)
        known = (*certain, *(value for mark in marks for value in (mark.value, mark.second)))
        values = [each for each in known if each] or [1.0]
        if self.unit == "%":
            high = 1.04 * max(100.0, *values, *(min(mark.high or 0.0, 2 * (mark.value or 0.0)) for mark in marks))
            axes.set_xlim(0, high)
            axes.xaxis.set_major_locator(MaxNLocator(6))
            axes.xaxis.set_major_formatter("{x:g}%")
            return 0, high
        low, high = min(values) / _ROWS_BEYOND, max(values) * _ROWS_BEYOND
        values += [min(max(end, low), high) for mark in marks for end in (mark.low, mark.high) if end]
        values += [1.0] if self.sides else []
        low, high = ends = _pad(values, 0.04, 2.0)
        axes.set_xscale("log")
        high *= (high / low) ** (beside * 0.4 / max(100.0, page.size(axes)[0]))
        axes.set_xlim(low, high)
        log_axis(axes.xaxis, low, high, self.unit, page.most_ticks(axes, low, high, self.unit))
        if self.sides:
            self._sides(page, axes, low, high, *self.sides)
        return ends

    def _sides(self, page: Page, axes: Axes, low: float, high: float, before: str, after: str) -> None:
        axes.axvspan(low, 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
        axes.axvline(1.0, linewidth=1.4, zorder=2, color=page.ink("muted"), solid_capstyle="butt")
        box, words = axes.get_position(), (f"◂ {before}", f"{after} ▸")
        at = (box.x0 + box.width * math.log(1 / low) / math.log(high / low)) * page.width
        left, right = MARGIN + text_width(words[0], TINY), page.width - MARGIN - text_width(words[1], TINY)
        start = min(max(at + 6, left + 12), right)  # beside the line, as far as the page is wide enough
        page.text(min(max(at - 6, left), start - 12), page.top + 12, words[0], TINY, "muted", ha="right")
        page.text(start, page.top + 12, words[1], TINY, "muted")


def rows_height(rows: Sequence[NamedRow]) -> float:
    """Pixels that these rows, their headings and the axis below take."""
    pitch = max(_ROW, _MARK * max(len(row.marks) for row in rows) + 6)
    return pitch * len(rows) + _HEAD * _count_headings(rows) + _AXIS


def _count_headings(rows: Sequence[NamedRow]) -> int:
    return len({row.group for row in rows if row.group})


def row_axes(page: Page, labels: Sequence[NamedRow], right: float, head: float = 0.0) -> tuple[Axes, list[float]]:
    """Axes of pixels downwards beside the names of rows, and the middle of each row's marks. ``right`` is the room kept
    free beside them, ``head`` above."""
    widths = [text_width(each.name, NORMAL) + text_width(each.detail, TINY) + 8 * bool(each.detail) for each in labels]
    x, top = MARGIN + min(max(widths), _MOST_LABEL) + 14, page.top + head
    axes = page.axes(x, page.width - MARGIN - x - right, top, page.bottom - _AXIS)
    height = page.bottom - _AXIS - top
    axes.set_ylim(height, 0)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    pitch = (height - _HEAD * _count_headings(labels)) / len(labels)
    y, group, middles = 0.0, "", []
    for each in labels:
        if each.group != group:
            group = each.group
            page.text(MARGIN, top + y + 17, shorten_to(group, page.width - 2 * MARGIN, NORMAL), NORMAL, weight="bold")
            y += _HEAD
        middles.append(y + pitch / 2)
        # name and setting, left of the axes; the setting is cut first
        name = shorten_to(each.name, _MOST_LABEL - min(text_width(each.detail, TINY), _MOST_LABEL / 4) - 8, NORMAL)
        detail = shorten_to(each.detail, _MOST_LABEL - text_width(name, NORMAL) - 8, TINY)
        at, room = top + middles[-1] + 4, text_width(detail, TINY) + 8 if detail else 0.0
        page.text(x - 14, at, detail, TINY, "muted", ha="right")
        page.text(x - 14 - room, at + 0.5, name, NORMAL, ha="right")
        y += pitch
    return axes, middles


def _draw_mark(page: Page, axes: Axes, mark: RowMark, y: float, limits: tuple[float, float]) -> None:
    """A value with its interval, and its words beside it; a limit has the interval and its words alone."""
    share, ink = limits[0] == 0, page.ink("text" if limits[0] == 0 else mark.role)
    bar = [min(max(end, limits[0]), limits[1]) for end in (mark.low, mark.high) if end is not None]
    if bar and mark.modelled:
        axes.barh([y], [bar[1] - bar[0]], height=9, left=bar[0], **page.hatched(mark.role), zorder=4)
    elif bar:
        looks = {"linewidth": 1.2} if share else {"linewidth": 4, "alpha": 0.35, "solid_capstyle": "butt"}
        axes.plot(bar, [y] * 2, color=ink, zorder=4, **looks)
    cut = [(limits[0], CARETLEFT)] * ((mark.low or math.inf) < limits[0])
    cut += [(limits[1], CARETRIGHT)] * ((mark.high or 0.0) > limits[1])
    for end, arrow in cut:
        _draw_arrow(axes, (end, y), arrow, ink, 4)
    if mark.value is None:
        start = max([0.0 if share else 1.0, *bar])
        page.note(axes, mark.words, (start, y), (6, 0), va="center", zorder=7, color=page.ink(mark.role),
                  annotation_clip=False, bbox=page.halo())  # fmt: skip
        return
    ends = [mark.value, *bar]
    start, leftwards = (_draw_share if share else _draw_ratio)(page, axes, mark, (mark.value, y), ends)
    side, x = ("right", -7) if leftwards else ("left", 7)
    page.note(axes, mark.words, (start, y), (x, 0), va="center", ha=side, fontsize=SMALL * PX,
              fontweight="bold", color=page.ink("text"), annotation_clip=False, zorder=7, bbox=page.halo())  # fmt: skip


def _draw_share(
    page: Page, axes: Axes, mark: RowMark, at: tuple[float, float], ends: list[float]
) -> tuple[float, bool]:
    """A bar, and what it could be at best as a tick; where its words stand."""
    (value, y), start = at, max(ends)
    axes.barh([y], [value], height=12, color=page.ink(mark.role), zorder=3)
    if mark.second is not None:
        axes.plot([mark.second] * 2, [y - 9, y + 9], linewidth=2.4, color=page.ink("text"), zorder=5)
        words = (text_width(mark.words, SMALL * 1.12) + 12) * axes.get_xlim()[1] / page.size(axes)[0]
        start = mark.second if start - words / 8 < mark.second < start + words else start  # no words across the tick
    return start, False


def _draw_ratio(
    page: Page, axes: Axes, mark: RowMark, at: tuple[float, float], ends: list[float]
) -> tuple[float, bool]:
    """A mark, and the second value as a tick; where its words stand, and whether they stand left of there."""
    value, y = at
    if mark.second is not None:
        axes.plot([mark.second, value], [y] * 2, linewidth=1.4, alpha=0.6, color=page.ink(mark.role), zorder=3)
        axes.plot([mark.second] * 2, [y - 6, y + 6], linewidth=2.4, color=page.ink(mark.role), zorder=5)
        ends = [*ends, mark.second]
    page.mark(axes, value, y, mark.role)
    low, high = axes.get_xlim()
    if not max(ends) < 1 < high:
        return max(ends), False
    # words across the line at 1× stand left of the mark, if they fit there
    scale, width = page.size(axes)[0] / math.log(high / low), text_width(mark.words, SMALL * 1.12) + 10
    leftwards = scale * math.log(1 / max(ends)) < width <= scale * math.log(min(ends) / low)
    return min(ends) if leftwards else max(ends), leftwards
