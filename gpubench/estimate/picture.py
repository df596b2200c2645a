"""The picture of an estimate: the benchmarks of the answer, a hatched bar for the likely speedup on each GPU."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..report.answer import MOST_ROWS
from ..report.charts.layouts import NamedRow, NamedRows, RowMark, row_pitch, rows_height
from ..report.charts.page import Figure, Key
from ..report.charts.selection import add_caption
from ..report.charts.theme import ACCELERATORS
from ..report.study import Study
from ..report.words import without_threads
from .outlook import Outlook
from .printing import UNKNOWN, Line, base_of, cell, lines_of, telling

_ROOM = 580
"""Pixels that the rows have with their headings."""


def estimate_figure(study: Study, estimates: Sequence[Outlook]) -> Figure:
    """Likely speedups of the rows of the answer of which something is known for each GPU. Raises UsageError where there
    are none."""
    gpus = list(dict.fromkeys(each.gpu for each in estimates))
    known = [line for line in lines_of(study, estimates) if all(map(_known, line.of.values()))]
    if not known:
        raise UsageError("no estimate picture: nothing is known of what a GPU could bring to these results")
    pitch = row_pitch(len(gpus)) - 3
    for most in range(MOST_ROWS, 0, -1):
        shown = telling(known, most)
        entries = tuple(_entry(line, gpus) for line in shown)
        if rows_height(entries, pitch) <= _ROOM:
            break
    rows = [row for line in shown if line.answer for row in line.answer.items[:1]]
    base = without_threads(study.names.of(rows[0]))
    legend = tuple(Key(gpu, role, "hatched") for gpu, role in zip(gpus, ACCELERATORS, strict=False))
    few = f"{len(shown)} of {len(known)} benchmarks are shown, e" if len(shown) < len(known) else "E"
    subtitle = f"Estimated, not measured. {few}ach at its largest size, log scale"
    note = "Estimated, not measured: from the GPUs' datasheets and each benchmark's work; bar: likely range. "
    chart = NamedRows(entries, "", legend, (f"{base} faster", "GPU faster"))
    title = f"Estimated speedup of GPUs over {base_of(shown, base)}"
    figure = Figure("estimate", "estimate", title, subtitle, "", chart)
    return add_caption(figure, study, rows, note)


def _known(each: Outlook) -> bool:
    return each.memory is None and cell(each) != UNKNOWN


def _entry(line: Line, gpus: Sequence[str]) -> NamedRow:
    row = line.answer
    assert row is not None
    marks = tuple(_mark(line.of[gpu], role) for gpu, role in zip(gpus, ACCELERATORS, strict=False))
    return NamedRow("", row.name if row.leads else f"\u2003{row.name}", row.detail, marks)


def _mark(each: Outlook, role: str) -> RowMark:
    """The range as a bar; a bound alone as words."""
    low, high = each.probably if each.probably and (each.at_most or 0) >= 1 else (None, None)
    return RowMark(None, role, cell(each) + each.job.star, low, high, modelled=True)
