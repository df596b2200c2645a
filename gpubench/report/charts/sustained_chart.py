"""Burst and sustained: the rate of a product over the seconds that it ran on end, a line a device."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

from ...runfile.utilisation import LABELS
from .. import words
from ..study import LASTS, Study
from .page import MARGIN, Figure, Key, Page, linear_axis
from .selection import role_of

_HEIGHT, _LEFT, _BELOW = 200.0, 50.0, 44.0


@dataclass(frozen=True, slots=True)
class SustainedChart:
    """Rates by second, in percent of the best second of each device."""

    keys: tuple[Key, ...]
    lines: tuple[tuple[float, ...], ...]

    def draw(self, figure: Figure, theme: str) -> Page:
        """One small panel from zero to all."""
        page = Page(figure, theme, _HEIGHT, self.keys)
        axes = page.axes(MARGIN + _LEFT, page.width - 2 * MARGIN - _LEFT, page.top + 8, page.bottom - _BELOW)
        for key, line in zip(self.keys, self.lines, strict=True):
            axes.plot(range(1, len(line) + 1), line, color=page.ink(key.role), marker="o", markersize=3)
        axes.set_ylim(0, 105)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
        axes.set_xlabel("seconds")
        axes.grid(True, axis="y")
        linear_axis(axes.yaxis, "%", 5)
        return page


def sustained_figures(study: Study) -> list[Figure]:
    """One picture of all devices; in a report by default where one of them doesn't keep its rate."""
    known = study.sustained
    if not known:
        return []
    keys = tuple(Key(study.names.of(row), role_of(study, row)) for row, _ in known)
    lines = tuple(tuple(100 * rate / rates.burst for rate in rates.flop_per_s) for _, rates in known)
    told = "; ".join(f"{study.names.short(row)} {words.sustained(rates)}" for row, rates in known)
    slowed = any(rates.lasting < LASTS * rates.burst for _, rates in known)
    libraries = [LABELS.get(rates.library, rates.library) for _, rates in known]
    ways = [f"{study.names.short(row)} n={rates.n} by {by}" for (row, rates), by in zip(known, libraries, strict=True)]
    note = f"A product of matrices, as large as a call stays short: {words.listed(ways)}. "
    note += "What lasts: the median of the last half."
    simulated = " (simulated)" * any(row.facts.simulated for row, _ in known)
    title, chart = f"Sustained rate, in percent of the best second{simulated}", SustainedChart(keys, lines)
    return [Figure("sustained", "sustained", title, f"Lasting: {told}", note, chart, 7.0, slowed)]
