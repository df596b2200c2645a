"""The picture of a profile: a bar of a step's parts for the CPU and for each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..report.charts.page import Figure, Key, Page
from .notes import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PYTHON
from .profile import Profile
from .profile_text import answer, span_text

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
        (axes,) = page.panels(1)
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


def figure_of(profile: Profile) -> Figure:
    """Return the picture of a completed profile."""
    parts = profile.parts
    own = parts[DATA], parts[PYTHON], parts[HOST], parts[FORWARD] + parts[BACKWARD] + parts[OPTIMIZER]
    rows: list[Row] = [(f"CPU, {profile.threads} threads", own, profile.mean_s, span_text(profile.mean_s))]
    for gpu in profile.gpus:  # at the low end, without work that is done beside other work
        left_s, each = gpu.step_s[0], []
        for seconds in (parts[DATA], parts[PYTHON], gpu.host_s[0], left_s):
            each.append(min(seconds, left_s))
            left_s -= each[-1]
        rows.append((gpu.gpu, tuple(each), gpu.step_s[1], span_text(*gpu.step_s)))
    note = "CPU: measured." + " GPUs: modelled; the pale end is the range." * bool(profile.gpus)
    return Figure("profile", "profile", answer(profile), "Parts of a mean step", note, Bars(tuple(rows)))
