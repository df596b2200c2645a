"""Figures as SVG and PNG, light and dark. The same figures give the same bytes.

matplotlib's objects alone, no pyplot: nothing global is touched, and a figure is laid out once for all its files.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from .page import DARK, LIGHT, SETTINGS, Figure, Page

FORMATS = ("svg", "png")
DPI = 160


def draw(figure: Figure) -> Page:
    """What a report's figure looks like."""
    if figure.chart is None:
        raise TypeError(f"{figure.name}: nothing to draw")
    return figure.chart.draw(figure)


def render(
    figures: Iterable[Figure], formats: Sequence[str] = FORMATS, draw: Callable[[Figure], Page] = draw
) -> dict[str, bytes]:
    """``name-theme.format`` and its content, for each figure, both themes and each format."""
    files: dict[str, bytes] = {}
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a person's own matplotlibrc must not change a published chart
        matplotlib.rcParams.update(SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in other scripts still read in the CSV
        for figure in figures:
            page = draw(figure)
            for theme in (LIGHT, DARK):
                page.ink.apply(theme)
                for kind in formats:
                    files[f"{figure.name}-{theme}.{kind}"] = _save(page, figure, kind)
    return files


def _save(page: Page, figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    canvas: Any
    if kind == "svg":
        canvas = FigureCanvasSVG(page.figure)
        facts = {"Date": None, "Title": figure.title, "Description": figure.caption, "Creator": "gpubench"}
        canvas.print_svg(buffer, metadata=facts)
    else:
        canvas = FigureCanvasAgg(page.figure)
        page.figure.set_dpi(DPI)
        canvas.print_png(buffer, metadata={"Software": None, "Title": figure.title})
    return buffer.getvalue()
