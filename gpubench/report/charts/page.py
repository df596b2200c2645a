"""What all charts share: the theme, the ticks, the page around the panels, and what a chart must offer.

A page is laid out in inches: title, legend and caption at the edges, panels in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from ...format import text
from ...runfile.schema import Parallel
from ..labels import Names, Row, raised, size_text
from ..speedup import Baseline, pair
from ..table import records
from ..trend import Trend

LIGHT, DARK = "light", "dark"

# After Okabe and Ito, "Color Universal Design" (2008); each darkened or lightened until it stands out 3:1 against
# the page (WCAG 2.1, 1.4.11), which their sky blue, yellow and orange don't on white.
_SERIES = {
    LIGHT: ("#0072b2", "#d55e00", "#00865f", "#a8488a", "#9a6b00", "#3d7fb8", "#555555", "#8a3324"),
    DARK: ("#56b4e9", "#ff8c42", "#2dc79c", "#e59ac8", "#f0c541", "#a6c8ff", "#b8b8b8", "#ff9e8f"),
}
_ROLES = {
    LIGHT: {"page": "#ffffff", "text": "#1f2328", "muted": "#59636e", "grid": "#e3e6ea", "shade": "#f1f3f6"},
    DARK: {"page": "#0d1117", "text": "#e6edf3", "muted": "#9aa4b0", "grid": "#262c36", "shade": "#1a2029"},
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)),
    (0, (9, 3)),
)

SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],  # ships with matplotlib: the same everywhere
    "svg.hashsalt": "gpubench",
    "svg.fonttype": "path",
    "axes.unicode_minus": True,
    "path.simplify": False,
    "text.usetex": False,
    "text.parse_math": False,  # a name from a file may hold dollars
}


def colour(theme: str, role: str | int) -> str:
    """``role`` is the name of a part of the page, or the number of a series."""
    return _SERIES[theme][role % len(_SERIES[theme])] if isinstance(role, int) else _ROLES[theme][role]


def marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def dashes(index: int) -> Any:
    return DASHES[index % len(DASHES)]


@dataclass(frozen=True, slots=True)
class Ink:
    """Remembers what was painted in which role, so that one drawing serves both themes."""

    strokes: list[tuple[Callable[[str], Any], str | int]]

    def __call__(self, setter: Callable[[str], Any], role: str | int) -> None:
        self.strokes.append((setter, role))

    def apply(self, theme: str) -> None:
        for setter, role in self.strokes:
            setter(colour(theme, role))


Ticks = list[tuple[float, str]]


def size_ticks(sizes: Iterable[float], name: str, most: int) -> Ticks:
    """Ticks at sizes that were measured, as many as there is room for."""
    values = sorted(set(sizes))
    if len(values) == 1:
        return [(values[0], size_text(values[0], name))]
    gap = math.log(values[-1] / values[0]) / most
    kept = [values[0]]
    for value in values[1:]:
        if math.log(value / kept[-1]) >= gap * 0.99:
            kept.append(value)
    return [(value, size_text(value, name)) for value in kept]


def log_ticks(low: float, high: float, unit: str, most: int = 6) -> Ticks:
    """Decades, or steps of 1-2-5 where there are few decades, or every so many decades; ``×`` without a unit."""
    if high / low < 2:
        return linear_ticks(low, high, unit)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values: list[float] = []
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        values = [value for value in values if low <= value <= high]
        if len(values) <= most:
            break
    if len(values) > most:
        stride = math.ceil(len(values) / most)
        values = [value for value in values if round(math.log10(value)) % stride == 0]
    if len(values) < 2:
        return linear_ticks(low, high, unit, most=4)
    return [(value, tick_text(value, unit)) for value in values]


def linear_ticks(low: float, high: float, unit: str, most: int = 6) -> Ticks:
    """Round values within the range."""
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    values = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return [(value, tick_text(value, unit)) for value in values]


def tick_text(value: float, unit: str) -> str:
    """``100 µs``, ``2 TFLOP/s``, ``0.5×``: as short as a round value can be."""
    if not unit and (value < 0.001 or value >= 1e6):
        power = math.floor(math.log10(value) + 1e-9)
        lead = f"{value / 10.0**power:.3g}"
        return f"{f'{lead}·' * (lead != '1')}{raised(power)}×"
    if not unit:
        return f"{value:,.0f}×" if value >= 1000 else f"{value:.4g}×"
    if value == 0:
        return "0"
    number, _, rest = text(value, unit, 4).partition(" ")
    return f"{float(number):g} {rest}"


BEYOND = 10.0
"""How many times beyond the outermost values their ranges are shown: wider ones would flatten what they surround."""

CUT = "Axes end a decade beyond the values: wider {} are cut there. "


def shown(values: Sequence[float], ranges: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Ends of the values and of their ranges, as far as these are worth showing."""
    low, high = min(values), max(values)
    lows, highs = zip((low, high), *ranges, strict=True)
    return max(min(lows), low / BEYOND), min(max(highs), high * BEYOND)


def is_cut(values: Sequence[float], ranges: Sequence[tuple[float, float]]) -> bool:
    """Whether an end of a range lies beyond what is shown."""
    low, high = shown(values, ranges)
    return any(start < low or end > high for start, end in ranges)


def padded(values: Sequence[float], share: float = 0.06, least: float = 1.25) -> tuple[float, float]:
    """Limits of a logarithmic axis: a share of its length free on either side, ``least`` a factor between ends."""
    low, high = min(values), max(values)
    if high / low < least:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(least), middle * math.sqrt(least)
    room = (high / low) ** share
    return low / room, high * room


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


@dataclass(frozen=True, slots=True)
class ChartData:
    """What charts are made from: the tables of a report and the trends of its runs."""

    results: pd.DataFrame
    speedups: pd.DataFrame
    baseline: Baseline | None = None
    scaled: pd.DataFrame | None = None
    trends: tuple[Trend, ...] = ()

    @property
    def names(self) -> Names:
        return Names(self.results)

    @property
    def rows(self) -> list[Row]:
        """The measured cases."""
        return [row for row in records(self.results) if row["_result"].times]

    @property
    def single(self) -> list[Row]:
        """Those of workloads that use one device; the others have charts of their own."""
        several = {row["workload"] for row in self.rows if (row["_result"].parallel or Parallel()).devices > 1}
        return [row for row in self.rows if row["workload"] not in several]

    @property
    def pairs(self) -> list[Row]:
        """Of a report without a pair inside a run also those against NumPy."""
        pairs = records(self.speedups)
        if self.baseline is None and not any(row["run"] == row["baseline_run"] for row in pairs):
            pairs += records(pair(self.results, Baseline("implementation", "numpy")).table)
        return pairs


class Chart(Protocol):
    """What a figure holds: plain data that knows how to draw itself."""

    def draw(self, figure: Figure) -> Page: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture and the words around it; a report shows those of the lowest ``rank`` first."""

    name: str
    title: str
    subtitle: str
    caption: str
    chart: Chart | None = None
    rank: int = 0
