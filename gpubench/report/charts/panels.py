"""Small multiples of lines over a size: the ink that speedups, rates, times and break-even calls share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation

from ..labels import Row, size_label
from ..sweep import Point
from .page import MARGIN, Figure, Key, Page, log_axis, padded, size_axis, spread, text_width
from .theme import MARK_SHAPES, PX, SMALL, TINY

_HEIGHTS = {1: 330.0, 2: 250.0, 3: 180.0}
"""Pixels of a row of panels, by the number of rows; two columns where there are several panels."""
_WORD = 14.0
_BEYOND = 10.0
"""How many times beyond the outermost values an interval is shown: a wider one would flatten the lines."""
TOO_WIDE = 4.0
"""Factor between the ends of an interval beyond which the value is unknown."""
_TOGETHER = 5
"""Decades that panels with a common axis may span."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a curve crosses 1×: a diamond at ``low`` = ``high``, a bar between them where no more is known."""

    low: float
    high: float
    words: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A line and its looks; ``label`` stands at its end. ``doubts`` are indices of points that are drawn hollow."""

    points: tuple[Point, ...]
    role: str
    label: str
    dashed: bool = False
    doubts: frozenset[int] = frozenset()
    mark: Mark | None = None
    whiskers: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one size, whose parameter ``size`` names."""

    title: str
    size: str
    curves: tuple[Curve, ...]
    size_title: str = ""


@dataclass(frozen=True, slots=True)
class LinePanels:
    """``unit`` is empty for a ratio, whose ``slower`` names what is faster below 1."""

    panels: tuple[Panel, ...]
    unit: str
    keys: tuple[Key, ...] = ()
    slower: str = ""
    rows: tuple[Row, ...] = ()

    def draw(self, figure: Figure, theme: str) -> Page:
        """Up to two columns of panels, with one axis of values where they are alike."""
        columns = 1 if len(self.panels) == 1 else 2
        rows = math.ceil(len(self.panels) / columns)
        height = _HEIGHTS[min(rows, 3)]
        page = Page(figure, theme, height * rows, self.keys)
        limits = [self._limits(panel) for panel in self.panels]
        low, high = min(low for low, _ in limits), max(high for _, high in limits)
        shared = math.log10(high / low) <= _TOGETHER
        every = page.panels(rows, columns, sharey=shared)
        for axes in every[len(self.panels) :]:
            axes.set_visible(False)
        labels = []
        for panel, axes, own in zip(self.panels, every, limits, strict=False):
            self._panel(page, axes, panel, (low, high) if shared else own, columns)
            labels.append([_label_end(page, axes, curve) for curve in panel.curves])
        page.lay_out()  # how high the axes are is known from here on
        for panel, axes, ends in zip(self.panels, every, labels, strict=False):
            _part_labels(page, axes, panel.curves, ends)
            _draw_marks(page, axes, panel.curves)
        return page

    def _limits(self, panel: Panel) -> tuple[float, float]:
        values = [point.y for curve in panel.curves for point in curve.points]
        low, high = min(values), max(values)
        ends = [
            end for curve in panel.curves if curve.whiskers for point in curve.points for end in (point.low, point.high)
        ]
        values += [min(max(end, low / _BEYOND), high * _BEYOND) for end in ends if end > 0]
        return padded([*values, *([1.0] if self.slower else [])], 0.06, 3.0 if self.slower else 1.25)

    def _panel(self, page: Page, axes: Axes, panel: Panel, limits: tuple[float, float], columns: int) -> None:
        sizes = [point.x for curve in panel.curves for point in curve.points]
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(*padded(sizes, 0.04, 2.0))
        axes.set_ylim(*limits)
        width = (page.width - 2 * MARGIN) / columns - 60 - max(text_width(c.label, TINY) for c in panel.curves)
        size_axis(axes.xaxis, sizes, panel.size, width)
        log_axis(
            axes.yaxis,
            *limits,
            self.unit,
            max(3, int((page.bottom - page.top) / math.ceil(len(self.panels) / columns) / 45)),
        )
        axes.grid(True, axis="y")
        axes.set_xlabel(panel.size_title or size_label(panel.size), labelpad=1)
        if panel.title:
            axes.set_title(panel.title, parse_math=False, pad=5)
        if self.slower:
            axes.axhspan(limits[0], 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
            axes.axhline(1.0, linewidth=1.3, zorder=2, color=page.ink("muted"))
            falling = any(curve.points[-1].y < 1 <= curve.points[0].y for curve in panel.curves)
            axes.text(
                0.02 if falling else 0.96, 0.03, f"{self.slower} faster", transform=axes.transAxes,
                ha="left" if falling else "right", va="bottom", zorder=1.5,
                fontsize=TINY * PX, style="italic", color=page.ink("muted"), parse_math=False,
            )  # fmt: skip
        for rank, curve in enumerate(panel.curves):
            _draw_curve(page, axes, curve, 3 + rank * 0.01, limits)


def too_wide(low: float | None, high: float | None) -> bool:
    """Whether an interval is too wide to say anything; where that is so no mark is drawn."""
    return low is not None and high is not None and (low <= 0 or high / low > TOO_WIDE)


def _draw_curve(page: Page, axes: Axes, curve: Curve, order: float, limits: tuple[float, float]) -> None:
    x, y = [point.x for point in curve.points], [point.y for point in curve.points]
    if curve.whiskers:
        ends = [(max(point.low, limits[0]), min(point.high, limits[1])) for point in curve.points]
        spans = [[max(0.0, v - low) for v, (low, _) in zip(y, ends, strict=True)]]
        spans.append([max(0.0, high - v) for v, (_, high) in zip(y, ends, strict=True)])
        axes.errorbar(x, y, spans, fmt="none", ecolor=page.ink(curve.role), elinewidth=4, alpha=0.35, zorder=order)
    shape, size = MARK_SHAPES.get(curve.role, "o"), 3.6 if curve.dashed else 6.0
    sure = [i for i, point in enumerate(curve.points) if not too_wide(point.low, point.high)]
    axes.plot(
        x, y, linestyle=(0, (4, 2.2)) if curve.dashed else "-", linewidth=1.3 if curve.dashed else 1.9, marker=shape,
        markersize=size, markevery=sure, color=page.ink(curve.role), markeredgecolor=page.ink("page"),
        markeredgewidth=0.7, zorder=order, clip_on=False,
    )  # fmt: skip
    hollow = [point for i, point in enumerate(curve.points) if i in curve.doubts and i in sure]
    axes.plot(
        [point.x for point in hollow], [point.y for point in hollow], linestyle="", marker=shape, markersize=size,
        markerfacecolor=page.ink("page"), markeredgecolor=page.ink(curve.role), markeredgewidth=1.3, zorder=order + 0.5,
    )  # fmt: skip


def _label_end(page: Page, axes: Axes, curve: Curve) -> Annotation:
    """Name and value right of a line, with a leader that shows once the label is moved."""
    last = curve.points[-1]
    leader = {"arrowstyle": "-", "linewidth": 0.8, "color": page.ink(curve.role), "shrinkA": 1, "shrinkB": 5}
    return axes.annotate(
        curve.label, (last.x, last.y), (axes.get_xlim()[1], last.y), textcoords="data", annotation_clip=False,
        va="center", ha="left", fontsize=(TINY if curve.dashed else SMALL) * PX, color=page.ink(curve.role),
        fontweight="normal" if curve.dashed else "bold", arrowprops=leader, parse_math=False, zorder=7,
    )  # fmt: skip


def _part_labels(page: Page, axes: Axes, curves: Sequence[Curve], labels: Sequence[Annotation]) -> None:
    """Labels at the ends of lines moved apart, as little as that takes."""
    (low, high), (_, room) = axes.get_ylim(), page.size(axes)
    scale = room / math.log(high / low)
    ends = [scale * math.log(curve.points[-1].y / low) for curve in curves]
    for curve, label, end, place in zip(curves, labels, ends, spread(ends, _WORD, 4, room - 4), strict=True):
        label.set_position((axes.get_xlim()[1], low * math.exp(place / scale)))
        at_the_edge = curve.points[-1].x > axes.get_xlim()[1] * 0.8
        if label.arrow_patch and abs(end - place) <= 2 and at_the_edge:
            label.arrow_patch.set_visible(False)


def _draw_marks(page: Page, axes: Axes, curves: Sequence[Curve]) -> None:
    """Crossovers on the line at 1×, their sizes left above or right below it, further off where they would touch."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    width, room = page.size(axes)
    scale = width / math.log(right / left)
    free = room * math.log(1 / low) / math.log(high / low) if low < 1 else 0.0
    taken: list[tuple[float, float, int]] = []
    for curve in sorted((c for c in curves if c.mark), key=lambda c: c.mark.low if c.mark else 0):
        mark = curve.mark
        assert mark is not None
        middle = math.sqrt(mark.low * mark.high)
        if mark.low < mark.high:
            axes.plot([mark.low, mark.high], [1.0, 1.0], linewidth=5, alpha=0.55, color=page.ink(curve.role), zorder=4)
        else:
            axes.plot(
                [middle], [1.0], marker="D", markersize=7, linestyle="", markeredgewidth=1.5, zorder=8,
                markerfacecolor=page.ink("page"), markeredgecolor=page.ink(curve.role),
            )  # fmt: skip
        wide = text_width(mark.words, TINY * 1.1)
        end = scale * math.log(middle / left) - 8
        leftwards = end > wide  # lines rise to the right: above them there is room at the left, below at the right
        start = end - wide if leftwards else end + 16
        level = 1 if leftwards or free < 40 else -1
        while any(level == other and start < stop + 6 and begin < start + wide + 6 for begin, stop, other in taken):
            level += 1 if level > 0 else -1
        taken.append((start, start + wide, level))
        offset = (-7 if leftwards else 7, level * 11 - 3)
        axes.annotate(
            mark.words, (middle, 1.0), offset, textcoords="offset points",
            ha="right" if leftwards else "left", fontsize=TINY * PX, fontweight="bold", color=page.ink(curve.role),
            path_effects=[withStroke(linewidth=2.5, foreground=page.ink("page"))], parse_math=False, zorder=9,
        )  # fmt: skip
