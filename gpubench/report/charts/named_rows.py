"""Named rows in groups with marks on one axis: the ink that the headline, energy and comparisons share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from matplotlib.axes import Axes

from ..labels import Row
from .page import MARGIN, Figure, Key, Page, linear_axis, log_axis, padded, shortened, text_width
from .theme import NORMAL, SMALL, TINY

_ROW, _MARK, _HEAD = 25.0, 15.0, 24.0
"""Pixels of a row, of each further mark in it, and of a group's heading."""
_AXIS = 26.0
_MOST_LABEL = 330.0
_BEYOND = 20.0
"""An interval that reaches that many times beyond the outermost value is cut: it says that nothing is known."""


@dataclass(frozen=True, slots=True)
class RowMark:
    """A value with its interval; ``hollow`` is a second value on the same line. No ``value``: only ``words``."""

    value: float | None
    role: str
    words: str
    low: float | None = None
    high: float | None = None
    hollow: float | None = None


@dataclass(frozen=True, slots=True)
class NamedRow:
    group: str
    name: str
    detail: str
    marks: tuple[RowMark, ...]


@dataclass(frozen=True, slots=True)
class NamedRows:
    """``unit`` is empty for ratios, "%" for shares on a linear axis; ``sides`` are the words left and right of 1×.

    ``band`` is a factor around 1× within which nothing counts as a difference.
    """

    entries: tuple[NamedRow, ...]
    unit: str = ""
    keys: tuple[Key, ...] = ()
    sides: tuple[str, str] | None = None
    rows: tuple[Row, ...] = ()
    band: float | None = None

    def draw(self, figure: Figure, theme: str) -> Page:
        """Marks in the middle, the value beside its mark."""
        most = max(len(entry.marks) for entry in self.entries)
        head = 20.0 if self.sides else 4.0
        height = head + rows_height(self.entries, max(_ROW, _MARK * most + 6))
        page = Page(figure, theme, height, self.keys)
        beside = max(text_width(mark.words, SMALL * 1.12) for entry in self.entries for mark in entry.marks) + 12
        axes, middles = row_axes(page, self.entries, beside * 0.6, head)
        limits = self._scale(page, axes, beside)
        for entry, middle in zip(self.entries, middles, strict=True):
            for i, mark in enumerate(entry.marks):
                _draw_mark(page, axes, mark, middle + (i - (len(entry.marks) - 1) / 2) * _MARK, limits)
        return page

    def _scale(self, page: Page, axes: Axes, beside: float) -> tuple[float, float]:
        marks = [mark for entry in self.entries for mark in entry.marks]
        values = [value for mark in marks for value in (mark.value, mark.hollow) if value]
        values = values or [1.0]
        axes.grid(True, axis="x")
        if self.unit == "%":
            axes.set_xlim(0, 104)
            linear_axis(axes.xaxis, "%")
            return 0, 104
        low, high = min(values), max(values)
        reach = [end for mark in marks for end in (mark.low, mark.high) if end and low / _BEYOND < end < high * _BEYOND]
        extra = [1 / (1 + 2 * self.band), 1 + 2 * self.band] if self.band else [1.0] if self.sides else []
        low, high = padded([*values, *reach, *extra], 0.04, 1.1 if self.band else 2.0)
        axes.set_xscale("log")
        share = beside * 0.4 / max(100.0, axes.get_position().width * page.width)
        high *= (high / low) ** share
        axes.set_xlim(low, high)
        log_axis(axes.xaxis, low, high, self.unit, 7)
        if self.band:
            axes.axvspan(1 / (1 + self.band), 1 + self.band, zorder=0, linewidth=0, facecolor=page.ink("shade"))
        if self.sides:
            self._sides(page, axes, low, high)
        return low, high

    def _sides(self, page: Page, axes: Axes, low: float, high: float) -> None:
        """The line at 1× and the words for its two sides."""
        assert self.sides is not None
        if not self.band:
            axes.axvspan(low, 1.0, zorder=0, linewidth=0, facecolor=page.ink("shade"))
        axes.axvline(1.0, linewidth=1.4, zorder=2, color=page.ink("muted"))
        box = axes.get_position()
        at = (box.x0 + box.width * math.log(1 / low) / math.log(high / low)) * page.width
        before, after = self.sides
        if at - text_width(f"◂ {before}", TINY) - 6 < MARGIN:  # no room left of a line at the edge
            before = ""
        y = page.top + 12
        page.text(at - 6, y, f"◂ {before}" * bool(before), TINY, "muted", ha="right")
        page.text(at + 6, y, f"{after} ▸", TINY, "muted")


class RowLabel(Protocol):
    """What names a row: the heading it stands under, its name and its setting."""

    @property
    def group(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def detail(self) -> str: ...


def rows_height(labels: Sequence[RowLabel], pitch: float = _ROW) -> float:
    """Pixels that these rows, their headings and the axis below take."""
    return pitch * len(labels) + _HEAD * len({label.group for label in labels if label.group}) + _AXIS


def row_axes(page: Page, labels: Sequence[RowLabel], right: float, head: float = 0.0) -> tuple[Axes, list[float]]:
    """Axes of pixels downwards beside the names of rows, and the middle of each row on them.

    ``right`` is the room kept free beside them, ``head`` above.
    """
    widths = [text_width(each.name, NORMAL) + text_width(each.detail, TINY) + 8 * bool(each.detail) for each in labels]
    x, top = MARGIN + min(max(widths), _MOST_LABEL) + 14, page.top + head
    axes = page.axes(x, page.width - MARGIN - x - right, top, page.bottom - _AXIS)
    height = page.bottom - _AXIS - top
    axes.set_ylim(height, 0)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    pitch = (height - rows_height(labels, 0.0) + _AXIS) / len(labels)
    y, group, middles = 0.0, "", []
    for each in labels:
        if each.group != group:
            group = each.group
            page.text(MARGIN, top + y + 17, shortened(group, page.width - 2 * MARGIN, NORMAL), NORMAL, weight="bold")
            y += _HEAD
        middles.append(y + pitch / 2)
        detail = text_width(each.detail, TINY) + 8 if each.detail else 0.0
        name = shortened(each.name, max(60.0, _MOST_LABEL - detail), NORMAL)
        room = _MOST_LABEL - text_width(name, NORMAL) - 8
        page.text(x - 14, top + middles[-1] + 4, shortened(each.detail, room, TINY), TINY, "muted", ha="right")
        page.text(x - 14 - min(detail, room + 8), top + middles[-1] + 4.5, name, NORMAL, ha="right")
        y += pitch
    return axes, middles


def _draw_mark(page: Page, axes: Axes, mark: RowMark, y: float, limits: tuple[float, float]) -> None:
    if mark.value is None:
        axes.annotate(mark.words, (1.0 if limits[0] > 0 else 0.0, y), (6, 0), textcoords="offset points", va="center",
                      fontsize=TINY * 0.75, color=page.ink("muted"), parse_math=False, zorder=7)  # fmt: skip
        return
    ink = page.ink(mark.role)
    if mark.low is not None and mark.high is not None:
        ends = [min(max(end, limits[0]), limits[1]) for end in (mark.low, mark.high)]
        axes.plot(ends, [y] * 2, linewidth=4, alpha=0.35, color=ink, zorder=4, solid_capstyle="butt")
    if mark.hollow is not None:
        axes.plot([mark.hollow, mark.value], [y] * 2, linewidth=1.4, alpha=0.6, color=ink, zorder=3)
        page.mark(axes, mark.hollow, y, mark.role, hollow=True)
    page.mark(axes, mark.value, y, mark.role)
    right = max(mark.value, mark.hollow or 0.0, min(mark.high or 0.0, limits[1]))
    axes.annotate(
        mark.words, (right, y), (7, 0), textcoords="offset points", va="center", fontsize=SMALL * 0.75,
        fontweight="bold", color=page.ink("text"), annotation_clip=False, parse_math=False, zorder=7,
    )  # fmt: skip
