"""Roofline: how close each workload comes to what its device was seen to do at best, one panel a device.

S. Williams, A. Waterman, D. Patterson: Roofline, Communications of the ACM 52(4), 2009. The peaks are those measured
at the start of the same run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ...runfile.quantities import shorten, text
from ...runfile.schema import Ceilings
from .. import words
from ..study import Measured, Study, grouped
from .page import MARGIN, TINY, Figure, Key, Page, Place, log_axis, spread
from .selection import LEAST_VALUES, add_caption, not_drawn

_FASTER = 1.1
"""A memory level whose best is less than this above a larger one's has no line of its own: the difference is noise."""
_HEIGHT = 400.0
_LEFT, _GUTTER = 72.0, 150.0
"""Pixels for the values left of the panel, and for the names of the peaks right of it."""
_MOST_NAMED = 16
_MOST_COVERED = 4.0
"""What a name may lie on, in dots or as many pieces of lines; beyond that only the subtitle's is written."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A case; ``label`` is empty for all but the best of its workload, and ends in the share that a title names."""

    x: float
    y: float
    dtype: str
    label: str = ""
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Roof:
    """A measured peak in FLOP/s of a dtype, or in B/s of a memory level where ``dtype`` is empty."""

    label: str
    peak: float
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Roofline:
    """All dots of one device under its roofs."""

    dots: tuple[Dot, ...]
    roofs: tuple[Roof, ...]

    def draw(self, figure: Figure, theme: str) -> Page:
        """Peaks as lines with their names beside them, the best of each workload named, the others faint."""
        dtypes = dict.fromkeys(dot.dtype for dot in self.dots)
        page = Page(figure, theme, _HEIGHT, [Key(dtype, dtype, "mark") for dtype in dtypes])
        room = page.width - 2 * MARGIN - _LEFT - _GUTTER
        axes = page.axes(MARGIN + _LEFT, room, page.top + 6, page.bottom - 40)
        x, y = self._limits()
        axes.set(xscale="log", yscale="log", xlim=x, ylim=y)
        log_axis(axes.yaxis, *y, "FLOP/s", 8)
        log_axis(axes.xaxis, *x, "FLOP/B", min(8, int(page.size(axes)[0] / 50)))
        axes.set_xticklabels([f"{place:,g}" for place in axes.get_xticks()])
        axes.set_xlabel("FLOP per byte of minimum memory traffic", labelpad=2)
        axes.grid(True)
        self._draw_roofs(page, axes, x, y)
        for dot in sorted(self.dots, key=lambda dot: bool(dot.label)):
            named = bool(dot.label)
            looks = {"markersize": 6.5, "zorder": 5} if named else {"markersize": 4.5, "zorder": 3, "alpha": 0.3}
            page.mark(axes, dot.x, dot.y, dot.dtype, hollow=dot.doubtful, **looks)
        self._name_dots(page, axes)
        return page

    def _limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        x, y = [dot.x for dot in self.dots], [dot.y for dot in self.dots]
        flat = [roof.peak for roof in self.roofs if roof.dtype]
        slopes = [roof.peak for roof in self.roofs if not roof.dtype]
        x += [max(flat) / min(slopes) * 3] if flat and slopes else []
        return (min(x) / 2, max(x) * 2), (min(y) / 2.5, max([*y, *flat]) * 2.2)

    def _draw_roofs(self, page: Page, axes: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
        """A dtype's line begins where the fastest memory could feed it; a memory's line ends at the highest peak."""
        flat, slopes = [r for r in self.roofs if r.dtype], [r for r in self.roofs if not r.dtype]
        top = max((roof.peak for roof in flat), default=y[1])
        fastest = max((slope.peak for slope in slopes), default=math.inf)
        box, height = axes.get_position(), page.size(axes)[1]
        heights = [math.log(roof.peak / y[0]) / math.log(y[1] / y[0]) * height for roof in flat]
        for roof, place in zip(flat, spread(heights, 15, 4, height - 4), strict=True):
            start = max(x[0], roof.peak / fastest)
            axes.plot([start, x[1]], [roof.peak] * 2, color=page.ink(roof.dtype), linewidth=1.4, zorder=2)
            page.text(box.x1 * page.width + 6, (1 - box.y0) * page.height - place + 4, roof.label, TINY, roof.dtype)
        for slope in slopes:
            ends = [x[0], min(x[1], top / slope.peak)]
            axes.plot(ends, [end * slope.peak for end in ends], color=page.ink("muted"), linewidth=1.2, zorder=2)
            self._name_slope(page, axes, slope, ends, slope.peak == fastest)

    def _name_slope(self, page: Page, axes: Axes, slope: Roof, ends: Sequence[float], above: bool) -> None:
        """Its name along the middle of its line; above it for the fastest memory, below it for the others."""
        (left, right), (low, high), (width, height) = axes.get_xlim(), axes.get_ylim(), page.size(axes)
        angle = math.degrees(math.atan2(height / math.log(high / low), width / math.log(right / left)))
        at = math.sqrt(max(ends[0], low / slope.peak) * min(ends[1], high / slope.peak))
        y, side = (5, "bottom") if above else (-5, "top")
        page.note(axes, slope.label, (at, at * slope.peak), (0, y), rotation=angle, rotation_mode="anchor", ha="center",
                  va=side, zorder=4, bbox=page.halo())  # fmt: skip

    def _name_dots(self, page: Page, axes: Axes) -> None:
        """Each name beside its dot where it touches no other name and few dots and lines, with a leader to its dot."""
        taken: list[Place] = []
        named = [dot for dot in self.dots if dot.label]
        covered = page.covered(axes) + 3 * [page.spot(axes, (dot.x, dot.y)) for dot in named]
        for dot in sorted(named, key=lambda dot: (not dot.label.endswith("%"), -dot.y)):  # first that of the title
            most = math.inf if dot.label.endswith("%") else _MOST_COVERED
            if len(taken) < _MOST_NAMED:
                page.name(axes, dot.label, (dot.x, dot.y), taken, covered, most)


def roofline_figures(study: Study) -> list[Figure]:
    """Return a picture for each device whose peaks were measured; by default a report shows those of the GPUs, or of
    the CPU if there is no GPU."""
    figures: list[Figure] = []
    rows = sorted((row for row in study.single_device if not row.library), key=study.names.order)
    for rank, members in enumerate(grouped(rows, study.names.order).values()):
        first = members[0]
        ceilings = first.run.ceilings.get(first.result.device)
        # Bytes of a benchmark on devices of two kinds move over the link and aren't in the device's memory.
        work = [row for row in members if len({name.partition(":")[0] for name in row.result.devices}) < 2]
        known = [row for row in work if row.result.work.flops and row.result.work.bytes]
        sound = [row for row in known if not row.quality.doubt]
        tallest = [max(each, key=_flop_rate) for each in grouped(sound, lambda row: row.result.workload).values()]
        reached = [row for row in tallest if 0 < (row.utilisation or 0) <= 1]
        best = max(reached, key=lambda row: row.utilisation or 0, default=None)
        chart = _roofline(sound, tallest, best, ceilings) if ceilings and sound else None
        if not chart or len(chart.dots) < LEAST_VALUES or not chart.roofs:
            continue
        place = f"{words.name(best.result)} in {best.result.compute_dtype}, {words.share_of_peak(best)}" if best else ""
        subtitle = f"Closest to its peak: {place}. " * bool(place) + "Work on a line is at the hardware limit"
        note = "Large: the best result of each benchmark, named if the name fits. "
        note += f"Peaks were measured at the start of the run. {not_drawn(work, known, 'FLOPs or bytes unknown')}"
        shown = first.on_accelerator == bool(study.names.accelerators) and rank < 2
        name = f"roofline-{first.result.device}" + f"-{first.run_name}" * study.several_runs
        title = f"Roofline: {study.names.of(first)}"
        figure = Figure(name, "roofline", title, subtitle, "", chart, 3 + rank / 10, shown)
        figures.append(
            add_caption(figure, study, sound, note, "Hollow", [row.quality.doubt for row in known if row.quality.doubt])
        )
    return figures


def _flop_rate(row: Measured) -> float:
    return (row.result.work.flops or 0.0) / row.time_s


def _roofline(
    rows: Sequence[Measured], tallest: Sequence[Measured], best: Measured | None, ceilings: Ceilings
) -> Roofline:
    names = {id(row): words.name(row.result) for row in tallest}
    names |= {id(best): f"{names[id(best)]} {words.share_of_peak(best)}"} if best else {}
    dots = []
    for row in rows:
        rate = _flop_rate(row)
        intensity = (row.result.work.flops or 0.0) / (row.result.work.bytes or 1.0)
        dots.append(Dot(intensity, rate, row.result.compute_dtype, names.get(id(row), ""), row.quality.noisy))
    used = {dot.dtype for dot in dots}
    flat = [
        Roof(f"{shorten(dtype, 16)} {text(rate, 'FLOP/s')}", rate, dtype)
        for dtype, rate in ceilings.throughput.items()
        if dtype in used
    ]
    return Roofline(tuple(dots), (*flat, *_levels(ceilings)))


def _levels(ceilings: Ceilings) -> list[Roof]:
    """The best access pattern of each level that is faster than all larger ones, memory first.

    A small cache that reads slower than a large one shows what a call costs and not what the cache can do.
    """
    levels = []
    highest = 0.0
    for level in dict.fromkeys(entry.level for entry in sorted(ceilings.bandwidth, key=lambda e: -e.footprint_bytes)):
        best = max((e for e in ceilings.bandwidth if e.level == level), key=lambda e: e.byte_per_s)
        if best.byte_per_s > _FASTER * highest and not level.endswith("+"):  # l3+ is partly cache, partly memory
            levels.append(Roof(f"{shorten(level or 'memory', 16)} {text(best.byte_per_s, 'B/s')}", best.byte_per_s))
        highest = max(highest, best.byte_per_s)
    return levels
