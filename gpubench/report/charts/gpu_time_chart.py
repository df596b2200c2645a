"""Where the time of one call with copies goes on a GPU: copy in, launch and wait, compute, copy out."""

from __future__ import annotations

from dataclasses import dataclass

from ...format import seconds_text
from ..labels import Row, grouped
from .material import ChartData, Notable
from .named_rows import row_axes, rows_height
from .naming import warning
from .page import MARGIN, Figure, Key, Page, linear_axis, text_width
from .small_print import STAR, caption
from .theme import PHASES, PX, SMALL, TINY

_LEAST_WORDS = 0.09
"""Share of a bar below which its percentage isn't written in it."""


@dataclass(frozen=True, slots=True)
class SharedBar:
    """Seconds of each of ``parts``, which a bar shows as shares of their sum."""

    group: str
    name: str
    detail: str
    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.parts)


@dataclass(frozen=True, slots=True)
class StackedBars:
    """A bar of full length for each entry, its parts in the order of a legend, the time at its end."""

    bars: tuple[SharedBar, ...]
    keys: tuple[Key, ...]
    rows: tuple[Row, ...] = ()

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
    rows = [row for row in data.on_accelerators(data.rows) if _parts(row)]
    for rank, members in enumerate(grouped(sorted(rows, key=data.naming.order), data.naming.order).values()):
        found = data.notable(members)
        if len(found) < 3:
            continue
        bars = tuple(_bar(each) for each in found)
        copied = sorted(1 - _compute(bar) for bar in bars)
        name, shown = data.naming.device(members[0]), tuple(row for each in found for row in each.rows)
        half = sum(share > 0.5 for share in copied)
        title = f"{name}: copies and launching take more than half of a call in {half} of {len(bars)} workloads"
        subtitle = "Shares of one call with copies: inputs from the CPU, launch and wait, compute, results to the CPU"
        labels = ("copy in", "launch and wait", "compute", "copy out")
        keys = tuple(Key(label, part, "bar") for label, part in zip(labels, PHASES, strict=True))
        words = caption(shown, data.naming, "At the right: the time of one call with copies. ", STAR)
        chart = StackedBars(bars, keys, shown)
        suffix = f"-{rank + 1}" if rank else ""
        figures.append(
            Figure(
                f"gpu-time{suffix}",
                "gpu_time",
                title,
                subtitle,
                words,
                chart,
                5 + rank * 0.01,
                rank < 2,
                warning(shown),
            )
        )
    return figures


def _parts(row: Row) -> tuple[tuple[str, float], ...]:
    """Seconds of each phase, empty where unknown. What a call takes beyond its device time is launch and wait."""
    moved, times = row["_result"].transfer, row["_result"].times
    compute, call = row["_result"].device_s, times.latency_s or times.median_s
    if moved is None or compute is None:
        return ()
    seconds = (moved.in_s or 0.0, max(0.0, call - compute), min(compute, call), moved.out_s or 0.0)
    return tuple(zip(PHASES, seconds, strict=True))


def _bar(each: Notable) -> SharedBar:
    return SharedBar(each.group, each.name, each.detail, _parts(each.rows[0]))


def _compute(bar: SharedBar) -> float:
    return dict(bar.parts)["compute"] / bar.total
