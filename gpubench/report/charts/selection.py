"""Which charts a report has: each module ``NAME_chart`` of this folder says what it makes of a report's tables.

Its function ``NAME_figures(data)`` returns plain frozen data, so that drawing decides nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

import pandas as pd

from ..output import file_names
from ..speedup import Baseline
from ..trend import Trend
from .page import ChartData, Figure


def plan(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    baseline: Baseline | None = None,
    scaled: pd.DataFrame | None = None,
    trends: Sequence[Trend] = (),
) -> list[Figure]:
    """All figures of a report, those that matter most first, no two of one name."""
    data = ChartData(results, speedups, baseline, scaled, tuple(trends))
    figures = [figure for name in _charts() for figure in _figures_of(name)(data)]
    figures.sort(key=lambda figure: figure.rank)
    stems = file_names(figure.name for figure in figures)
    return [replace(figure, name=stem) for figure, stem in zip(figures, stems, strict=True)]


def _charts() -> list[str]:
    """``line`` of line_chart.py, and so on."""
    folder = import_module(__package__).__path__
    return sorted(each.name.removesuffix("_chart") for each in pkgutil.iter_modules(folder) if "_chart" in each.name)


def _figures_of(chart: str) -> Callable[[ChartData], list[Figure]]:
    figures: Callable[[ChartData], list[Figure]] = getattr(
        import_module(f"{__package__}.{chart}_chart"), f"{chart}_figures"
    )
    return figures
