"""Charts of one number a workload: speedups at the largest size, highest rates, times of a single size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .. import statistics
from .labels import Names, Row, flagged, grouped, setting, shorten, size_text
from .scales import CUT, is_cut
from .series import rate_of, size_of, size_parameter, speedup_of, sweeps, time_of

MOST_GROUPS = 14
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
        cut += max(0, len(groups) - MOST_GROUPS)
        panels.append(BarPanel(label, unit, tuple(groups[:MOST_GROUPS])))
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
