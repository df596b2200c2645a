"""Figures as SVG and PNG, light and dark. The same figures give the same bytes.

matplotlib's objects alone, no pyplot: nothing global is touched.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from .page import Figure, Page
from .theme import LIGHT, THEMES, rc_settings, recoloured

PICTURES = ("svg", "png")
_DPI = 192
"""Two dots a pixel."""


def render(
    figures: Iterable[Figure], formats: Sequence[str] = PICTURES, themes: Sequence[str] = THEMES
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
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a person's own matplotlibrc must not change a published chart
        matplotlib.rcParams.update(rc_settings(theme))
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in other scripts still read in the CSV
        return _save(figure.chart.draw(figure, theme), figure, kind)


def _save(page: Page, figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    canvas: Any
    if kind == "svg":
        canvas = FigureCanvasSVG(page.canvas)
        facts = {"Date": None, "Title": figure.title, "Description": figure.caption, "Creator": "gpubench"}
        canvas.print_svg(buffer, metadata=facts)
    else:
        canvas = FigureCanvasAgg(page.canvas)
        page.canvas.set_dpi(_DPI)
        canvas.print_png(buffer, metadata={"Software": None, "Title": figure.title})
    return buffer.getvalue()
