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
from ...runfile.quantities import counted, shorten
from ..answer import Answer, AnswerRow, choose_rows
from ..study import Study, grouped
from . import library  # noqa: F401 (first, as it loads matplotlib)
from .layouts import stacked_figure as stacked_figure
from .page import AROUND, Figure, Page, rc_settings, swatch
from .rate_chart import time_by_size
from .selection import LEAST_VALUES
from .theme import LIGHT, colour

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
_SECTIONS = ("answer", "pictures", "by-size", "numbers", "details", "search", "count", "theme")
"""Addresses that the page itself has."""
_DPI = 192
"""Two dots a pixel."""
_TAG = re.compile(r'<(/?)(\w+)((?: [\w:-]+="[^"]*")*)(/?)>')
_SET_ELSEWHERE = re.compile(r"id|style|font-family|stroke-(linecap|linejoin|miterlimit|dashoffset)")
"""Attributes that the page's style sheet sets, or that nothing needs."""
_REFERENCE = re.compile(r"#([mp][0-9a-f]{10})\b")


class Drawing(NamedTuple):
    """A picture as a file, an SVG for a light page; and for a web page its panels alone and its legend: labels, the
    roles of devices, swatches. A role is empty unless there are several to tell apart."""

    figure: Figure
    svg: bytes
    panels: str
    legend: list[tuple[str, str, str]]


def plan(study: Study, *, every: bool = False) -> tuple[list[Figure], list[str]]:
    """The figures of a report, the most important first, no two of one name; and a warning for each chart that
    raised, as a picture must never cost the numbers. Without ``every`` only figures that answer its questions."""
    made: list[Figure] = []
    failed: list[str] = []
    for path in sorted(Path(__file__).parent.glob("*_chart.py")):
        chart = path.stem.removesuffix("_chart")
        try:
            made += getattr(import_module(f"{__package__}.{path.stem}"), f"{chart}_figures")(study)
        except Exception as error:
            failed.append(_failure(f"{chart} pictures", error))
    figures = sorted((figure for figure in made if every or figure.default), key=lambda figure: figure.rank)
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
    figures, failed = plan(answer.study, every=True)
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
            panels = _panels_of(svg, page, figure.title, f"{prefix}{len(made)}-")
            keys = figure.chart.keys
            roles = {key.role for key in keys if key.look in ("line", "mark", "bar")} - {"muted"}
            roles = roles if len(roles) > 1 else set()
            legend = [(key.label, key.role * (key.role in roles), swatch(key)) for key in keys]
            made.append(Drawing(figure, svg, panels, legend))
        except Exception as error:
            failed.append(_failure(f"picture {figure.name}", error))
    return made, failed


def _panels_of(svg: bytes, page: Page, title: str, prefix: str) -> str:
    """Return the ``svg`` element of the panels alone, labelled by the ``title``, in the colours of a web page. Its
    marks show their values on hovering, all ids begin with the ``prefix``, and coordinates have the digits that can be
    seen. Looks are attributes of their own, since the page's content policy allows no ``style``."""
    whole = svg.decode()
    used, groups = {*_REFERENCE.findall(whole)}, list[bool]()
    paper = f"var(--{colour(LIGHT, 'page')[1:]})"

    def shortened(tag: re.Match[str]) -> str:
        end, name, given, alone = tag.groups()
        if end:
            return tag[0] if name != "g" or groups.pop() else ""
        every = dict(re.findall(r'([\w-]+)="([^"]*)"', given))
        gid, made = every.get("id", ""), {}
        digits = 2 if gid in used else 1
        for key, value in (*every.items(), *re.findall(r"([\w-]+): *([^;]+)", every.get("style", ""))):
            of_shape = name == "use" and key.startswith("stroke")  # the shape has its stroke
            if not (_SET_ELSEWHERE.fullmatch(key) or of_shape or value.startswith("rotate(-0 ")):
                value = re.sub(r"#([0-9a-f]{6})$", r"var(--\1)", " ".join(value.split()))
                made[key] = re.sub(rf"(\.\d{{{digits}}})\d+", r"\1", _REFERENCE.sub(rf"#{prefix}\1", value))
        made |= {"id": prefix + gid} if gid in used else {}
        made |= {"class": role[1]} if (role := re.fullmatch(r"(\w+)-\d+", gid)) else {}
        if name == "g":
            groups.append(bool(made))
        if (name == "g" and not made) or made == {"fill": paper, "d": made.get("d")}:
            return ""
        words = "".join(f' {key}="{value}"' for key, value in made.items())
        value = f"<title>{html.escape(page.titles[gid])}</title>" if gid in page.titles else ""
        return f"<{name}{words}{alone}>{value}"

    panels = whole[whole.index('<g id="axes_1">') : whole.index(f'<g id="{AROUND}-')]
    panels += "".join(re.findall(r"<clipPath.*?</clipPath>", whole, re.DOTALL))
    panels = _TAG.sub(shortened, re.sub(r">\s+<", "><", panels))
    label, box = html.escape(title), " ".join(f"{side:.0f}" for side in page.box)
    return f'<svg viewBox="{box}" role="img" aria-label="{label}">{panels}</svg>'


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
    figures, failed = plan(study, every=True)
    made = grouped(figures, lambda figure: figure.kind)
    if kind is not None and kind not in (*NEEDS, *made):
        raise UsageError(f"unknown kind {kind!r}: choose {', '.join(dict.fromkeys([*NEEDS, *made, _ESTIMATE]))}")
    alone = len({row.result.workload for row in study.measured}) == 1
    few = ("speedup", "time") if alone else ("time", "speedup") if study.rivals else ()
    if chosen := next((each for each in ((kind,) if kind else (*few, *made)) if each in made), None):
        return made[chosen]
    what = f"no {kind} picture: it takes {NEEDS[kind]}" if kind else "no picture: nothing to draw"
    can = f"; these results make {', '.join(made)}" if made else ""
    raise UsageError("; ".join([what + _lacking(study, kind) + can, *failed]))


def _lacking(study: Study, kind: str | None) -> str:
    """The results that stand in the way of a picture; empty for most kinds, if there are times."""
    if not study.measured:
        reasons = (
            f" ({case.status}: {shorten(case.reason, 200)})" for row in study.rows if (case := row.result).reason
        )
        return f", and here no benchmark has a time{next(reasons, '')}"
    rows = [pair.other for pair in study.pairs] if kind == "speedup" else study.measured
    if not rows or kind not in ("speedup", "rate", "time"):
        return ", and here nothing is compared" * (not rows)
    most = max(len({row.size for row in of} - {None}) for of in grouped(rows, lambda x: x.result.workload).values())
    return ", and here " + (
        f"none has more than {counted(most, 'size')}" if most < LEAST_VALUES else "too few are sound"
    )


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
