"""Where the time of one call with copies goes on a GPU: copy in, launch and wait, compute, copy out."""

from __future__ import annotations

from dataclasses import dataclass

from ...format import seconds_text
from ..judgement import withheld
from ..labels import Row, grouped
from .layouts import RowLabel, row_axes, rows_height
from .material import ChartData
from .page import MARGIN, Figure, Key, Page, linear_axis, text_width
from .theme import PHASES, PX, SMALL, TINY
from .wording import caption, warning

_LEAST_WORDS = 0.09
"""Share of a bar below which its percentage isn't written in it."""


@dataclass(frozen=True, slots=True)
class SharedBar(RowLabel):
    """Seconds of each of ``parts``, which a bar shows as shares of their sum."""

    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Seconds of the whole bar."""
        return sum(seconds for _, seconds in self.parts)


@dataclass(frozen=True, slots=True)
class StackedBars:
    """A bar of full length for each entry, its parts in the order of a legend, the time at its end."""

    bars: tuple[SharedBar, ...]
    keys: tuple[Key, ...]

    def draw(self, figure: Figure, theme: str) -> Page:
        """Percentages in the parts that have room for them."""
        page = Page(figure, theme, rows_height(self.bars), self.keys)
        beside = max(text_width(seconds_text(bar.total), SMALL) for bar in self.bars) + 14
        axes, middles = row_axes(page, self.bars, beside)
        axes.set_xlim(0, 100)
        linear_axis(axes.xaxis, "%")
        axes.spines["bottom"].set_visible(False)
        for bar, middle in zip(self.bars, middles, strict=True):
            page.text(page.width - MARGIN - beside + 8, page.top + middle + 4.5, seconds_text(bar.total), SMALL)
            left = 0.0
            for part, seconds in bar.parts:
                share = 100 * seconds / bar.total
                axes.barh([middle], [share], height=17, left=left, color=page.ink(part), zorder=3)
                if share >= 100 * _LEAST_WORDS:
                    axes.text(
                        left + share / 2, middle, f"{share:.0f}%", ha="center", va="center", fontsize=TINY * PX,
                        color=page.ink("page"), zorder=4,
                    )  # fmt: skip
                left += share
        return page


def gpu_time_figures(data: ChartData) -> list[Figure]:
    """One for each GPU whose copies and device times were measured."""
    figures = []
    rows = [row for row in data.on_accelerators(data.rows) if _parts(row) and not withheld(row)]
    for rank, members in enumerate(grouped(sorted(rows, key=data.naming.order), data.naming.order).values()):
        found = data.notable(members)
        if not found:
            continue
        bars = tuple(SharedBar(each.group, each.name, each.detail, _parts(each.rows[0])) for each in found)
        name, shown = data.naming.device(members[0]), tuple(row for each in found for row in each.rows)
        half = sum(1 - dict(bar.parts)["compute"] / bar.total > 0.5 for bar in bars)
        title = f"{name}: copies and launching take more than half of a call in {half} of {len(bars)} benchmarks"
        subtitle = "Shares of one call with copies: inputs from the CPU, launch and wait, compute, results to the CPU"
        labels = ("copy in", "launch and wait", "compute", "copy out")
        keys = tuple(Key(label, part, "bar") for label, part in zip(labels, PHASES, strict=True))
        words = caption(shown, data.naming, "At the right: the time of one call with copies. ", "*")
        file, order = f"gpu-time{f'-{rank + 1}' * bool(rank)}", 5 + rank * 0.01
        chart = StackedBars(bars, keys)
        figures.append(Figure(file, "gpu_time", title, subtitle, words, chart, order, rank < 2, warning(shown)))
    return figures


def _parts(row: Row) -> tuple[tuple[str, float], ...]:
    """Seconds of each phase, empty where unknown. What a call takes beyond its device time is launch and wait."""
    moved, times = row["_result"].transfer, row["_result"].times
    compute, call = row["_result"].device_s, times.latency_s or times.median_s
    if moved is None or compute is None:
        return ()
    seconds = (moved.in_s or 0.0, max(0.0, call - compute), min(compute, call), moved.out_s or 0.0)
    return tuple(zip(PHASES, seconds, strict=True))
