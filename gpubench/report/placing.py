"""Where words go so that they don't lie on each other; in inches, knows nothing of what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
