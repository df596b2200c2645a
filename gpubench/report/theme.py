"""Colours, markers and dashes of the charts, light and dark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIGHT, DARK = "light", "dark"

# After Okabe and Ito, "Color Universal Design" (2008); each darkened or lightened until it stands out 3:1 against
# the page (WCAG 2.1, 1.4.11), which their sky blue, yellow and orange don't on white.
_SERIES = {
    LIGHT: ("#0072b2", "#d55e00", "#00865f", "#a8488a", "#9a6b00", "#3d7fb8", "#555555", "#8a3324"),
    DARK: ("#56b4e9", "#ff8c42", "#2dc79c", "#e59ac8", "#f0c541", "#a6c8ff", "#b8b8b8", "#ff9e8f"),
}
_ROLES = {
    LIGHT: {"page": "#ffffff", "text": "#1f2328", "muted": "#59636e", "grid": "#e3e6ea", "shade": "#f1f3f6"},
    DARK: {"page": "#0d1117", "text": "#e6edf3", "muted": "#9aa4b0", "grid": "#262c36", "shade": "#1a2029"},
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)),
    (0, (9, 3)),
)

SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],  # ships with matplotlib: the same everywhere
    "svg.hashsalt": "gpubench",
    "svg.fonttype": "path",
    "axes.unicode_minus": True,
    "path.simplify": False,
    "text.usetex": False,
    "text.parse_math": False,  # a name from a file may hold dollars
}


def colour(theme: str, role: str | int) -> str:
    """``role`` is the name of a part of the page, or the number of a series."""
    return _SERIES[theme][role % len(_SERIES[theme])] if isinstance(role, int) else _ROLES[theme][role]


def marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def dashes(index: int) -> Any:
    return DASHES[index % len(DASHES)]


@dataclass(frozen=True, slots=True)
class Ink:
    """Remembers what was painted in which role, so that one drawing serves both themes."""

    strokes: list[tuple[Callable[[str], Any], str | int]]

    def __call__(self, setter: Callable[[str], Any], role: str | int) -> None:
        self.strokes.append((setter, role))

    def apply(self, theme: str) -> None:
        for setter, role in self.strokes:
            setter(colour(theme, role))
