"""Roofline: how close each workload comes to what its device was seen to do at best, one panel a device.

S. Williams, A. Waterman, D. Patterson: Roofline, Communications of the ACM 52(4), 2009. The peaks are those measured
at the start of the same run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ...format import shorten, text
from ...runfile.schema import Ceilings
from ...runfile.utilisation import PLAUSIBLE, compute_dtype
from ..judgement import withheld
from ..labels import Row, family, grouped, library
from .material import ChartData
from .page import MARGIN, Figure, Key, Page, log_axis, spread, text_width
from .theme import DTYPE_ROLES, PX, TINY
from .wording import caption, hollow_marks, title_name, warning, workload_name

_FASTER = 1.1
"""A memory level whose best is less than this above a larger one's has no line of its own: the difference is noise."""
_HEIGHT = 400.0
_GUTTER = 150.0
"""Pixels right of the panel for the names of the peaks."""
_WORD, _DOT = 13.0, 8.0
_MOST_NAMED = 16


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
        dtypes = [dtype for dtype in DTYPE_ROLES if any(dot.dtype == dtype for dot in self.dots)]
        page = Page(figure, theme, _HEIGHT, [Key(dtype, dtype, "mark") for dtype in dtypes])
        axes = page.axes(MARGIN + 72, page.width - 2 * MARGIN - 72 - _GUTTER, page.top + 6, page.bottom - 40)
        x, y = self._limits()
        axes.set(xscale="log", yscale="log", xlim=x, ylim=y)
        log_axis(axes.yaxis, *y, "FLOP/s", 8)
        log_axis(axes.xaxis, *x, "FLOP/B", 8)
        axes.set_xticklabels([f"{place:,g}" for place in axes.get_xticks()])
        axes.set_xlabel("FLOP per byte of minimum memory traffic", labelpad=2)
        axes.grid(True)
        self._draw_roofs(page, axes, x, y)
        for dot in sorted(self.dots, key=lambda dot: bool(dot.label)):
            named, role = bool(dot.label), dot.dtype if dot.dtype in DTYPE_ROLES else "muted"
            looks = {"markersize": 6.5, "zorder": 5} if named else {"markersize": 4.5, "zorder": 3, "alpha": 0.3}
            page.mark(axes, dot.x, dot.y, role, hollow=dot.doubtful, **looks)
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
            role = roof.dtype if roof.dtype in DTYPE_ROLES else "muted"
            start = max(x[0], roof.peak / fastest)
            axes.plot([start, x[1]], [roof.peak] * 2, color=page.ink(role), linewidth=1.4, zorder=2)
            page.text(box.x1 * page.width + 6, (1 - box.y0) * page.height - place + 4, roof.label, TINY, role)
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
        size = page.size(axes)
        scale = axes.transData + axes.transAxes.inverted()
        spots = {dot: tuple(map(float, scale.transform((dot.x, dot.y)) * size)) for dot in self.dots}
        marks = [*spots.values(), *(spots[dot] for dot in self.dots if dot.label for _ in range(3))]
        for line in axes.lines:
            ends = scale.transform(line.get_xydata()) * size
            if len(ends) == 2:
                marks += [tuple(map(float, ends[0] + (ends[1] - ends[0]) * i / 60)) for i in range(61)]
        taken: list[tuple[float, float, float]] = []
        named = (dot for dot in self.dots if dot.label)  # first the one that the title names
        for dot in sorted(named, key=lambda dot: (not dot.label.endswith("%"), -dot.y))[:_MOST_NAMED]:
            wide = text_width(dot.label, TINY)
            place = _free(spots[dot], wide, size, taken, marks)
            if place:
                taken.append((*place, wide))
                offset = (place[0] - spots[dot][0]) * PX, (place[1] - spots[dot][1] - 4) * PX
                leader = {"arrowstyle": "-", "linewidth": 0.6, "color": page.ink("muted"), "shrinkA": 0, "shrinkB": 4}
                page.note(axes, dot.label, (dot.x, dot.y), offset, color=page.ink("text"), arrowprops=leader, zorder=9,
                          bbox=page.halo())  # fmt: skip


def _free(
    spot: Sequence[float], wide: float, size: tuple[float, float], taken: list[tuple[float, float, float]],
    dots: Iterable[Sequence[float]],
) -> tuple[float, float] | None:  # fmt: skip
    """Left end and middle of the words, near and on few ``dots``; None where they would lie on other words."""
    places: list[tuple[float, tuple[float, float]]] = []
    for reach in (0, 5, 12, 20):
        for x, y in ((8, 0), (-wide - 8, 0), (-wide / 2, 13), (-wide / 2, -13), (8, 10), (8, -10), (-wide - 8, 10)):
            left, middle = spot[0] + x + math.copysign(reach, x), spot[1] + y + (math.copysign(reach, y) if y else 0)
            right = left + wide
            inside = 0 <= left <= size[0] - wide and 6 <= middle <= size[1] - 6
            if inside and all(right < x0 or x0 + other < left or abs(middle - y0) >= _WORD for x0, y0, other in taken):
                hits = sum(left - _DOT / 2 < x0 < right + _DOT / 2 and abs(y0 - middle) < _DOT for x0, y0 in dots)
                places.append((hits + reach / 8, (left, middle)))
    return min(places, key=lambda place: place[0])[1] if places else None


def roofline_figures(data: ChartData) -> list[Figure]:
    """One a device whose peaks were measured: by default the GPUs', or the CPU's where there is no GPU."""
    figures = []
    accelerated = bool(data.on_accelerators(data.rows))
    rows = sorted((row for row in data.rows if not library(row)), key=data.naming.order)
    for rank, members in enumerate(grouped(rows, data.naming.order).values()):
        first = members[0]
        ceilings = first["_run"].ceilings.get(first["device"])
        known = [row for row in members if _has_intensity(row)]
        own = [row for row in known if not withheld(row)]
        tallest = [max(each, key=_flop_rate) for each in grouped(own, lambda row: row["workload"]).values()]
        reached = [row for row in tallest if 0 < (row["utilisation"] or 0) <= 1]
        best = max(reached, key=lambda row: row["utilisation"], default=None)
        chart = _roofline(own, tallest, best, ceilings) if ceilings and own else None
        if not chart or len(chart.dots) < 3 or not chart.roofs:
            continue
        title = subject = f"Roofline of the {data.naming.device(first)}"
        if best:
            title += f": {title_name(best['workload'])} at {best['utilisation']:.0%} of its peak, in {_computed(best)}"
        which = "is named" if len(tallest) <= _MOST_NAMED else "is large, the fastest are named"
        subtitle = f"Roofline: work on a line is at the hardware limit; the best result of each workload {which}"
        note = "Peaks were measured at the start of the run. "
        note += "Peaks were measured while the machine was busy and are too low. " * any(map(_beyond, known))
        words = caption(own, data.naming, note, left_out=len(known) - len(own))
        shown = bool(data.on_accelerators([first])) == accelerated and rank < 2
        file = f"roofline-{first['device']}" + f"-{first['run']}" * data.naming.several
        figure = Figure(file, "roofline", title, subtitle, words, chart, 3 + rank / 10, shown, warning(own), subject)
        figures.append(figure)
    return figures


def _beyond(row: Row) -> bool:
    """Whether it beats a peak of a busy machine by more than noise; of others that is a flag of the result."""
    busy = any(flag.name == "contended" for flag in row["_run"].flags)
    implausible = any(flag.name == "implausible" for flag in row["_result"].flags)
    return busy and not implausible and (row["utilisation"] or 0) > PLAUSIBLE


def _has_intensity(row: Row) -> bool:
    """Whether its FLOPs and bytes are known, and these are of its device's memory: those of a case on devices of two
    kinds cross the link between them."""
    result = row["_result"]
    link = len({name.partition(":")[0] for name in result.devices}) > 1
    return bool(result.work.flops and result.work.bytes and not link)


def _flop_rate(row: Row) -> float:
    return float(row["_result"].work.flops / row["time_s"])


def _computed(row: Row) -> str:
    """The dtype that is computed in: under autocast another than that of the data."""
    return compute_dtype(row["dtype"] or "", row["variant"] or "", row["_result"].precision)


def _roofline(rows: list[Row], tallest: Sequence[Row], best: Row | None, ceilings: Ceilings) -> Roofline:
    """Dots of all ``rows``, names of those that are the ``tallest`` of their workload."""
    names = dict(zip(map(id, tallest), _names([row["workload"] for row in tallest]), strict=True))
    names |= {id(best): f"{names[id(best)]} {best['utilisation']:.0%}"} if best else {}
    hollow = hollow_marks(rows, rows)
    dots = []
    for i, row in enumerate(rows):
        work = row["_result"].work
        dots.append(Dot(work.flops / work.bytes, _flop_rate(row), _computed(row), names.get(id(row), ""), i in hollow))
    used = {dot.dtype for dot in dots}
    flat = [
        Roof(f"{shorten(dtype, 16)} {text(rate, 'FLOP/s')}", rate, dtype)
        for dtype, rate in ceilings.throughput.items()
        if dtype in used
    ]
    return Roofline(tuple(dots), (*flat, *_levels(ceilings)))


def _names(workloads: Sequence[str]) -> list[str]:
    """``BERT``; ``serving BERT`` where the name alone is that of two workloads, or of a way to compute one."""
    names = list(map(workload_name, workloads))
    families = [family(workload).replace("_", " ") for workload in workloads]
    return [
        f"{kind} {name}" if names.count(name) > 1 or kind == "attention" else name
        for kind, name in zip(families, names, strict=True)
    ]


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
