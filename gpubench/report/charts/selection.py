"""Which charts a report has: every module of this folder named ``…_chart`` says what it makes of a report's tables.

Its function ``figures(material)`` returns plain frozen data, so that drawing decides nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

import pandas as pd

from ..output import file_names
from ..speedup import Baseline
from ..trend import Trend
from .page import Figure, Material


def plan(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    baseline: Baseline | None = None,
    scaled: pd.DataFrame | None = None,
    trends: Sequence[Trend] = (),
) -> list[Figure]:
    """All figures of a report, those that matter most first, no two of one name."""
    material = Material(results, speedups, baseline, scaled, tuple(trends))
    figures = [figure for module in _modules() for figure in import_module(module).figures(material)]
    figures.sort(key=lambda figure: figure.rank)
    stems = file_names(figure.name for figure in figures)
    return [replace(figure, name=stem) for figure, stem in zip(figures, stems, strict=True)]


def _modules() -> list[str]:
    folder = import_module(__package__).__path__
    return sorted(f"{__package__}.{each.name}" for each in pkgutil.iter_modules(folder) if each.name.endswith("_chart"))
