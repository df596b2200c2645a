"""The results of a picture, their looks, and the small print: the terms on which its numbers hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...runfile.flags import Reason
from ...runfile.quantities import SWITCH, counted, listed, shorten
from .. import words
from ..number import LIMITS, SECONDS, Sign, StartKind, size_label, size_text
from ..study import Crossing, Item, Line, Measured, Pair, Row, Study, plainest_first
from .layouts import Curve, Dot, LinePanels, Mark, Panel
from .page import Figure, Key
from .theme import role_of

LEAST_VALUES = 3
"""The least number of values in a picture: one with fewer isn't drawn."""
_LONGEST_SETTING = 24
_SHARE_FLAGGED = 1 / 3
"""Beyond it one line above the picture warns."""


def keys(study: Study, rows: Iterable[Row], look: str = "line") -> tuple[Key, ...]:
    """Legend entries of the rows' devices, in the order of the report."""
    ordered = {row.source: row for row in sorted(rows, key=study.names.order)}
    return tuple(Key(study.names.of(row), role_of(study.names, row), look) for row in ordered.values())


def curve(
    study: Study, line: Line[Any], unit: str, label: str = "", crossing: Crossing | None = None, role: str = ""
) -> Curve:
    """The line in its device's looks, dashed with copies; at its end its last drawn value in that unit (empty for a
    ratio), as it stands in a table, and the ``label``. If only a limit of a speedup is known, the limit is drawn."""
    dashed = crossing is not None and not crossing.resident
    name = f"{study.names.of(line.last)}{' with copies' * dashed}: "
    shown, dots = {item for _, item in line.shown}, []
    for point, item in zip(line.points, line.items, strict=True):
        value, places, limit = str(item.quality.doubt or Reason.TOO_NOISY), (math.nan,) * 3, False
        if isinstance(item, Pair):
            value, places = (item.ratio.mark, item.drawn) if item.drawn else (value, places)
            limit = item.ratio.state in LIMITS
        elif item in shown:
            value, places = item.time.mark if unit == SECONDS else item.starred_speed, (point.y, point.low, point.high)
        dots.append(Dot(point.x, *places, value, point.flagged, limit))
    last = next((f"{dot.title} {label}".strip() for dot in reversed(dots) if not math.isnan(dot.y)), "")
    drawn = tuple(dot if math.isnan(dot.y) else dot._replace(title=f"{name}{dot.title}") for dot in dots)
    mark = _mark(crossing) if crossing else None
    return Curve(drawn, role or role_of(study.names, line.last), last, dashed, mark)


def _mark(crossing: Crossing) -> Mark | None:
    """The crossover if it is known; without an interval the two sizes that it lies between."""
    start, copies = crossing.start, " with copies" * (not crossing.resident)
    if start.kind is StartKind.ABOUT:
        return Mark(start.low, start.low, start.size + copies)
    ends = " to ".join(size_text(end, start.name) for end in (start.low, start.high))
    return Mark(start.low, start.high, ends + copies) if start.kind is StartKind.BETWEEN else None


def plainest_line(lines: Sequence[Line[Item]]) -> Line[Item]:
    """The line that stands for a workload: of the setting that the answer shows."""
    first = plainest_first([line.items[-1] for line in lines])[0]
    return next(line for line in lines if line.items[-1] is first)


def panel_title(line: Line[Any], name: bool, dtype: bool) -> str:
    """``CIFAR CNN float32, width=4``: the difference of a line from lines of other panels, and its setting."""
    case = line.last.result
    told = f"{words.name(case) * name} {case.dtype * dtype}".strip()
    return ", ".join(filter(None, (told, shorten(words.setting(case, ("dtype", line.size_name)), _LONGEST_SETTING))))


def by_size(study: Study, figure: Figure, items: Sequence[Measured | Pair]) -> list[Figure]:
    """The figure of lines with its small print, without panels that have a single size; none of fewer values than make
    a picture. Where a line ends before the largest size, its last value has its size."""
    assert isinstance(figure.chart, LinePanels)
    panels, left_out = list[Panel](), Counter[str]()
    for panel in figure.chart.panels:
        curves = [curve for curve in panel.curves if curve.points]
        single = all(len(curve.points) < 2 for curve in curves)
        dots = [dot for curve in panel.curves for dot in curve.dots]
        reasons = (dot.title if math.isnan(dot.y) else "a single size" for dot in dots if single or math.isnan(dot.y))
        left_out.update(reasons)
        largest = max(dot.x for dot in dots)
        for i, curve in enumerate(curves):
            if (end := curve.points[-1].x) < largest:
                at = f" at {size_label(panel.size)} = {size_text(end, panel.size)}"
                curves[i] = curve._replace(label=curve.label + at)
        panels += [panel._replace(curves=tuple(curves))] * (not single)
    every = [curve for panel in panels for curve in panel.curves]
    if sum(len(curve.points) for curve in every) < LEAST_VALUES:
        return []
    hollow = any(dot.flagged and not dot.limit for curve in every if not curve.dashed for dot in curve.points)
    starred = any(curve.points[-1].flagged for curve in every)
    flagged = " or ".join(["hollow"] * hollow + [f"with {Sign.NOISY}"] * starred).capitalize()
    note = "".join(f"{counted(count, 'result')} not drawn: {why}. " for why, count in left_out.items())
    chart = replace(figure.chart, panels=tuple(panels))
    return [add_caption(replace(figure, chart=chart, caption=figure.caption + note), study, items, flagged)]


def add_caption(
    figure: Figure, study: Study, items: Sequence[Measured | Pair], flagged: str = str(Sign.NOISY)
) -> Figure:
    """Return the figure with its small print and its warnings: the terms on which the numbers of these items hold.
    ``flagged`` is the sign of noisy results, if any is drawn."""
    pairs = [item for item in items if isinstance(item, Pair)]
    rows = [*(item.subject for item in items), *(side for pair in pairs for side in pair.sides)]
    noisy = sum(item.quality.noisy for item in items)
    warnings = [words.simulated(row.facts for row in rows)]
    if noisy > _SHARE_FLAGGED * len(items):
        many = f"{noisy} of {counted(len(items), 'result')}"
        warnings.append(f"{many} {'is' if noisy == 1 else 'are'} noisy and may be off")
    note = figure.caption + f"{flagged}: noisy measurement. " * bool(flagged and noisy)
    if ways := words.ways(pairs):
        sign = "At some sizes" if isinstance(figure.chart, LinePanels) else f"{Sign.OTHER_WAY}:"
        side = "of" if all(pair.base.on_accelerator for pair in pairs) else "over"
        note += f"{sign} {side} the CPU's fastest way, where that is another: {'; '.join(ways)}. "
    unchecked = dict.fromkeys(words.name(row.result) for row in rows if words.unchecked(row))
    note += f"Results not checked: {listed(unchecked)}. " * bool(unchecked)
    if differing := sorted({pair.differs for pair in pairs} - {""}):
        note += f"Compared although they differ: {listed(differing)}. "
    notice = ". ".join(filter(None, warnings))
    return replace(figure, caption=note.strip(), facts=facts_of(study, rows), notice=notice)


def facts_of(study: Study, rows: Sequence[Measured]) -> str:
    """Machines, date, processes, dtypes and TF32 of the results."""
    facts = []
    for name, run in {row.run_name: row.run for row in rows}.items():
        told = (words.machine(run), run.date, counted(run.processes, "process"))
        facts.append(f"{shorten(name)}: " * study.several_runs + " · ".join(filter(None, told)))
    dtypes = sorted({row.dtype for row in rows})
    state = " and ".join(dict.fromkeys(SWITCH[row.run.machine.tf32] for row in rows))
    tf32 = f"TF32 {state}{', except for dtype tf32' * (state != SWITCH[True] and 'tf32' in dtypes)}"
    return " · ".join([listed(facts, 4, "; "), *([listed(dtypes), tf32] if all(dtypes) else [])])
