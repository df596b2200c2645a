"""What several devices bring: efficiency as bars with the ideal as a tick; on demand collectives and phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...runfile.quantities import counted, text
from .. import words
from ..study import Point, Scaled, Study, grouped, number
from .layouts import Curve, NamedRow, NamedRows, Panel, RowMark, SharedBar, StackedBars
from .page import MOST_CURVES, Figure, Key
from .selection import LEAST_VALUES, OTHER_ROLES, brief, captioned, line_panels

_MOST_ROWS, _MOST_PHASES = 16, 4
_CONTROL = "unsynchronised"
"""The method without communication: a reference for the other methods, not an answer."""


def scaling_figures(study: Study) -> list[Figure]:
    """Return the pictures of scaling; none if no benchmark used several devices."""
    bars = [each for each in study.scaled if each.efficiency and each.parallel.devices > 1]
    pipelines = [each for each in bars if each.parallel.microbatches]
    figures = [
        *_efficiency(study, [each for each in bars if not each.parallel.microbatches], "Several devices"),
        *_efficiency(study, pipelines, "Pipeline"),
        *_bandwidth(study, [each for each in study.scaled if each.bus_byte_per_s and _nbytes(each)]),
        *_phases(study, [each for each in study.scaled if each.parallel.phases]),
    ]
    return [replace(figure, rank=7 + 0.1 * i) for i, figure in enumerate(figures)]


def _efficiency(study: Study, scaled: Sequence[Scaled], what: str) -> list[Figure]:
    """Return a picture with a group for each job (the same network, mode and kind of device) and a bar for each method
    and number of devices."""
    bars: list[NamedRow] = []
    used: list[Scaled] = []
    for job, members in grouped(scaled, lambda each: _job(study, each)).items():
        order = [(each.parallel.method, each.parallel.devices, each.parallel.microbatches or 0) for each in members]
        for _, each in sorted(zip(order, members, strict=True), key=lambda entry: entry[0]):
            how, known = each.parallel, each.efficiency
            assert known is not None
            detail = counted(how.devices, "device")
            if how.microbatches:
                detail += f", {how.microbatches} microbatch{'es' * (how.microbatches > 1)}"
            ideal = (how.ideal_speedup or how.devices) / how.devices
            value, low, high = (100 * share for share in known)
            mark = RowMark(value, "accelerator0", f"{value:.0f}%{'*' * each.row.noisy}", low, high, 100 * ideal)
            bars.append(NamedRow(job, how.method or "", detail, (mark,)))
            used.append(each)
    if len(bars) < LEAST_VALUES:
        return []
    best = max(bars[:_MOST_ROWS], key=lambda bar: (bar.name != _CONTROL, bar.marks[0].value or 0.0))
    subtitle = (
        f"Most: {best.name} on {best.detail}, {best.marks[0].value:.0f}%. Speedup over one device / number of devices"
    )
    kinds = words.listed(sorted({each.uncertainty for each in used if each.uncertainty}))
    left = len(bars[_MOST_ROWS:])
    note = (
        f"On a CPU one device is one process with one thread. Thin line: {kinds}. "
        + f"{left} more not shown. " * bool(left)
    )
    name = "scaling-efficiency" if what == "Several devices" else "scaling-pipeline"
    looks = Key("measured", "accelerator0", "bar"), Key("ideal for this split", "text", "tick")
    chart = NamedRows(tuple(bars[:_MOST_ROWS]), "%", looks)
    figure = Figure(name, "scaling", f"{what}: efficiency", subtitle, "", chart)
    return [captioned(figure, study, [each.row for each in used], note)]


def _job(study: Study, each: Scaled) -> str:
    mode = f"{each.parallel.mode} scaling" if each.parallel.mode and not each.parallel.microbatches else ""
    return " · ".join(filter(None, (words.name(each.row.result), mode, brief(study.names.of(each.row)))))


def _nbytes(each: Scaled) -> float | None:
    return number(each.row.result, "nbytes")


def _bandwidth(study: Study, scaled: Sequence[Scaled]) -> list[Figure]:
    """Return a picture of the bandwidth of collectives, with a line for each number of ranks."""
    lines: dict[str, list[Point]] = {}
    for each in sorted(scaled, key=lambda each: _nbytes(each) or 0):
        times, rate, share = each.row.times, each.bus_byte_per_s or 0.0, each.row.time_s
        point = Point(_nbytes(each) or 0, rate, rate * share / times.q3_s, rate * share / times.q1_s)
        over = f" over {each.parallel.interconnect}" * bool(each.parallel.interconnect)
        lines.setdefault(f"{each.parallel.devices} ranks{over}", []).append(point)
    curves = [
        Curve(tuple(points), role, text(points[-1].y, "B/s"))
        for role, points in zip(OTHER_ROLES[:MOST_CURVES], lines.values(), strict=False)
    ]
    legend = [Key(ranks, curve.role) for ranks, curve in zip(lines, curves, strict=False)]
    chart = line_panels([Panel("", "nbytes", tuple(curves), "bytes")], "B/s", legend)
    if chart is None:
        return []
    title = "Bus bandwidth of all_reduce by message size"
    subtitle = "Algorithm bandwidth × 2(n − 1)/n, as nccl-tests define it; higher is better"
    note = "Point: median of the slowest rank; bar: interquartile range of the rounds. "
    figure = Figure("scaling-bus-bandwidth", "scaling", title, subtitle, "", chart, default=False)
    return [captioned(figure, study, [each.row for each in scaled], note, "")]


def _phases(study: Study, scaled: Sequence[Scaled]) -> list[Figure]:
    """Return a picture of the time that DataParallel's forward pass spends in each phase."""
    phases = list(dict.fromkeys(name for each in scaled for name in each.parallel.phases))[:_MOST_PHASES]
    bars = []
    for each in scaled[:_MOST_ROWS]:
        detail = f"{each.parallel.mode}, {counted(each.parallel.devices, 'device')}"
        seconds = tuple(each.parallel.phases.get(name, 0.0) for name in phases)
        bars.append(SharedBar("", words.name(each.row.result), detail, seconds))
    if len(bars) * len(phases) < LEAST_VALUES:
        return []
    title = "Where the time of DataParallel's forward pass goes"
    subtitle = "The batch scattered, the network copied, the replicas run, the outputs gathered"
    chart = StackedBars(tuple(bars), tuple(map(words.capitalised, phases)))
    figure = Figure("scaling-phases", "scaling", title, subtitle, "", chart, default=False)
    note = "Median of each phase, synchronized on every device. "
    return [captioned(figure, study, [each.row for each in scaled], note, "")]
