"""The picture of a profile: a bar of a step's parts for the CPU and for each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..report.charts.page import Figure, Key, Page
from .notes import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PYTHON
from .profile import Profile
from .profile_text import answer, span_text

NAMES = "waiting for data", "own Python", "Python, launches", "operators"
ROLES = "accelerator1", "cpu1", "cpu0", "accelerator0"
_ROW = 34.0
Row = tuple[str, tuple[float, ...], float, str]


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows of parts in seconds, by name, each with the end of its range and the words beside it."""

    rows: tuple[Row, ...]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The parts."""
        return tuple(map(Key, NAMES, ROLES, ["bar"] * 4))

    @property
    def height(self) -> float:
        """Pixels of the rows and of the axis."""
        return _ROW * len(self.rows) + 40

    def draw(self, page: Page) -> None:
        """Draw one bar a row, the range as a pale end."""
        (axes,) = page.panels(1)
        for i, (_, parts, high, words) in enumerate(self.rows):
            left = 0.0
            for seconds, role in zip(parts, ROLES, strict=True):
                axes.barh(-i, seconds, left=left, height=0.6, color=page.ink(role))
                left += seconds
            axes.barh(-i, max(0.0, high - left), left=left, height=0.6, color=page.ink(ROLES[-1]), alpha=0.3)
            page.note(axes, words, (max(high, left), -i), (4, 0), va="center")
        axes.set_yticks([-i for i in range(len(self.rows))], [row[0] for row in self.rows])
        axes.set_xlim(0, 1.25 * max(max(sum(parts), high) for _, parts, high, _ in self.rows))
        axes.set_xlabel("seconds of a step")
        axes.grid(True, axis="x")


def figure_of(profile: Profile) -> Figure:
    """Return the picture of a completed profile."""
    parts, mean_s = profile.parts, profile.step.mean_s if profile.step else 0.0
    own = parts[DATA], parts[PYTHON], parts[HOST], parts[FORWARD] + parts[BACKWARD] + parts[OPTIMIZER]
    rows: list[Row] = [(f"CPU, {profile.threads} threads", own, mean_s, span_text(mean_s))]
    for gpu in profile.gpus:  # at the low end, without work that is done beside other work
        left_s, each = gpu.step_s[0], []
        for seconds in (parts[DATA], parts[PYTHON], gpu.host_s[0], left_s):
            each.append(min(seconds, left_s))
            left_s -= each[-1]
        rows.append((gpu.gpu, tuple(each), gpu.step_s[1], span_text(*gpu.step_s)))
    note = "CPU: measured." + " GPUs: modelled; the pale end is the range." * bool(profile.gpus)
    return Figure("profile", "profile", answer(profile), "Parts of a mean step", note, Bars(tuple(rows)))
