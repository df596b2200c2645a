"""One picture a workload: how much faster it is by size, with the data on the device and with copies; and by dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...statistics import ALWAYS, CROSSES
from ..judgement import MEASURES, Crossing, crossing_of
from ..labels import Row, family, grouped, setting, size_label, size_text
from ..speedup import ONE_SHOT, RESIDENT
from ..sweep import Line, Sweep, sweeps
from .headline_chart import ratio_text
from .material import ChartData, plainness
from .naming import drawn_hollow, title_name, warning
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .panels import Curve, LinePanels, Mark, Panel, too_wide
from .small_print import caption, uncertainty

_COPIES = "With copies: inputs copied from pageable memory, one call, results copied back. "
_MOST_DEFAULT = 2
"""Workloads, each of another family, that a report shows unless it is asked for all."""
_UNSURE = "unsure"
_EMULATED = 3.0
"""Times of float32 beyond which a dtype counts as emulated; float64 takes two."""
Setting = tuple[tuple[str, object], ...]


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
            suffix = "" if rank == 0 else f"-{rank + 1}"
            order = 1.0 + defaults.index(workload) * 0.1 if workload in defaults else 9.0 + 20 * rank
            made = [_by_regime(data, workload, rows, kept, suffix), _by_dtype(data, workload, rows, kept, suffix)]
            for figure, shift in zip(made, (0.0, 0.05), strict=True):
                if figure:
                    numpy = all(row["baseline_implementation"] == "numpy" for row in rows) and shift > 0
                    figures.append(replace(figure, rank=order + shift, default=workload in defaults and not numpy))
    return figures


def _leading(workloads: Sequence[tuple[str, Sweep]]) -> list[str]:
    """The workload with the most sizes of each family, the families with the most sizes first."""
    best: dict[str, tuple[int, str]] = {}
    for workload, sweep in workloads:
        count = len({point.x for line in sweep.lines for point in line.points})
        if count > best.get(family(workload), (2, ""))[0] and family(workload) != "transfer":
            best[family(workload)] = count, workload
    return [workload for _, workload in sorted(best.values(), key=lambda entry: -entry[0])][:_MOST_DEFAULT]


def _by_regime(
    data: ChartData, workload: str, rows: list[Row], kept: dict[str, list[Sweep]], suffix: str
) -> Figure | None:
    """A panel a setting in the plainest dtype, a solid line a device, a dashed one with copies."""
    size = kept[RESIDENT][0].size
    dtype = _plainest_dtype(kept[RESIDENT][0].lines)
    panels: dict[Setting, list[tuple[str, Line]]] = {}
    for regime, found in kept.items():
        for line in (line for sweep in found for line in sweep.lines if line.terms["dtype"] == dtype):
            panels.setdefault(_setting(line), []).append((regime, line))
    ordered = sorted(panels.items(), key=lambda item: plainness(item[1][0][1].row))
    shown = dict(ordered[:MOST_PANELS])
    drawn: list[Panel] = []
    said: list[tuple[str, Line, Crossing]] = []
    single = len(shown) == 1
    used = [row for lines in shown.values() for _, line in lines for row in line.rows]
    for words, lines in shown.items():
        lines = lines if len(lines) <= MOST_CURVES else [entry for entry in lines if entry[0] == RESIDENT][:MOST_CURVES]
        several = len({data.naming.order(line.row) for _, line in lines}) > 1
        curves = [_curve(data, regime, line, size, used, several or not single) for regime, line in lines]
        said = said or [(regime, line, crossing_of(line, regime)) for regime, line in lines]
        drawn.append(Panel("" if single else _words(words), size, tuple(curves), _axis_title(workload, size, dtype)))
    base = data.naming.baseline(used)
    if sum(len(curve.points) for panel in drawn for curve in panel.curves) < 3:
        return None
    copies = any(curve.dashed for panel in drawn for curve in panel.curves)
    keys = (
        (*data.keys(used), *([Key("with copies", "muted", "dashed")] * copies))
        if not single or len({curve.role for curve in drawn[0].curves}) > 1
        else ()
    )
    chart = LinePanels(tuple(drawn), "", keys, _slower(base), tuple(used))
    note = uncertainty(used) + (_COPIES if copies else "")
    left = len(panels) - len(shown)
    note += f"{left} more settings are in speedup.csv. " if left else ""
    first = "" if single else f" ({_words(next(iter(shown)))})"
    title = f"{title_name(workload)}{first}: {_finding(data, said, size)}"
    subtitle = f"Speedup over {base}, {dtype}; ◆ from this size on the other is faster"
    return Figure(
        f"speedup-{workload}{suffix}", "speedup", title, subtitle, caption(used, data.naming, note), chart,
        notice=warning(used),
    )  # fmt: skip


def _by_dtype(
    data: ChartData, workload: str, rows: list[Row], kept: dict[str, list[Sweep]], suffix: str
) -> Figure | None:
    """A panel a device, a line a dtype, with the data on the device; None for a single dtype."""
    lines = [line for sweep in kept[RESIDENT] for line in sweep.lines]
    first = min((_setting(line) for line in lines), key=lambda own: own != _setting(lines[0]))
    lines = [line for line in lines if _setting(line) == first]
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
            label = f"{ratio_text(line.points[-1].y)} {line.terms['dtype']}"
            mark = _mark(crossing_of(line, RESIDENT), line, size)
            doubts = frozenset(i for i, row in enumerate(line.rows) if drawn_hollow(row, used))
            curves.append(Curve(line.points, str(line.terms["dtype"]), label, False, doubts, mark))
        panels.append(Panel(name, size, tuple(curves), _axis_title(workload, size)))
    best = max((line for line in lines if not _emulated(line, lines)), key=lambda line: line.points[-1].y)
    base = data.naming.baseline(used)
    title = (
        f"{title_name(workload)} by dtype: {data.naming.subject(best.row)} is up to {ratio_text(best.points[-1].y)} "
        f"as fast in {best.terms['dtype']}"
    )
    subtitle = f"Speedup over {base} in the same dtype; data stays on the device"
    chart = LinePanels(tuple(panels), "", (), _slower(base), tuple(used))
    words = caption(used, data.naming, uncertainty(used))
    return Figure(
        f"speedup-by-dtype-{workload}{suffix}", "speedup", title, subtitle, words, chart, notice=warning(used)
    )


def _emulated(line: Line, lines: Sequence[Line]) -> bool:
    """Whether the baseline takes much longer in this dtype than in float32: it has no instructions for it."""
    times = {row["_result"].case.params.get(row["_result"].case.size): row["baseline_s"] for row in line.rows}
    for other in lines:
        if other.terms["dtype"] == "float32" and other.terms["source"] == line.terms["source"]:
            for row in other.rows:
                mine = times.get(row["_result"].case.params.get(row["_result"].case.size))
                if mine and mine > _EMULATED * row["baseline_s"]:
                    return True
    return False


def _plainest_dtype(lines: Sequence[Line]) -> str:
    dtypes = [str(line.terms["dtype"]) for line in lines]
    return "float32" if "float32" in dtypes else dtypes[0]


def _setting(line: Line) -> Setting:
    """What tells a line apart beside device, dtype and size."""
    return tuple((name, value) for name, value in line.terms.items() if name not in ("source", "dtype", "regime"))


def _words(own: Setting) -> str:
    """``out``, ``autocast, width = 4``."""
    words = []
    for name, value in own:
        if name.startswith(":") and value is not None:
            words.append(setting(name[1:], value))  # type: ignore[arg-type]
        elif name == "cache" and value not in (None, "hot"):
            words.append(f"cache {value}")
        elif name == "variant" and value not in (None, "eager"):
            words.append(str(value))
    return ", ".join(words) or "eager"


def _curve(data: ChartData, regime: str, line: Line, size: str, used: Sequence[Row], named: bool) -> Curve:
    copies = regime == ONE_SHOT
    end, last = line.points[-1], line.rows[-1]
    value = "too noisy" if too_wide(end.low, end.high) else ratio_text(end.y)
    alone = "data stays there" if data.on_accelerators([last]) else data.naming.subject(last)
    words = "" if named else "with copies" if copies else alone
    mark = _mark(crossing_of(line, regime), line, size)
    doubts = frozenset() if copies else frozenset(i for i, row in enumerate(line.rows) if drawn_hollow(row, used))
    return Curve(line.points, data.naming.role(last), f"{value} {words}".strip(), copies, doubts, mark, not copies)


def _mark(crossing: Crossing, line: Line, size: str) -> Mark | None:
    """The crossover where it is known; without an interval the two sizes that it lies between."""
    known = crossing.crossover
    sizes = [point.x for point in line.points]
    if known.size is None or crossing.disputed or crossing.anywhere(sizes[0], sizes[-1]):
        return None
    if known.low is None or known.high is None:
        low, high = _neighbours(known.size, sizes)
        return Mark(low, high, f"{rounded(low, size)} to {rounded(high, size)}")
    if not known.low or known.high == math.inf or too_wide(known.low, known.high):
        return None
    return Mark(known.size, known.size, f"{size_label(size)} ≈ {rounded(known.size, size)}")


def _neighbours(value: float, sizes: Sequence[float]) -> tuple[float, float]:
    return max((x for x in sizes if x <= value), default=sizes[0]), min(
        (x for x in sizes if x >= value), default=sizes[-1]
    )


def rounded(value: float, name: str) -> str:
    """A size to two digits."""
    return size_text(float(f"{value:.2g}"), name)


def since(crossing: Crossing, line: Line, size: str) -> str:
    """``from n ≈ 72``, ``at every size``, ``from 64 to 256``, ``up to n = 8192`` it isn't; ``unsure``."""
    mark, known = _mark(crossing, line, size), crossing.crossover
    sizes = [point.x for point in line.points]
    label = size_label(size)
    if mark and mark.low == mark.high:
        return f"from {mark.words}"
    if mark:
        return f"from between {label} = {rounded(mark.low, size)} and {rounded(mark.high, size)}"
    if known.kind == CROSSES or crossing.disputed:
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
        words = {regime: since(crossing, line, size) for regime, line, crossing in mine}
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
