"""The page of a picture: title, finding and legend above its panels, the small print below; and the ticks of axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from textwrap import wrap
from typing import Any, NamedTuple, Protocol

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ...runfile.quantities import text
from ..number import SECONDS, raised, size_text
from ..words import together
from .theme import MARK_SHAPES, colour

PX = 0.75
"""Points in a pixel of the page."""
PAGE_WIDTH, MARGIN = 800.0, 20.0
TITLE, NORMAL, SMALL, TINY = 18.0, 13.0, 12.0, 11.0
"""Type sizes in pixels; none is smaller than TINY."""
_BOLD = 1.12
"""Width of a bold letter over the width of a plain one, in the widest font of the stack."""
_MOST_HEIGHT = 700.0
AROUND = "around"
"""The group of the words around the panels, which a web page shows as text of its own."""
KEY = "key"
"""The group of a line or mark in the legend."""
MOST_PANELS, MOST_CURVES = 6, 4
"""A panel holds MOST_CURVES lines, a picture MOST_PANELS panels: the tables have the rest."""


class Key(NamedTuple):
    """An entry of a legend. ``role`` sets colour and shape; ``look`` is line, dashed, mark, tick or bar."""

    label: str
    role: str
    look: str = "line"


class Chart(Protocol):
    """The content of a figure: plain data that draws itself."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The entries of the legend."""

    @property
    def height(self) -> float:
        """Pixels of the panels."""

    def draw(self, page: Page) -> None:
        """Draw the panels."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture and the words around it: the title names the subject, the subtitle the finding.

    ``kind`` is a kind of picture, as a person chooses it, ``notice`` a warning above the panels. A report shows
    pictures of the lowest ``rank`` first, and those that aren't ``default`` only when it is asked for all. ``workload``
    is the benchmark of a picture of its own, ``facts`` name its devices, settings and date.
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
    workload: str = ""
    facts: str = ""

    @property
    def small_print(self) -> str:
        """The words below the panels in a file."""
        return ". ".join(filter(None, (self.facts, self.caption)))


class Page:
    """A picture with all its ink. ``titles`` has the values of the marks, by the ids of their groups in an SVG, and
    ``box`` is the room of the panels in points: left, top, width and height."""

    def __init__(self, figure: Figure, theme: str) -> None:
        self.theme, self.titles, self._ids = theme, dict[str, str](), count()
        heads = (
            (_lines(figure.title, TITLE, bold=True), TITLE, "text", "bold"),
            (_lines(figure.subtitle, NORMAL), NORMAL, "muted", "normal"),
            (_lines(f"⚠ {figure.notice}" * bool(figure.notice), SMALL, bold=True), SMALL, "text", "bold"),
        )
        small, keys = _lines(figure.small_print, TINY, even=False), figure.chart.keys
        head = 16 + sum(1.4 * size * len(lines) for lines, size, *_ in heads)
        widest = max((text_width(key.label, NORMAL) for key in keys), default=0)
        columns = max(1, int(PAGE_WIDTH / (50 + widest)))
        top, self._foot = head + 24 * math.ceil(len(keys) / columns), 12 + 1.4 * TINY * len(small)
        self._body = max(120.0, min(figure.chart.height, _MOST_HEIGHT - top - self._foot))
        self.height = top + self._body + self._foot
        self.canvas = Canvas(figsize=(PAGE_WIDTH * PX / 72, self.height * PX / 72), dpi=72)
        self.box = MARGIN * PX, top * PX, (PAGE_WIDTH - 1.4 * MARGIN) * PX, self._body * PX
        y = 14.0
        for block in heads:
            y = self._write(y, *block)
        self._write(self.height - self._foot + 4, small, TINY, "muted", "normal")
        if keys:
            handles, place = map(self._handle, keys), ((MARGIN - 4) / PAGE_WIDTH, 1 - head / self.height)
            looks: dict[str, Any] = {"loc": "upper left", "borderaxespad": 0, "frameon": False, "fontsize": NORMAL * PX}
            looks |= {"ncols": columns, "bbox_to_anchor": place, "handlelength": 1.8, "columnspacing": 1.6}
            legend = self.canvas.legend([*handles], [key.label for key in keys], **looks)
            legend.set_gid(f"{AROUND}-{next(self._ids)}")
            for handle in filter(None, legend.legend_handles):
                handle.set_gid(f"{KEY}-{next(self._ids)}")

    def ink(self, role: str) -> str:
        """A role's colour in this page's theme."""
        return colour(self.theme, role)

    def _write(self, top: float, lines: Sequence[str], size: float, role: str, weight: str) -> float:
        """Write lines from the left margin and return their lower end."""
        for i, line in enumerate(lines, 1):
            at = MARGIN / PAGE_WIDTH, 1 - (top + (1.4 * i - 0.36) * size) / self.height
            how: dict[str, Any] = {"fontsize": size * PX, "color": self.ink(role), "fontweight": weight}
            self.canvas.text(*at, line, va="baseline", gid=f"{AROUND}-{next(self._ids)}", **how)
        return top + 1.4 * size * len(lines)

    def panels(
        self, count: int, lefts: Sequence[float], right: float = 8, above: float = 8, below: float = 44
    ) -> list[Axes]:
        """Return axes of one size, in as many columns as ``lefts``, with these pixels around them for words: matplotlib
        measures no text, since a layout of its own would draw each picture twice."""
        columns, pitch, made = len(lefts), self._body / math.ceil(count / len(lefts)), list[Axes]()
        width, height = (PAGE_WIDTH - 2 * MARGIN - sum(lefts)) / columns - right, pitch - above - below
        for row, column in (divmod(i, columns) for i in range(count)):
            x = MARGIN + sum(lefts[: column + 1]) + column * (width + right)
            y = self._foot + self._body - (row + 1) * pitch + below
            sides = x / PAGE_WIDTH, y / self.height, width / PAGE_WIDTH, height / self.height
            made.append(axes := self.canvas.add_axes(sides))
            # places of their names, which are else sought beside all ticks
            axes.xaxis.set_label_coords(0.5, -22 / height)
            axes.yaxis.set_label_coords(-(lefts[column] - 16) / width, 0.5)
        return made

    def add(self, artist: Artist, role: str, title: str = "") -> None:
        """Give an artist the colour group of a role, and the value that hovering shows."""
        artist.set_gid(gid := f"{role}-{next(self._ids)}")
        if title:
            self.titles[gid] = title

    def line(self, axes: Axes, xy: Iterable[Sequence[float]], role: str, title: str = "", **looks: Any) -> None:
        """A line through places in the role's colour, whose value is the title, with matplotlib's ``looks``."""
        usual = {"color": self.ink(role), "clip_on": False, "solid_capstyle": "butt"}
        self.add(axes.add_artist(Line2D(*zip(*xy, strict=True), **{**usual, **looks})), role, title)

    def mark(self, axes: Axes, at: Sequence[float], role: str, title: str, **looks: Any) -> None:
        """One marker of the role's shape, or a ``hollow`` one."""
        hollow, ink, paper = (looks.pop("hollow", False), looks.pop("color", self.ink(role)), self.ink("page"))
        face, edge, width = (paper, ink, 1.4) if hollow else (ink, paper, 0.8)
        usual = {"marker": MARK_SHAPES.get(role, "o"), "markersize": 7.0, "linestyle": "", "zorder": 6}
        usual |= {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": width}
        self.line(axes, [at], role, title, **{**usual, **looks})

    def note(self, axes: Axes, words: str, at: tuple[float, float], offset: tuple[float, float], **how: Any) -> Artist:
        """Words beside a place in the axes, ``offset`` in points; muted and TINY unless ``how`` says otherwise."""
        how = {"fontsize": TINY * PX, "color": self.ink("muted"), **how}
        return axes.annotate(words, at, offset, textcoords="offset points", **how)

    def _handle(self, key: Key) -> Artist:
        return Line2D(
            [], [], color=self.ink(key.role), linewidth={"line": 1.7, "dashed": 1.4, "bar": 8.0}.get(key.look, 0.0),
            linestyle=(0, (4, 2)) if key.look == "dashed" else "-", solid_capstyle="butt",
            marker={"bar": "", "tick": "|"}.get(key.look, MARK_SHAPES.get(key.role, "o")),
            markersize={"dashed": 3.6, "tick": 11.0}.get(key.look, 6.5), markeredgewidth=2.4 * (key.look == "tick"),
        )  # fmt: skip


def _lines(text: str, size: float, even: bool = True, bold: bool = False) -> list[str]:
    """As few lines as the page needs, if ``even`` of about one length; letters are as wide as they are on average."""
    text = together(text)
    lines = text_width(text, size, bold) / (0.92 * (PAGE_WIDTH - 2 * MARGIN))
    most = len(text) / max(1.0, lines)
    most = min(most, len(text) // math.ceil(lines) + 12) if even and text else most
    return wrap(text, max(1, int(most)), break_on_hyphens=False)


@lru_cache(maxsize=4096)
def text_width(words: str, size: float, bold: bool = False) -> float:
    """Return the width of a text in pixels, in the widest font of the stack."""
    width = text_to_path.get_text_width_height_descent(words, FontProperties(size=size), ismath=False)[0]
    return float(width) * (_BOLD if bold else 1.0)


def tick_text(value: float, unit: str) -> str:
    """``100 µs``, ``2 T`` of a rate, whose axis names the unit, ``2× slower`` without a unit: as short as a round
    value can be."""
    if unit:
        number, _, rest = text(value, unit if unit == SECONDS else "", 4).partition(" ")
        return f"{float(number):g} {rest}".rstrip()
    if value < 1:
        return f"{tick_text(1 / value, '')} slower"
    if value >= 1e6:
        power = math.floor(math.log10(value) + 1e-9)
        lead = f"{value / 10.0**power:.3g}·".removeprefix("1·")
        return f"{lead}{raised(power)}×"
    return f"{value:,.0f}×" if value >= 1000 else f"{value:.3g}×"


def log_ticks(low: float, high: float, unit: str, most: int = 6, room: float = math.inf) -> dict[float, str]:
    """Return ticks at 1, 2, 5, 10 … of a logarithmic axis, or at powers of ten, as many as there is room for in pixels:
    below 1× they are round too, read as times slower. EngFormatter would write millisamples, :func:`tick_text`
    doesn't."""
    fine, coarse, linear = (
        [float(value) for value in locator.tick_values(low, high) if low <= value <= high]
        for locator in (LogLocator(subs=(1, 2, 5), numticks=99), LogLocator(subs=(1,), numticks=99), MaxNLocator(4))
    )
    values = fine if 2 <= len(fine) <= most or len(coarse) < 2 else coarse
    values = values if len(values) > 1 else linear
    step = math.ceil(len(values) / most)
    start = values.index(1.0) % step if 1.0 in values else 0  # 1× is one of them
    labels = {value: tick_text(value, unit) for value in values[start::step]}
    apart = all(_apart(*both, room / math.log(high / low)) for both in pairwise(labels.items()))
    return labels if apart or most == 2 else log_ticks(low, high, unit, most - 1, room)


def size_ticks(sizes: Iterable[float], name: str, room: float) -> dict[float, str]:
    """Return ticks at sizes that were measured, the largest always, as many as there is room for in pixels."""
    values = sorted(set(sizes), reverse=True)
    scale = room / (math.log(values[0] / values[-1]) or 1.0)
    labels = {values[0]: size_text(values[0], name)}
    for tick in ((value, size_text(value, name)) for value in values[1:]):
        if _apart(tick, next(reversed(labels.items())), scale):
            labels |= [tick]
    return labels


def _apart(one: tuple[float, str], other: tuple[float, str], scale: float) -> bool:
    """Whether two ticks' labels have room beside each other, at ``scale`` pixels for a factor of e."""
    width = (text_width(one[1], TINY) + text_width(other[1], TINY)) / 2
    return math.log(other[0] / one[0]) * scale >= width + 6


def set_ticks(axis: Axis, labels: dict[float, str]) -> None:
    """Give an axis these ticks alone."""
    axis.set_major_locator(FixedLocator([*labels]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FixedFormatter([*labels.values()]))


def rc_settings(theme: str) -> dict[Any, Any]:
    """matplotlib's settings for pictures whose bytes are equal on every machine."""
    return {
        "font.family": ["sans-serif"],
        # The first ships with matplotlib and is the widest: what fits in it fits in the others, which a browser picks.
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Segoe UI", "Helvetica Neue", "Arial", "sans-serif"],
        "svg.fonttype": "none",
        "svg.hashsalt": "gpubench",
        "path.simplify": False,
        "text.parse_math": False,  # a name from a file may hold dollars
        "text.color": colour(theme, "text"),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), colour(theme, "page")),
        **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), colour(theme, "grid")),
        **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), colour(theme, "muted")),
        **dict.fromkeys(("font.size", "axes.titlesize"), NORMAL * PX),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), TINY * PX),
        "axes.labelsize": SMALL * PX,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titley": 1.0,  # not sought anew in each layout
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "xtick.bottom", "ytick.left"), False),
        "axes.axisbelow": True,
        "grid.linewidth": 0.7,
    }
