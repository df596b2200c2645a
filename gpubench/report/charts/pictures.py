"""The pictures of a report, and their files: each module ``NAME_chart`` of this folder makes some.

Its function ``NAME_figures(study)`` returns plain frozen data, so that drawing decides nothing. The same figures give
the same bytes: matplotlib's objects alone, no pyplot, nothing global is touched.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import UsageError
from ...runfile.matching import shown_name
from ...runfile.quantities import shorten
from ..answer import Answer, AnswerRow, choose_rows
from ..study import Study, grouped
from . import library  # noqa: F401 (first, as it loads matplotlib)
from .layouts import stacked_figure as stacked_figure
from .page import AROUND, KEY, PX, Figure, Page, rc_settings
from .rate_chart import time_by_size
from .theme import LIGHT

NEEDS = {
    "headline": "one benchmark",
    "speedup": "three values over a size, on two devices or in two libraries",
    "rate": "three values over a size, of benchmarks with counted or declared work",
    "time": "three values over a size",
    "scaling": "three benchmarks that each use several devices at once",
}
"""Kinds of pictures, and what a picture of each takes."""
_ESTIMATE = "estimate"
"""The kind that ``gpubench chart`` makes without this package, which must not import estimates."""
_MOST_FOLDED = 10
"""Benchmarks that a page has pictures by size of; each takes a fifth of a second."""
_SECTIONS = ("answer", "pictures", "by-size", "numbers", "details", "search", "count")
"""Addresses that the page itself has."""
_DPI = 192
"""Two dots a pixel."""
_OF_A_PAGE: tuple[tuple[str, Any], ...] = (
    (r'\n|xlink:|(?<=<g) id="[\w.]+_\d+"', ""),
    (r' style="([^"]*)"', lambda style: re.sub(r"([\w-]+): ([^;]+)(?:; |$)", r' \1="\2"', style[1])),
    (r' (font-family|stroke-(linecap|linejoin|miterlimit|dashoffset))="[^"]*"| transform="rotate\(-0 [^"]*"', ""),
    (r'(<use .*) stroke="[^"]*" stroke-width="[^"]*"', r"\1"),
    (r"(\.\d\d)\d+", r"\1"),
    (r"#([0-9a-f]{6})\b", r"var(--\1)"),
    (r'<path d="[^"]*" fill="var\(--ffffff\)"/>', ""),  # the paper
)
"""Changes of a tag for a web page. Its style sheet sets fonts and joints, and a shape has its stroke."""


class Drawing(NamedTuple):
    """A picture as a file, an SVG for a light page; and for a web page its panels alone and its legend: labels, the
    roles of devices, swatches. A role is empty unless there are several to tell apart."""

    figure: Figure
    svg: bytes
    panels: str
    legend: list[tuple[str, str, str]]


def plan(study: Study) -> tuple[list[Figure], list[str]]:
    """The figures of a report, the most important first, no two of one name; and a warning for each chart that
    raised, as a picture must never cost the numbers."""
    made: list[Figure] = []
    failed: list[str] = []
    for path in sorted(Path(__file__).parent.glob("*_chart.py")):
        chart = path.stem.removesuffix("_chart")
        try:
            made += getattr(import_module(f"{__package__}.{path.stem}"), f"{chart}_figures")(study)
        except Exception as error:
            failed.append(_failure(f"{chart} pictures", error))
    figures = sorted(made, key=lambda figure: figure.rank)
    names = _stems(figure.name for figure in figures)
    return [replace(figure, name=name) for figure, name in zip(figures, names, strict=True)], failed


def _stems(names: Iterable[str]) -> list[str]:
    """Names of files and addresses, no two alike even if case doesn't count."""
    made: dict[str, str] = {}
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:80] or "chart"
        stem = next(each for i in count(1) if (each := f"{stem}-{i}" if i > 1 else stem).lower() not in made)
        made[stem.lower()] = stem
    return list(made.values())


def of_report(answer: Answer, every: bool) -> tuple[list[Drawing], list[Drawing], list[str]]:
    """The pictures of a report; the pictures by size of the answer's first benchmarks, as ``gpubench chart -k NAME``
    draws them, each named by its address on the page; and a warning for each picture that can't be drawn."""
    figures, failed = plan(answer.study)
    shown = [figure for figure in figures if every or figure.default]
    rows: Sequence[AnswerRow[Any]] = answer.speedups[0].rows if answer.speedups else answer.times
    workloads = list(dict.fromkeys(row.items[0].subject.result.workload for row in choose_rows(rows)))[:_MOST_FOLDED]
    own = {figure.workload: [figure] for figure in reversed(figures)}
    by_size = [figure for name in workloads for figure in own.get(name) or time_by_size(answer.study, name)]
    folded = [figure for figure in by_size if figure not in shown]
    names = _stems([*_SECTIONS, *(shown_name(figure.workload) for figure in folded)])[len(_SECTIONS) :]
    pictures, undrawn = drawn(shown)
    drawings, unfolded = drawn((replace(f, name=name) for name, f in zip(names, folded, strict=True)), "s")
    return pictures, drawings, [*failed, *undrawn, *unfolded]


def drawn(figures: Iterable[Figure], prefix: str = "p") -> tuple[list[Drawing], list[str]]:
    """Draw the figures, and return a warning for each that can't be drawn. Ids on a page begin with the ``prefix``."""
    made: list[Drawing] = []
    failed: list[str] = []
    for figure in figures:
        try:
            svg, page = _written(figure, "svg", LIGHT)
            whole, ids, keys = svg.decode(), f"{prefix}{len(made)}-", figure.chart.keys
            panels = whole[whole.index('<g id="axes_1">') : whole.index(f'<g id="{AROUND}-')]
            panels += "".join(re.findall(r"<clipPath.*?</clipPath>", whole, re.DOTALL))
            label = f'role="img" aria-label="{html.escape(figure.title)}"'
            roles = {key.role for key in keys if key.look in ("line", "mark", "bar")} - {"muted"}
            roles = roles if len(roles) > 1 else set()
            handles = [handle for legend in page.canvas.legends for handle in legend.legend_handles]
            swatches = [_swatch(*of, page, ids) for of in zip(whole.split(f'<g id="{KEY}-')[1:], handles, strict=True)]
            legend = [(key.label, key.role * (key.role in roles), of) for key, of in zip(keys, swatches, strict=True)]
            made.append(Drawing(figure, svg, _element(panels, page, ids, page.box, label), legend))
        except Exception as error:
            failed.append(_failure(f"picture {figure.name}", error))
    return made, failed


def _element(part: str, page: Page, prefix: str, box: Sequence[float], attributes: str) -> str:
    """Return an ``svg`` element of a ``part`` of a file in the colours of a web page. Its marks show their values on
    hovering, all ids begin with the ``prefix``, and coordinates have the digits that can be seen. Looks are attributes
    of their own, since the page's content policy allows no ``style``."""

    def rewritten(tag: re.Match[str]) -> str:
        text = tag[0]
        for pattern, new in (*_OF_A_PAGE, (r'(?<=[#"])(?=[mp][0-9a-f]{10}[")])', prefix)):
            text = re.sub(pattern, new, text)
        return text

    def titled(group: re.Match[str]) -> str:
        value = html.escape(page.titles.get(group[1], ""))
        return f'<g class="{group[2]}">' + f"<title>{value}</title>" * bool(value)

    part = re.sub(r"<[^>]*>", rewritten, re.sub(r">\s+<", "><", part))
    part = re.sub(r'<g id="((\w+)-\d+)">', titled, part)
    return f'<svg viewBox="{" ".join(f"{side:.0f}" for side in box)}" {attributes}>{part}</svg>'


def _swatch(part: str, handle: Any, page: Page, prefix: str) -> str:
    """Return the element of a key in the legend: the ``part`` that the file has of it, up to its text."""
    x, y = handle.get_window_extent().get_points().mean(axis=0)
    box, part = (x - 9, page.height * PX - y - 5, 18, 10), part.partition('<g id="text_')[0].strip()
    return _element(f'<g id="{KEY}-{part}', page, prefix, box, 'aria-hidden="true"')


def _failure(what: str, error: Exception) -> str:
    return f"{what} left out: {type(error).__name__}: {shorten(' '.join(str(error).split()), 120)}"


def figures_of(study: Study, kind: str | None = None) -> list[Figure]:
    """The figures of that kind, the first that a report shows first.

    Without a kind: the times of several expressions; the speedup of one benchmark, or else its time, by size; or the
    kind that a report shows first. Raises UsageError for an unknown kind, and where there are none, which says what is
    missing.
    """
    if kind == _ESTIMATE:
        raise UsageError(f"gpubench chart RUN --kind {kind} -o FILE draws estimates, of a run in a file")
    figures, failed = plan(study)
    made = grouped(figures, lambda figure: figure.kind)
    if kind is not None and kind not in (*NEEDS, *made):
        raise UsageError(f"unknown kind {kind!r}: choose {', '.join(dict.fromkeys([*NEEDS, *made, _ESTIMATE]))}")
    alone = len({row.result.workload for row in study.measured}) == 1
    few = ("speedup", "time") if alone else ("time", "speedup") if study.rivals else ()
    if chosen := next((each for each in ((kind,) if kind else (*few, *made)) if each in made), None):
        return made[chosen]
    what = f"no {kind} picture: it takes {NEEDS[kind]}" if kind else "no picture: nothing to draw"
    reasons = (f" ({case.status}: {shorten(case.reason, 200)})" for row in study.rows if (case := row.result).reason)
    what += f", and here no benchmark has a time{next(reasons, '')}" * (not study.measured)
    can = f"; these results make {', '.join(made)}" * bool(made)
    raise UsageError("; ".join([what + can, *failed]))


def render(figure: Figure, suffix: str = "svg", theme: str = LIGHT) -> bytes:
    """Return the content of a file, svg or png."""
    return _written(figure, suffix, theme)[0]


def _written(figure: Figure, suffix: str, theme: str) -> tuple[bytes, Page]:
    facts: dict[str, str | None] = {"Title": figure.title, "Software": "gpubench"}
    if suffix == "svg":
        facts = {"Date": None, "Title": figure.title, "Description": figure.small_print, "Creator": "gpubench"}
    with drawing(figure, theme) as page:
        page.canvas.savefig(buffer := io.BytesIO(), format=suffix, dpi=72 if suffix == "svg" else _DPI, metadata=facts)
    return buffer.getvalue(), page


@contextlib.contextmanager
def drawing(figure: Figure, theme: str) -> Iterator[Page]:
    """The page with all its ink. A person's own matplotlibrc must not change a published picture."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(rc_settings(theme))
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names in other scripts still read in the CSV
        page = Page(figure, theme)
        figure.chart.draw(page)
        yield page
