"""Roofline charts: what each device can do at best, and where its cases lie under that, one panel under the other.

Words are placed so that they don't lie on each other: :class:`Box`, :func:`spread` and :func:`beside`, in inches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullLocator

from ...format import bytes_text, text
from ...runfile.schema import Ceilings
from ...runfile.utilisation import compute_dtype
from ..labels import Names, Row, beyond, caption, family, flagged, grouped, shorten, size_text
from .page import (
    LEFT,
    NORMAL,
    RIGHT,
    SMALL,
    WIDTH,
    ChartData,
    Figure,
    Key,
    Page,
    Ticks,
    fitted,
    log_ticks,
    marker,
    text_width,
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its lower left corner."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Box) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Its point that is nearest to (x, y)."""
        return min(max(x, self.x), self.x + self.width), min(max(y, self.y), self.y + self.height)

    def within(self, other: Box) -> bool:
        right, top = self.x + self.width, self.y + self.height
        return (
            self.x >= other.x and self.y >= other.y and right <= other.x + other.width and top <= other.y + other.height
        )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least ``gap``, as little as that takes, kept between ``low`` and ``high``.

    In the order of the places; where there isn't room for all, evenly from ``low`` to ``high``.
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    if (len(places) - 1) * gap > high - low:
        step = (high - low) / max(1, len(places) - 1)
        found = {i: low + rank * step for rank, i in enumerate(order)}
        return [found[i] for i in range(len(places))]
    groups: list[tuple[float, list[int]]] = []
    for i in order:
        groups.append((places[i], [i]))
        while True:
            middle, members = groups[-1]
            half = (len(members) - 1) * gap / 2
            groups[-1] = (min(max(middle, low + half), high - half), members)
            if len(groups) < 2 or groups[-1][0] - half - (groups[-2][0] + (len(groups[-2][1]) - 1) * gap / 2) >= gap:
                break
            (one, first), (two, second) = groups.pop(-2), groups.pop()
            middle = (one * len(first) + two * len(second)) / (len(first) + len(second))
            groups.append((middle, first + second))
    moved = {i: middle + (k - (len(own) - 1) / 2) * gap for middle, own in groups for k, i in enumerate(own)}
    return [moved[i] for i in range(len(places))]


def beside(
    points: Iterable[tuple[float, float, float]],
    height: float,
    room: Box,
    obstacles: Sequence[Box],
    marks: Sequence[Box],
    away: float = 0.07,
) -> list[Box | None]:
    """A box for the words of each (x, y, width), or None where there is no place for it.

    Words never lie on ``obstacles`` or on each other; of the places that are left the one over the fewest ``marks``
    is taken, the nearest first.
    """
    taken = list(obstacles)
    found: list[Box | None] = []
    for x, y, width in points:
        best: tuple[int, Box] | None = None
        for dx, dy in _AROUND:
            corner = x + dx * away - (width if dx < 0 else width / 2 if dx == 0 else 0)
            box = Box(corner, y + dy * away - (height if dy < 0 else height / 2 if dy == 0 else 0), width, height)
            if not box.within(room) or any(box.meets(other) for other in taken):
                continue
            over = sum(box.meets(mark) for mark in marks)
            if best is None or over < best[0]:
                best = over, box
        if best:
            taken.append(best[1])
        found.append(best[1] if best else None)
    return found


_AROUND = tuple(
    (dx * reach, dy * reach)
    for reach in (1.0, 1.6, 2.2)
    for dx, dy in ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
)


FLOPS, BYTES, INTENSITY = "FLOP", "B", "FLOP/B"
FASTER = 1.1
"""A level whose best is less than this above a larger one's has no ceiling of its own: the difference is noise."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A case; ``label`` is empty for all but the best of its workload."""

    x: float
    y: float
    dtype: str
    family: str
    label: str = ""
    flagged: bool = False


@dataclass(frozen=True, slots=True)
class Roof:
    """A ceiling: straight lines between ``points`` in log-log, and beyond them on with that ``slope``.

    ``dtype`` is empty for a ceiling of bandwidth or launching.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    slope: int
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class RoofPanel:
    title: str
    x_unit: str
    y_unit: str
    x_label: str
    marks: tuple[Mark, ...]
    roofs: tuple[Roof, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """``dtypes`` and ``families`` are those of its marks and roofs, with the number of their colour and marker."""

    panels: tuple[RoofPanel, ...]
    dtypes: tuple[tuple[str, int], ...]
    families: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...] = ()

    def draw(self, figure: Figure) -> Page:
        return draw_roofline(figure, self)


def roofline_figures(data: ChartData) -> list[Figure]:
    """One for each device of each run whose ceilings were measured."""
    names, found = data.names, []
    for (run, device), members in grouped(data.rows, lambda row: (row["run"], row["device"])).items():
        rows = [row for row in members if row["implementation"] != "numpy"]
        ceilings = members[0]["_run"].ceilings.get(device)
        chart = roofline(rows, ceilings, names) if rows and ceilings else None
        if chart:
            note = (
                "Best of each workload named. Ceilings: the best seen on this device in this run; bandwidths and "
                "launches in grey (what a large footprint reached, a small one can), products in their dtype's colour."
            )
            facts = "What was reached of what the device can do; a case on a ceiling leaves nothing to gain"
            name = f"roofline-{device}" + f"-{run}" * names.several
            words = caption(rows, names, f"{note}{beyond(rows)} ")
            found.append(Figure(name, f"Roofline of {names.source(rows[0])}", facts, words, chart, rank=2))
    return found


def roofline(rows: list[Row], ceilings: Ceilings, names: Names) -> Roofline | None:
    """Of one device's cases; None where none declares its work or nothing was measured to hold them against."""
    both = [row for row in rows if row["_result"].work.flops and row["_result"].work.bytes]
    moving = [row for row in rows if (work := row["_result"].work).bytes and (work.flops or 0.0) < work.bytes]
    computing = [row for row in rows if (work := row["_result"].work).flops and work.flops >= (work.bytes or 0.0)]
    flat = [
        Roof(f"{shorten(dtype, 16)} matmul {text(rate, 'FLOP/s')}", ((1.0, rate),), 0, dtype)
        for dtype, rate in ceilings.throughput.items()
    ]
    launch = []
    if ceilings.launch_floor_s:
        words = f"launch floor {text(ceilings.launch_floor_s, 's')}"
        launch = [Roof(words, ((1.0, 1 / ceilings.launch_floor_s),), 1)]
    panels = (
        RoofPanel(
            "Throughput against arithmetic intensity",
            INTENSITY,
            "FLOP/s",
            "FLOP per byte",
            _marks(both, INTENSITY, FLOPS),
            (*_slopes(ceilings), *flat),
        ),
        RoofPanel(
            "Bandwidth against bytes: work of less than one FLOP per byte",
            BYTES,
            "B/s",
            "bytes per call",
            _marks(moving, BYTES, BYTES),
            (*_patterns(ceilings), *launch),
        ),
        RoofPanel(
            "Throughput against FLOP: all other work",
            FLOPS,
            "FLOP/s",
            "FLOP per call",
            _marks(computing, FLOPS, FLOPS),
            (*flat, *launch),
        ),
    )
    shown = tuple(panel for panel in panels if panel.marks and panel.roofs)
    if not shown:
        return None
    dtypes = {mark.dtype for panel in shown for mark in panel.marks} | set(ceilings.throughput)
    order = [*names.dtypes, *sorted(dtypes - set(names.dtypes))]
    known = sorted({family(row["workload"]) for row in rows})
    used = {mark.family for panel in shown for mark in panel.marks}
    return Roofline(
        shown,
        tuple((dtype, i) for i, dtype in enumerate(order) if dtype in dtypes),
        tuple((name, i) for i, name in enumerate(known) if name in used),
        tuple(rows),
    )


def _slopes(ceilings: Ceilings) -> list[Roof]:
    """The best access pattern of each level that is faster than all larger ones, memory first.

    A small cache that reads slower than a large one shows what a call costs and not what the cache can do.
    """
    found = []
    highest = 0.0
    for level in dict.fromkeys(entry.level for entry in sorted(ceilings.bandwidth, key=lambda e: -e.footprint_bytes)):
        best = max((e for e in ceilings.bandwidth if e.level == level), key=lambda e: e.byte_per_s)
        if best.byte_per_s > FASTER * highest and not level.endswith("+"):  # l3+ is partly cache, partly memory
            words = f"{shorten(level or 'memory', 16)}, {shorten(best.pattern, 16)} {text(best.byte_per_s, 'B/s')}"
            found.append(Roof(words, ((1.0, best.byte_per_s),), 1))
        highest = max(highest, best.byte_per_s)
    return found


def _patterns(ceilings: Ceilings) -> list[Roof]:
    """Each access pattern over the footprints it was measured at: what a large one reached, a small one can."""
    found = []
    for pattern in dict.fromkeys(entry.pattern for entry in ceilings.bandwidth):
        points: list[tuple[float, float]] = []
        highest = 0.0
        own = [entry for entry in ceilings.bandwidth if entry.pattern == pattern]
        for entry in sorted(own, key=lambda entry: -entry.footprint_bytes):
            highest = max(highest, entry.byte_per_s)
            points.insert(0, (entry.footprint_bytes, highest))
        words = f"{shorten(pattern, 16)} {text(points[-1][1], 'B/s')} at {bytes_text(points[-1][0])}"
        found.append(Roof(words, tuple(points), 0))
    return found


def _marks(rows: Iterable[Row], x: str, y: str) -> tuple[Mark, ...]:
    best: dict[str, float] = {}
    placed = []
    for row in rows:
        work = row["_result"].work
        amount = work.flops if y == FLOPS else work.bytes
        along = work.flops / work.bytes if x == INTENSITY else amount
        height = amount / row["time_s"]
        best[row["workload"]] = max(best.get(row["workload"], 0.0), height)
        placed.append((row, along, height))
    marks = []
    for row, along, height in placed:
        workload = row["workload"]
        notable = best[workload] == height
        if notable:
            best[workload] = -1.0  # of equals the first
        dtype = compute_dtype(row["dtype"] or "", row["variant"] or "")
        label = shorten(workload.partition(".")[2] or workload, 24) if notable else ""
        marks.append(Mark(along, height, dtype, family(workload), label, flagged(row)))
    return tuple(marks)


_HEIGHT, _HEAD, _FOOT = 3.0, 0.34, 0.5
_GUTTER = 2.15
"""Inches to the right of a panel for the names of its level ceilings."""
_WORD = 0.13
_MARK = 0.075
_MARK_COUNTS = 8
"""How many steps of a line a name may lie on rather than on one marker."""
_NEAR = 0.1
_LEAST_GAP = 0.16
"""Inches between parallel slopes, or their names would lie on each other."""


def draw_roofline(figure: Figure, chart: Roofline) -> Page:
    keys: list[Key] = [(dtype, colour, None, 0) for dtype, colour in chart.dtypes]
    keys += [(name, None, None, shape) for name, shape in chart.families]
    room = len(chart.panels) * (_HEIGHT + _HEAD + _FOOT)
    page = Page(figure.title, figure.subtitle, figure.caption, keys, room, "point")
    frames = [_Frame(panel) for panel in chart.panels]
    gutter = 0.12 + max(text_width(label, SMALL) for frame in frames for _, label in frame.y_ticks)
    y = page.top
    for frame in frames:
        y -= _HEAD + _HEIGHT
        x, width = LEFT + gutter, WIDTH - LEFT - RIGHT - gutter - _GUTTER
        page.text(LEFT, y + _HEIGHT + 0.1, frame.panel.title, NORMAL, "text", weight="bold")
        page.text(x + width, y - 0.36, frame.panel.x_label, SMALL, "muted", ha="right")
        _panel(page, page.axes(x, y, width, _HEIGHT), frame, chart, width)
        y -= _FOOT
    return page


class _Frame:
    """The limits of a panel: all marks, and as much of the ceilings as is above them."""

    def __init__(self, panel: RoofPanel) -> None:
        self.panel = panel
        x = [mark.x for mark in panel.marks]
        y = [mark.y for mark in panel.marks]
        tops = [rate for roof in panel.roofs if not roof.slope for _, rate in roof.points]
        slopes = [roof.points[0][1] for roof in panel.roofs if roof.slope]
        if panel.x_unit == INTENSITY and tops and slopes:
            x += [max(tops) / min(slopes) * 3, 0.05]
        self.x = min(x) / 2, max(x) * 2
        self.y = min(y) / 2.5, max([*y, *tops]) * 2.5
        self.y_ticks: Ticks = log_ticks(*self.y, panel.y_unit, 8)

    def inches(self, x: float, y: float, width: float) -> tuple[float, float]:
        """Of a point from the panel's lower left corner."""
        return width * _share(x, self.x), _HEIGHT * _share(y, self.y)


def _share(value: float, ends: tuple[float, float]) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def _panel(page: Page, axes: Axes, frame: _Frame, chart: Roofline, width: float) -> None:
    panel = frame.panel
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*frame.x)
    axes.set_ylim(*frame.y)
    x_ticks = [
        (place, words if panel.x_unit != INTENSITY else f"{place:g}" if place < 1000 else size_text(place))
        for place, words in log_ticks(*frame.x, panel.x_unit, 9)
    ]
    x_ticks = _apart(x_ticks, frame, width)
    for axis, places in ((axes.xaxis, x_ticks), (axes.yaxis, frame.y_ticks)):
        axis.set_major_locator(FixedLocator([place for place, _ in places]))
        axis.set_minor_locator(NullLocator())
        axis.set_ticklabels([label for _, label in places], parse_math=False)
    page.grid(axes, "both")
    colours, shapes = dict(chart.dtypes), dict(chart.families)
    sloped = _sloped(frame, width)
    level = [roof for roof in panel.roofs if not roof.slope]
    named = _level(page, axes, frame, level, sloped, colours, width)
    marks = []
    for rank, mark in enumerate(panel.marks):
        (dot,) = axes.plot(
            [mark.x], [mark.y], marker=marker(shapes[mark.family]), markersize=5.2, linestyle="", zorder=3 + rank * 1e-4
        )
        colour = colours[mark.dtype]
        page.ink(dot.set_markerfacecolor, "page" if mark.flagged else colour)
        page.ink(dot.set_markeredgecolor, colour if mark.flagged else "page")
        dot.set_markeredgewidth(1.2 if mark.flagged else 0.5)
        x, y = frame.inches(mark.x, mark.y, width)
        marks.append(Box(x - _MARK / 2, y - _MARK / 2, _MARK, _MARK))
    obstacles: list[Box] = []
    for roof in sloped:
        lines = [box for other in (*level, *sloped) if other is not roof for box in _trace(frame, other, width)]
        obstacles += _slope(page, axes, frame, roof, named, width, [*marks, *lines, *obstacles])
    notable = sorted((mark for mark in panel.marks if mark.label), key=lambda mark: -mark.y)
    points = [(*frame.inches(mark.x, mark.y, width), text_width(mark.label, SMALL)) for mark in notable]
    lines = [box for roof in (*level, *sloped) for box in _trace(frame, roof, width)]
    boxes = beside(points, _WORD, Box(0, 0, width, _HEIGHT), obstacles, marks * _MARK_COUNTS + lines)
    for mark, box, (x, y, _) in zip(notable, boxes, points, strict=True):
        if box:
            _lead(page, axes, (x, y), box.nearest(x, y), width)
            _words(page, axes, (box.x / width, (box.y + _WORD / 2) / _HEIGHT), mark.label, "text", 0.0)


def _apart(ticks: Ticks, frame: _Frame, width: float) -> Ticks:
    """Without those whose labels would lie on the one before."""
    kept: Ticks = []
    end = -math.inf
    for place, words in ticks:
        half = text_width(words, SMALL) / 2
        middle = width * _share(place, frame.x)
        if middle - half > end + 0.1:
            kept.append((place, words))
            end = middle + half
    return kept


def _sloped(frame: _Frame, width: float) -> list[Roof]:
    """Memory and the last cache, which come first, and of the others those far enough apart to be named."""
    angle = _angle(frame, width)
    kept: list[Roof] = []
    for roof in (roof for roof in frame.panel.roofs if roof.slope):
        heights = [_HEIGHT * _share(own.points[0][1], frame.y) for own in (*kept, roof)]
        apart = min((abs(height - heights[-1]) * math.cos(angle) for height in heights[:-1]), default=math.inf)
        if len(kept) < 2 or apart >= _LEAST_GAP:
            kept.append(roof)
    return kept


def _angle(frame: _Frame, width: float) -> float:
    """Of a line that grows as x does."""
    return math.atan2(_HEIGHT / math.log(frame.y[1] / frame.y[0]), width / math.log(frame.x[1] / frame.x[0]))


def _level(
    page: Page,
    axes: Axes,
    frame: _Frame,
    roofs: list[Roof],
    sloped: list[Roof],
    colours: dict[str, int],
    width: float,
) -> float:
    """Ceilings that don't depend on x, named in the gutter; gives the highest of them."""
    top = max((rate for roof in roofs for _, rate in roof.points), default=frame.y[1])
    places = [_HEIGHT * _share(roof.points[-1][1], frame.y) for roof in roofs]
    for roof, place, at in zip(roofs, places, spread(places, _WORD * 1.15, 0.05, _HEIGHT - 0.05), strict=True):
        points = [*roof.points, (frame.x[1], roof.points[-1][1])]
        if len(roof.points) == 1:
            rate = roof.points[0][1]
            steepest = max((own.points[0][1] for own in sloped), default=None)
            points = [(max(frame.x[0], rate / steepest) if steepest else frame.x[0], rate), (frame.x[1], rate)]
        role: str | int = colours[roof.dtype] if roof.dtype else "muted"
        (line,) = axes.plot(*zip(*points, strict=True), linewidth=1.3, alpha=0.9, zorder=2)
        page.ink(line.set_color, role)
        (lead,) = axes.plot(
            [1, 1 + 0.12 / width],
            [place / _HEIGHT, at / _HEIGHT],
            transform=axes.transAxes,
            clip_on=False,
            linewidth=0.8,
        )
        page.ink(lead.set_color, role)
        words = fitted(roof.label, _GUTTER - 0.16, SMALL)
        label = axes.text(
            1 + 0.15 / width,
            at / _HEIGHT,
            words,
            transform=axes.transAxes,
            fontsize=SMALL,
            va="center_baseline",
            parse_math=False,
        )
        page.ink(label.set_color, role)
    return top


def _slope(
    page: Page, axes: Axes, frame: _Frame, roof: Roof, top: float, width: float, occupied: list[Box]
) -> list[Box]:
    """A ceiling that grows with x, up to the highest level one; its name lies along it, where there is room for it.

    Gives what the name covers, which is as little as can be of what is ``occupied``.
    """
    rate = roof.points[0][1]
    end = min(frame.x[1], top / rate)
    if end <= frame.x[0] or end * rate <= frame.y[0]:
        return []
    (line,) = axes.plot([frame.x[0], end], [frame.x[0] * rate, end * rate], linewidth=1.3, zorder=2)
    page.ink(line.set_color, "muted")
    angle = _angle(frame, width)
    x0 = max(frame.x[0], frame.y[0] / rate)
    start, stop = frame.inches(x0, x0 * rate, width), frame.inches(end, end * rate, width)
    length = text_width(roof.label, SMALL)
    free = math.dist(start, stop) - length - 0.3
    if free < 0:
        x, y = (start[0] + stop[0]) / 2 + 0.12, (start[1] + stop[1]) / 2 - 0.08
        _words(page, axes, (x / width, y / _HEIGHT), roof.label, "muted", 0.0)
        return [Box(x, y - _WORD / 2, length, _WORD)]
    best: tuple[int, float, float, list[Box]] | None = None
    for away in (0.05, -0.04 - _WORD):
        for along in (0.2 + i * 0.2 for i in range(int(free / 0.2) + 1)):
            x = start[0] + along * math.cos(angle) - away * math.sin(angle)
            y = start[1] + along * math.sin(angle) + away * math.cos(angle)
            boxes = _along(x, y, length, angle)
            cost = sum(box.meets(other) for box in boxes for other in occupied)
            if y > 0 and (best is None or cost < best[0]):
                best = cost, x, y, boxes
    if best is None:
        return []
    _, x, y, boxes = best
    _words(page, axes, (x / width, y / _HEIGHT), roof.label, "muted", math.degrees(angle))
    return boxes


def _trace(frame: _Frame, roof: Roof, width: float) -> list[Box]:
    """Small boxes along a ceiling, where the panel shows it."""
    (x0, y0), (x1, y1) = roof.points[0], roof.points[-1]
    ends = [(frame.x[0], y0 * (frame.x[0] / x0) ** roof.slope), *roof.points]
    ends.append((frame.x[1], y1 * (frame.x[1] / x1) ** roof.slope))
    found = []
    for one, two in itertools.pairwise(sorted(ends)):
        (x, y), (end_x, end_y) = frame.inches(*one, width), frame.inches(*two, width)
        steps = max(1, math.ceil(math.dist((x, y), (end_x, end_y)) / 0.06))
        found += [
            Box(x + i / steps * (end_x - x), y + i / steps * (end_y - y), 0.02, 0.02)
            for i in range(steps)
            if 0 <= y + i / steps * (end_y - y) <= _HEIGHT
        ]
    return found


def _along(x: float, y: float, length: float, angle: float) -> list[Box]:
    """Boxes that together cover words written from (x, y) at that angle."""
    steps = max(1, math.ceil(length / 0.12))
    return [
        Box(
            x + i * length / steps * math.cos(angle) - _WORD * math.sin(angle),
            y + i * length / steps * math.sin(angle),
            0.12 * math.cos(angle) + _WORD * math.sin(angle),
            0.12 * math.sin(angle) + _WORD * math.cos(angle),
        )
        for i in range(steps)
    ]


def _lead(page: Page, axes: Axes, start: tuple[float, float], end: tuple[float, float], width: float) -> None:
    """A thin line from a marker to its name, where this is not right beside it."""
    if math.dist(start, end) > _NEAR:
        x, y = zip(start, end, strict=True)
        (lead,) = axes.plot(
            [each / width for each in x],
            [each / _HEIGHT for each in y],
            transform=axes.transAxes,
            linewidth=0.6,
            zorder=2.4,
        )
        page.ink(lead.set_color, "text")


def _words(page: Page, axes: Axes, at: tuple[float, float], words: str, role: str, angle: float) -> None:
    """With a rim in the page's colour, so that lines below them don't cross them out; below the markers, which no
    rim may hide."""
    label = axes.text(
        *at,
        words,
        transform=axes.transAxes,
        fontsize=SMALL,
        rotation=angle,
        rotation_mode="anchor",
        va="bottom" if angle else "center_baseline",
        zorder=2.5,
        parse_math=False,
    )
    page.ink(label.set_color, role)
    page.ink(lambda colour: label.set_path_effects([withStroke(linewidth=2.2, foreground=colour)]), "page")
