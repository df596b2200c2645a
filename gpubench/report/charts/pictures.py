"""Which pictures a report has, and what their files hold: each module ``NAME_chart`` of this folder makes some.

Its function ``NAME_figures(study)`` returns plain frozen data, so that drawing decides nothing. The same figures give
the same bytes: matplotlib's objects alone, no pyplot, nothing global is touched.
"""

from __future__ import annotations

import io
import pkgutil
import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from itertools import count
from typing import Any

from ...errors import UsageError
from ...runfile.quantities import counted, shorten
from ..study import Study, grouped
from . import library  # noqa: F401 (first, as it loads matplotlib)
from .page import Figure, rc_settings
from .selection import LEAST_VALUES
from .theme import DARK, LIGHT, recolour

Drawing = tuple[str, str, bytes, bytes]
"""Name, title, and the SVG on a light and on a dark page."""
_DPI = 192
"""Two dots a pixel."""


def plan(study: Study, *, every: bool = False) -> tuple[list[Figure], list[str]]:
    """The figures of a report, those that matter most first, no two of one name even where case doesn't count; and a
    warning for each chart that raised, as a picture must never cost the numbers.

    Without ``every`` the ten or so that answer its questions.
    """
    made: list[Figure] = []
    failed: list[str] = []
    for name in sorted(each.name for each in pkgutil.iter_modules(import_module(__package__).__path__)):
        chart, _, is_chart = name.partition("_")
        if is_chart == "chart":
            try:
                made += getattr(import_module(f"{__package__}.{name}"), f"{chart}_figures")(study)
            except Exception as error:
                failed.append(_failure(f"{chart} pictures", error))
    figures = sorted((figure for figure in made if every or figure.default), key=lambda figure: figure.rank)
    named: dict[str, Figure] = {}
    for figure in figures:
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", figure.name).strip("-.")[:80] or "chart"
        name = next(each for i in count(1) if (each := f"{stem}-{i}" if i > 1 else stem).lower() not in named)
        named[name.lower()] = replace(figure, name=name)
    return list(named.values()), failed


def drawn(figures: Iterable[Figure]) -> tuple[list[Drawing], list[str]]:
    """Return what a report shows of the figures that can be drawn, and a warning for each other one."""
    made: list[Drawing] = []
    failed: list[str] = []
    for figure in figures:
        try:
            light = render(figure)
        except Exception as error:
            failed.append(_failure(f"picture {figure.name}", error))
        else:
            made.append((figure.name, figure.title, light, recolour(light, DARK)))
    return made, failed


def _failure(what: str, error: Exception) -> str:
    return f"{what} left out: {type(error).__name__}: {shorten(' '.join(str(error).split()), 120)}"


NEEDS = {
    "headline": "one benchmark",
    "speedup": "three values over a size, on two devices or in two libraries",
    "rate": "three values over a size, of benchmarks with counted or declared work",
    "time": "three values over a size",
    "scaling": "three benchmarks that each use several devices at once",
}
"""The kinds of pictures, and what a picture of each kind takes."""
_ESTIMATE = "estimate"
"""The kind that ``gpubench chart`` makes without this package, which must not import estimates."""


def figures_of(study: Study, kind: str | None = None) -> list[Figure]:
    """The figures of that kind, the first that a report shows first.

    Of ``None`` those of several expressions' times; of one benchmark those of its speedup, or else its time, by size;
    of several benchmarks, and where these can't be drawn, those of the kind that a report shows first. Raises
    UsageError for an unknown kind, and where there are none, which says what is missing.
    """
    if kind == _ESTIMATE:
        raise UsageError(f"gpubench chart RUN --kind {kind} -o FILE draws estimates, of a run in a file")
    figures, failed = plan(study, every=True)
    made = grouped(figures, lambda figure: figure.kind)
    for each in (kind,) if kind else (*_of_few(study), *made):
        if each in made:
            return made[each]
    if kind is not None and kind not in NEEDS:
        raise UsageError(f"unknown kind {kind!r}: choose {', '.join([*NEEDS, _ESTIMATE])}")
    what = f"no {kind} picture: it takes {NEEDS[kind]}" if kind else "no picture: nothing to draw"
    why = f"{what}{_lacking(study, kind)}"
    can = f"; these results make {', '.join(made)}" if made else ""
    raise UsageError("; ".join([why + can, *failed]))


def _of_few(study: Study) -> tuple[str, ...]:
    """The kinds that show the sizes of one benchmark, or of expressions that do the same."""
    if len({row.result.workload for row in study.measured}) == 1:
        return "speedup", "time"
    return ("time", "speedup") if study.rivals else ()


def _lacking(study: Study, kind: str | None) -> str:
    """What these results have instead of what a picture takes; empty for most kinds, if there are times."""
    if not study.measured:
        reasons = [
            f" ({row.result.status}: {shorten(row.result.reason, 200)})" for row in study.rows if row.result.reason
        ]
        return f", and here no benchmark has a time{''.join(reasons[:1])}"
    if kind not in ("speedup", "rate", "time"):
        return ""
    rows = [pair.other for pair in study.pairs] if kind == "speedup" else study.measured
    sizes = [{row.size for row in of} - {None} for of in grouped(rows, lambda row: row.result.workload).values()]
    most = max(map(len, sizes), default=0)
    if most >= LEAST_VALUES:
        return ", and here too few are sound"
    return f", and here none has more than {counted(most, 'size')}" if rows else ", and here nothing is compared"


def render(figure: Figure, suffix: str = "svg", theme: str = LIGHT) -> bytes:
    """The content of a file, svg or png."""
    if suffix == "svg" and theme != LIGHT:
        return recolour(render(figure), theme)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a person's own matplotlibrc must not change a published chart
        matplotlib.rcParams.update(rc_settings(theme))
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in other scripts still read in the CSV
        page = figure.chart.draw(figure, theme)
        canvas: Any
        if suffix == "svg":
            facts = {"Date": None, "Title": figure.title, "Description": figure.caption, "Creator": "gpubench"}
            canvas = FigureCanvasSVG(page.canvas)
            canvas.print_svg(buffer, metadata=facts)
        else:
            canvas = FigureCanvasAgg(page.canvas)
            page.canvas.set_dpi(_DPI)
            canvas.print_png(buffer, metadata={"Software": "gpubench", "Title": figure.title})
    return buffer.getvalue()
