"""The picture of a profile: a bar of a step's parts for the CPU and for each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..report.charts.page import MARGIN, Figure, Key, Page
from .notes import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PYTHON
from .profile import OnGpu, Profile
from .profile_text import answer, span_text

ROLES = {
    "waiting for data": "accelerator1",
    "own Python": "cpu1",
    "Python, launches": "cpu0",
    "operators": "accelerator0",
}
_ROW = 34.0


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows of parts in seconds, by name, each with the end of its range and the words beside it."""

    rows: tuple[tuple[str, tuple[float, ...], float, str], ...]

    def draw(self, figure: Figure, theme: str) -> Page:
        """Draw one bar a row, the range as a pale end."""
        page = Page(figure, theme, _ROW * len(self.rows) + 40, [Key(name, role, "bar") for name, role in ROLES.items()])
        axes = page.axes(MARGIN + 110, page.width - 2 * MARGIN - 110, page.top, page.bottom - 30)
        most = max(max(sum(parts), high) for _, parts, high, _ in self.rows)
        for i, (_, parts, high, words) in enumerate(self.rows):
            left = 0.0
            for seconds, role in zip(parts, ROLES.values(), strict=True):
                axes.barh(-i, seconds, left=left, height=0.6, color=page.ink(role))
                left += seconds
            axes.barh(-i, max(0.0, high - left), left=left, height=0.6, color=page.ink("accelerator0"), alpha=0.3)
            page.note(axes, words, (max(high, left), -i), (4, 0), va="center")
        axes.set_yticks([-i for i in range(len(self.rows))], [row[0] for row in self.rows])
        axes.set_xlim(0, 1.25 * most)
        axes.set_xlabel("seconds of a step")
        axes.grid(True, axis="x")
        return page


def figure_of(profile: Profile) -> Figure:
    """Return the picture of a completed profile."""
    parts, step = profile.parts, profile.step
    assert step is not None
    operators = parts[FORWARD] + parts[BACKWARD] + parts[OPTIMIZER]
    own = parts[DATA], parts[PYTHON], parts[HOST], operators
    rows = [(f"CPU, {profile.threads} threads", own, step.mean_s, span_text(step.mean_s))]
    rows += [(gpu.gpu, _parts(gpu, profile), gpu.step_s[1], span_text(*gpu.step_s)) for gpu in profile.gpus]
    note = "CPU: measured. GPUs: modelled; the pale end is the range." if profile.gpus else "CPU: measured."
    return Figure("profile", "profile", answer(profile), "Parts of a mean step", note, Bars(tuple(rows)))


def _parts(gpu: OnGpu, profile: Profile) -> tuple[float, ...]:
    """Return the parts of a step at the low end of its range: work beside the host's doesn't count."""
    data_s, own_s = profile.parts[DATA], profile.parts[PYTHON]
    data_s = min(data_s, gpu.step_s[0])
    own_s = min(own_s, gpu.step_s[0] - data_s)
    host_s = min(gpu.host_s[0], gpu.step_s[0] - data_s - own_s)
    return data_s, own_s, host_s, max(0.0, gpu.step_s[0] - data_s - own_s - host_s)
