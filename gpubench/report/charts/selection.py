"""Which results a picture has, how they look in it, and the small print: on what terms its numbers hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...runfile.flags import Reason
from ...runfile.quantities import SWITCH, counted, listed, shorten
from .. import words
from ..number import LIMITS, Sign, StartKind, size_label, size_text
from ..study import Crossing, Item, Line, Measured, Pair, Point, Row, Study, grouped, plainest_first
from .layouts import Curve, LinePanels, Mark, Panel
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
    """The line in its device's looks, dashed with copies, without what isn't shown; its last value in that unit (empty
    for a ratio), as it stands in a table, and then the ``label`` at its end. Where only a limit of a speedup is known,
    the line goes through the limit."""
    both, shown = [*zip(line.points, line.items, strict=True)], [*line.shown]
    limits: list[float] = []
    if isinstance(line.items[-1], Pair):
        limits = [point.x for point, item in both if item.ratio.state in LIMITS]
        shown = [(Point(p.x, v.value, v.low, v.high, p.flagged), item) for p, item in both if (v := item.drawn)]
    drawn = {point.x for point, _ in shown}
    left_out = [(p.x, str(item.quality.doubt or Reason.TOO_NOISY)) for p, item in both if p.x not in drawn]
    cut = line.points[-1].x not in drawn
    last = str(left_out[-1][1] if cut else _value(line.items[-1], unit))
    label = f"{label}, then {last}".removeprefix(", ") if cut else f"{last} {label}".strip()
    dashed, mark = crossing is not None and not crossing.resident, _mark(crossing) if crossing else None
    name = study.names.of(line.last)
    return Curve(
        tuple(point for point, _ in shown), role or role_of(study.names, line.last), label, dashed, tuple(left_out),
        cut, mark, tuple(limits), tuple(f"{name}{' with copies' * dashed}: {_value(item, unit)}" for _, item in shown),
    )  # fmt: skip


def _value(item: Measured | Pair, unit: str) -> str:
    if isinstance(item, Pair):
        return item.ratio.mark
    return item.time.mark if unit == "s" else item.starred_speed


def plainest_line(lines: Sequence[Line[Item]]) -> Line[Item]:
    """The line that stands for a workload: of the setting that the answer shows."""
    ends = {id(line.items[-1]): line for line in lines}
    return ends[id(plainest_first([line.items[-1] for line in lines])[0])]


def panel_title(line: Line[Any], name: bool, dtype: bool) -> str:
    """``CIFAR CNN float32, width=4``: what distinguishes a line from those of other panels, and its setting."""
    case = line.last.result
    told = f"{words.name(case) * name} {case.dtype * dtype}".strip()
    return ", ".join(filter(None, (told, shorten(words.setting(case, ("dtype", line.size_name)), _LONGEST_SETTING))))


def _mark(crossing: Crossing) -> Mark | None:
    """The crossover where it is known; without an interval the two sizes that it lies between."""
    start, copies = crossing.start, "" if crossing.resident else "with copies: "
    if start.kind is StartKind.ABOUT:
        return Mark(start.low, start.low, copies + start.size)
    if start.kind is not StartKind.BETWEEN:
        return None
    ends = " to ".join(size_text(end, start.name) for end in (start.low, start.high))
    return Mark(start.low, start.high, copies + ends)


def by_size(study: Study, figure: Figure, items: Sequence[Measured | Pair], note: str) -> list[Figure]:
    """The figure of lines with its small print, without curves and panels that have no points; none of fewer values
    than make a picture."""
    chart = figure.chart
    assert isinstance(chart, LinePanels)
    every = [curve for panel in chart.panels for curve in panel.curves]
    if sum(len(curve.points) for curve in every) < LEAST_VALUES:
        return []
    panels = map(_with_points, chart.panels)
    drawn = replace(figure, chart=replace(chart, panels=tuple(panel for panel in panels if panel.curves)))
    hollow = any(p.flagged and p.x not in curve.limits for curve in every if not curve.dashed for p in curve.points)
    left_out = [why for curve in every for _, why in curve.left_out]
    flagged = ["hollow"] * hollow + ["with *"] * any("*" in curve.label for curve in every)
    return [add_caption(drawn, study, items, note, " or ".join(flagged).capitalize(), left_out)]


def _with_points(panel: Panel) -> Panel:
    """The panel without curves that have no points; where a line ends before another, its last value has its size."""
    curves = [curve for curve in panel.curves if curve.points]
    ends = [curve.points[-1].x for curve in curves]
    told = [f" at {size_label(panel.size)} = {size_text(end, panel.size)}" for end in ends]
    told = [each * (end < max(ends) and not curve.cut) for each, end, curve in zip(told, ends, curves, strict=True)]
    labelled = (replace(curve, label=curve.label + each) for curve, each in zip(curves, told, strict=True))
    return replace(panel, curves=tuple(labelled))


def not_drawn(rows: Iterable[Measured], drawn: Iterable[Measured], why: str) -> str:
    """A sentence with the workloads of which a picture can't show anything; empty if there are none."""
    names = dict.fromkeys(words.name(row.result) for row in rows)
    missing = names.keys() - {words.name(row.result) for row in drawn}
    return f"Not drawn ({why}): {listed([name for name in names if name in missing], 3)}. " * bool(missing)


# The small print ------------------------------------------------------------------------------------------------------


def add_caption(
    figure: Figure,
    study: Study,
    items: Sequence[Measured | Pair],
    note: str,
    flagged: str = "*",
    left_out: Iterable[str] = (),
) -> Figure:
    """Return the figure with its small print and its warning; the title shows if times are simulated."""
    title, simulated = figure.title, any(item.subject.facts.simulated for item in items)
    if simulated and "simulated" not in title.casefold():
        title += " (simulated)"
    facts, small = facts_of(study, items), caption(items, note, flagged, left_out)
    count = sum(item.quality.noisy for item in items)
    many = f"{count} of {counted(len(items), 'result')} {'is' if count == 1 else 'are'} noisy and may be off"
    many *= count > _SHARE_FLAGGED * len(items)
    return replace(figure, title=title, caption=small, facts=facts, notice=many)


def facts_of(study: Study, items: Sequence[Measured | Pair]) -> str:
    """Devices, dtypes, threads, TF32, torch, date and processes of the results, baselines included."""
    rows = _rows_of(items)
    runs = list({row.run_name: row.run for row in rows}.values())
    dtypes = sorted({row.dtype for row in rows})
    variants = sorted({row.result.variant for row in rows if row.result.variant}, reverse=True)
    torch = dict.fromkeys(run.machine.torch for run in runs if run.machine.torch)
    threads = sorted({row.result.threads for row in rows if row.result.threads is not None})
    counts = sorted({len(item.subject.times.processes) for item in items})
    ends, joint = (counts, " and ") if len(counts) < 3 else ([counts[0], counts[-1]], " to ")
    facts = (
        _devices(study, rows),
        f"{' and '.join(map(str, threads))} CPU thread{'s' * (threads != [1])}" if threads else "",
        listed(dtypes) if all(dtypes) else "",
        " and ".join(variants) if variants not in ([], ["eager"]) else "",
        _tf32(rows) if all(dtypes) else "",
        f"PyTorch {listed(list(torch))}" if torch else "",
        listed(sorted({run.date for run in runs if run.date})),
        counted(counts[0], "process") if len(counts) == 1 else f"{joint.join(map(str, ends))} processes",
    )
    return " · ".join(filter(None, facts))


def _rows_of(items: Sequence[Measured | Pair]) -> list[Measured]:
    pairs = [item for item in items if isinstance(item, Pair)]
    return [*(item.subject for item in items), *(side for pair in pairs for side in pair.sides)]


def caption(items: Sequence[Measured | Pair], note: str = "", flagged: str = "*", left_out: Iterable[str] = ()) -> str:
    """The note, and the terms on which the numbers hold. ``flagged`` is the sign of noisy results, if any is drawn,
    ``left_out`` the reasons why others aren't drawn."""
    pairs = [item for item in items if isinstance(item, Pair)]
    if flagged and any(item.quality.noisy for item in items):
        note += f"{flagged}: noisy measurement. "
    if found := words.ways(pairs):
        sign = f"{Sign.OTHER_WAY}:" if flagged == "*" else "At some sizes"
        side = "of" if all(pair.base.on_accelerator for pair in pairs) else "over"
        note += f"{sign} {side} the CPU's fastest way, where that is another: {'; '.join(found)}. "
    note += "".join(f"{each}. " for each in words.cautions(_rows_of(items)))
    for why, count in Counter(left_out).items():
        note += f"{counted(count, 'result')} not drawn: {why}. "
    if differing := sorted({pair.differs for pair in pairs if pair.differs}):
        note += f"Compared although they differ: {listed(differing)}. "
    return note.strip()


def _devices(study: Study, rows: Sequence[Measured]) -> str:
    shown = []
    for name, members in grouped(rows, lambda row: row.run_name).items():
        run = members[0].run
        used = {device for row in members for device in (row.result.device, *row.result.devices)}
        known = [device.name for device in run.machine.devices if device.name in used]
        labels = [run.machine.device(device).label or device for device in known] or [words.device_label(run, "")]
        counts = Counter(shorten(label, 60) for label in labels)
        devices = ", ".join(f"{count} × {label}" if count > 1 else label for label, count in counts.items())
        shown.append(f"{shorten(name)}: {devices}" if study.several_runs else devices)
    return "; ".join(shown[:4]) + (f" and {len(shown) - 4} more runs" if len(shown) > 4 else "")


def _tf32(rows: Sequence[Measured]) -> str:
    state = " and ".join(dict.fromkeys(SWITCH[row.run.machine.tf32] for row in rows))
    return f"TF32 {state}" + ", except for dtype tf32" * (state != "on" and any(row.dtype == "tf32" for row in rows))
