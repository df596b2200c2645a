"""Charts of lines over a size: which lines share a panel, and what tells them apart.

No panel has more than MOST_LINES lines: a parameter then gets a panel for each of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..schema import Scalar
from . import crossings
from .crossings import Crossing
from .labels import Names, Row, grouped, setting, shorten
from .one_shot import RESIDENT
from .scales import CUT, is_cut
from .series import Line, Sweep, varying

MOST_LINES = 6
MOST_STYLES = 4
MOST_PANELS = 16


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its looks: indices into the theme's colours, and markers and dashes."""

    line: Line
    colour: int
    style: int
    crossing: Crossing | None = None


@dataclass(frozen=True, slots=True)
class LinePanel:
    title: str
    size: str
    curves: tuple[Curve, ...]

    @property
    def values(self) -> list[float]:
        return [point.y for curve in self.curves for point in curve.line.points]

    @property
    def ranges(self) -> list[tuple[float, float]]:
        return [(point.low, point.high) for curve in self.curves for point in curve.line.points]


@dataclass(frozen=True, slots=True)
class LineChart:
    """``unit`` is empty for a speedup, whose ``slower`` names what is faster below 1."""

    panels: tuple[LinePanel, ...]
    colours: tuple[tuple[str, int], ...]
    styles: tuple[tuple[str, int], ...]
    unit: str
    slower: str | None
    rows: tuple[Row, ...]

    @property
    def cut(self) -> str:
        """What the caption says where bands leave the axis; empty where none does."""
        return CUT.format("bands") if any(is_cut(panel.values, panel.ranges) for panel in self.panels) else ""

    @property
    def one_colour(self) -> bool:
        """Lines of a single colour are told apart by their markers too."""
        return len(self.colours) == 1 and len(self.styles) > 1


class _Looks:
    """Colours that mean the same source, or the same dtype, in every chart of a report."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def colour(self, line: Line, lead: str) -> tuple[str, int]:
        if lead == "dtype" and line.terms["dtype"] in self.names.dtypes:
            return str(line.terms["dtype"]), len(self.names.sources) + self.names.dtypes.index(line.terms["dtype"])
        source = str(line.terms["source"])
        return source, self.names.sources.index(source)


def line_charts(
    swept: Sequence[Sweep],
    names: Names,
    *,
    unit: str = "",
    lead: str = "source",
    slower: str | None = None,
    regime: str = RESIDENT,
) -> list[LineChart]:
    """One chart of all panels, or several where a page can't hold them.

    ``lead`` is the term that colours tell; ``regime`` the one whose crossovers are marked.
    """
    looks = _Looks(names)
    panels = [panel for sweep in swept for panel in _facets(sweep, [other for other in swept if other != sweep], lead)]
    found = []
    for start in range(0, len(panels), MOST_PANELS):
        page = panels[start : start + MOST_PANELS]
        lines = [line for _, _, members in page for line in members]
        differ = varying(lines)
        by_dtype = "dtype" in differ and (lead == "dtype" or "source" not in differ)
        colours: dict[str, int] = {}
        styles: dict[str, int] = {}
        drawn = []
        dashed = {term for _, _, members in page for term in _untold(members, by_dtype)}
        for label, size, members in page:
            differing = _untold(members, by_dtype) or sorted(dashed)
            curves = []
            for line in members:
                word, colour = looks.colour(line, "dtype" if by_dtype else "source")
                colours[word] = colour
                style = _style(line, differing)
                crossing = crossings.of(line, regime) if slower is not None else None
                curves.append(Curve(line, colour, styles.setdefault(style, len(styles)) if style else 0, crossing))
            drawn.append(LinePanel(label, size, tuple(curves)))
        found.append(
            LineChart(
                tuple(drawn),
                tuple(sorted(colours.items(), key=lambda item: item[1])),
                tuple(styles.items()) if len(styles) > 1 else (),
                unit,
                slower,
                tuple(row for line in lines for row in line.rows),
            )
        )
    return found


def _untold(lines: list[Line], by_dtype: bool) -> list[str]:
    """The terms in which lines differ and that colour doesn't tell: dashes do."""
    told = "dtype" if by_dtype else "source"
    return [term for term in varying(lines) if term != told]


def _style(line: Line, differing: list[str]) -> str:
    return ", ".join(_word(term, line) for term in differing if line.terms.get(term) is not None)


def _word(term: str, line: Line) -> str:
    value = line.terms.get(term)
    return setting(term[1:], value) if term.startswith(":") else shorten(str(value))


def _facets(sweep: Sweep, others: list[Sweep], lead: str) -> list[tuple[str, str, list[Line]]]:
    """(title, size, lines) of each panel: split by one term after the other until no panel is crowded."""
    shared = {term for other in others for term in varying(other.lines)}
    lead = lead if lead in varying(sweep.lines) else "source"
    parts: list[tuple[list[str], list[Line]]] = [([], list(sweep.lines))]
    while any(_crowded(lines, lead) for _, lines in parts):
        term = _split_by([lines for _, lines in parts], lead, shared)
        if term is None:
            break
        divided = []
        for words, lines in parts:
            for value, members in grouped(lines, _value(term)).items():
                divided.append(([*words, _word(term, members[0])] if value is not None else words, members))
        parts = divided
    # nothing tells the lines of a still crowded panel apart but that a case was measured again
    pages = [(w, lines[i : i + MOST_LINES]) for w, lines in parts for i in range(0, len(lines), MOST_LINES)]
    head = [shorten(sweep.workload.partition(".")[2] or sweep.workload)]
    return [(" · ".join([*head, *words]), sweep.size, lines) for words, lines in pages]


def _crowded(lines: list[Line], lead: str) -> bool:
    """More lines, or more kinds of dashes, than the eye keeps apart."""
    terms = [term for term in varying(lines) if term != lead]
    styles = {tuple(line.terms.get(term) for term in terms) for line in lines}
    most = MOST_STYLES if len(terms) < 2 else MOST_STYLES - 1  # combinations take longer to look up
    return len(lines) > MOST_LINES or len(styles) > most


def _split_by(parts: list[list[Line]], lead: str, shared: set[str]) -> str | None:
    """The term whose panels are the fewest that are not crowded.

    Devices (or dtypes) stay together if they can, and so does what other workloads of the figure have too: its
    dashes then mean the same everywhere.
    """
    choices = []
    for term in dict.fromkeys(term for part in parts for term in varying(part)):
        divided = [group for part in parts for group in grouped(part, _value(term)).values()]
        worst = max((len(group) for group in divided if _crowded(group, lead)), default=0)
        choices.append((term == lead, worst > 0, term in shared, worst or len(divided), term))
    return min(choices)[-1] if choices else None


def _value(term: str) -> Callable[[Line], Scalar]:
    return lambda line: line.terms.get(term)
