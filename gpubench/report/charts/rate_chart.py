"""One picture a family: what rate each device reaches by size, or how long a call takes; a panel a dtype. Of
expressions also how they compare, and of all how long the first call takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...format import text
from ...runfile.matching import shown_name
from ...runfile.schema import TIMERS
from ..judgement import too_noisy
from ..labels import Row, family, grouped, heading, library, size_label, size_text, times_text
from ..metrics import Rate
from ..speedup import times_and_ratio
from ..sweep import Line, Sweep, rate_of, sweeps, time_of
from .layouts import Curve, LinePanels, Panel, panel_of
from .material import LEAST_VALUES, ChartData, line_setting, plainness
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .theme import DTYPE_ROLES
from .wording import WORK_GROUPS, caption, family_name, title_name, warning, workload_name

_DEFAULT = ("matmul", "models", "elementwise")
"""Families whose rates a report shows unless it is asked for all; one's own come first."""
_MOST_DEFAULT = 4


def rate_figures(data: ChartData) -> list[Figure]:
    """Rates of every family, and on demand times."""
    rates, times = [], []
    plain = data.naming.several or data.on_accelerators(data.rows)
    rows_shown = [row for row in data.rows if not (plain and library(row))]
    for kind, rows in grouped(rows_shown, lambda row: family(row["workload"])).items():
        by_rate = sorted(grouped(rows, rate_of).items(), key=lambda item: -len(item[1]))
        made = [_family(data, kind, members, rate) for rate, members in by_rate if rate]
        shown = [figure for figure in made if figure]
        rates += [replace(figure, default=figure.default and i == 0) for i, figure in enumerate(shown)]
        times += [figure for figure in [_family(data, kind, rows, None)] if figure]
    more = [_expressions(data, rows_shown), _first_calls(data, rows_shown)]
    figures = sorted([*rates, *times, *filter(None, more)], key=lambda figure: figure.rank)
    defaults = [figure.name for figure in figures if figure.default][:_MOST_DEFAULT]
    return [replace(figure, default=figure.name in defaults) for figure in figures]


def _family(data: ChartData, kind: str, rows: list[Row], rate: Rate | None) -> Figure | None:
    """A panel for each dtype of the family's first workload, then for its other workloads; lines are devices."""
    panels = _panels(sweeps(rows, rate.measure if rate else time_of, data.names)[0])
    if not panels:
        return None
    unit = rate.unit if rate else "s"
    used = [row for _, _, lines in panels for line in lines for row in line.rows]
    drawn: list[Panel] = []
    ends: dict[str, list[tuple[float, str]]] = {}
    for label, size, lines in panels:
        ordered = sorted(lines, key=lambda line: data.naming.order(line.row))[:MOST_CURVES]
        curves = [data.curve(line, lambda value: text(value, unit, 2), used) for line in ordered]
        drawn += panel_of(label, size, curves)
        for line, curve in zip(ordered, curves, strict=True):
            if not curve.cut:
                ends.setdefault(data.naming.device(line.row), []).append((curve.points[-1].y, label))
    if sum(len(curve.points) for panel in drawn for curve in panel.curves) < 3:
        return None
    quantity = rate.label.lower() if rate else "time per call"
    libraries = {data.naming.device(row) for row in used if library(row)}
    tops = []
    for name in [name for name in data.devices(used) if name in ends][:2]:
        most, label = max(ends[name])
        where = f"{'with' if name in libraries else 'on the'} {name.partition(',')[0]}"
        tops.append(f"{text(most, unit, 2)} {where}" + f" ({label})" * (len(drawn) > 1))
    workloads = sorted({row["workload"] for row in used})
    subject = _subject(workloads) if _is_expression(workloads[0]) else family_name(kind)
    title = f"{subject} at the largest size: up to {', '.join(tops)}" if rate and tops else f"{subject}: {quantity}"
    waited = ", synchronization included" * all(row["_result"].times.timer in TIMERS for row in used)
    subtitle = f"{heading(quantity)} against size{waited}; {'higher' if rate else 'lower'} is better"
    chart = LinePanels(tuple(drawn), unit, data.keys(used))
    note = "Bar at a point: interquartile range of the rounds. "
    words = caption(used, data.naming, note, left_out=chart.left_out)
    name = f"{(rate.label.lower() if rate else 'time').replace(' ', '-')}-{kind}"
    own = kind not in WORK_GROUPS
    order = 0 if own else _DEFAULT.index(kind) + 1 if kind in _DEFAULT else len(_DEFAULT) + 1
    default = (own and (rate is not None or not any(map(rate_of, rows)))) or (rate is not None and kind in _DEFAULT)
    rank = (2.0 if default else 10.0) + order * 0.1
    made = "rate" if rate else "time"
    return Figure(name, made, title, subtitle, words, chart, rank, default, warning(used), subject)


def _panels(found: Sequence[Sweep]) -> list[tuple[str, str, list[Line]]]:
    """(title, size, lines) of the plainest setting of every workload and dtype, those of most sizes first."""
    panels = []
    for sweep in found:
        for dtype, lines in grouped(sweep.lines, lambda line: line.terms["dtype"]).items():
            plainest = line_setting(min(lines, key=lambda line: plainness(line.row)[1:]), "dtype")
            same = [line for line in lines if line_setting(line, "dtype") == plainest and len(line.points) > 1]
            if same:
                panels.append((sweep, str(dtype or ""), same))
    counts = {id(lines): max(len(line.points) for line in lines) for _, _, lines in panels}
    panels.sort(key=lambda entry: (-counts[id(entry[2])], entry[1] != "float32"))
    alike = len({dtype for _, dtype, _ in panels}) == 1
    names = {sweep.workload: workload_name(sweep.workload) for sweep, _, _ in panels}
    if len(names) == 1 and not alike and _is_expression(next(iter(names))):
        names = dict.fromkeys(names, "")
    return [
        (f"{names[sweep.workload]} {'' if alike else dtype}".strip(), sweep.size, lines)
        for sweep, dtype, lines in panels[:MOST_PANELS]
    ]


def _is_expression(workload: str) -> bool:
    """Whether ``gpubench time`` has measured it."""
    return shown_name(workload) != workload


def _subject(workloads: Sequence[str]) -> str:
    return title_name(workloads[0]) if len(workloads) == 1 else "Expressions"


def _time_words(seconds: float) -> str:
    return text(seconds, "s", 2)


# Several expressions --------------------------------------------------------------------------------------------------


def _expressions(data: ChartData, rows: Sequence[Row]) -> Figure | None:
    """A panel a device, a line an expression, in the plainest setting; None where there is one expression only."""
    found = sweeps([row for row in rows if _is_expression(row["workload"])], time_of, data.names)[0]
    order = list(dict.fromkeys(row["workload"] for row in rows))
    shown = sorted(found, key=lambda sweep: order.index(sweep.workload))[:MOST_CURVES]
    lines = [(sweep, line) for sweep in shown for line in sweep.lines]
    if len(shown) < 2:
        return None
    setting = line_setting(min((line for _, line in lines), key=lambda line: plainness(line.row)))
    lines = [(sweep, line) for sweep, line in lines if line_setting(line) == setting]
    used = [row for _, line in lines for row in line.rows]
    by_device = grouped(lines, lambda entry: data.naming.order(entry[1].row))
    panels: list[Panel] = []
    roles = {sweep.workload: role for sweep, role in zip(shown, DTYPE_ROLES, strict=False)}
    for _, members in sorted(by_device.items(), reverse=True)[:MOST_PANELS]:
        curves = [data.curve(line, _time_words, used, role=roles[sweep.workload]) for sweep, line in members]
        panels += panel_of(data.naming.device(members[0][1].row), members[0][0].size, curves)
    if sum(len(curve.points) for panel in panels for curve in panel.curves) < LEAST_VALUES:
        return None
    keys = tuple(Key(workload_name(workload), role) for workload, role in roles.items())
    chart = LinePanels(tuple(panels), "s", keys)
    subject = " and ".join(map(workload_name, roles)) if len(roles) == 2 else "Expressions"
    title = _compared(data, [[line for _, line in members] for members in by_device.values()]) or subject
    subtitle = f"Time per call against size, {lines[0][1].row['dtype']}; lower is better"
    words = caption(used, data.naming, "Bar at a point: interquartile range of the rounds. ", left_out=chart.left_out)
    notice = warning(used)
    return Figure("expressions", "expressions", title, subtitle, words, chart, 9.5, False, notice, subject)


def _compared(data: ChartData, by_device: Sequence[Sequence[Line]]) -> str:
    """``torch.add(a, b, out=c) is 2.1× as fast as torch.add(a, b) on the Xeon at n = 10⁷``, of two expressions."""
    parts = []
    for lines in sorted(by_device, key=lambda lines: -data.naming.order(lines[0].row)):
        if len(lines) != 2 or lines[0].points[-1].x != lines[1].points[-1].x:
            return ""
        base, other = (line.row["_result"] for line in lines)
        top, bottom, ratio, _ = times_and_ratio(base.times, other.times)
        fast = times_text(top / bottom)
        how = "as fast" if ratio.low <= 1 <= ratio.high else f"{fast} as fast" if top > bottom else fast
        how = "unsure" if too_noisy(ratio.low, ratio.high) else how
        parts.append(f"{how} on the {data.naming.short(lines[0].row)}")
    first, second = (workload_name(line.row["workload"]) for line in by_device[0])
    last, size = by_device[0][0].points[-1], by_device[0][0].row["size_name"]
    return f"{second} against {first}: {', '.join(parts)} at {size_label(size)} = {size_text(last.x, size)}"


# The first call -------------------------------------------------------------------------------------------------------


def _first_calls(data: ChartData, rows: Sequence[Row]) -> Figure | None:
    """A panel a workload in its plainest setting: a dashed line for the first calls, a solid one for those timed. NumPy
    prepares nothing in its first calls, and is left out where there is more."""
    rows = [row for row in rows if row["implementation"] != "numpy"] or rows
    later, first = (sweeps(rows, measure, data.names)[0] for measure in (time_of, _first_call))
    panels: list[Panel] = []
    used: list[Row] = []
    slowest: list[tuple[float, Row]] = []
    for timed, begun in zip(later, first, strict=False):
        setting = line_setting(min(begun.lines, key=lambda line: plainness(line.row)))
        kept = [line for line in begun.lines if line_setting(line) == setting][: MOST_CURVES // 2]
        if len(panels) == MOST_PANELS or max(len(line.points) for line in kept) < 2:
            continue
        curves: list[Curve] = []
        for line in kept:
            (same,) = (each for each in timed.lines if each.terms == line.terms)
            curves.append(data.curve(same, _time_words, line.rows))
            how = {"dashed": True, "whiskers": False, "doubts": frozenset()}
            curves.append(data.curve(line, _time_words, line.rows, "first call", **how))
            used += line.rows
            slowest.append((line.row["first_call_s"] / line.row["time_s"], line.row))
        panels += panel_of(workload_name(timed.workload) * (len(later) > 1), timed.size, curves)
    if sum(len(curve.points) for panel in panels for curve in panel.curves) < LEAST_VALUES:
        return None
    ratio, row = max(slowest, key=lambda entry: entry[0])
    workloads = sorted({row["workload"] for row in used})
    subject = _subject(workloads) if len(workloads) == 1 or all(map(_is_expression, workloads)) else "First calls"
    at = f"{size_label(row['size_name'])} = {size_text(row['size'], row['size_name'])}"
    name = f"of {workload_name(row['workload'])} " * (len(later) > 1)
    took = f"{_time_words(row['first_call_s'])} on the {data.naming.short(row)}"
    title = f"{subject}: the first call {name}takes {took}, {times_text(ratio)} a later one, at {at}"
    title = title.replace("First calls: the", "The")
    keys = (*data.keys(used), Key("first call", "muted", "dashed"))
    chart = LinePanels(tuple(panels), "s", keys)
    words = caption(used, data.naming, "Bar at a point: interquartile range of the rounds. ", left_out=chart.left_out)
    subtitle, notice = "Time per call against size; lower is better", warning(used)
    return Figure("first-call", "first_call", title, subtitle, words, chart, 9.6, False, notice, subject)


def _first_call(row: Row) -> tuple[float, float, float] | None:
    first_s = row["first_call_s"]
    return (first_s, first_s, first_s) if first_s else None
