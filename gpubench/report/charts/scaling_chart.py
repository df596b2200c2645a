"""What several devices bring: efficiency as bars with the ideal as a tick; on demand collectives and phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...format import seconds_text, text
from ..labels import Row, grouped, heading
from ..sweep import Point
from ..table import records
from .gpu_time_chart import SharedBar, StackedBars
from .layouts import Curve, LinePanels, Panel, RowLabel, row_axes, rows_height
from .material import ChartData
from .page import MOST_CURVES, Figure, Key, Page, linear_axis
from .theme import ACCELERATORS, PHASES, PX, SMALL
from .wording import caption, model_name

_METHODS = {
    "ddp": "DistributedDataParallel", "fsdp": "FSDP2", "data_parallel": "DataParallel", "gpipe": "GPipe",
    "1f1b": "1F1B", "unsynchronised": "without communication", "naive": "naive split",
}  # fmt: skip
_COUNTED = ("ddp", "fsdp", "data_parallel", "gpipe")
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class EfficiencyBar(RowLabel):
    """A share of what the devices have, with its interval; ``ideal`` is the most that the split allows."""

    value: float
    low: float
    high: float
    ideal: float


@dataclass(frozen=True, slots=True)
class EfficiencyBars:
    """Bars in groups, a group a job."""

    bars: tuple[EfficiencyBar, ...]

    def draw(self, figure: Figure, theme: str) -> Page:
        """Bars from 0 %, the interval as a thin line, the ideal as a tick."""
        keys = [Key("measured", "accelerator0", "bar"), Key("ideal for this split", "text", "tick")]
        page = Page(figure, theme, rows_height(self.bars), keys)
        axes, middles = row_axes(page, self.bars, 40)
        most = max(max(bar.value, bar.ideal, min(bar.high, 2 * bar.value)) for bar in self.bars)
        axes.set_xlim(0, max(1.0, most) * 104)
        linear_axis(axes.xaxis, "%")
        axes.grid(True, axis="x")
        ink = page.ink("text")
        for bar, middle in zip(self.bars, middles, strict=True):
            axes.barh([middle], [100 * bar.value], height=14, color=page.ink("accelerator0"), zorder=3)
            ends = [100 * max(0.0, bar.low), min(100 * bar.high, axes.get_xlim()[1])]
            axes.plot(ends, [middle] * 2, color=ink, linewidth=1.2, zorder=4)
            axes.plot([100 * bar.ideal] * 2, [middle - 9, middle + 9], color=ink, linewidth=2.4, zorder=5)
            at = max(100 * bar.value, ends[1])
            at = 100 * bar.ideal if at - 2 < 100 * bar.ideal < at + 9 else at
            page.note(axes, f"{bar.value:.0%}", (at, middle), (5, 0), va="center", zorder=6, fontsize=SMALL * PX,
                      fontweight="bold", color=ink, annotation_clip=False)  # fmt: skip
        return page


def scaling_figures(data: ChartData) -> list[Figure]:
    """None where no case used several devices."""
    rows = [] if data.scaled is None else records(data.scaled)
    bars = [row for row in rows if row["efficiency"] is not None and row["devices"] > 1]
    collectives = [row for row in rows if row["bus_byte_per_s"] and row["nbytes"]]
    figures = [
        _efficiency(data, [row for row in bars if not row["microbatches"]], "scaling-efficiency", "devices"),
        _efficiency(data, [row for row in bars if row["microbatches"]], "scaling-pipeline", "microbatches"),
        _bandwidth(data, collectives),
        _phases(data, [row for row in rows if row["phases"]]),
    ]
    return [figure for figure in figures if figure]


def _efficiency(data: ChartData, rows: list[Row], name: str, axis: str) -> Figure | None:
    """A group a job: the same network, mode and kind of device; a bar a method and number of devices."""
    bars, used = [], []
    for job, members in grouped(rows, lambda row: _job(row, data)).items():
        for row in sorted(members, key=lambda row: (str(row["method"]), row["devices"], row["microbatches"] or 0)):
            count = row["devices"]
            ideal = (row["ideal_speedup"] or count) / count
            pieces = row["microbatches"]
            detail = f"{count} devices" + (f", {pieces} microbatch{'es' * (pieces > 1)}" if pieces else "")
            label = _METHODS.get(str(row["method"]), str(row["method"]))
            value = row["efficiency"]
            low, high = row["efficiency_low"] or value, row["efficiency_high"] or value
            bars.append(EfficiencyBar(job, label, detail, value, low, high, ideal))
            used.append(row)
    if len(bars) < 3:
        return None
    drawn = list(zip(bars, used, strict=True))[:_MOST_ROWS]
    best = max(drawn, key=lambda pair: pair[0].value * (pair[1]["method"] in _COUNTED))[0]
    what = "Pipeline" if axis == "microbatches" else "Several devices"
    title = f"{what}: {best.name} reaches {best.value:.0%} efficiency ({best.detail})"
    subtitle = "Speedup over one device / number of devices; on a CPU one device is one process with one thread"
    kinds = ", ".join(sorted({row["uncertainty"] for row in used if row["uncertainty"]}))
    left = len(bars) - _MOST_ROWS
    note = f"Thin line: {kinds}. " + (f"{left} more not shown. " if left > 0 else "")
    chart = EfficiencyBars(tuple(bars[:_MOST_ROWS]))
    words = caption(used, data.naming, note, "")
    return Figure(name, "scaling", title, subtitle, words, chart, 7.0 + 0.1 * (axis == "microbatches"))


def _job(row: Row, data: ChartData) -> str:
    mode = f"{row['mode']} scaling" if row["mode"] and row["microbatches"] is None else ""
    return " · ".join(filter(None, (model_name(row["workload"]), mode, data.naming.short(row))))


def _bandwidth(data: ChartData, rows: list[Row]) -> Figure | None:
    if len(rows) < 3:
        return None
    curves = []
    for role, members in zip(ACCELERATORS, list(grouped(rows, _ranks).values())[:MOST_CURVES], strict=False):
        points = []
        for row in sorted(members, key=lambda row: row["nbytes"]):
            times, moved = row["_result"].times, row["bus_byte_per_s"] * row["time_s"]
            points.append(Point(float(row["nbytes"]), row["bus_byte_per_s"], moved / times.q3_s, moved / times.q1_s))
        curves.append(Curve(tuple(points), role, f"{text(points[-1].y, 'B/s', 2)}, {_ranks(members[0])}"))
    best = max(curve.points[-1].y for curve in curves)
    chart = LinePanels((Panel("", "nbytes", tuple(curves)),), "B/s")
    subtitle = "Algorithm bandwidth × 2(n − 1)/n, as nccl-tests define it, against message size; higher is better"
    words = caption(rows, data.naming, "Point: median of the slowest rank; bar: interquartile range of the rounds. ")
    title = f"all_reduce: bus bandwidth up to {text(best, 'B/s', 2)} with the largest messages"
    return Figure("scaling-bus-bandwidth", "scaling", title, subtitle, words, chart, 7.2, False)


def _ranks(row: Row) -> str:
    over = f" over {row['interconnect']}" if row["interconnect"] else ""
    return f"{row['devices']} ranks{over}"


def _phases(data: ChartData, rows: Sequence[Row]) -> Figure | None:
    """Where DataParallel's forward pass spends its time, phase by phase."""
    if not rows:
        return None
    phases = list(dict.fromkeys(name for row in rows for name in row["_result"].parallel.phases))[: len(PHASES)]
    roles = dict(zip(phases, PHASES, strict=False))
    bars = []
    for row in rows:
        parts = tuple((roles[n], s) for n, s in row["_result"].parallel.phases.items() if n in roles and s > 0)
        if parts:
            detail = f"{row['mode']}, {row['devices']} devices"
            bars.append(SharedBar("DataParallel, forward pass", model_name(row["workload"]), detail, parts))
    if len(bars) * len(phases) < 3:
        return None
    keys = tuple(Key(heading(name), role, "bar") for name, role in roles.items())
    longest = max(bars[:_MOST_ROWS], key=lambda bar: bar.total)
    words = caption(rows, data.naming, "Median of each phase, synchronized on every device. ", "")
    title = f"DataParallel: where the {seconds_text(longest.total)} of a forward pass go"
    facts = "The batch scattered, the network copied, the replicas run, the outputs gathered"
    chart = StackedBars(tuple(bars[:_MOST_ROWS]), keys)
    return Figure("scaling-phases", "scaling", title, facts, words, chart, 7.3, False)
