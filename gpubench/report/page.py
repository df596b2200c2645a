"""A page for a chart, laid out in inches: title, legend and caption at the edges, panels in between."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from .theme import Ink, dashes, marker

WIDTH = 10.0
LEFT, RIGHT = 0.3, 0.25
TITLE, NORMAL, SMALL = 14.0, 9.0, 8.0
_ROW = 0.24
_LINE = 0.16

Key = tuple[str, int | None, int | None, int | None]
"""An entry of a legend: its label, and the colour, dashes and marker that it stands for."""


class Page:
    """``top`` and ``bottom`` (inches from the lower edge) are the ends of the room left for panels.

    ``swatch`` is what stands for a colour in the legend: ``line``, ``bar`` or ``point``.
    """

    def __init__(
        self, title: str, subtitle: str, caption: str, keys: list[Key], room: float, swatch: str = "line"
    ) -> None:
        self.ink = Ink([])
        rows = _packed(keys)
        small_print = wrapped(caption, WIDTH - LEFT - RIGHT, SMALL)
        self.bottom = 0.22 + _LINE * len(small_print)
        self.top = self.bottom + room
        self.height = self.top + 0.76 + _ROW * len(rows)
        self.figure = Canvas(figsize=(WIDTH, self.height))
        self.ink(self.figure.patch.set_facecolor, "page")
        self.text(LEFT, self.height - 0.36, fitted(title, WIDTH - LEFT - RIGHT, TITLE), TITLE, "text", weight="bold")
        self.text(LEFT, self.height - 0.62, fitted(subtitle, WIDTH - LEFT - RIGHT, NORMAL), NORMAL, "muted")
        for i, row in enumerate(rows):
            self._legend(row, self.height - 0.9 - _ROW * i, swatch)
        for i, line in enumerate(small_print):
            self.text(LEFT, self.bottom - 0.14 - _LINE * i, line, SMALL, "muted")

    def text(self, x: float, y: float, words: str, size: float, role: str, **how: Any) -> None:
        artist = self.figure.text(x / WIDTH, y / self.height, words, fontsize=size, parse_math=False, **how)
        self.ink(artist.set_color, role)

    def mark(self, x: float, y: float, colour: int) -> None:
        """The marker that the legend has for a colour."""
        mark = Line2D([x / WIDTH], [y / self.height], linestyle="", marker=marker(colour), markersize=5.5)
        mark.set_transform(self.figure.transFigure)
        self.figure.add_artist(mark)
        self.ink(mark.set_color, colour)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Bare axes with their lower left corner at (x, y), themed; ticks are the caller's."""
        axes = self.figure.add_axes((x / WIDTH, y / self.height, width / WIDTH, height / self.height))
        self.ink(axes.set_facecolor, "page")
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_linewidth(0.8)
            self.ink(spine.set_edgecolor, "grid")
        axes.tick_params(labelsize=SMALL, length=0, pad=4)
        self.ink(lambda role: axes.tick_params(labelcolor=role), "muted")
        return axes

    def grid(self, axes: Axes, which: str) -> None:
        axes.set_axisbelow(True)
        axes.grid(True, axis=which, linewidth=0.7)  # type: ignore[arg-type]
        for line in (*axes.xaxis.get_gridlines(), *axes.yaxis.get_gridlines()):
            self.ink(line.set_color, "grid")

    def _legend(self, row: list[tuple[float, Key]], y: float, swatch: str) -> None:
        for x, (label, colour, style, shape) in row:
            line = Line2D(
                [x / WIDTH, (x + 0.19) / WIDTH, (x + 0.38) / WIDTH],
                [(y + 0.045) / self.height] * 3,
                linewidth={"bar": 7.0, "point": 0.0}.get(swatch, 1.8),
                solid_capstyle="butt",
                linestyle=dashes(style or 0),
                marker=marker(shape) if shape is not None and swatch != "bar" else "",
                markevery=[1],
                markersize=5.5,
                transform=self.figure.transFigure,
            )
            self.figure.add_artist(line)
            self.ink(line.set_color, "muted" if colour is None else colour)
            self.text(x + 0.46, y, label, NORMAL, "text")


def _packed(keys: list[Key]) -> list[list[tuple[float, Key]]]:
    """Entries in rows from left to right; what stands for dashes starts a row of its own."""
    rows: list[list[tuple[float, Key]]] = []
    x = LEFT
    for i, key in enumerate(keys):
        width = 0.46 + text_width(key[0], NORMAL) + 0.3
        turns = i > 0 and (key[1] is None) != (keys[i - 1][1] is None)
        if not rows or turns or x + width > WIDTH - RIGHT:
            rows.append([])
            x = LEFT
        rows[-1].append((x, key))
        x += width
    return rows


@lru_cache(maxsize=4096)
def text_width(words: str, size: float) -> float:
    """Inches."""
    return float(text_to_path.get_text_width_height_descent(words, FontProperties(size=size), ismath=False)[0]) / 72


def fitted(words: str, room: float, size: float) -> str:
    """Cut off with an ellipsis where it is wider than ``room`` inches."""
    if text_width(words, size) <= room:
        return words
    while words and text_width(f"{words}…", size) > room:
        words = words[:-1]
    return f"{words}…"


def wrapped(words: str, room: float, size: float, most: int = 5) -> list[str]:
    """Lines of at most ``room`` inches; a word longer than that is cut."""
    lines: list[str] = []
    for word in words.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= room:
            lines[-1] = joined
        else:
            lines.append(fitted(word, room, size))
    return [*lines[: most - 1], fitted(" ".join(lines[most - 1 :]), room, size)] if len(lines) > most else lines
