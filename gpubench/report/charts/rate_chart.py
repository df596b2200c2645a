"""One chart for each kind of work, a panel for each dtype: throughput or time by size; of expressions one a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...runfile.matching import is_expression
from ...runfile.quantities import listed
from ...runfile.schema import TIMERS
from .. import words
from ..number import SECONDS, Sign
from ..study import TIME, Line, Measured, Rate, Study, grouped, in_order, lines_of, plainness
from .layouts import LinePanels, Panel
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .selection import by_size, curve, keys, panel_title, plainest_line
from .theme import DTYPE_ROLES

_MOST_DEFAULT = 2
_BARS = "Bar at a point: interquartile range of the rounds. "
Lines = list[Line[Measured]]


def rate_figures(study: Study) -> list[Figure]:
    """Return pictures of the rates of every kind of work, and of times; by default a report shows the rates of the
    first kinds."""
    plain = study.several_runs or bool(study.names.accelerators)
    figures, leaders = list[Figure](), list[Figure]()
    for members in in_order(row for row in study.single_device if not (plain and row.library)):
        by_rate = sorted(grouped(members, lambda row: row.rate).items(), key=lambda item: -len(item[1]))
        made = [figure for rate, some in by_rate if rate for figure in _figures(study, some, rate, members)]
        expressions = [row for row in members if is_expression(row.result.workload)]
        several = len({row.result.workload for row in expressions}) > 1
        times = _expressions(study, expressions) if several else []
        times += _figures(study, [row for row in members if not (several and row in expressions)], TIME)
        figures += [*made, *times]
        leaders += made[:1] or times * members[0].own
    ranks = {id(figure): 2.0 + 0.1 * rank for rank, figure in enumerate(leaders[:_MOST_DEFAULT])}
    return [replace(each, default=id(each) in ranks, rank=ranks.get(id(each), 10.0)) for each in figures]


def time_by_size(study: Study, workload: str) -> list[Figure]:
    """Return the picture of a benchmark's time; none of fewer values than make a picture."""
    made = _figures(study, [row for row in study.measured if row.result.workload == workload], TIME)
    return [replace(figure, workload=workload) for figure in made]


def _figures(study: Study, rows: Sequence[Measured], rate: Rate, members: Sequence[Measured] = ()) -> list[Figure]:
    """A panel for each workload and dtype, the most sizes first; lines are devices, in the plainest form. None
    where nothing was measured at several sizes. The small print names ``members`` of the kind that have no such
    rate."""
    panels, timed = list[Lines](), rate is TIME
    for same in grouped(lines_of(rows, rate.of), lambda line: (line.last.result.workload, line.last.dtype)).values():
        if several := [line for line in same if len(line.points) > 1]:
            setting = plainest_line(several).setting
            panels.append([line for line in several if line.setting == setting])
    panels.sort(key=lambda same: (-max(len(line.points) for line in same), plainness(same[0].items[-1])))
    by_device = [sorted(same, key=lambda line: study.names.order(line.last)) for same in panels[:MOST_PANELS]]
    left_out = dict.fromkeys(study.names.of(line.last) for same in by_device for line in same[MOST_CURVES:])
    panels = [same[:MOST_CURVES] for same in by_device]
    if not panels:
        return []
    used = [row for same in panels for line in same for row in line.items]
    cases, dtypes = {row.result.workload: row.result for row in used}, {row.result.dtype for row in used}
    drawn = []
    for same in panels:
        title = panel_title(same[0], len(cases) > 1, len(dtypes) > 1)
        drawn.append(Panel(title, same[0].size_name, tuple(curve(study, line, rate.unit) for line in same)))
    first, case = rows[0], used[0].result
    own = {words.name(each) if is_expression(name) else name.partition(".")[0] for name, each in cases.items()}
    subject = first.kind.heading if first.kind else listed(sorted(own), 3)
    subject = f"{words.name(case) if len(cases) == 1 else subject}: {rate.label.lower()} by size"
    ends = next(filter(None, map(_ends, panels)), [])
    told = [f"{study.names.short(study.names.of(row))} {row.time.mark if timed else row.starred_speed}" for row in ends]
    finding = f"{words.benchmark(ends[0].result)}: {', '.join(told)}" if ends else Sign.UNKNOWN
    finding = f"{finding}. {'Lower' if timed else 'Higher'} is better"
    name = f"{'time' if timed else rate.label.lower().replace(' ', '-')}-{first.result.kind or 'own'}"
    note = _BARS + "Synchronization included. " * all(row.times.timer in TIMERS for row in used)
    there = {words.name(row.result) for row in rows}
    if missing := [name for name in dict.fromkeys(words.name(row.result) for row in members) if name not in there]:
        note += f"Not drawn (work counted otherwise or unknown): {listed(missing, 3)}. "
    note += f"Not shown: {listed(left_out)}. " * bool(left_out)
    chart = LinePanels(tuple(drawn), rate.unit, keys(study, used))
    return by_size(study, Figure(name, "time" if timed else "rate", subject, finding, note, chart), used)


def _ends(lines: Lines) -> list[Measured]:
    """The results of the lines at the largest size of all, as far as they are shown."""
    largest = max(line.points[-1].x for line in lines)
    return [line.last for line in lines if line.shown and line.shown[-1][0].x == largest]


def _expressions(study: Study, rows: Sequence[Measured]) -> list[Figure]:
    """A panel a device with all libraries on it, a line an expression, in the plainest setting."""

    def library(row: Measured) -> str:
        return f"by {study.names.of(row)}" * bool(row.library)

    roles = dict(zip(dict.fromkeys(row.result.workload for row in rows), DTYPE_ROLES[:MOST_CURVES], strict=False))
    lines = [line for line in lines_of(rows, TIME.of) if line.last.result.workload in roles]
    if not lines:
        return []
    setting = min(lines, key=lambda line: plainness(line.last)).setting
    lines = sorted((line for line in lines if line.setting == setting), key=lambda line: study.names.order(line.last))
    by_device = list(grouped(lines, lambda line: line.last.source[:2]).values())[:MOST_PANELS]
    panels = []
    for same in by_device:
        looks = ((line, library(line.last), roles[line.last.result.workload]) for line in same[:MOST_CURVES])
        curves = (curve(study, line, SECONDS, label, role=role) for line, label, role in looks)
        panels.append(Panel(study.names.of(same[0].last) * (len(by_device) > 1), same[0].size_name, tuple(curves)))
    cases = {line.last.result.workload: line.last.result for line in lines}
    legend = tuple(Key(words.name(case), roles[name]) for name, case in cases.items())
    ends = _ends(by_device[0])
    told = ", ".join(f"{words.name(row.result)} {row.time} {library(row)}".rstrip() for row in ends)
    where = f"{study.names.of(lines[0].last)}, {words.size(ends[0])}: " if ends else Sign.UNKNOWN
    title = f"Time per call of {listed([key.label for key in legend])}"
    chart = LinePanels(tuple(panels), SECONDS, legend)
    figure = Figure("time-expressions", "time", title, f"{where}{told}. By size; lower is better", _BARS, chart)
    return by_size(study, figure, [row for line in lines for row in line.items])
