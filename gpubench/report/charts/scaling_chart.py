"""Charts of several devices: speedup and efficiency against devices, pipelines, phases, bus bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..labels import Names, Row, caption, heading
from ..scaling import ONE_THREAD, SINGLE
from ..sweep import Line, Point
from ..table import records
from .bar_chart import Bar, BarChart, BarPanel, Group
from .line_chart import Curve, LineChart, LinePanel
from .page import ChartData, Figure

IDEAL = "ideal"
_METHODS = ("ddp", "fsdp", "data_parallel", "unsynchronised", "gpipe", "1f1b", IDEAL, SINGLE, ONE_THREAD, "naive")
_LABELS = {
    "ddp": "DistributedDataParallel", "fsdp": "FSDP2", "data_parallel": "DataParallel", "gpipe": "GPipe",
    "1f1b": "1F1B", "unsynchronised": "the same step, nothing exchanged", "naive": "cut, one stage at a time",
    IDEAL: "ideal for this split",
}  # fmt: skip
_NOTE = "1× is one device (of a CPU: one process with one thread). "


def scaling_figures(data: ChartData) -> list[Figure]:
    """Of the cases of several devices; none where there are none."""
    rows = [] if data.scaled is None else records(data.scaled)
    names = data.names
    several = [row for row in rows if row["scaling"] is not None and not row["microbatches"]]
    piped = [row for row in rows if row["scaling"] is not None and row["microbatches"]]
    found = [
        _against(
            several, names, "devices", "scaling-speedup", "Several devices: speedup over one",
            "Items/s over those of one device, against devices", _speedup, "ideal_speedup", slower="one device",
        ),
        _against(
            several, names, "devices", "scaling-efficiency", "Several devices: efficiency",
            "Speedup over one device / devices; 100 % is all that they have", _efficiency, None, unit="%",
        ),
        _against(
            piped, names, "microbatches", "scaling-pipeline", "A model cut into stages: speedup over one device",
            "Items/s over those of one device, against microbatches", _speedup, "ideal_speedup", slower="one device",
        ),
        _bus(rows, names),
        _phases([row for row in rows if row["phases"]], names),
    ]  # fmt: skip
    return [replace(figure, rank=7) for figure in found if figure]


def _speedup(row: Row) -> tuple[float, float, float]:
    return _ranged(row, "scaling")


def _efficiency(row: Row) -> tuple[float, float, float]:
    value, low, high = _ranged(row, "efficiency")
    return 100 * value, 100 * low, 100 * high


def _ranged(row: Row, name: str) -> tuple[float, float, float]:
    """A value and its range; the baseline itself has none."""
    value = row[name]
    return value, row[f"{name}_low"] or value, row[f"{name}_high"] or value


def _against(
    rows: list[Row],
    names: Names,
    axis: str,
    name: str,
    title: str,
    subtitle: str,
    measure: Callable[[Row], tuple[float, float, float]],
    ideal: str | None,
    *,
    unit: str = "",
    slower: str | None = None,
) -> Figure | None:
    """A panel a job, a line a method; with ``ideal``, what the split allows, and one process with all threads."""
    panels, used = [], []
    for label, members in _jobs(rows, names).items():
        methods = dict.fromkeys(row["method"] for row in members if row["devices"] > 1)
        base = [row for row in members if row["method"] == SINGLE and row["baseline_threads"] not in (None, 1)]
        lines: dict[str, list[Row]] = {method: [r for r in members if r["method"] == method] for method in methods}
        lines = {method: own for method, own in lines.items() if own}
        if not lines:
            continue
        curves = []
        for method, own in lines.items():
            points = [Point(float(row[axis]), *measure(row)) for row in own if row["efficiency"] is not None]
            if axis == "devices":
                start = 1.0 if ideal else 100.0
                points = [Point(1.0, start, start, start), *(p for p in points if p.x > 1)]
            curves.append(_curve(method, points, own))
        sizes = sorted({point.x for curve in curves for point in curve.line.points})
        if ideal:
            best = {float(row[axis]): row[ideal] for own in lines.values() for row in own if row[ideal]}
            marks = ({1.0: 1.0} if axis == "devices" else {}) | best
            curves.append(_curve(IDEAL, [Point(x, y, y, y) for x, y in sorted(marks.items())], members))
            if base and base[0]["scaling"] is not None and len(sizes) > 1:
                value = measure(base[0])
                curves.append(_curve(SINGLE, [Point(x, *value) for x in (sizes[0], sizes[-1])], base))
        panels.append(LinePanel(label, axis, tuple(curves)))
        used += members
    if not panels:
        return None
    colours = {curve.line.terms["method"]: curve.colour for panel in panels for curve in panel.curves}
    threads = {row["baseline_threads"] for row in used if row["method"] == SINGLE}
    words = {SINGLE: f"one process, {threads.pop() if len(threads) == 1 else 'all'} threads"}
    keys = tuple((str(words.get(str(m)) or _LABELS.get(str(m), str(m))), c) for m, c in colours.items())
    kinds = sorted({row["uncertainty"] for row in used if row["uncertainty"]})
    note = (_NOTE if ideal else "") + f"Band: {', '.join(kinds)}. "
    chart = LineChart(tuple(panels), keys, (), unit, slower, tuple(used))
    return Figure(name, title, subtitle, caption(used, names, note + chart.cut), chart)


def _curve(method: str, points: list[Point], rows: list[Row]) -> Curve:
    points = sorted(points, key=lambda point: point.x)
    return Curve(Line({"method": method}, tuple(points), rows[-1], tuple(rows)), _colour(method), 0)


def _colour(method: str) -> int:
    """Grey for what is only there to compare with."""
    grey = 6
    free = [name for name in _METHODS if name != IDEAL]
    if method == IDEAL:
        return grey
    place = free.index(method) if method in free else len(free)
    return place if place < grey else place + 1


def _jobs(rows: Iterable[Row], names: Names) -> dict[str, list[Row]]:
    """Rows by what they do: the same network, mode, dtype and kind of device."""
    rows = list(rows)
    devices = len({row["device"] for row in rows}) > 1
    jobs: dict[str, list[Row]] = {}
    for row in rows:
        name = row["workload"].partition(".")[2] or row["workload"]
        words = [name, f"{row['mode']} scaling" if row["mode"] and row["microbatches"] is None else ""]
        words += [str(row["device"])] * devices + [str(row["run"])] * names.several
        jobs.setdefault(" · ".join(word for word in words if word), []).append(row)
    return jobs


def _bus(rows: list[Row], names: Names) -> Figure | None:
    own = [row for row in rows if row["bus_byte_per_s"] and row["nbytes"]]
    if not own:
        return None
    curves = []
    for rank, (word, members) in enumerate(_grouped(own, _ranks).items()):
        points = []
        for row in members:
            times, share = row["_result"].times, row["bus_byte_per_s"] * row["time_s"]
            points.append(Point(float(row["nbytes"]), row["bus_byte_per_s"], share / times.q3_s, share / times.q1_s))
        line = Line({"method": word}, tuple(sorted(points, key=lambda p: p.x)), members[-1], tuple(members))
        curves.append(Curve(line, rank, 0))
    panel = LinePanel("all_reduce", "nbytes", tuple(curves))
    subtitle = "algorithm bandwidth × 2(n − 1)/n, as nccl-tests define it, against message size; higher is better"
    colours = tuple((str(curve.line.terms["method"]), curve.colour) for curve in curves)
    chart = LineChart((panel,), colours, (), "B/s", None, tuple(own))
    note = "Line: median of the slowest rank; band: interquartile range of the rounds. "
    words = caption(own, names, note + chart.cut)
    return Figure("scaling-bus-bandwidth", "all_reduce: bus bandwidth", subtitle, words, chart)


def _ranks(row: Row) -> str:
    over = f" over {row['interconnect']}" if row["interconnect"] else ""
    return f"{row['device'].partition(':')[0]}: {row['devices']} ranks{over}"


def _phases(rows: list[Row], names: Names) -> Figure | None:
    """Where DataParallel's forward pass spends its time, phase by phase."""
    if not rows:
        return None
    order = list(dict.fromkeys(name for row in rows for name in row["_result"].parallel.phases))
    groups = []
    for row in rows:
        bars = [Bar(s, order.index(name)) for name, s in row["_result"].parallel.phases.items() if s > 0]
        name = row["workload"].partition(".")[2]
        groups.append(Group(f"{name}, {row['mode']}, {row['devices']} devices", tuple(bars)))
    chart = BarChart(
        (BarPanel("", "s", tuple(groups)),), tuple((heading(n), i) for i, n in enumerate(order)), "", tuple(rows)
    )
    words = caption(rows, names, "Median of each phase, waited for on every device. ")
    facts = "A forward pass: the batch scattered, the network copied, the replicas run, the outputs gathered"
    return Figure("scaling-phases", "DataParallel: where the time goes", facts, words, chart)


def _grouped(rows: list[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
