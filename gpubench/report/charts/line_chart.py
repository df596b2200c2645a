"""Charts of lines over a size: which lines share a panel, and what tells them apart.

No panel has more than MOST_LINES lines: a parameter then gets a panel for each of its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from ...runfile.schema import Scalar
from ...statistics import Crossover
from ..crossover import MEASURES, Crossing, crossing_of
from ..labels import (
    Names,
    Row,
    caption,
    family,
    grouped,
    heading,
    setting,
    shorten,
    size_label,
    size_text,
    uncertainty,
    waited,
)
from ..metrics import METRICS
from ..speedup import ONE_SHOT, RESIDENT
from ..sweep import Line, Sweep, rate_of, sweeps, time_of, varying
from .page import (
    CUT,
    LEFT,
    NORMAL,
    RIGHT,
    SMALL,
    WIDTH,
    ChartData,
    Figure,
    Key,
    Page,
    Ticks,
    dashes,
    fitted,
    is_cut,
    log_ticks,
    marker,
    padded,
    shown,
    size_ticks,
    text_width,
)

MOST_LINES = 6
MOST_STYLES = 4
MOST_PANELS = 16


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its looks: indices into the theme's colours, and markers and dashes."""

    line: Line
    colour: int
    style: int
    crossing: Crossing | None = None


@dataclass(frozen=True, slots=True)
class LinePanel:
    title: str
    size: str
    curves: tuple[Curve, ...]

    @property
    def values(self) -> list[float]:
        return [point.y for curve in self.curves for point in curve.line.points]

    @property
    def ranges(self) -> list[tuple[float, float]]:
        return [(point.low, point.high) for curve in self.curves for point in curve.line.points]


@dataclass(frozen=True, slots=True)
class LineChart:
    """``unit`` is empty for a speedup, whose ``slower`` names what is faster below 1."""

    panels: tuple[LinePanel, ...]
    colours: tuple[tuple[str, int], ...]
    styles: tuple[tuple[str, int], ...]
    unit: str
    slower: str | None
    rows: tuple[Row, ...]

    @property
    def cut(self) -> str:
        """What the caption says where bands leave the axis; empty where none does."""
        return CUT.format("bands") if any(is_cut(panel.values, panel.ranges) for panel in self.panels) else ""

    @property
    def one_colour(self) -> bool:
        """Lines of a single colour are told apart by their markers too."""
        return len(self.colours) == 1 and len(self.styles) > 1

    def draw(self, figure: Figure) -> Page:
        return draw_lines(figure, self)


def line_figures(data: ChartData) -> list[Figure]:
    """By family: speedups with data on the device and with copies, the rate of its kind, and times."""
    names = data.names
    found = []
    for base, members in grouped(data.pairs, names.baseline).items():
        stem = f"speedup-over-{base.removeprefix('the ').lower()}"
        for regime, measure in MEASURES.items():
            shot = regime == ONE_SHOT
            for kind, rows in grouped(members, lambda row: family(row["workload"])).items():
                found += _pages(
                    line_charts(sweeps(rows, measure, names)[0], names, slower=base, regime=regime),
                    names,
                    name=f"{'one-shot-' * shot}{stem}-{kind}",
                    title=f"{heading(kind)}: {'one-shot ' * shot}speedup over {base}",
                    subtitle=f"Time of {base} / time of the device{', copies included' * shot}; "
                    "◆ crossover: from this size on it stays at 1× or above",
                    note=uncertainty(rows, "band; of a crossover: bar at 1×") + _SHOT * shot,
                    rank=1,
                )
    for kind, members in grouped(data.single, lambda row: family(row["workload"])).items():
        for rate, rows in grouped(members, rate_of).items():
            if rate is not None:
                found += _pages(
                    line_charts(sweeps(rows, rate.measure, names)[0], names, unit=rate.unit, lead="dtype"),
                    names,
                    name=f"{rate.label.lower()}-{kind}",
                    title=f"{heading(kind)}: {rate.label.lower()}",
                    subtitle=f"{rate.unit} against size; higher is better",
                    note="Line: work of a call / its wall time; band: interquartile range of the rounds. ",
                    rank=4,
                )
        found += _pages(
            line_charts(sweeps(members, time_of, names)[0], names, unit=METRICS["time_s"].unit),
            names,
            name=f"time-{kind}",
            title=f"{heading(kind)}: time per call",
            subtitle=f"Wall time against size{waited(members)}; lower is better",
            note="Line: median over rounds, geometric mean of processes; band: interquartile range of the rounds. ",
            rank=5,
        )
    return found


_SHOT = "One-shot: inputs copied from pageable memory, one call, outputs copied back. "


def _pages(
    charts: Sequence[LineChart], names: Names, *, name: str, title: str, subtitle: str, note: str, rank: int
) -> list[Figure]:
    """A figure for each, numbered where there are several."""
    return [
        Figure(
            name if number == 1 else f"{name}-{number}",
            f"{title} ({number} of {len(charts)})" if len(charts) > 1 else title,
            subtitle,
            caption(chart.rows, names, note + chart.cut),
            chart,
            rank,
        )
        for number, chart in enumerate(charts, 1)
    ]


class _Looks:
    """Colours that mean the same source, or the same dtype, in every chart of a report."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def colour(self, line: Line, lead: str) -> tuple[str, int]:
        if lead == "dtype" and line.terms["dtype"] in self.names.dtypes:
            return str(line.terms["dtype"]), len(self.names.sources) + self.names.dtypes.index(line.terms["dtype"])
        source = str(line.terms["source"])
        return source, self.names.sources.index(source)


def line_charts(
    swept: Sequence[Sweep],
    names: Names,
    *,
    unit: str = "",
    lead: str = "source",
    slower: str | None = None,
    regime: str = RESIDENT,
) -> list[LineChart]:
    """One chart of all panels, or several where a page can't hold them.

    ``lead`` is the term that colours tell; ``regime`` the one whose crossovers are marked.
    """
    looks = _Looks(names)
    panels = [panel for sweep in swept for panel in _facets(sweep, [other for other in swept if other != sweep], lead)]
    found = []
    for start in range(0, len(panels), MOST_PANELS):
        page = panels[start : start + MOST_PANELS]
        lines = [line for _, _, members in page for line in members]
        differ = varying(lines)
        by_dtype = "dtype" in differ and (lead == "dtype" or "source" not in differ)
        colours: dict[str, int] = {}
        styles: dict[str, int] = {}
        drawn = []
        dashed = {term for _, _, members in page for term in _untold(members, by_dtype)}
        for label, size, members in page:
            differing = _untold(members, by_dtype) or sorted(dashed)
            curves = []
            for line in members:
                word, colour = looks.colour(line, "dtype" if by_dtype else "source")
                colours[word] = colour
                style = _style(line, differing)
                crossing = crossing_of(line, regime) if slower is not None else None
                curves.append(Curve(line, colour, styles.setdefault(style, len(styles)) if style else 0, crossing))
            drawn.append(LinePanel(label, size, tuple(curves)))
        found.append(
            LineChart(
                tuple(drawn),
                tuple(sorted(colours.items(), key=lambda item: item[1])),
                tuple(styles.items()) if len(styles) > 1 else (),
                unit,
                slower,
                tuple(row for line in lines for row in line.rows),
            )
        )
    return found


def _untold(lines: list[Line], by_dtype: bool) -> list[str]:
    """The terms in which lines differ and that colour doesn't tell: dashes do."""
    told = "dtype" if by_dtype else "source"
    return [term for term in varying(lines) if term != told]


def _style(line: Line, differing: list[str]) -> str:
    return ", ".join(_word(term, line) for term in differing if line.terms.get(term) is not None)


def _word(term: str, line: Line) -> str:
    value = line.terms.get(term)
    return setting(term[1:], value) if term.startswith(":") else shorten(str(value))


def _facets(sweep: Sweep, others: list[Sweep], lead: str) -> list[tuple[str, str, list[Line]]]:
    """(title, size, lines) of each panel: split by one term after the other until no panel is crowded."""
    shared = {term for other in others for term in varying(other.lines)}
    lead = lead if lead in varying(sweep.lines) else "source"
    parts: list[tuple[list[str], list[Line]]] = [([], list(sweep.lines))]
    while any(_crowded(lines, lead) for _, lines in parts):
        term = _split_by([lines for _, lines in parts], lead, shared)
        if term is None:
            break
        divided = []
        for words, lines in parts:
            for value, members in grouped(lines, _value(term)).items():
                divided.append(([*words, _word(term, members[0])] if value is not None else words, members))
        parts = divided
    # nothing tells the lines of a still crowded panel apart but that a case was measured again
    pages = [(w, lines[i : i + MOST_LINES]) for w, lines in parts for i in range(0, len(lines), MOST_LINES)]
    head = [shorten(sweep.workload.partition(".")[2] or sweep.workload)]
    return [(" · ".join([*head, *words]), sweep.size, lines) for words, lines in pages]


def _crowded(lines: list[Line], lead: str) -> bool:
    """More lines, or more kinds of dashes, than the eye keeps apart."""
    terms = [term for term in varying(lines) if term != lead]
    styles = {tuple(line.terms.get(term) for term in terms) for line in lines}
    most = MOST_STYLES if len(terms) < 2 else MOST_STYLES - 1  # combinations take longer to look up
    return len(lines) > MOST_LINES or len(styles) > most


def _split_by(parts: list[list[Line]], lead: str, shared: set[str]) -> str | None:
    """The term whose panels are the fewest that are not crowded.

    Devices (or dtypes) stay together if they can, and so does what other workloads of the figure have too: its
    dashes then mean the same everywhere.
    """
    choices = []
    for term in dict.fromkeys(term for part in parts for term in varying(part)):
        divided = [group for part in parts for group in grouped(part, _value(term)).values()]
        worst = max((len(group) for group in divided if _crowded(group, lead)), default=0)
        choices.append((term == lead, worst > 0, term in shared, worst or len(divided), term))
    return min(choices)[-1] if choices else None


def _value(term: str) -> Callable[[Line], Scalar]:
    return lambda line: line.terms.get(term)


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
