"""One picture a workload: how much faster it is by size, with the data on the device and with copies; and by dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...format import ratio_text
from ...statistics import ALWAYS, CROSSES
from ..judgement import ABOVE_PEAK, MEASURES, Crossing, crossing_of, too_noisy, withheld
from ..labels import Row, family, grouped, implementation_name, listed, rounded_size, size_label, size_text
from ..speedup import ONE_SHOT, RESIDENT
from ..sweep import Line, Sweep, sweeps
from .layouts import Curve, LinePanels, Mark, Panel
from .material import ChartData, line_setting, plainness
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .wording import caption, settings, title_name, warning

_COPIES = "With copies: inputs copied from pageable memory, one call, results copied back. "
_MOST_DEFAULT = 2
"""Workloads, each of another family, that a report shows unless it is asked for all."""
_UNSURE = "unsure"
_EMULATED = 3.0
"""Times of float32 beyond which a dtype counts as emulated; float64 takes two."""


def speedup_figures(data: ChartData) -> list[Figure]:
    """Of the first comparison; of others only on demand."""
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
            numpy = all(row["baseline_implementation"] == "numpy" for row in rows)
            for made, shift in ((_by_regime(data, workload, kept), 0.0), (_by_dtype(data, workload, kept), 0.05)):
                if made:
                    name = made.name if rank == 0 else f"{made.name}-{rank + 1}"
                    default = workload in defaults and not (numpy and shift)
                    figures.append(replace(made, name=name, rank=order + shift, default=default))
    return figures


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
    said: list[tuple[str, Line, Crossing]] = []
    single = len(shown) == 1
    used = [row for lines in shown for _, line in lines for row in line.rows]
    for lines in shown:
        title = "" if single else _words(lines[0][1])
        lines = lines if len(lines) <= MOST_CURVES else [entry for entry in lines if entry[0] == RESIDENT][:MOST_CURVES]
        several = len({data.naming.order(line.row) for _, line in lines}) > 1
        curves = [_curve(data, regime, line, size, used, several or not single) for regime, line in lines]
        said = said or [(regime, line, crossing_of(line, regime)) for regime, line in lines]
        drawn.append(Panel(title, size, tuple(curves), _axis_title(workload, size, dtype)))
    base = data.naming.baseline(used)
    if sum(len(curve.points) for panel in drawn for curve in panel.curves) < 3:
        return None
    copies = any(curve.dashed for panel in drawn for curve in panel.curves)
    keys = (*data.keys(used), *([Key("with copies", "muted", "dashed")] * copies))
    keys = keys if not single or len({curve.role for curve in drawn[0].curves}) > 1 else ()
    chart = LinePanels(tuple(drawn), "", keys, _slower(base))
    note = _uncertainty(used) + (_COPIES if copies else "")
    left = len(panels) - len(shown)
    note += f"{left} more settings are in speedup.csv. " if left else ""
    first = "" if single else f" ({drawn[0].title})"
    title = f"{title_name(workload)}{first}{_against(data, used)}: {_finding(data, said, size)}"
    subtitle = f"Speedup over {base}, {dtype}{_sign(drawn)}"
    words = caption(used, data.naming, note, lines=True)
    return Figure(f"speedup-{workload}", "speedup", title, subtitle, words, chart, notice=warning(used))


def _by_dtype(data: ChartData, workload: str, kept: dict[str, list[Sweep]]) -> Figure | None:
    """A panel a device, a line a dtype, with the data on the device; None for a single dtype."""
    lines = [line for sweep in kept[RESIDENT] for line in sweep.lines]
    lines = [line for line in lines if _setting(line) == _setting(lines[0])]
    dtypes = list(dict.fromkeys(str(line.terms["dtype"]) for line in lines))
    if len(dtypes) < 2:
        return None
    size = kept[RESIDENT][0].size
    used = [row for line in lines for row in line.rows]
    panels = []
    for name, own in list(grouped(lines, lambda line: data.naming.device(line.row)).items())[:MOST_PANELS]:
        ends = sorted(own, key=lambda line: line.terms["dtype"] == "tf32")[:MOST_CURVES]
        curves = []
        for line in ends:
            dtype, value = str(line.terms["dtype"]), ratio_text(line.points[-1].y)
            mark = _mark(crossing_of(line, RESIDENT), line, size)
            curves.append(data.curve(line, value, used, dtype, role=dtype, mark=mark))
        panels.append(Panel(name, size, tuple(curves), _axis_title(workload, size)))
    sound = [line for line in lines if not _emulated(line, lines) and not withheld(line.row)]
    base = data.naming.baseline(used)
    title = f"{title_name(workload)} by dtype{_against(data, used)}"
    if sound:
        best = max(sound, key=lambda line: line.points[-1].y)
        title += f": {data.naming.subject(best.row)} is up to {ratio_text(best.points[-1].y)} as fast in "
        title += str(best.terms["dtype"])
    subtitle = f"Speedup over {base} in the same dtype; data stays on the device{_sign(panels)}"
    chart = LinePanels(tuple(panels), "", (), _slower(base))
    words = caption(used, data.naming, _uncertainty(used), lines=True)
    return Figure(f"speedup-by-dtype-{workload}", "speedup", title, subtitle, words, chart, notice=warning(used))


def _sign(panels: Sequence[Panel]) -> str:
    """What the marks at 1× mean, where there are some."""
    exact = [curve.mark.low == curve.mark.high for panel in panels for curve in panel.curves if curve.mark]
    if any(exact):
        return "; ◆ from this size on the other is faster"
    return "; thick bar at 1×: faster from a size within" if exact else ""


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
    alone = "data stays there" if data.on_accelerators([last]) else data.naming.subject(last)
    words = "" if named else "with copies" if copies else alone
    mark = _mark(crossing_of(line, regime), line, size)
    how = {"dashed": True, "whiskers": False, "doubts": frozenset()} if copies else {}
    return data.curve(line, ratio_text(line.points[-1].y), used, words, mark=mark, **how)


def _mark(crossing: Crossing, line: Line, size: str) -> Mark | None:
    """The crossover where it is known; without an interval the two sizes that it lies between."""
    known = crossing.crossover
    sizes = [point.x for point in line.points]
    if known.size is None or crossing.disputed or _doubtful(line) or crossing.anywhere(sizes[0], sizes[-1]):
        return None
    if known.low is None or known.high is None:
        low = max((x for x in sizes if x <= known.size), default=sizes[0])
        high = min((x for x in sizes if x >= known.size), default=sizes[-1])
        return Mark(low, high, f"{rounded_size(low, size)} to {rounded_size(high, size)}")
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
    return f", {data.naming.subject(first)} against {implementation_name(first['baseline_implementation'])}"


def _since(crossing: Crossing, line: Line, size: str) -> str:
    """``from n ≈ 72``, ``at every size``, ``from 64 to 256``, ``up to n = 8192`` it isn't; ``unsure``."""
    mark, known = _mark(crossing, line, size), crossing.crossover
    sizes = [point.x for point in line.points]
    label = size_label(size)
    if mark and mark.low == mark.high:
        return f"from {mark.words}"
    if mark:
        return f"from between {label} = {rounded_size(mark.low, size)} and {rounded_size(mark.high, size)}"
    if known.kind == CROSSES or crossing.disputed or _doubtful(line):
        return _UNSURE
    if known.kind == ALWAYS:
        return "at every size measured"
    return f"up to {label} = {size_text(sizes[-1], size)}"


def _finding(data: ChartData, said: Sequence[tuple[str, Line, Crossing]], size: str) -> str:
    """``the H200 wins from n ≈ 72, with copies from n ≈ 280``; of two devices ``…; the L4 wins from n ≈ 90``."""
    parts = []
    subjects = list(dict.fromkeys(data.naming.subject(line.row) for _, line, _ in said))
    for subject in subjects[:2]:
        mine = [entry for entry in reversed(said) if data.naming.subject(entry[1].row) == subject]
        words = {regime: _since(crossing, line, size) for regime, line, crossing in mine}
        first, copied = words.get(RESIDENT, _UNSURE), words.get(ONE_SHOT, "") if len(subjects) == 1 else ""
        if first == _UNSURE:
            parts.append(f"unsure from which size {subject} wins")
            continue
        verb = "isn't faster" if first.startswith("up to") else "wins"
        copied = f"nowhere {copied}" if copied.startswith("up to") else copied
        parts.append(f"{subject} {verb} {first}" + (f", with copies {copied}" if copied not in ("", _UNSURE) else ""))
    return "; ".join(parts)


def _axis_title(workload: str, size: str, dtype: str = "") -> str:
    words = "n of an n × n product" if workload == "matmul.square" else size_label(size)
    return f"{words}, {dtype}" if dtype else words


def _slower(base: str) -> str:
    return "CPU" if "CPU" in base or "thread" in base else base


def _uncertainty(rows: Sequence[Row]) -> str:
    return f"Bar at a point: {listed(sorted({row['uncertainty'] for row in rows}))}. "
