"""The largest changes of a comparison, sorted, each with its interval."""

from __future__ import annotations

import math
from pathlib import Path

from ..report.charts.layouts import NamedRow, NamedRows, RowMark
from ..report.charts.page import Figure, Key
from ..report.charts.pictures import render
from ..report.charts.theme import DARK, LIGHT
from ..runfile.writer import replace
from .comparison import Comparison, change_text
from .verdict import FASTER, INCONCLUSIVE, SAME, SLOWER, Verdict, percent

_MOST_ROWS = 20
_ROLES = {SLOWER: "slower", FASTER: "faster", SAME: "same", INCONCLUSIVE: "inconclusive"}


def save_chart(comparison: Comparison, path: Path) -> None:
    """Write ``path`` for a light page, and beside it ``…-dark`` for a dark one. Raises UsageError."""
    kind = path.suffix.removeprefix(".").lower()
    files = render([change_figure(comparison, path.stem)], (kind,))
    for theme, target in ((LIGHT, path), (DARK, path.with_name(f"{path.stem}-dark{path.suffix}"))):
        replace(target, files[f"{path.stem}-{theme}.{kind}"])


def change_figure(comparison: Comparison, name: str) -> Figure:
    """The largest changes either way."""
    verdicts = sorted(comparison.verdicts, key=lambda each: (-each.ratio.value, each.key))
    left = len(verdicts) - _MOST_ROWS
    shown = verdicts if left <= 0 else [*verdicts[: _MOST_ROWS // 2], *verdicts[-_MOST_ROWS // 2 :]]
    caption = (
        "Point: ratio of the geometric means of the processes' medians; thick line: its 95 % interval, missing where "
        f"there is one process a side; shaded: less than {percent(comparison.threshold)}, the threshold."
    )
    caption += f" {left} benchmarks between the largest and the smallest changes are left out." if left > 0 else ""
    keys = tuple(Key(word, role, "mark") for word, role in _ROLES.items() if any(v.verdict == word for v in verdicts))
    chart = NamedRows(
        tuple(_row(each) for each in shown), "", keys, ("faster now", "slower now"), band=comparison.threshold
    )
    counts = [f"{sum(each.verdict == word for each in verdicts)} {word}" for word in (SLOWER, FASTER)]
    title = f"Time after / time before: {', '.join(counts)} of {len(verdicts)}"
    return Figure(name, "compare", title, comparison.line, caption, chart)


def _row(verdict: Verdict) -> NamedRow:
    ratio = verdict.ratio
    known = ratio.low > 0 and math.isfinite(ratio.high)
    low, high = (ratio.low, ratio.high) if known else (None, None)
    mark = RowMark(ratio.value, _ROLES[verdict.verdict], change_text(ratio.value), low, high)
    return NamedRow("", str(verdict.key), "", (mark,))
