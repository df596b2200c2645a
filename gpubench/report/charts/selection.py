"""Which charts a report has: each module ``NAME_chart`` of this folder says what it makes of a report's tables.

Its function ``NAME_figures(data)`` returns plain frozen data, so that drawing decides nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib import import_module

import pandas as pd

from ..render import file_names
from ..speedup import Baseline
from ..trend import Trend
from .material import ChartData
from .page import Figure


def plan(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    baseline: Baseline | None = None,
    scaled: pd.DataFrame | None = None,
    trends: Sequence[Trend] = (),
    *,
    every: bool = False,
    kinds: Collection[str] = (),
) -> list[Figure]:
    """The figures of a report, those that matter most first, no two of one name.

    Without ``every`` the ten or so that answer its questions; with ``kinds`` those that these modules make.
    """
    data = ChartData(results, speedups, baseline, scaled, trends)
    made = [figure for name in kinds or chart_kinds() for figure in _figures_of(name)(data)]
    figures = sorted((figure for figure in made if every or figure.default), key=lambda figure: figure.rank)
    stems = file_names(figure.name for figure in figures)
    return [replace(figure, name=stem) for figure, stem in zip(figures, stems, strict=True)]


def chart_kinds() -> list[str]:
    """``headline`` of headline_chart.py, and so on."""
    folder = import_module(__package__).__path__
    return sorted(each.name.removesuffix("_chart") for each in pkgutil.iter_modules(folder) if "_chart" in each.name)


def _figures_of(chart: str) -> Callable[[ChartData], list[Figure]]:
    module = import_module(f"{__package__}.{chart}_chart")
    figures: Callable[[ChartData], list[Figure]] = getattr(module, f"{chart}_figures")
    return figures
