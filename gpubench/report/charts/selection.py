"""Which results a picture has, and how they look in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...runfile.quantities import text
from .. import words
from ..study import Crossing, Item, Line, Measured, Pair, Point, Row, Study, grouped, plainness
from .caption import caption, notice
from .layouts import Curve, LinePanels, Mark, Panel
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .theme import ACCELERATORS, CPUS, DTYPE_ROLES

LEAST_VALUES = 3
"""The least number of values in a picture: one with fewer isn't drawn."""
OTHER_ROLES = DTYPE_ROLES
"""Roles of lines that represent no device."""


def heading(row: Row) -> str:
    """What stands above rows and panels of its kind."""
    return row.kind.heading if row.kind else words.OWN


def role_of(study: Study, row: Row) -> str:
    """Return the role that sets the colour and shape of a row's device. CPUs are grey, and so is the first of the other
    libraries on them; further libraries have the last colours of GPUs."""
    names, source = study.names, row.source
    if row.on_accelerator:
        return ACCELERATORS[names.accelerators.index(source) % len(ACCELERATORS)]
    cpus = [each for each in names.sources if each not in names.accelerators]
    libraries = sorted({each.library for each in cpus if each.library}, key=lambda name: (name != "numpy", name))
    if source.library in libraries[1:]:
        return ACCELERATORS[-libraries.index(source.library) % len(ACCELERATORS)]
    grey = [each for each in cpus if each.library in ("", *libraries[:1])]
    return CPUS[grey.index(source) % len(CPUS)]


def brief(name: str) -> str:
    """A device's name without its number of threads."""
    return re.sub(r", \d+ threads?\b", "", name)


def keys(study: Study, rows: Iterable[Row], look: str = "line") -> tuple[Key, ...]:
    """Legend entries of the rows' devices, in the order of the report."""
    ordered = {row.source: row for row in sorted(rows, key=study.names.order)}
    return tuple(Key(study.names.of(row), role_of(study, row), look) for row in ordered.values())


def curve(
    study: Study,
    line: Line[Any],
    unit: str,
    label: str = "",
    crossing: Crossing | None = None,
    role: str = "",
    dashed: bool = False,
) -> Curve:
    """The line in its device's looks, without what isn't shown; its last value in that unit (empty for a ratio), as it
    stands in a table, and then the ``label`` at its end. Where only a limit of a speedup is known, the line goes
    through the limit."""
    every = list(zip(line.points, line.items, strict=True))
    if isinstance(line.items[-1], Pair):
        known = [(p, values) for p, item in every if (values := item.drawn(dashed))]
        limits = [point.x for point, values in known if values.value != point.y]
        points = [Point(point.x, values.value, values.low, values.high, point.flagged) for point, values in known]
    else:
        points, limits = [point for point, _ in line.shown], []
    cut = line.points[-1].x not in [point.x for point in points]
    item = line.items[-1]
    if isinstance(item, Pair):
        last = (words.with_copies if dashed else words.ratio)(item)
    else:
        doubt = item.quality.doubt if cut else None
        last = str(doubt or text(line.points[-1].y, unit) + item.quality.star * cut)
    label = f"{label}, then {last}".removeprefix(", ") if cut else f"{last} {label}".strip()
    left_out, mark = len(line.points) - len(points), _mark(crossing) if crossing else None
    return Curve(tuple(points), role or role_of(study, line.last), label, dashed, left_out, cut, mark, tuple(limits))


def _mark(crossing: Crossing) -> Mark | None:
    """The crossover where it is known; without an interval the two sizes that it lies between."""
    known, name = crossing.crossover, crossing.line.size_name
    if known.size is None or crossing.ends is None or words.crossing(crossing) == words.UNSURE:
        return None
    if known.low is None:
        low, high = crossing.ends
        return Mark(low, high, f"{words.size_text(low, name)} to {words.size_text(high, name)}")
    return Mark(known.size, known.size, f"{words.size_label(name)} ≈ {words.rounded_size(known.size, name)}")


def panel(title: str, line: Line[Any], curves: Iterable[Curve], size_title: str = "") -> Panel:
    """Return a panel of curves over the size of ``line``."""
    return Panel(title, line.size_name, tuple(curves), size_title or words.size_label(line.size_name))


def line_panels(panels: Iterable[Panel], unit: str, legend: Sequence[Key], slower: str = "") -> LinePanels | None:
    """The panels and curves that have points; None of fewer values than make a picture."""
    every = list(panels)
    left_out = sum(curve.left_out for panel in every for curve in panel.curves)
    every = [replace(panel, curves=tuple(curve for curve in panel.curves if curve.points)) for panel in every]
    drawn = tuple(panel for panel in every if panel.curves)
    enough = sum(len(curve.points) for panel in drawn for curve in panel.curves) >= LEAST_VALUES
    return LinePanels(drawn, unit, tuple(legend), slower, left_out) if enough else None


def plainest_panels(lines: Iterable[Line[Item]], by_dtype: bool = True) -> list[list[Line[Item]]]:
    """A panel for each workload, or each of its dtypes, in its plainest form: the lines of several sizes, one a device.
    Those of most sizes come first."""
    panels: list[list[Line[Item]]] = []
    for members in grouped(lines, lambda line: (line.last.result.workload, by_dtype and line.last.dtype)).values():
        setting = min(members, key=lambda line: plainness(line.items[-1])).setting
        if same := [line for line in members if line.setting == setting and len(line.points) > 1]:
            panels.append(same[:MOST_CURVES])
    sizes = {id(same): max(len(line.points) for line in same) for same in panels}
    return sorted(panels, key=lambda same: (-sizes[id(same)], plainness(same[0].items[-1])))[:MOST_PANELS]


def uncertainty(pairs: Iterable[Pair]) -> str:
    """What the ranges of these speedups are."""
    return words.listed(sorted({pair.uncertainty for pair in pairs}))


def captioned(
    figure: Figure,
    study: Study,
    items: Sequence[Measured | Pair],
    note: str = "",
    flagged: str = "*",
    left_out: int = 0,
) -> Figure:
    """Return the figure with its small print and its warning; the title shows if times are simulated."""
    title, simulated = figure.title, any(item.subject.facts.simulated for item in items)
    if simulated and "simulated" not in title.casefold():
        title += " (simulated)"
    small = caption(study, items, note, flagged, left_out)
    return replace(figure, title=title, caption=small, notice=notice(items))
