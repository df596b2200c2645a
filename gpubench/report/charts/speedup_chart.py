"""How much faster it is by size: a picture a workload, with the data on the device and with copies, and by dtype; and
after how many calls on the same data the copies are repaid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..judgement import ABOVE_PEAK, MEASURES, Crossing, crossing_of, too_noisy, withheld
from ..labels import (
    Row,
    family,
    grouped,
    implementation_label,
    library,
    listed,
    rounded_size,
    size_label,
    size_text,
    times_text,
)
from ..speedup import ONE_SHOT, RESIDENT
from ..sweep import Line, Sweep, sweeps
from .layouts import Curve, LinePanels, Mark, Panel, panel_of
from .material import LEAST_VALUES, ChartData, line_setting, plainness, sound
from .page import CALL_UNIT, MOST_CURVES, MOST_PANELS, Figure, Key, tick_text
from .wording import caption, family_name, settings, title_name, warning, workload_name

_COPIES = "With copies: inputs copied from pageable memory, one call, results copied back. "
_MOST_DEFAULT = 2
"""Workloads, each of another family, that a report shows unless it is asked for all."""
_UNSURE = "unsure"
_MOST_WORDS = 50
"""Letters of a finding where a title has one for each of two devices."""
_EMULATED = 3.0
"""Times of float32 beyond which a dtype counts as emulated; float64 takes two."""


@dataclass(frozen=True, slots=True)
class _Crossed:
    """Where a line of a setting crosses 1×."""

    setting: str
    regime: str
    line: Line
    crossing: Crossing


def speedup_figures(data: ChartData) -> list[Figure]:
    """Speedups of the first comparison, of others only on demand; and what repays the copies."""
    figures = []
    for rank, pairs in enumerate(data.comparisons):
        workloads = []
        for workload, rows in grouped(pairs, lambda row: row["workload"]).items():
            kept = {regime: sweeps(rows, measure, data.names)[0] for regime, measure in MEASURES.items()}
            if any(len(line.points) > 1 for sweep in kept[RESIDENT] for line in sweep.lines):
                workloads.append((workload, rows, kept))
        defaults = _leading([(workload, kept[RESIDENT][0]) for workload, _, kept in workloads]) if rank == 0 else []
        for workload, rows, kept in workloads:
            order = 1.0 + defaults.index(workload) * 0.1 if workload in defaults else 9.0 + 20 * rank
            other = all(library(row, "baseline_") for row in rows)
            for made, shift in ((_by_regime(data, workload, kept), 0.0), (_by_dtype(data, workload, kept), 0.05)):
                if made:
                    name = made.name if rank == 0 else f"{made.name}-{rank + 1}"
                    default = workload in defaults and not (other and shift)
                    figures.append(replace(made, name=name, rank=order + shift, default=default))
    return [*figures, *break_even_figures(data)]


def _leading(workloads: Sequence[tuple[str, Sweep]]) -> list[str]:
    """The workload with the most sizes of each family, the families with the most sizes first."""
    best: dict[str, tuple[int, str]] = {}
    for workload, sweep in workloads:
        count = len({point.x for line in sweep.lines for point in line.points})
        if count > best.get(family(workload), (2, ""))[0] and family(workload) != "transfer":
            best[family(workload)] = count, workload
    return [workload for _, workload in sorted(best.values(), key=lambda entry: -entry[0])][:_MOST_DEFAULT]


def _by_regime(data: ChartData, workload: str, kept: dict[str, list[Sweep]]) -> Figure | None:
    """A panel a setting in the plainest dtype, a solid line a device, a dashed one with copies."""
    size = kept[RESIDENT][0].size
    dtypes = [str(line.terms["dtype"]) for line in kept[RESIDENT][0].lines]
    dtype = "float32" if "float32" in dtypes else dtypes[0]
    every = [(regime, line) for regime, found in kept.items() for sweep in found for line in sweep.lines]
    panels = grouped((each for each in every if each[1].terms["dtype"] == dtype), lambda each: _setting(each[1]))
    shown = sorted(panels.values(), key=lambda lines: plainness(lines[0][1].row))[:MOST_PANELS]
    drawn: list[Panel] = []
    crossed: list[_Crossed] = []
    single = len(shown) == 1
    used = [row for lines in shown for _, line in lines for row in line.rows]
    for lines in shown:
        title = "" if single else _words(lines[0][1])
        lines = lines if len(lines) <= MOST_CURVES else [entry for entry in lines if entry[0] == RESIDENT][:MOST_CURVES]
        several = len({data.naming.order(line.row) for _, line in lines}) > 1
        curves = [_curve(data, regime, line, size, used, several or not single) for regime, line in lines]
        made = panel_of(title, size, curves, _axis_title(workload, size, dtype))
        crossed += [_Crossed(_words(line), regime, line, crossing_of(line, regime)) for regime, line in lines if made]
        drawn += made
    base = data.naming.baseline(used)
    if sum(len(curve.points) for panel in drawn for curve in panel.curves) < LEAST_VALUES:
        return None
    copies = any(curve.dashed for panel in drawn for curve in panel.curves)
    keys = (*data.keys(used), *([Key("with copies", "muted", "dashed")] * copies))
    keys = keys if not single or len({curve.role for curve in drawn[0].curves}) > 1 else ()
    chart = LinePanels(tuple(drawn), "", keys, _slower(base))
    note = _uncertainty(used) + (_COPIES if copies else "")
    left = len(panels) - len(drawn)
    note += f"{left} more setting{'s' * (left > 1)} not shown. " if left else ""
    subject = f"{title_name(workload)}{_against(data, used)}"
    title = f"{subject}: {_finding(data, crossed, size)}"
    subtitle = f"Speedup over {base}, {dtype}{_sign(data, drawn, used)}"
    words = caption(used, data.naming, note, left_out=chart.left_out)
    name, notice = f"speedup-{workload}", warning(used)
    return Figure(name, "speedup", title, subtitle, words, chart, notice=notice, subject=subject)


def _by_dtype(data: ChartData, workload: str, kept: dict[str, list[Sweep]]) -> Figure | None:
    """A panel a device, a line a dtype, with the data on the device; None for a single dtype."""
    lines = [line for sweep in kept[RESIDENT] for line in sweep.lines]
    lines = [line for line in lines if _setting(line) == _setting(lines[0])]
    dtypes = list(dict.fromkeys(str(line.terms["dtype"]) for line in lines))
    if len(dtypes) < 2:
        return None
    size = kept[RESIDENT][0].size
    used = [row for line in lines for row in line.rows]
    panels: list[Panel] = []
    drawn: list[Line] = []
    for name, own in list(grouped(lines, lambda line: data.naming.device(line.row)).items())[:MOST_PANELS]:
        ends = sorted(own, key=lambda line: line.terms["dtype"] == "tf32")[:MOST_CURVES]
        curves = []
        for line in ends:
            dtype, mark = str(line.terms["dtype"]), _mark(crossing_of(line, RESIDENT), line, size)
            curves.append(data.curve(line, times_text, used, dtype, role=dtype, mark=mark))
            drawn += [line] * (not curves[-1].cut)
        panels += panel_of(name, size, curves, _axis_title(workload, size))
    if sum(len(curve.points) for panel in panels for curve in panel.curves) < LEAST_VALUES:
        return None
    base, subject = data.naming.baseline(used), f"{title_name(workload)} by dtype{_against(data, used)}"
    title = f"{subject}: {_best_dtype(data, drawn, size)}" if drawn else f"{subject}: unknown at the largest size"
    subtitle = f"Speedup over {base} in the same dtype{_sign(data, panels, used)}"
    chart = LinePanels(tuple(panels), "", (), _slower(base))
    words = caption(used, data.naming, f"Data on the device. {_uncertainty(used)}", left_out=chart.left_out)
    name, notice = f"speedup-by-dtype-{workload}", warning(used)
    return Figure(name, "by_dtype", title, subtitle, words, chart, notice=notice, subject=subject)


def _best_dtype(data: ChartData, lines: Sequence[Line], size: str) -> str:
    """``the H200 is 240× as fast in float64 at n = 2048, and 1,400× in float16, which is slow on the CPU``.

    A dtype that the baseline emulates never leads; it is named where it stands above what leads.
    """
    ends = [(sound(line)[0][-1], line) for line in lines]
    emulated = [end for end in ends if _emulated(end[1], lines)]
    last, best = max([end for end in ends if end not in emulated] or ends, key=lambda end: end[0].y)
    fast = f"{times_text(last.y)} {'as fast ' * (last.y >= 1)}in {best.terms['dtype']}"
    words = f"{data.naming.subject(best.row)} is {fast} at {size_label(size)} = {size_text(last.x, size)}"
    device = data.naming.device(best.row)
    above = [end for end in emulated if end[0].y > last.y and data.naming.device(end[1].row) == device]
    if above:
        slow = [f"{times_text(point.y)} in {line.terms['dtype']}" for point, line in above]
        base = data.naming.baseline(best.rows)
        where = "the CPU" if _slower(base) == "CPU" else base
        words += f", and {' and '.join(slow)}, which {'are' if len(slow) > 1 else 'is'} slow on {where}"
    return words


def _sign(data: ChartData, panels: Sequence[Panel], used: Sequence[Row]) -> str:
    """What the marks at 1× mean, where there are some."""
    exact = [curve.mark.low == curve.mark.high for panel in panels for curve in panel.curves if curve.mark]
    subjects = list(dict.fromkeys(map(data.naming.subject, used)))
    faster = "GPU" if len(data.on_accelerators(used)) == len(used) else ""
    faster = subjects[0].removeprefix("the ") if len(subjects) == 1 else faster
    if any(exact):
        return f"; ◆ {faster} faster from here on".replace("◆  ", "◆ ")
    return "; thick bar at 1×: faster from a size within it" if exact else ""


def _emulated(line: Line, lines: Sequence[Line]) -> bool:
    """Whether the baseline takes much longer in this dtype than in float32: it has no instructions for it."""
    times = {point.x: row["baseline_s"] for point, row in zip(line.points, line.rows, strict=True)}
    same = [each for each in lines if each.terms["source"] == line.terms["source"] and each.terms["dtype"] == "float32"]
    plain = [pair for each in same for pair in zip(each.points, each.rows, strict=True)]
    return any(times.get(point.x, 0) > _EMULATED * row["baseline_s"] for point, row in plain)


def _setting(line: Line) -> tuple[tuple[str, object], ...]:
    return line_setting(line, "dtype", "regime")


def _words(line: Line) -> str:
    """``out``, ``autocast, width = 4``."""
    return settings(line.row, brief=True) or "eager"


def _curve(data: ChartData, regime: str, line: Line, size: str, used: Sequence[Row], named: bool) -> Curve:
    copies, last = regime == ONE_SHOT, line.rows[-1]
    alone = "data on the GPU" if data.on_accelerators([last]) else data.naming.subject(last)
    words = "" if named else "with copies" if copies else alone
    mark = _mark(crossing_of(line, regime), line, size)
    how = {"dashed": True, "whiskers": False, "doubts": frozenset()} if copies else {}
    return data.curve(line, times_text, used, words, mark=mark, **how)


def _mark(crossing: Crossing, line: Line, size: str) -> Mark | None:
    """The crossover where it is known; without an interval the two sizes that it lies between."""
    known = crossing.crossover
    sizes = [point.x for point in line.points]
    if known.size is None or crossing.disputed or _doubtful(line) or crossing.anywhere(sizes[0], sizes[-1]):
        return None
    if known.low is None or known.high is None:
        low = max((x for x in sizes if x <= known.size), default=sizes[0])
        high = min((x for x in sizes if x >= known.size), default=sizes[-1])
        return Mark(low, high, f"{size_text(low, size)} to {size_text(high, size)}")
    if not known.low or known.high == math.inf or too_noisy(known.low, known.high):
        return None
    return Mark(known.size, known.size, f"{size_label(size)} ≈ {rounded_size(known.size, size)}")


def _doubtful(line: Line) -> bool:
    return any(withheld(row) == ABOVE_PEAK for row in line.rows)


def _against(data: ChartData, rows: Sequence[Row]) -> str:
    """``, PyTorch against NumPy`` where the same device is compared with itself."""
    first = rows[0]
    if first["implementation"] == first["baseline_implementation"]:
        return ""
    subjects = dict.fromkeys(data.naming.subject(row) for row in rows)
    return f", {' and '.join(subjects)} against {implementation_label(first['baseline_implementation'])}"


def _since(crossing: Crossing, line: Line, size: str) -> str:
    """``from n ≈ 72``, ``at every size``, ``from 64 to 256``, ``up to n = 8192`` it isn't; ``unsure``."""
    mark, known = _mark(crossing, line, size), crossing.crossover
    sizes = [point.x for point in line.points]
    label = size_label(size)
    if mark and mark.low == mark.high:
        return f"from {mark.words}"
    if mark:
        return f"from between {label} = {size_text(mark.low, size)} and {size_text(mark.high, size)}"
    if known.crosses or crossing.disputed or _doubtful(line):
        return _UNSURE
    if known.always:
        return "at every size measured"
    return f"up to {label} = {size_text(sizes[-1], size)}"


def _finding(data: ChartData, crossed: Sequence[_Crossed], size: str) -> str:
    """``the H200 wins from n ≈ 72, with copies from n ≈ 280``; of two devices ``…; the L4 wins from n ≈ 90``.

    Of several panels the range, and what holds for the others: ``from n ≈ 72 (out) to n ≈ 90 (inplace)``.
    """
    parts = []
    by_subject = grouped(crossed, lambda each: data.naming.subject(each.line.row))
    for subject, entries in list(by_subject.items())[:2]:
        resident = [each for each in entries if each.regime == RESIDENT]
        copied = [each for each in entries if each.regime == ONE_SHOT and len(by_subject) == len(resident) == 1]
        words = _range(resident, size, len(by_subject) == 1)
        if words == _UNSURE:
            parts.append(f"unsure from which size {subject} wins")
            continue
        if len(by_subject) > 1 and len(words) > _MOST_WORDS:
            sizes = [_since(each.crossing, each.line, size).startswith(("from", "at every")) for each in resident]
            words = f"in {sum(sizes)} of {len(sizes)} settings"
        verb = "isn't faster" if words.startswith("up to") else "wins"
        parts.append(f"{subject} {verb} {words}{''.join(_with_copies(each, size) for each in copied)}")
    return "; ".join(parts)


def _with_copies(each: _Crossed, size: str) -> str:
    since = _since(each.crossing, each.line, size)
    return "" if since == _UNSURE else f", with copies {'nowhere ' * since.startswith('up to')}{since}"


def _range(entries: Sequence[_Crossed], size: str, named: bool) -> str:
    """From which size on it is faster in all of these settings, which are ``named`` where there is room."""
    by_words = grouped(entries, lambda each: _since(each.crossing, each.line, size))
    if len(by_words) <= 1:
        return next(iter(by_words), _UNSURE)
    known = [(mark.low, each) for each in entries if (mark := _mark(each.crossing, each.line, size))]
    marked = [each for _, each in sorted(known, key=lambda pair: pair[0])]
    ends = [_since(each.crossing, each.line, size) + f" ({each.setting})" * named for each in marked]
    parts = [" to ".join(dict.fromkeys([*ends[:1], *(end.removeprefix("from ") for end in ends[1:][-1:])]))]
    parts *= bool(ends)
    for words, others in by_words.items():
        left = [each.setting for each in others if each not in marked]
        where = f"({listed(left, 2)})" if named else f"in {len(left)} of {len(entries)} settings"
        parts += [f"{'nowhere ' * words.startswith('up to')}{words} {where}"] if left else []
    return ", ".join(parts)


def _axis_title(workload: str, size: str, dtype: str = "") -> str:
    words = "n of an n × n product" if workload == "matmul.square" else size_label(size)
    return f"{words}, {dtype}" if dtype else words


def _slower(base: str) -> str:
    return "CPU" if "CPU" in base or "thread" in base else base


def _uncertainty(rows: Sequence[Row]) -> str:
    return f"Bar at a point: {listed(sorted({row['uncertainty'] for row in rows}))}. "


def break_even_figures(data: ChartData) -> list[Figure]:
    """After how many calls copies are repaid: a panel a workload in its plainest setting, a line a device."""
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
