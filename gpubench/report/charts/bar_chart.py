"""Charts of one number a workload: speedups at the largest size, highest rates, times of a single size.

Bars start where nothing is: at 0, or at 1× for a ratio. Values too far apart for a linear axis are dots on a
logarithmic one, where a bar's length would mean nothing; their figures stand in columns beside them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from ... import statistics
from ...format import text
from ..labels import (
    Names,
    Row,
    caption,
    factor,
    family,
    flagged,
    grouped,
    setting,
    shorten,
    size_text,
    uncertainty,
    waited,
)
from ..sweep import rate_of, size_of, size_parameter, speedup_of, sweeps, time_of
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
    fitted,
    is_cut,
    linear_ticks,
    log_ticks,
    marker,
    padded,
    shown,
    text_width,
)

MOST_BAR_GROUPS = 14
MOST_BARS = 42


@dataclass(frozen=True, slots=True)
class Bar:
    """``points`` are the single settings behind a mean, ``range`` the uncertainty of a value that is none.

    ``flagged`` where something was wrong while one of them was measured.
    """

    value: float
    colour: int
    points: tuple[float, ...] = ()
    note: str = ""
    range: tuple[float, float] | None = None
    flagged: bool = False


LONGEST_LABEL = 80
"""The drawing cuts labels to the room there is; no text is measured that is longer than this."""


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one label."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Values of one unit; a speedup has none."""

    title: str
    unit: str
    groups: tuple[Group, ...]

    @property
    def values(self) -> list[float]:
        return [value for group in self.groups for bar in group.bars for value in (bar.value, *bar.points)]

    @property
    def ranges(self) -> list[tuple[float, float]]:
        return [bar.range for group in self.groups for bar in group.bars if bar.range]


@dataclass(frozen=True, slots=True)
class BarChart:
    """``slower`` names what is faster where a bar is below 1, of a speedup."""

    panels: tuple[BarPanel, ...]
    colours: tuple[tuple[str, int], ...]
    note: str = ""
    rows: tuple[Row, ...] = ()
    slower: str | None = None

    @property
    def cut(self) -> str:
        """What the caption says where ranges leave the axis; empty where none does."""
        cut = any(is_cut(panel.values, panel.ranges) for panel in self.panels if panel.values)
        return CUT.format("intervals") if cut else ""

    def draw(self, figure: Figure) -> Page:
        return draw_bars(figure, self)


def bar_figures(data: ChartData) -> list[Figure]:
    names, found = data.names, []
    for base, members in grouped(data.pairs, names.baseline).items():
        bars = speedup_bars(members, names, base)
        facts = f"Speedup = time of {base} / time of the other; each workload at its largest size"
        words = caption(members, names, uncertainty(members, "thin line") + bars.note + bars.cut)
        stem = f"speedup-over-{base.removeprefix('the ').lower()}"
        found.append(Figure(stem, f"Speedup over {base}, by workload", facts, words, bars))
    if rates := best_rates(data.rows, names):
        words = caption(rates.rows, names, rates.note)
        facts = "The best that was measured over all sizes and parameters; higher is better"
        found.append(Figure("highest-rates", "Highest rates", facts, words, rates, rank=3))
    single = []
    for members in grouped(data.single, lambda row: family(row["workload"])).values():
        single += sweeps(members, time_of, names)[1]
    for times in single_sizes(single, names):
        words = caption(times.rows, names, times.note)
        facts = f"Wall time of a call{waited(times.rows)}; lower is better"
        found.append(Figure("time-one-size", "Time per call: workloads of one size", facts, words, times, rank=6))
    return found


def speedup_bars(rows: list[Row], names: Names, base: str) -> BarChart:
    """A group for each workload, dtype and variant, the highest first; a bar for each device."""
    swept, single = sweeps(rows, speedup_of, names)
    ends = [(line.row, sweep.size) for sweep in swept for line in sweep.lines]
    ends += [(row, "") for row in single]
    top: dict[tuple[str, str], float] = {}
    for row, size in ends:
        key = (_label(row), names.source(row))
        x = size_of(row, size) or 0.0
        top[key] = max(top.get(key, 0.0), x)
    values: dict[str, dict[str, list[tuple[Row, str]]]] = {}
    for row, size in ends:
        x = size_of(row, size) or 0.0
        if x == top[_label(row), names.source(row)]:
            at = f"{shorten(size)} = {size_text(x, size)}" if x else ""
            values.setdefault(_label(row), {}).setdefault(names.source(row), []).append((row, at))
    groups = []
    for label, sources in values.items():
        bars = []
        for source, found in sources.items():
            speedups = tuple(row["speedup"] for row, _ in found)
            mean, (row, at) = statistics.geometric_mean(speedups), found[0]
            colour = names.sources.index(source)
            alone = len(found) == 1
            ends_of = (row["low"], row["high"]) if alone else None
            doubted = any(flagged(row) for row, _ in found)
            bars.append(Bar(mean, colour, () if alone else speedups, at, ends_of, doubted))
        groups.append(Group(shorten(label, LONGEST_LABEL), tuple(sorted(bars, key=lambda bar: bar.colour))))
    groups.sort(key=lambda group: (-max(bar.value for bar in group.bars), group.label))
    several = any(bar.points for group in groups for bar in group.bars)
    note = "Bar: largest size of each workload"
    note += ", the geometric mean over its other parameters; dots: these one by one" if several else ""
    note += ". "
    shown = groups[:MOST_BARS]
    if len(groups) > len(shown):
        note += f"The {len(groups) - len(shown)} lowest are in speedup.csv only. "
    return BarChart((BarPanel("", "", tuple(shown)),), _used(shown, names), note, tuple(rows), base)


def best_rates(rows: list[Row], names: Names) -> BarChart | None:
    """A panel for each unit, with the highest rate of each workload, dtype, variant and device."""
    sizes: dict[str, str | None] = {}
    for workload in {row["workload"] for row in rows}:
        sizes[workload] = size_parameter([row for row in rows if row["workload"] == workload])
    best: dict[tuple[str, str], dict[str, dict[str, tuple[float, Row]]]] = {}
    for row in rows:
        rate = rate_of(row)
        values = rate.measure(row) if rate else None
        if rate and values:
            sources = best.setdefault((rate.label, rate.unit), {}).setdefault(_label(row), {})
            source = names.source(row)
            if source not in sources or values[0] > sources[source][0]:
                sources[source] = values[0], row
    panels = []
    cut = 0
    for (label, unit), labels in best.items():
        groups = []
        for name, sources in labels.items():
            bars = [
                Bar(value, names.sources.index(source), (), _at(row, sizes[row["workload"]]), None, flagged(row))
                for source, (value, row) in sources.items()
            ]
            groups.append(Group(shorten(name, LONGEST_LABEL), tuple(sorted(bars, key=lambda bar: bar.colour))))
        groups.sort(key=lambda group: (-max(bar.value for bar in group.bars), group.label))
        cut += max(0, len(groups) - MOST_BAR_GROUPS)
        panels.append(BarPanel(label, unit, tuple(groups[:MOST_BAR_GROUPS])))
    if not panels:
        return None
    note = "Work of a call / its wall time; bytes are compulsory traffic; all values: results.csv. "
    note += f"The {cut} lowest are in results.csv only. " if cut else ""
    shown = [group for panel in panels for group in panel.groups]
    return BarChart(tuple(panels), _used(shown, names), note, tuple(rows))


def single_sizes(rows: list[Row], names: Names) -> Iterable[BarChart]:
    """Times of workloads that have no size to draw them against, in as many charts as it takes."""
    # By the values themselves, not by their words, which are cut where they are long.
    alike = grouped(rows, lambda row: (_label(row), repr(sorted(row["_result"].case.params.items()))))
    found = []
    for members in alike.values():
        words = [setting(name, value) for name, value in members[0]["_result"].case.params.items()]
        bars = (Bar(time_of(row)[0], names.sources.index(names.source(row)), flagged=flagged(row)) for row in members)
        label = shorten(", ".join([_label(members[0]), *words]), LONGEST_LABEL)
        found.append((Group(label, tuple(bars)), members))
    found.sort(key=lambda pair: pair[0].label)
    for start in range(0, len(found), MOST_BARS):
        page = [group for group, _ in found[start : start + MOST_BARS]]
        own = tuple(row for _, members in found[start : start + MOST_BARS] for row in members)
        note = "Median over rounds, geometric mean of processes. "
        yield BarChart((BarPanel("", "s", tuple(page)),), _used(page, names), note, own)


def _label(row: Row) -> str:
    case = row["_result"].case
    words = [case.workload, case.dtype, case.variant if case.variant != "eager" else ""]
    words.append(case.regime if case.regime != "resident" else "")
    words.append(f"cache {case.cache}" if case.cache not in ("", "hot") else "")
    return " ".join(word for word in words if word)


def _at(row: Row, size: str | None) -> str:
    value = size_of(row, size) if size else None
    return f"{shorten(size, 16)} = {size_text(value, size)}" if size and value else ""


def _used(groups: Iterable[Group], names: Names) -> tuple[tuple[str, int], ...]:
    used = {bar.colour for group in groups for bar in group.bars}
    return tuple((source, i) for i, source in enumerate(names.sources) if i in used)


_THICK, _BETWEEN = 0.17, 0.11
_ROW = 0.25
_HEAD, _FOOT = 0.32, 0.42
_WIDEST_LABEL, _WIDEST_COLUMN = 4.4, 1.3
_NARROWEST = 3.0
_LINEAR = 25.0
"""Largest over smallest value that a linear axis can still show."""


def draw_bars(figure: Figure, chart: BarChart) -> Page:
    heights = [_height(panel) for panel in chart.panels]
    dots = any(_scattered(panel) for panel in chart.panels)
    keys: list[Key] = [(word, colour, None, colour) for word, colour in chart.colours]
    heads = [_HEAD if panel.title or _scattered(panel) else 0.05 for panel in chart.panels]
    page = Page(
        figure.title,
        figure.subtitle,
        figure.caption,
        keys,
        sum(heights) + sum(heads) + _FOOT * len(heads),
        "line" if dots else "bar",
    )
    labels = [text_width(group.label, SMALL) for panel in chart.panels for group in panel.groups]
    x = LEFT + min(max(labels), _WIDEST_LABEL) + 0.12
    y = page.top
    for panel, height, head in zip(chart.panels, heights, heads, strict=True):
        y -= height + head
        if panel.title:
            page.text(LEFT, y + height + 0.08, panel.title, NORMAL, "text", weight="bold")
        if _scattered(panel):
            axes = _dots(page, panel, chart, x, y, height)
        else:
            axes = _bars(page, panel, x, y, height, chart.slower)
        axes.yaxis.set_ticklabels(
            [fitted(group.label, _WIDEST_LABEL, SMALL) for group in panel.groups], parse_math=False
        )
        y -= _FOOT
    return page


def _scattered(panel: BarPanel) -> bool:
    values = [bar.value for group in panel.groups for bar in group.bars]
    return bool(panel.unit) and max(values) / min(values) > _LINEAR


def _height(panel: BarPanel) -> float:
    if _scattered(panel):
        return _ROW * len(panel.groups)
    return sum(_THICK * len(group.bars) + _BETWEEN for group in panel.groups) + _BETWEEN


def _dots(page: Page, panel: BarPanel, chart: BarChart, x: float, y: float, height: float) -> Axes:
    used = {bar.colour for group in panel.groups for bar in group.bars}
    columns = [(word, colour) for word, colour in chart.colours if colour in used]
    named, widths = _columns(panel, columns, WIDTH - RIGHT - x - _NARROWEST)
    width = WIDTH - RIGHT - x - sum(widths)
    axes = page.axes(x, y, width, height)
    low, high = padded([bar.value for group in panel.groups for bar in group.bars])
    axes.set_xscale("log")
    _frame(page, axes, (low, high), height, _ticks(low, high, panel.unit, width))
    middles = [_ROW * (i + 0.5) for i in range(len(panel.groups))]
    axes.yaxis.set_major_locator(FixedLocator(middles))
    page.grid(axes, "both")
    for group, middle in zip(panel.groups, middles, strict=True):
        for bar in group.bars:
            (mark,) = axes.plot([bar.value], [middle], marker=marker(bar.colour), markersize=6, linestyle="", zorder=5)
            page.ink(mark.set_markerfacecolor, "page" if bar.flagged else bar.colour)
            page.ink(mark.set_markeredgecolor, bar.colour if bar.flagged else "page")
            mark.set_markeredgewidth(1.4 if bar.flagged else 1.0)
    end = x + width
    for (word, colour), column in zip(columns, widths, strict=False):
        end += column
        if named:
            page.text(end, y + height + 0.08, word, SMALL, "muted", ha="right")
        else:
            page.mark(end - 0.05, y + height + 0.12, colour)
        for words, middle in zip(_column(panel, colour), middles, strict=True):
            page.text(end, y + height - middle, words, SMALL, "text", ha="right", va="center_baseline")
    return axes


def _columns(panel: BarPanel, columns: list[tuple[str, int]], room: float) -> tuple[bool, list[float]]:
    """Whether the columns of figures are headed by their names, and their widths.

    Where names are too long the marker of the legend stands for them; where there is no room for all columns there
    are none, since a missing one would look like a source without figures.
    """
    figures = [max(text_width(words, SMALL) for words in _column(panel, colour)) for _, colour in columns]
    heads = [text_width(word, SMALL) for word, _ in columns]
    widths = [max(pair) + 0.22 for pair in zip(figures, heads, strict=True)]
    if max(heads) <= _WIDEST_COLUMN and sum(widths) <= room:
        return True, widths
    widths = [figure + 0.22 for figure in figures]
    return False, widths if sum(widths) <= room else []


def _ticks(low: float, high: float, unit: str, width: float) -> Ticks:
    """As many as there is room for between their words: steps of 1-2-5 are not equally wide."""
    inch = width / math.log(high / low)
    for most in range(max(2, int(width / 0.8)), 2, -1):
        ticks = log_ticks(low, high, unit, most)
        if all(
            inch * math.log(right / left) > 0.12 + (text_width(before, SMALL) + text_width(after, SMALL)) / 2
            for (left, before), (right, after) in itertools.pairwise(ticks)
        ):
            return ticks
    return log_ticks(low, high, unit, 2)


def _column(panel: BarPanel, colour: int) -> list[str]:
    """The values of one source, group by group."""
    found = [next((bar for bar in group.bars if bar.colour == colour), None) for group in panel.groups]
    return [text(bar.value, panel.unit) if bar else "—" for bar in found]


def _bars(page: Page, panel: BarPanel, x: float, y: float, height: float, slower: str | None) -> Axes:
    bars = [bar for group in panel.groups for bar in group.bars]
    ratio = not panel.unit
    start = 1.0 if ratio else 0.0
    values = [text(bar.value, panel.unit) if panel.unit else factor(bar.value) for bar in bars]
    notes = [f"{value}   {bar.note}" if bar.note else value for value, bar in zip(values, bars, strict=True)]
    first, second = (max(text_width(w, SMALL) for w in words) for words in (values, [bar.note for bar in bars]))
    room = 0.24 + first + second + 0.16 if ratio else 0.16 + max(text_width(note, SMALL) for note in notes)
    width = WIDTH - RIGHT - x - (room if ratio else 0.0)
    axes = page.axes(x, y, width, height)
    ends = shown(panel.values, panel.ranges)
    low, high = padded([*ends, 1.0], 0.04, 2.0) if ratio else (0.0, ends[1] / (1 - min(room / width, 0.6)))
    axes.set_xscale("log" if ratio else "linear")
    ticks = log_ticks(low, high, "", 8) if ratio else linear_ticks(low, high, panel.unit, 7)
    _frame(page, axes, (low, high), height, ticks)
    page.grid(axes, "x")
    axes.spines["left"].set_visible(not ratio)
    if slower is not None:
        page.ink(axes.axvspan(low, 1.0, zorder=0, linewidth=0).set_facecolor, "shade")
        page.ink(axes.axvline(1.0, linewidth=1.2, zorder=4).set_color, "muted")
    top, centres = _BETWEEN, []
    words = iter(zip(values, notes, strict=True))
    for group in panel.groups:
        centres.append(top + _THICK * len(group.bars) / 2)
        for bar in group.bars:
            middle, (value, note) = top + _THICK / 2, next(words)
            _bar(page, axes, bar, middle, start)
            if ratio:  # not beside the bar, where they would be taken for the value of the last dot
                at, row = x + width + 0.12 + first, y + height - middle
                page.text(at, row, value, SMALL, "text", ha="right", va="center_baseline")
                page.text(at + 0.16, row, bar.note, SMALL, "muted", va="center_baseline")
            else:
                _beside(page, axes, bar, middle, note)
            top += _THICK
        top += _BETWEEN
    axes.yaxis.set_major_locator(FixedLocator(centres))
    return axes


def _bar(page: Page, axes: Axes, bar: Bar, middle: float, start: float) -> None:
    (patch,) = axes.barh([middle], [bar.value - start], height=_THICK * 0.86, left=start, zorder=3)
    page.ink(patch.set_facecolor, "page" if bar.flagged else bar.colour)
    if bar.flagged:
        page.ink(patch.set_edgecolor, bar.colour)
        patch.set_linewidth(1.2)
    if bar.range:
        (whisker,) = axes.plot(bar.range, [middle] * 2, marker="|", markersize=5, linewidth=1.0, zorder=5)
        page.ink(whisker.set_color, "text")
    if bar.points:
        count = len(bar.points)
        (dots,) = axes.plot(bar.points, [middle] * count, marker="o", markersize=3.2, linestyle="", zorder=5)
        page.ink(dots.set_markerfacecolor, "text")
        dots.set_markeredgewidth(0)  # a rim would make them look hollow, which means flagged


def _beside(page: Page, axes: Axes, bar: Bar, middle: float, note: str) -> None:
    words = axes.annotate(
        note, (bar.value, middle), (6, 0), textcoords="offset points", va="center", fontsize=SMALL, parse_math=False
    )
    page.ink(words.set_color, "text")


def _frame(page: Page, axes: Axes, limits: tuple[float, float], height: float, ticks: list[tuple[float, str]]) -> None:
    axes.set_xlim(*limits)
    axes.set_ylim(height, 0)
    axes.xaxis.set_major_locator(FixedLocator([place for place, _ in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_ticklabels([label for _, label in ticks], parse_math=False)
