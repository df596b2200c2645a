"""Which charts there are and what is on each: plain frozen data, so that drawing decides nothing.

A family of workloads (``elementwise``) makes one figure a quantity, a panel a workload. No panel has more than
MOST_LINES lines: a parameter then gets a panel for each of its values. Workloads with one size become bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from ..schema import METRICS, TIMERS, Scalar
from .bars import BarChart, best_rates, single_sizes, speedup_bars
from .captions import caption
from .labels import Names, Row, family, heading, listed, setting, shorten
from .output import file_names
from .pairs import Baseline, pair
from .series import Line, Sweep, rate_of, speedup_of, sweeps, time_of, varying
from .table import records
from .trend import LEAST_CHANGE, Trend

T = TypeVar("T")
MOST_LINES = 6
MOST_STYLES = 4
MOST_PANELS = 16


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its looks: indices into the theme's colours, and markers and dashes."""

    line: Line
    colour: int
    style: int


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    size: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture. ``unit`` is empty for a speedup, whose ``slower`` names what is faster below 1."""

    name: str
    title: str
    subtitle: str
    caption: str
    unit: str = ""
    panels: tuple[Panel, ...] = ()
    colours: tuple[tuple[str, int], ...] = ()
    styles: tuple[tuple[str, int], ...] = ()
    slower: str | None = None
    bars: BarChart | None = None
    trend: Trend | None = None

    @property
    def one_colour(self) -> bool:
        """Lines of a single colour are told apart by their markers too."""
        return len(self.colours) == 1 and len(self.styles) > 1


class _Looks:
    """Colours that mean the same source, or the same dtype, in every chart of a report."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def colour(self, line: Line, lead: str) -> tuple[str, int]:
        if lead == "dtype" and line.terms["dtype"] in self.names.dtypes:
            return str(line.terms["dtype"]), len(self.names.sources) + self.names.dtypes.index(line.terms["dtype"])
        source = str(line.terms["source"])
        return source, self.names.sources.index(source)


def plan(results: pd.DataFrame, speedups: pd.DataFrame, baseline: Baseline | None = None) -> list[Figure]:
    """All figures of a report, those that matter most first."""
    names = Names(results)
    rows = [row for row in records(results) if row["_result"].times]
    pairs = records(speedups)
    if baseline is None and not any(row["run"] == row["baseline_run"] for row in pairs):
        pairs += records(pair(results, Baseline("implementation", "numpy")))
    figures = [*_speedups(pairs, names), *_rates(rows, names), *_times(rows, names)]
    stems = file_names(figure.name for figure in figures)
    return [replace(figure, name=stem) for figure, stem in zip(figures, stems, strict=True)]


def _speedups(rows: list[Row], names: Names) -> list[Figure]:
    found = []
    for base, members in _grouped(rows, names.baseline).items():
        bars = speedup_bars(members, names)
        title = f"Speedup over {base}, by workload"
        facts = f"Speedup = time of {base} / time of the other; each workload at its largest size"
        words = caption(members, names, _uncertainty(members, "thin line") + bars.note)
        stem = f"speedup-over-{base.removeprefix('the ').lower()}"
        found.append(Figure(stem, title, facts, words, bars=bars, slower=base))
        for kind, family_rows in _grouped(members, lambda row: family(row["workload"])).items():
            swept, _ = sweeps(family_rows, speedup_of, names)
            found += _line_figures(
                swept,
                names,
                name=f"{stem}-{kind}",
                title=f"{heading(kind)}: speedup over {base}",
                subtitle=f"Time of {base} / time of the device; ◆ crossover: from this size on it stays at 1× or above",
                slower=base,
                note=_uncertainty(family_rows, "band"),
            )
    return found


def _uncertainty(rows: Iterable[Row], drawn: str) -> str:
    return f"Uncertainty ({drawn}): {listed(sorted({row['uncertainty'] for row in rows}))}. "


def _rates(rows: list[Row], names: Names) -> list[Figure]:
    found = []
    if bars := best_rates(rows, names):
        words = caption(rows, names, bars.note)
        facts = "The best that was measured over all sizes and parameters; higher is better"
        found.append(Figure("highest-rates", "Highest rates", facts, words, bars=bars))
    for kind, members in _grouped(rows, lambda row: family(row["workload"])).items():
        for rate, own in _grouped(members, rate_of).items():
            if rate is None:
                continue
            swept, _ = sweeps(own, rate.measure, names)
            found += _line_figures(
                swept,
                names,
                name=f"{rate.label.lower()}-{kind}",
                title=f"{heading(kind)}: {rate.label.lower()}",
                subtitle=f"{rate.unit} against size; higher is better",
                unit=rate.unit,
                lead="dtype",
                note="Line: work of a call / median wall time; band: interquartile range of the rounds. ",
            )
    return found


def _times(rows: list[Row], names: Names) -> list[Figure]:
    found = []
    single: list[Row] = []
    for kind, members in _grouped(rows, lambda row: family(row["workload"])).items():
        swept, rest = sweeps(members, time_of, names)
        single += rest
        found += _line_figures(
            swept,
            names,
            name=f"time-{kind}",
            title=f"{heading(kind)}: time per call",
            subtitle=f"Wall time against size{_waited(members)}; lower is better",
            unit=METRICS["median_s"].unit,
            note="Line: median; band: interquartile range of the rounds. ",
        )
    for bars in single_sizes(single, names):
        own = caption(bars.rows, names, bars.note)
        facts = f"Wall time of a call{_waited(bars.rows)}; lower is better"
        found.append(Figure("time-one-size", "Time per call: workloads of one size", facts, own, bars=bars))
    return found


def _waited(rows: Iterable[Row]) -> str:
    return ", the wait for the device included" if all(row["_result"].times.timer in TIMERS for row in rows) else ""


def _line_figures(
    swept: Sequence[Sweep],
    names: Names,
    *,
    name: str,
    title: str,
    subtitle: str,
    note: str,
    unit: str = "",
    lead: str = "source",
    slower: str | None = None,
) -> list[Figure]:
    """One figure of all panels, or several where a page can't hold them."""
    looks = _Looks(names)
    panels = [panel for sweep in swept for panel in _facets(sweep, [other for other in swept if other != sweep], lead)]
    pages = [panels[i : i + MOST_PANELS] for i in range(0, len(panels), MOST_PANELS)]
    found = []
    for number, page in enumerate(pages, 1):
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
                curves.append(Curve(line, colour, styles.setdefault(style, len(styles)) if style else 0))
            drawn.append(Panel(label, size, tuple(curves)))
        more = f" ({number} of {len(pages)})" if len(pages) > 1 else ""
        rows = [row for line in lines for row in line.rows]
        found.append(
            Figure(
                name if number == 1 else f"{name}-{number}",
                title + more,
                subtitle,
                caption(rows, names, note),
                unit,
                tuple(drawn),
                tuple(sorted(colours.items(), key=lambda item: item[1])),
                tuple(styles.items()) if len(styles) > 1 else (),
                slower,
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
            for value, members in _grouped(lines, _value(term)).items():
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
        divided = [group for part in parts for group in _grouped(part, _value(term)).values()]
        worst = max((len(group) for group in divided if _crowded(group, lead)), default=0)
        choices.append((term == lead, worst > 0, term in shared, worst or len(divided), term))
    return min(choices)[-1] if choices else None


def _value(term: str) -> Callable[[Line], Scalar]:
    return lambda line: line.terms.get(term)


def _grouped(members: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups


def plan_trends(found: Sequence[Trend]) -> list[Figure]:
    """A figure for each workload in time."""
    stems = file_names(f"trend-{each.workload}" for each in found)
    figures = []
    for each, stem in zip(found, stems, strict=True):
        changes = sum(len(series.changes) for series in each.series)
        subtitle = f"{each.machine}: {changes} {'change' if changes == 1 else 'changes'} of level; lower is better"
        note = (
            "Point: geometric mean of the processes' medians of a run; line: median of a level. A change is one that "
            f"Pettitt's rank test finds at 1 % over all cases, of {LEAST_CHANGE:.0%} or more. "
        )
        note += "Cases without a change are left out. " if changes else ""
        note += f"{each.left_out} more cases are left out. " if each.left_out else ""
        figures.append(Figure(stem, f"{each.workload} in time", subtitle, note.strip(), "s", trend=each))
    return figures
