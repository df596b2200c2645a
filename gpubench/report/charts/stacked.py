"""The picture of a profile: a bar of a step's parts for the CPU and for each GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .page import TINY, Figure, Key, Page, text_width

ROLES = {
    "waiting for data": "accelerator1", "own Python": "cpu1", "Python, launches": "cpu0", "operators": "accelerator0",
}  # fmt: skip
_ROW = 34.0
Row = tuple[str, tuple[float, ...], float, str]


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows of parts in seconds, by name, each with the end of its range and the words beside it."""

    rows: tuple[Row, ...]
    keys: tuple[Key, ...] = tuple(Key(name, role, "bar") for name, role in ROLES.items())

    @property
    def height(self) -> float:
        """Pixels of the rows and of the axis."""
        return _ROW * len(self.rows) + 40

    def draw(self, page: Page) -> None:
        """Draw one bar a row, the range as a pale end."""
        (axes,) = page.panels(1, [12 + max(text_width(name, TINY) for name, *_ in self.rows)])
        for i, (_, parts, high, words) in enumerate(self.rows):
            rest, left = max(0.0, high - sum(parts)), 0.0
            for seconds, role, alpha in zip(
                (*parts, rest), (*ROLES.values(), "accelerator0"), (1, 1, 1, 1, 0.3), strict=True
            ):
                axes.barh(-i, seconds, left=left, height=0.6, color=page.ink(role), alpha=alpha)
                left += seconds
            page.note(axes, words, (left, -i), (4, 0), va="center")
        axes.set_yticks([-i for i in range(len(self.rows))], [row[0] for row in self.rows])
        axes.set_xlim(0, 1.25 * max(max(sum(parts), high) for _, parts, high, _ in self.rows))
        axes.set_xlabel("seconds of a step")
        axes.grid(True, axis="x")


def stacked_figure(answer: str, rows: Iterable[Row], note: str) -> Figure:
    """Return the picture of a profile: the ``answer``, and a row of each device."""
    return Figure("profile", "profile", answer, "Parts of a mean step", note, Bars(tuple(rows)))
