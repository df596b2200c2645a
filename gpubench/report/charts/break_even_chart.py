"""After how many calls on the same data the copies are repaid, by size."""

from __future__ import annotations

from ..judgement import withheld
from ..labels import Row, family, grouped
from ..sweep import sweeps
from .layouts import LinePanels, Panel, panel_of
from .material import ChartData, line_setting, plainness
from .page import CALL_UNIT, MOST_CURVES, MOST_PANELS, Figure, tick_text
from .wording import caption, family_name, warning, workload_name


def break_even_figures(data: ChartData) -> list[Figure]:
    """A panel a workload in its plainest setting, a line a device."""
    pairs = data.comparisons[0] if data.comparisons else []
    panels = []
    for sweep in sweeps(pairs, _calls, data.names)[0]:
        plainest = min(sweep.lines, key=lambda line: plainness(line.row))
        lines = [line for line in sweep.lines if line_setting(line) == line_setting(plainest) and len(line.points) > 1]
        if lines and not sweep.workload.startswith("transfer."):
            panels.append((sweep, lines[:MOST_CURVES]))
    panels.sort(key=lambda entry: -max(len(line.points) for line in entry[1]))
    by_group = grouped(panels, lambda entry: family(entry[0].workload))
    turns = [entries[i] for i in range(MOST_PANELS) for entries in by_group.values() if i < len(entries)][:MOST_PANELS]
    used = [row for _, lines in turns for line in lines for row in line.rows]
    if len(used) < 3:
        return []
    drawn: list[Panel] = []
    for sweep, lines in turns:
        curves = [data.curve(line, _calls_text, used, whiskers=False) for line in lines]
        title = f"{family_name(family(sweep.workload))}: {workload_name(sweep.workload)}"
        drawn += panel_of(title, sweep.size, curves)
    ends = [(line.points[-1].y, workload_name(sweep.workload), line) for sweep, lines in turns for line in lines]
    (least, _, _), (most, name, line) = (choose(ends, key=lambda end: end[0]) for choose in (min, max))
    title = f"Copies are amortized within {_calls_text(most)} at the largest size"
    if least < most:
        where = f"{name}, {data.naming.device(line.row)}" if len(data.devices(used)) > 1 else name
        title = title.replace("within ", f"within {least:,.0f} to ") + f" (most: {where})"
    subtitle = "Calls on data that stays on the GPU needed to amortize the copies, by size; fewer is better"
    note = "Copies in and out of pageable memory; sizes at which the CPU is faster have no point. "
    chart = LinePanels(tuple(drawn), CALL_UNIT, data.keys(used))
    words = caption(used, data.naming, note)
    return [Figure("break-even", "break_even", title, subtitle, words, chart, 4.0, True, warning(used))]


def _calls_text(count: float) -> str:
    return tick_text(count, CALL_UNIT)


def _calls(row: Row) -> tuple[float, float, float] | None:
    calls = row["break_even_calls"]
    return None if calls is None or withheld(row) else (float(calls), float(calls), float(calls))
