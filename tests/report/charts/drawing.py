"""Figures from hand-made run files, drawn, and a reader's stumbling blocks in them."""

import math
import re
from collections.abc import Iterator
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from reading import study_of
from records import Made

from gpubench.report.charts.layouts import LinePanels, NamedRows
from gpubench.report.charts.page import MOST_CURVES, MOST_PANELS, PAGE_WIDTH, TINY, Figure, Page
from gpubench.report.charts.pictures import drawing, plan as planned
from gpubench.report.charts.theme import LIGHT
from gpubench.report.number import size_label

MOST_HEIGHT = 700
_NEAR = 1.0
"""Pixels by which the boxes of two texts may touch: a box is higher than its letters."""


def plan(*runs: Made | dict[str, Any], every: bool = True, kinds: tuple[str, ...] = ()) -> dict[str, Figure]:
    figures, failed = planned(study_of(*runs))
    figures = [figure for figure in figures if every or figure.default]
    assert failed == []
    assert len({figure.name.lower() for figure in figures}) == len(figures)  # no two files alike
    return {figure.name: figure for figure in figures if not kinds or figure.kind in kinds}


def drawn(figure: Figure, theme: str = LIGHT) -> Page:
    with drawing(figure, theme) as page:
        FigureCanvasAgg(page.canvas)
        page.canvas.set_dpi(96)
        page.canvas.draw_without_rendering()
    return page


def texts(page: Page) -> Iterator[Text]:
    for text in page.canvas.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text.get_window_extent().width > 0:
            axes = text.axes
            if axes is None or axes.get_visible():
                yield text


def words(page: Page) -> list[str]:
    return [text.get_text() for text in texts(page)]


def faults(figure: Figure) -> list[str]:
    """A reader's stumbling blocks in a picture, at 800 pixels."""
    page = drawn(figure)
    shown = words(page)
    return [*_of_words(figure, page), *_of_signs(figure), *_of_chart(figure, shown), *_of_texts(page)]


def _of_words(figure: Figure, page: Page) -> Iterator[str]:
    """A title or small print that is cut; a file or a command, as a picture is published without them."""
    told = " ".join(text.get_text() for text in page.canvas.texts).replace("\u00a0", " ")
    if any(re.search(r"\d [^\W\d]", text.get_text()) for text in page.canvas.texts):
        yield "a line may end between a number and its unit"
    if figure.title not in told or "…" in figure.title:
        yield f"title cut: {figure.title}"
    if figure.small_print not in told:
        yield f"small print cut: {figure.small_print}"
    for told in (figure.title, figure.subtitle, figure.small_print, figure.notice):
        if re.search(r"\.(csv|md|html|json)\b|\bgpubench\b|\bthere\b|\bthe other\b", told):
            yield f"points elsewhere: {told}"


SIGNS = {"*": "*: noisy", "†": "† ", "‡": "‡: over the CPU's fastest way"}
"""The small print for each sign in a picture."""


def _of_signs(figure: Figure) -> Iterator[str]:
    """A sign without its meaning in the small print, or a meaning without its sign."""
    chart, caption = figure.chart, figure.caption
    words = [mark.words for entry in chart.entries for mark in entry.marks] if isinstance(chart, NamedRows) else []
    signs = {means: any(sign in each for each in words) for sign, means in SIGNS.items()} if words else {}
    if figure.kind == "headline":
        signs["≥: only a limit is known"] = any(each.startswith("≥") for each in words)
    if isinstance(chart, LinePanels):
        curves = [curve for panel in chart.panels for curve in panel.curves]
        solid = [(curve, point) for curve in curves if not curve.dashed for point in curve.points]
        signs["Hollow"] = any(point.flagged and not point.limit for _, point in solid)
        signs["ith *: noisy"] = any("*" in curve.label for curve in curves)
        signs["Diamond or bar at 1×: "] = any(curve.mark for curve in curves)
        signs["▲ at least, ▼ at most this"] = any(dot.limit for curve in curves for dot in curve.dots)
        signs["With copies: "] = any(curve.dashed for curve in curves)
        signs[" not drawn: "] = any(curve.points != curve.dots for curve in curves)
    yield from (f"{sign!r} in the small print alone" for sign, there in signs.items() if sign in caption and not there)
    yield from (f"{sign!r} is not explained" for sign, there in signs.items() if there and sign not in caption)


def _of_chart(figure: Figure, shown: list[str]) -> Iterator[str]:
    """Too much or too little in it, impossible values, and marks without a label."""
    labels: list[str] = []
    if isinstance(figure.chart, LinePanels):
        panels = figure.chart.panels
        curves = [curve for panel in panels for curve in panel.curves]
        points = [point for curve in curves for point in curve.points]
        labels = [*(curve.label for curve in curves), *(size_label(panel.size) for panel in panels)]
        labels += [panel.title for panel in panels if len(panels) > 1]
        told = [word for word in shown if word in (f"{figure.chart.slower} faster", "slower")]
        if figure.chart.slower and len(told) != len(panels):
            yield f"{len(told)} of {len(panels)} panels say what is faster below 1×"
        if not (1 <= len(panels) <= MOST_PANELS and max(len(panel.curves) for panel in panels) <= MOST_CURVES):
            yield "crowded"
        if len(points) < 3 or not all(math.isfinite(point.x * point.y) and point.y > 0 for point in points):
            yield f"points {points}"
    if isinstance(figure.chart, NamedRows):
        entries = figure.chart.entries
        labels = [mark.words for entry in entries for mark in entry.marks]
        labels += [entry.name for entry in entries if len(entry.name) < 56]
        if not 1 <= len(entries) <= 16:
            yield f"{len(entries)} rows"
    yield from (f"without its label: {label}" for label in {*labels} - {*shown})


def _of_texts(page: Page) -> Iterator[str]:
    """Small type, words that leave the page or lie on each other, a page that is too wide or too high."""
    if page.height > MOST_HEIGHT + 0.01:
        yield f"{page.height:.0f} px high"
    boxes: list[tuple[str, Any]] = []
    for text in _shown(page):
        label, box = text.get_text(), Text.get_window_extent(text)  # without an annotation's leader
        if _on_the_line(text):
            yield f"{label!r} lies on the line at 1×"
        if text.get_fontsize() < TINY * 0.75 - 1e-6:
            yield f"{label!r}: {text.get_fontsize() / 0.75:.1f} px"
        if box.x0 < -1 or box.y0 < -1 or box.x1 > PAGE_WIDTH + 1 or box.y1 > page.height + 1:
            yield f"{label!r} leaves the page"
        for other, beside in boxes:
            across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
            along = min(box.y1, beside.y1) - max(box.y0, beside.y0)
            if across > _NEAR and along > 3.5:
                yield f"{label!r} lies on {other!r}"
        if not text.get_rotation():
            boxes.append((label, box))


def _on_the_line(text: Text) -> bool:
    """Whether words stand across the line at 1× of axes of ratios."""
    axes = text.axes
    lines = [] if axes is None else [line for line in axes.lines if list(line.get_ydata()) == [1, 1]]
    if axes is None or axes.get_yscale() != "log" or not lines:
        return False
    box, line = Text.get_window_extent(text), axes.transData.transform((1.0, 1.0))[1]
    inside = axes.get_window_extent().x0 <= box.x0 and box.x1 <= axes.get_window_extent().x1 + 1
    return bool(inside and box.y0 + 1 < line < box.y1 - 1)


def _shown(page: Page) -> list[Text]:
    """Without tick labels outside the limits, which matplotlib keeps but doesn't draw."""
    hidden = set()
    for axes in page.canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low * 0.999 <= tick.get_loc() <= high * 1.001 or not axis.get_visible():
                    hidden |= {id(tick.label1), id(tick.label2)}
            if not axis.get_visible():
                hidden |= {id(axis.label), id(axis.offsetText)}
    return [text for text in texts(page) if id(text) not in hidden]
