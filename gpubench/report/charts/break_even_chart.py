"""After how many calls on the same data the copies are repaid, by size."""

from __future__ import annotations

from ...runfile.schema import Scalar
from ..labels import Row, grouped
from ..sweep import sweeps
from .material import ChartData, plainness
from .naming import family_name, warning, workload_name
from .page import CALL_UNIT, MOST_CURVES, MOST_PANELS, Figure
from .panels import Curve, LinePanels, Panel
from .small_print import caption


def break_even_figures(data: ChartData) -> list[Figure]:
    """A panel a workload in its plainest setting, a line a device."""
    pairs = data.comparisons[0] if data.comparisons else []
    panels = []
    for sweep in sweeps(pairs, _calls, data.names)[0]:
        plainest = min(sweep.lines, key=lambda line: plainness(line.row))
        terms = _same(plainest.terms)
        lines = [line for line in sweep.lines if _same(line.terms) == terms and len(line.points) > 1][:MOST_CURVES]
        if lines and not sweep.workload.startswith("transfer."):
            panels.append((sweep, lines))
    panels.sort(key=lambda entry: -max(len(line.points) for line in entry[1]))
    by_group = grouped(panels, lambda entry: entry[0].workload.partition(".")[0])
    turns = [entries[i] for i in range(MOST_PANELS) for entries in by_group.values() if i < len(entries)][:MOST_PANELS]
    used = [row for _, lines in turns for line in lines for row in line.rows]
    if len(used) < 3:
        return []
    drawn = []
    for sweep, lines in turns:
        curves = [
            Curve(line.points, data.naming.role(line.row), _words(line.points[-1].y), whiskers=False) for line in lines
        ]
        family = family_name(sweep.workload.partition(".")[0])
        drawn.append(Panel(f"{family}: {workload_name(sweep.workload)}", sweep.size, tuple(curves)))
    ends = sorted((curve.points[-1].y, _name(panel.title)) for panel in drawn for curve in panel.curves)
    (least, easy), (most, hard) = ends[0], ends[-1]
    title = f"Copies are repaid after {_words(least)} ({easy}) to {_words(most)} ({hard})"
    subtitle = "Calls on data that stays on the GPU needed to amortize the copies, by size; fewer is better"
    note = "Copies in and out of pageable memory; sizes at which the CPU is faster have no point. "
    chart = LinePanels(tuple(drawn), CALL_UNIT, data.keys(used), "", tuple(used))
    words = caption(used, data.naming, note)
    return [Figure("break-even", "break_even", title, subtitle, words, chart, 4.0, True, warning(used))]


def _calls(row: Row) -> tuple[float, float, float] | None:
    calls = row["break_even_calls"]
    return None if calls is None else (float(calls), float(calls), float(calls))


def _same(terms: dict[str, Scalar]) -> dict[str, Scalar]:
    return {name: value for name, value in terms.items() if name != "source"}


def _words(calls: float) -> str:
    return f"{calls:,.0f} call{'s' * (calls != 1)}"


def _name(title: str) -> str:
    return title.rpartition(": ")[2]
