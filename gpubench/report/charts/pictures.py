"""Which pictures a report has, and what their files hold: each module ``NAME_chart`` of this folder makes some.

Its function ``NAME_figures(data)`` returns plain frozen data, so that drawing decides nothing. The same figures give
the same bytes: matplotlib's objects alone, no pyplot, nothing global is touched.
"""

from __future__ import annotations

import io
import pkgutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from ...errors import UsageError
from ..labels import grouped
from ..render import file_names
from ..speedup import pair
from .material import ChartData
from .page import Figure
from .theme import LIGHT, THEMES, rc_settings, recoloured

_DPI = 192
"""Two dots a pixel."""


def plan(data: ChartData, *, every: bool = False) -> list[Figure]:
    """The figures of a report, those that matter most first, no two of one name.

    Without ``every`` the ten or so that answer its questions.
    """
    folder = import_module(__package__).__path__
    made: list[Figure] = []
    for name in sorted(each.name for each in pkgutil.iter_modules(folder)):
        if name.endswith("_chart"):
            figures_of = getattr(import_module(f"{__package__}.{name}"), name.replace("_chart", "_figures"))
            made += figures_of(data)
    figures = sorted((figure for figure in made if every or figure.default), key=lambda figure: figure.rank)
    stems = file_names(figure.name for figure in figures)
    return [replace(figure, name=stem) for figure, stem in zip(figures, stems, strict=True)]


def figures_of(results: pd.DataFrame, kind: str | None, labels: Mapping[tuple[str, str], str]) -> list[Figure]:
    """The figures of that kind, the first that a report shows first; of ``None`` those of the kind that it shows first.
    Raises UsageError where there are none."""
    data = ChartData(results, pair(results).table, labels=labels)
    made = grouped(plan(data, every=True), lambda figure: figure.kind.replace("_", "-"))
    kind = kind or next(iter(made), "headline")
    if kind in made:
        return made[kind]
    possible = ", ".join(made)
    sized = data.one_size() if kind != "headline" else ""
    advice = sized or (f"these results make {possible}" if possible else "a picture needs three values")
    raise UsageError(f"no {kind} picture can be made of these results: {advice}")


def render(
    figures: Iterable[Figure], formats: Sequence[str] = ("svg", "png"), themes: Sequence[str] = THEMES
) -> dict[str, bytes]:
    """``name-theme.format`` and its content, for each figure, theme and format."""
    files: dict[str, bytes] = {}
    for figure in figures:
        if "svg" in formats:
            svg = _picture(figure, LIGHT, "svg")  # drawing takes longer than all else in a report
            files |= {f"{figure.name}-{theme}.svg": recoloured(svg, theme) for theme in themes}
        if "png" in formats:
            files |= {f"{figure.name}-{theme}.png": _picture(figure, theme, "png") for theme in themes}
    return files


def _picture(figure: Figure, theme: str, kind: str) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a person's own matplotlibrc must not change a published chart
        matplotlib.rcParams.update(rc_settings(theme))
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in other scripts still read in the CSV
        page = figure.chart.draw(figure, theme)
        canvas: Any
        if kind == "svg":
            facts = {"Date": None, "Title": figure.title, "Description": figure.caption, "Creator": "gpubench"}
            canvas = FigureCanvasSVG(page.canvas)
            canvas.print_svg(buffer, metadata=facts)
        else:
            canvas = FigureCanvasAgg(page.canvas)
            page.canvas.set_dpi(_DPI)
            canvas.print_png(buffer, metadata={"Software": "gpubench", "Title": figure.title})
    return buffer.getvalue()
