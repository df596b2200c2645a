"""The page of a chart: title, finding and legend above its panels, the small print below, all in pixels."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile
from statistics import fmean
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ...runfile.quantities import shorten, text
from ..number import raised, size_text
from .theme import MARK_SHAPES, colour

PX = 0.75
"""Points in a pixel of the page."""
PAGE_WIDTH, MARGIN = 800.0, 20.0
TITLE, NORMAL, SMALL, TINY = 18.0, 13.0, 12.0, 11.0
"""Type sizes in pixels; none is smaller than TINY."""
_MOST_HEIGHT = 700.0
MOST_PANELS, MOST_CURVES = 6, 4
"""A panel holds MOST_CURVES lines, a picture MOST_PANELS panels: what goes beyond is in the tables."""


_WORD, _DOT, _PIECE = 13.0, 8.0, 6.0
"""Pixels between names, of a mark that a name may lie on, and of a line's piece that counts like one."""
Place = tuple[float, float, float]
"""Left end, middle and width of words in axes, in pixels from the lower left corner."""


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend. ``role`` sets colour and shape; ``look`` is line, dashed, mark, hollow, tick, bar or
    hatched."""

    label: str
    role: str
    look: str = "line"


class Chart(Protocol):
    """What a figure holds: plain data that knows how to draw itself."""

    def draw(self, figure: Figure, theme: str) -> Page:
        """The page with all its ink."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture and the words around it: the title says what is drawn, the subtitle what is found.

    ``kind`` is a kind of picture, as a person chooses it, ``notice`` a warning above the panels. A report shows
    pictures of the lowest ``rank`` first, and those that aren't ``default`` only when it is asked for all.
    """

    name: str
    kind: str
    title: str
    subtitle: str
    caption: str
    chart: Chart
    rank: float = 0
    default: bool = True
    notice: str = ""


class Page:
    """``top`` and ``bottom`` are the ends of the room for panels, in pixels from the upper edge."""

    def __init__(self, figure: Figure, theme: str, body: float, keys: Sequence[Key] = ()) -> None:
        self.theme, self.width = theme, PAGE_WIDTH
        room = self.width - 2 * MARGIN
        lines = [(line, TITLE, "text", "bold") for line in _even(figure.title, room, TITLE * 1.12, 3)]
        lines += [(line, NORMAL, "muted", "normal") for line in _even(figure.subtitle, room, NORMAL)]
        lines += [(f"⚠ {line}", SMALL, "text", "bold") for line in wrap_text(figure.notice, room - 20, SMALL * 1.12)]
        rows = _pack(keys, self.width)
        foot_lines = wrap_text(figure.caption, room, TINY, 8)
        self.top = 14.0 + sum(1.42 * size for _, size, _, _ in lines) + 23.0 * len(rows) + 8.0 * bool(rows)
        foot = 14.0 + 1.4 * TINY * len(foot_lines)
        body = min(body, _MOST_HEIGHT - self.top - foot)
        self.bottom = self.top + max(120.0, body)
        self.height = self.bottom + foot
        self.canvas = Canvas(figsize=(self.width * PX / 72, self.height * PX / 72))
        y = 14.0
        for words, size, role, weight in lines:
            y += 1.42 * size
            self.text(MARGIN, y - 0.36 * size, words, size, role, weight=weight)
        for row in rows:
            y += 23.0
            for x, key in row:
                self._legend(key, x, y)
        for i, words in enumerate(foot_lines):
            self.text(MARGIN, self.bottom + 4 + 1.4 * TINY * (i + 1), words, TINY, "muted")

    def ink(self, role: str) -> str:
        """A role's colour in this page's theme."""
        return colour(self.theme, role)

    def shape(self, role: str) -> str:
        """matplotlib's marker of a role: those without a shape of their own are round."""
        return MARK_SHAPES.get(role, "o")

    def text(self, x: float, y: float, words: str, size: float, role: str = "text", **how: Any) -> None:
        """``y`` is the baseline, from the upper edge."""
        how = {"va": "baseline", "fontsize": size * PX, "color": self.ink(role), **how}
        self.canvas.text(x / self.width, 1 - y / self.height, words, **how)

    def note(self, axes: Axes, words: str, at: tuple[float, float], offset: tuple[float, float], **how: Any) -> None:
        """Words beside a place in the axes, ``offset`` in points; muted and TINY unless ``how`` says otherwise."""
        how = {"fontsize": TINY * PX, "color": self.ink("muted"), **how}
        axes.annotate(words, at, offset, textcoords="offset points", **how)

    def axes(self, x: float, width: float, top: float, bottom: float) -> Axes:
        """Bare axes between ``top`` and ``bottom``."""
        return self.canvas.add_axes(self._box(x, width, top, bottom))

    def panels(self, count: int, share: bool = False) -> list[Axes]:
        """Axes in the room for panels, in up to two columns kept apart by constrained layout; ``share`` one axis of
        values."""
        box = self._box(MARGIN, self.width - 2 * MARGIN, self.top, self.bottom)
        self.canvas.set_layout_engine(ConstrainedLayoutEngine(rect=box, wspace=0.05, hspace=0.03))
        axes = list(self.canvas.subplots(math.ceil(count / 2), min(count, 2), squeeze=False, sharey=share).flat)
        for unused in axes[count:]:
            unused.set_visible(False)
        return axes[:count]

    def _box(self, x: float, width: float, top: float, bottom: float) -> tuple[float, float, float, float]:
        return x / self.width, 1 - bottom / self.height, width / self.width, (bottom - top) / self.height

    def lay_out(self) -> None:
        """Fix the panels' positions: what is placed among them later doesn't move them.

        Rounded to a millionth of the page: constrained layout isn't reproducible in the last digits, and redrawing must
        give the same file.
        """
        engine = self.canvas.get_layout_engine()
        assert engine is not None
        engine.execute(self.canvas)
        self.canvas.set_layout_engine("none")
        for axes in self.canvas.axes:
            left, bottom, width, height = (round(float(each), 6) for each in axes.get_position().bounds)
            axes.set_position((left, bottom, width, height))

    def halo(self) -> dict[str, Any]:
        """A box behind words that lie on lines; a stroke around the letters would turn them into paths."""
        return {"boxstyle": "square,pad=0.1", "facecolor": self.ink("page"), "edgecolor": "none", "alpha": 0.7}

    def size(self, axes: Axes) -> tuple[float, float]:
        """Width and height of axes."""
        box = axes.get_position()
        return box.width * self.width, box.height * self.height

    def most_ticks(self, axes: Axes, low: float, high: float, unit: str) -> int:
        """How many ticks have room for their words along a logarithmic axis of values."""
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        room = max(52.0, *(text_width(tick_text(10.0**power, unit), TINY) + 12 for power in decades))
        return max(2, min(7, int(self.size(axes)[0] / room)))

    def mark(self, axes: Axes, x: float, y: float, role: str, *, hollow: bool = False, **how: Any) -> None:
        """One marker of that role's shape."""
        face, edge, width = ("page", role, 1.4) if hollow else (role, "page", 0.8)
        inks = {"markerfacecolor": self.ink(face), "markeredgecolor": self.ink(edge), "markeredgewidth": width}
        how = {"markersize": 7.0, "zorder": 6, "clip_on": False, **inks, **how}
        axes.plot([x], [y], marker=self.shape(role), linestyle="", **how)

    def spot(self, axes: Axes, at: tuple[float, float]) -> tuple[float, float]:
        """A place of the data in pixels from the lower left corner of the axes."""
        x, y = (axes.transData + axes.transAxes.inverted()).transform(at) * self.size(axes)
        return float(x), float(y)

    def covered(self, axes: Axes) -> list[tuple[float, float]]:
        """Such pixels that marks, lines and bars lie on, of those every few."""
        paths = [(line.get_xydata(), line.get_transform()) for line in axes.lines]
        bars = [each for each in axes.collections if isinstance(each, LineCollection)]
        paths += [(segment, axes.transData) for each in bars for segment in each.get_segments()]
        found: list[tuple[float, float]] = []
        for points, transform in paths:
            ends = (transform + axes.transAxes.inverted()).transform(points) * self.size(axes)
            found += [(float(x), float(y)) for x, y in ends]
            for start, end in pairwise(ends):
                length = math.dist(start, end)
                shares = [i * _PIECE / length for i in range(1, math.ceil(length / _PIECE))] if length < 1e4 else []
                found += [(float(x), float(y)) for x, y in (start + (end - start) * share for share in shares)]
        return found

    def name(
        self, axes: Axes, words: str, at: tuple[float, float], taken: list[Place],
        covered: Sequence[tuple[float, float]], **how: Any,
    ) -> None:  # fmt: skip
        """Write words near a mark, with a leader to it, on few ``covered`` pixels, unless they would lie on words whose
        places are ``taken``."""
        bold = how.get("fontweight") == "bold"
        wide, spot = text_width(words, TINY * (1.1 if bold else 1.0)), self.spot(axes, at)
        place = _free(spot, wide, self.size(axes), taken, covered)
        if place:
            taken.append((*place, wide))
            offset = (place[0] - spot[0]) * PX, (place[1] - spot[1] - 4) * PX
            leader = {"arrowstyle": "-", "linewidth": 0.6, "color": self.ink("muted"), "shrinkA": 0, "shrinkB": 4}
            how = {"color": self.ink("text"), "arrowprops": leader, "zorder": 9, "bbox": self.halo(), **how}
            self.note(axes, words, at, offset, **how)

    def hatched(self, role: str) -> dict[str, Any]:
        """How a bar looks whose value comes from a model."""
        return {"facecolor": self.ink("page"), "edgecolor": self.ink(role), "hatch": "//////", "linewidth": 1.0}

    def _legend(self, key: Key, x: float, y: float) -> None:
        self.text(x + 30, y, key.label, NORMAL)
        if key.look == "hatched":
            left, bottom, width, height = self._box(x, 24, y - 9.5, y - 0.5)
            place = self.canvas.transFigure
            self.canvas.add_artist(Rectangle((left, bottom), width, height, transform=place, **self.hatched(key.role)))
            return
        x_at, y_at = [(x + at) / self.width for at in (0, 12, 24)], [1 - (y - 5) / self.height] * 3
        line = Line2D(
            x_at, y_at, color=self.ink(key.role), transform=self.canvas.transFigure, solid_capstyle="butt",
            linewidth={"line": 1.7, "dashed": 1.4, "bar": 8.0}.get(key.look, 0.0),
            linestyle=(0, (4, 2)) if key.look == "dashed" else "-", markevery=[1],
            marker={"bar": "", "tick": "|"}.get(key.look, self.shape(key.role)),
            markersize={"dashed": 4.0, "tick": 11.0}.get(key.look, 6.5),
            markerfacecolor=self.ink("page" if key.look == "hollow" else key.role),
            markeredgewidth={"hollow": 1.4, "tick": 2.4}.get(key.look, 0.0),
        )  # fmt: skip
        self.canvas.add_artist(line)


def _pack(keys: Sequence[Key], width: float) -> list[list[tuple[float, Key]]]:
    """Entries in rows from left to right; matplotlib's legend doesn't wrap."""
    rows: list[list[tuple[float, Key]]] = []
    x = MARGIN
    for key in keys:
        room = 30 + text_width(key.label, NORMAL) + 22
        if not rows or x + room > width:
            rows.append([])
            x = MARGIN
        rows[-1].append((x, key))
        x += room
    return rows


@lru_cache(maxsize=4096)
def text_width(words: str, size: float) -> float:
    """Return the width of a text in pixels, in the widest font of the stack."""
    return float(text_to_path.get_text_width_height_descent(words, FontProperties(size=size), ismath=False)[0])


def shorten_to(words: str, room: float, size: float) -> str:
    """Return the text, cut in the middle if it is wider than ``room`` pixels."""
    fits = bisect_right(range(2, len(words) + 1), room, key=lambda length: text_width(shorten(words, length), size))
    return shorten(words, max(2, fits + 1))


def wrap_text(words: str, room: float, size: float, most: int = 5) -> list[str]:
    """Lines of at most ``room`` pixels; a word longer than that is cut."""
    room *= 0.97  # renderers round the widths of letters
    lines: list[str] = []
    for word in re.findall(r"\S+ [≈=×] \S+|\d[\d.]*\*? [^\W\d]\S*|[≥≤] \S+|\S+", words):
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= room:
            lines[-1] = joined
        else:
            lines.append(shorten_to(word, room, size))
    return [*lines[: most - 1], shorten_to(" ".join(lines[most - 1 :]), room, size)] if len(lines) > most else lines


def _free(
    spot: tuple[float, float], wide: float, size: tuple[float, float], taken: Sequence[Place],
    covered: Iterable[tuple[float, float]],
) -> tuple[float, float] | None:  # fmt: skip
    """Return the left end and the middle of the words, near and on few ``covered`` pixels; None if they would lie on
    other words everywhere."""
    places: list[tuple[float, tuple[float, float]]] = []
    for reach in (0, 5, 12, 20):
        for x, y in ((8, 0), (-wide - 8, 0), (-wide / 2, 13), (-wide / 2, -13), (8, 10), (8, -10), (-wide - 8, 10)):
            left, middle = spot[0] + x + math.copysign(reach, x), spot[1] + y + (math.copysign(reach, y) if y else 0)
            right = left + wide
            inside = 0 <= left <= size[0] - wide and 6 <= middle <= size[1] - 6
            if inside and all(right < x0 or x0 + other < left or abs(middle - y0) >= _WORD for x0, y0, other in taken):
                hits = sum(left - _DOT / 2 < x0 < right + _DOT / 2 and abs(y0 - middle) < _DOT for x0, y0 in covered)
                places.append((hits + reach / 8, (left, middle)))
    return min(places)[1] if places else None


def _even(words: str, room: float, size: float, most: int = 5) -> list[str]:
    """As few lines as :func:`wrap_text` makes, of about one length: none is left with a single word."""
    lines = wrap_text(words, room, size, most)
    narrower = (wrap_text(words, room * share / 100, size, most) for share in range(95, 45, -5))
    same = takewhile(lambda each: len(each) == len(lines) and " ".join(each) == " ".join(lines), narrower)
    return [lines, *same][-1] if len(lines) > 1 else lines


def tick_text(value: float, unit: str) -> str:
    """``100 µs``, ``2 TFLOP/s``, ``2× slower`` without a unit: as short as a round value can be."""
    if not unit and value < 1:
        return f"{tick_text(1 / value, '')} slower"
    if not unit and value >= 1e6:
        power = math.floor(math.log10(value) + 1e-9)
        lead = f"{value / 10.0**power:.3g}"
        return f"{f'{lead}·' * (lead != '1')}{raised(power)}×"
    if not unit:
        return f"{value:,.0f}×" if value >= 1000 else f"{value:.3g}×"
    number, _, rest = text(value, unit, 4).partition(" ")
    return f"{float(number):g} {rest}"


def log_axis(axis: Axis, low: float, high: float, unit: str, most: int = 6) -> None:
    """Ticks at 1, 2, 5, 10 … of a logarithmic axis, or at powers of ten: below 1× they are round too, read as times
    slower. EngFormatter would write millisamples, :func:`tick_text` doesn't."""
    values: list[float] = []
    for steps in ((1, 2, 5), (1,)):
        places = LogLocator(subs=steps, numticks=99).tick_values(low, high)
        values = [float(value) for value in places if low <= value <= high]
        if 2 <= len(values) <= most:
            break
    else:
        if len(values) > most:
            step = math.ceil(len(values) / most)
            values = values[(values.index(1.0) if 1.0 in values else 0) % step :: step]  # 1× is one of them
        elif len(values) < 2:
            values = [value for value in MaxNLocator(4).tick_values(low, high) if low <= value <= high]
    _ticks(axis, values, [tick_text(value, unit) for value in values])


def size_axis(axis: Axis, sizes: Iterable[float], name: str, room: float) -> None:
    """Ticks at sizes that were measured, the largest always, as many as there is room for in pixels."""
    values = sorted(set(sizes))
    labels = [size_text(value, name) for value in values]
    span = math.log(values[-1] / values[0]) or 1.0
    kept = [len(values) - 1]
    for i in range(len(values) - 2, -1, -1):
        need = (text_width(labels[i], TINY) + text_width(labels[kept[-1]], TINY)) / 2 + 6
        if math.log(values[kept[-1]] / values[i]) / span * room >= need:
            kept.append(i)
    _ticks(axis, [values[i] for i in kept], [labels[i] for i in kept])


def _ticks(axis: Axis, places: Sequence[float], labels: Sequence[str]) -> None:
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_ticklabels(list(labels))


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least ``gap``, as little as that takes, kept between ``low`` and ``high``.

    In the order of the places; where there isn't room for all, evenly from ``low`` to ``high``. Neither adjustText nor
    matplotlib-label-lines keeps labels in one column beside the ends of lines.
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    # Isotonic regression of the places less their gaps, by pooling adjacent violators.
    pools: list[list[float]] = []
    for rank, i in enumerate(order):
        pools.append([places[i] - rank * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    starts = [min(max(fmean(pool), low), high - (len(places) - 1) * gap) for pool in pools for _ in pool]
    moved = {i: start + rank * gap for rank, (i, start) in enumerate(zip(order, starts, strict=True))}
    return [moved[i] for i in range(len(places))]


def rc_settings(theme: str) -> dict[Any, Any]:
    """matplotlib's settings for pictures whose bytes are equal on every machine."""
    return {
        "font.family": ["sans-serif"],
        # The first ships with matplotlib and is the widest: what fits in it fits in the others, which a browser picks.
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Segoe UI", "Helvetica Neue", "Arial", "sans-serif"],
        "font.size": NORMAL * PX,
        "svg.fonttype": "none",
        "svg.hashsalt": "gpubench",
        "path.simplify": False,
        "text.parse_math": False,  # a name from a file may hold dollars
        "text.color": colour(theme, "text"),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), colour(theme, "page")),
        **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), colour(theme, "grid")),
        **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), colour(theme, "muted")),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), TINY * PX),
        "axes.labelsize": SMALL * PX,
        "axes.titlesize": NORMAL * PX,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        "axes.axisbelow": True,
        "grid.linewidth": 0.7,
        "xtick.major.size": 3,
        **dict.fromkeys(("ytick.major.size", "xtick.minor.size", "ytick.minor.size"), 0),
        "lines.linewidth": 1.7,
        "lines.markersize": 5.0,
    }
