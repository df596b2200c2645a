"""One chart for each kind of work, a panel for each dtype: throughput or time by size; of expressions one a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from ...runfile.matching import shown_name
from ...runfile.quantities import listed
from ...runfile.schema import TIMERS
from .. import words
from ..number import Sign
from ..study import TIME, Line, Measured, Rate, Study, grouped, in_order, lines_of, plainness
from .layouts import LinePanels, Panel
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .selection import by_size, curve, keys, not_drawn, panel_title, plainest_line
from .theme import DTYPE_ROLES

_MOST_DEFAULT = 2
_BARS = "Bar at a point: interquartile range of the rounds. "


def rate_figures(study: Study) -> list[Figure]:
    """Return pictures of the rates of every kind of work, and of times; by default a report shows the rates of the
    first kinds."""
    plain = study.several_runs or bool(study.names.accelerators)
    rows = [row for row in study.single_device if not (plain and row.library)]
    figures: list[Figure] = []
    leaders: list[Figure] = []
    for members in in_order(rows):
        by_rate = sorted(grouped(members, lambda row: row.rate).items(), key=lambda item: -len(item[1]))
        made = [figure for rate, some in by_rate if rate for figure in _figures(study, some, rate, members)]
        texts = [row for row in members if shown_name(row.result.workload) != row.result.workload]
        several = len({row.result.workload for row in texts}) > 1
        times = _figures(study, [row for row in members if not (several and row in texts)], TIME)
        times = [*(_expressions(study, texts) if several else ()), *times]
        figures += [*made, *times]
        leaders += made[:1] or times * members[0].own
    first = {id(figure): rank for rank, figure in enumerate(leaders[:_MOST_DEFAULT])}
    return [
        replace(figure, default=id(figure) in first, rank=2.0 + 0.1 * first.get(id(figure), 80)) for figure in figures
    ]


def time_by_size(study: Study, workload: str) -> list[Figure]:
    """Return the picture of a benchmark's time; none of fewer values than make a picture."""
    made = _figures(study, [row for row in study.measured if row.result.workload == workload], TIME)
    return [replace(figure, workload=workload) for figure in made]


def _figures(study: Study, rows: Sequence[Measured], rate: Rate, members: Sequence[Measured] = ()) -> list[Figure]:
    """A panel for each workload and dtype; lines are devices. None where nothing was measured at several sizes. The
    small print names ``members`` of the kind that have no such rate."""
    turns, timed = _plainest_panels(lines_of(rows, rate.of)), rate is TIME
    used = [row for same in turns for line in same for row in line.items]
    panels, workloads, dtypes = [], {row.result.workload for row in used}, {row.dtype for row in used}
    for same in turns:
        ordered = sorted(same, key=lambda line: study.names.order(line.last))
        title = panel_title(same[0], len(workloads) > 1, len(dtypes) > 1)
        panels.append(Panel(title, same[0].size_name, tuple(curve(study, line, rate.unit) for line in ordered)))
    if not panels:
        return []
    first = rows[0]
    subject = first.kind.heading if first.kind else listed(sorted({_family(row) for row in used}), 3)
    if len(workloads) == 1:
        subject = words.name(used[0].result)
    waited = "Synchronization included. " * all(row.times.timer in TIMERS for row in used)
    ends = (_at_the_end(study, lines, attrgetter("time.mark" if timed else "starred_speed")) for lines in turns)
    subtitle = f"{next(filter(None, ends), Sign.UNKNOWN)}. {'Lower' if timed else 'Higher'} is better"
    name = f"{'time' if timed else rate.label.lower().replace(' ', '-')}-{first.result.kind or 'own'}"
    chart, title = LinePanels(tuple(panels), rate.unit, keys(study, used)), f"{subject}: {rate.label.lower()} by size"
    figure = Figure(name, "time" if timed else "rate", title, subtitle, "", chart)
    others = not_drawn(members, rows, "work counted otherwise or unknown")
    return by_size(study, figure, used, _BARS + waited + others)


def _family(row: Measured) -> str:
    workload = row.result.workload
    return workload.partition(".")[0] if shown_name(workload) == workload else words.name(row.result)


def _plainest_panels(lines: Iterable[Line[Measured]]) -> list[list[Line[Measured]]]:
    """A panel for each workload and dtype, in its plainest form: the lines of several sizes, one a device. Those of
    most sizes come first."""
    panels: list[list[Line[Measured]]] = []
    for members in grouped(lines, lambda line: (line.last.result.workload, line.last.dtype)).values():
        if several := [line for line in members if len(line.points) > 1]:
            setting = plainest_line(several).setting
            panels.append([line for line in several if line.setting == setting][:MOST_CURVES])
    sizes = {id(same): max(len(line.points) for line in same) for same in panels}
    return sorted(panels, key=lambda same: (-sizes[id(same)], plainness(same[0].items[-1])))[:MOST_PANELS]


def _at_the_end(study: Study, lines: Sequence[Line[Measured]], cell: Callable[[Measured], str]) -> str:
    """``n × n float32, n=4096: H200 33.0 TFLOP/s, Xeon 240 GFLOP/s``; empty where no end is known."""
    known = _ends(study, lines)
    told = ", ".join(f"{words.without_threads(study.names.of(line.last))} {cell(line.last)}" for line in known)
    return f"{words.benchmark(known[0].last.result)}: {told}" if known else ""


def _ends(study: Study, lines: Sequence[Line[Measured]]) -> list[Line[Measured]]:
    """The lines, in the report's order, whose values at the largest size of all are known."""
    largest = max(line.points[-1].x for line in lines)
    known = [line for line in lines if line.shown and line.shown[-1][0].x == largest]
    return sorted(known, key=lambda line: study.names.order(line.last))


def _expressions(study: Study, rows: Sequence[Measured]) -> list[Figure]:
    """A panel a device with all libraries on it, a line an expression, in the plainest setting."""
    roles = dict(zip(dict.fromkeys(row.result.workload for row in rows), DTYPE_ROLES[:MOST_CURVES], strict=False))
    found = [line for line in lines_of(rows, TIME.of) if line.last.result.workload in roles]
    setting = min(found, key=lambda line: plainness(line.last)).setting if found else ()
    lines = sorted((line for line in found if line.setting == setting), key=lambda line: study.names.order(line.last))
    by_device = list(grouped(lines, lambda line: line.last.source[:2]).values())[:MOST_PANELS]
    panels = []
    for members in by_device:
        curves = (
            curve(study, line, "s", _library(study, line), role=roles[line.last.result.workload])
            for line in members[:MOST_CURVES]
        )
        title = study.names.of(members[0].last) * (len(by_device) > 1)
        panels.append(Panel(title, members[0].size_name, tuple(curves)))
    if not panels:
        return []
    legend = {line.last.result.workload: line.last.result for line in lines}
    keys = tuple(Key(words.name(case), roles[workload]) for workload, case in legend.items())
    ends = _ends(study, by_device[0])
    told = (f"{words.name(x.last.result)} {x.last.time} {_library(study, x)}".rstrip() for x in ends)
    where = f"{study.names.of(lines[0].last)}, {words.size(ends[0].last)}: " if ends else Sign.UNKNOWN
    title = f"Time per call of {listed([key.label for key in keys])}"
    subtitle = f"{where}{', '.join(told)}. By size; lower is better"
    figure = Figure("time-expressions", "time", title, subtitle, "", LinePanels(tuple(panels), "s", keys))
    return by_size(study, figure, [row for line in lines for row in line.items], _BARS)


def _library(study: Study, line: Line[Measured]) -> str:
    return f"by {study.names.of(line.last)}" if line.last.library else ""
