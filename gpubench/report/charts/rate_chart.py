"""One picture a family: what rate each device reaches by size, or how long a call takes; a panel a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...format import text
from ...runfile.schema import TIMERS
from ..labels import Row, family, grouped, heading
from ..metrics import Rate
from ..sweep import Line, Sweep, rate_of, sweeps, time_of
from .layouts import LinePanels, Panel, panel_of
from .material import ChartData, line_setting, plainness
from .page import MOST_CURVES, MOST_PANELS, Figure
from .wording import WORK_GROUPS, caption, family_name, warning, workload_name

_DEFAULT = ("matmul", "models", "elementwise")
"""Families whose rates a report shows unless it is asked for all; one's own come first."""
_MOST_DEFAULT = 4


def rate_figures(data: ChartData) -> list[Figure]:
    """Rates of every family, and on demand times."""
    rates, times = [], []
    plain = data.naming.several or data.on_accelerators(data.rows)
    rows_shown = [row for row in data.rows if not (plain and row["implementation"] == "numpy")]
    for kind, rows in grouped(rows_shown, lambda row: family(row["workload"])).items():
        by_rate = sorted(grouped(rows, rate_of).items(), key=lambda item: -len(item[1]))
        made = [_family(data, kind, members, rate) for rate, members in by_rate if rate]
        shown = [figure for figure in made if figure]
        rates += [replace(figure, default=figure.default and i == 0) for i, figure in enumerate(shown)]
        times += [figure for figure in [_family(data, kind, rows, None)] if figure]
    figures = sorted([*rates, *times], key=lambda figure: figure.rank)
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
    tops = []
    for name in [name for name in data.devices(used) if name in ends][:2]:
        most, label = max(ends[name])
        where = f"{'with' if name.startswith('NumPy') else 'on the'} {name.partition(',')[0]}"
        tops.append(f"{text(most, unit, 2)} {where}" + f" ({label})" * (len(drawn) > 1))
    subject = family_name(kind)
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
    return [
        (workload_name(sweep.workload) + f" {dtype}" * (not alike), sweep.size, lines)
        for sweep, dtype, lines in panels[:MOST_PANELS]
    ]
