"""The picture of an estimate: the benchmarks of the answer, a bar for the likely speedup on each GPU."""

from __future__ import annotations

from collections.abc import Sequence

from ..report.charts.headline_chart import named_rows
from ..report.charts.layouts import NamedRows, RowMark
from ..report.charts.page import Figure, Key
from ..report.charts.selection import add_caption
from ..report.charts.theme import ACCELERATORS
from ..report.study import Study
from ..report.words import name
from ..runfile.quantities import listed
from .outlook import Outlook
from .printing import UNKNOWN, base_of, cell, legend, lines_of


def estimate_figure(study: Study, estimates: Sequence[Outlook]) -> Figure | None:
    """Return likely speedups of the rows of the answer, as far as something is known for each GPU; None if nothing
    is."""
    lines = lines_of(study, estimates)
    unknown = [line for line in lines if any(cell(each) == UNKNOWN for each in line.of.values())]
    drawn = [line for line in lines if line not in unknown]
    if not drawn:
        return None
    of = {id(line.answer): line.of for line in drawn}
    roles = dict(zip(dict.fromkeys(each.card.name for each in estimates), ACCELERATORS, strict=False))
    answers = [line.answer for line in drawn if line.answer]
    shown, rows, which = named_rows(
        answers, lambda row: [_mark(of[id(row)][gpu], role) for gpu, role in roles.items()], headings=False
    )
    results = [row.items[0] for row in shown]
    base = study.names.short(study.names.of(results[0]))
    note = "Estimated, not measured: from the GPUs' datasheets and each benchmark's work; bar: likely range. "
    note += "".join(f"{sign}. " for sign in legend([each for row in shown for each in of[id(row)].values()]))
    names = listed(dict.fromkeys(name(line.job.case) for line in unknown), 2)
    note += f"Unknown, and not drawn: {names} (gpubench estimate says why). " * bool(unknown)
    keys = tuple(Key(gpu, role, "bar") for gpu, role in roles.items())
    chart = NamedRows(rows, "", keys, (f"{base} faster", "GPU faster"))
    title, subtitle = (
        f"Estimated speedup of GPUs over {base_of(drawn, base)}",
        f"Estimated, not measured. {which}, log scale",
    )
    return add_caption(Figure("estimate", "estimate", title, subtitle, note, chart), study, results, flagged="")


def _mark(each: Outlook, role: str) -> RowMark:
    """Return the range as a bar; a bound alone as words."""
    low, high = each.probably if each.probably and (each.at_most or 0) >= 1 else (None, None)
    return RowMark(None, role, cell(each).words, low, high, modelled=True)
