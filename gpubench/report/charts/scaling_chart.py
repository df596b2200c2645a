"""What several devices bring: efficiency as bars with the ideal as a tick; on demand collectives and phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...runfile.quantities import counted, text
from .. import words
from ..rows import grouped, number
from ..scaling import Scaled
from ..study import Study
from ..sweeps import Point
from .layouts import Curve, Panel, RowLabel, SharedBar, StackedBars, row_axes, row_pitch, rows_height
from .page import MOST_CURVES, PX, SMALL, Figure, Key, Page, linear_axis
from .selection import LEAST_VALUES, OTHER_ROLES, captioned, line_panels

_MOST_ROWS, _MOST_PHASES = 16, 4


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
        page = Page(figure, theme, rows_height(self.bars, row_pitch(1, figure.narrow)), keys)
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


def scaling_figures(study: Study) -> list[Figure]:
    """None where no benchmark used several devices."""
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
    """A group a job: the same network, mode and kind of device; a bar a method and number of devices."""
    bars: list[EfficiencyBar] = []
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
            bars.append(EfficiencyBar(job, how.method or "", detail, *known, ideal))
            used.append(each)
    if len(bars) < LEAST_VALUES:
        return []
    best = max(bars[:_MOST_ROWS], key=lambda bar: bar.value)
    subtitle = f"Most: {best.name} on {best.detail}, {best.value:.0%}. Speedup over one device / number of devices"
    kinds = words.listed(sorted({each.uncertainty for each in used if each.uncertainty}))
    left = len(bars[_MOST_ROWS:])
    note = (
        f"On a CPU one device is one process with one thread. Thin line: {kinds}. "
        + f"{left} more not shown. " * bool(left)
    )
    name = "scaling-efficiency" if what == "Several devices" else "scaling-pipeline"
    figure = Figure(name, "scaling", f"{what}: efficiency", subtitle, "", EfficiencyBars(tuple(bars[:_MOST_ROWS])))
    return [captioned(figure, study, [each.row for each in used], note)]


def _job(study: Study, each: Scaled) -> str:
    mode = f"{each.parallel.mode} scaling" if each.parallel.mode and not each.parallel.microbatches else ""
    return " · ".join(filter(None, (words.name(each.row.result), mode, study.names.short(each.row))))


def _nbytes(each: Scaled) -> float | None:
    return number(each.row.result, "nbytes")


def _bandwidth(study: Study, scaled: Sequence[Scaled]) -> list[Figure]:
    """Of collectives, a line a number of ranks."""
    lines: dict[str, list[Point]] = {}
    for each in sorted(scaled, key=lambda each: _nbytes(each) or 0):
        times, rate, share = each.row.times, each.bus_byte_per_s or 0.0, each.row.time_s
        point = Point(_nbytes(each) or 0, rate, rate * share / times.q3_s, rate * share / times.q1_s)
        over = f" over {each.parallel.interconnect}" * bool(each.parallel.interconnect)
        lines.setdefault(f"{each.parallel.devices} ranks{over}", []).append(point)
    curves = [
        Curve(tuple(points), role, f"{text(points[-1].y, 'B/s')}, {ranks}")
        for role, (ranks, points) in zip(OTHER_ROLES, lines.items(), strict=False)
    ]
    chart = line_panels([Panel("", "nbytes", tuple(curves[:MOST_CURVES]), "bytes")], "B/s", ())
    if chart is None:
        return []
    title = "Bus bandwidth of all_reduce by message size"
    subtitle = "Algorithm bandwidth × 2(n − 1)/n, as nccl-tests define it; higher is better"
    note = "Point: median of the slowest rank; bar: interquartile range of the rounds. "
    figure = Figure("scaling-bus-bandwidth", "scaling", title, subtitle, "", chart, default=False)
    return [captioned(figure, study, [each.row for each in scaled], note)]


def _phases(study: Study, scaled: Sequence[Scaled]) -> list[Figure]:
    """Where DataParallel's forward pass spends its time, phase by phase."""
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
    return [captioned(figure, study, [each.row for each in scaled], note)]
