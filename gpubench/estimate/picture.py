"""The picture of an estimate: the benchmarks of the answer, a hatched bar for the likely speedup on each GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..report.charts.headline_chart import named_rows
from ..report.charts.layouts import NamedRows, RowMark
from ..report.charts.page import Figure, Key
from ..report.charts.selection import add_caption
from ..report.charts.theme import ACCELERATORS
from ..report.study import Study
from ..report.words import name, without_threads
from ..runfile.quantities import listed
from .outlook import Outlook
from .printing import BEYOND, LIMITS, STARRED, UNKNOWN, base_of, cell, lines_of


def estimate_figure(study: Study, estimates: Sequence[Outlook]) -> Figure | None:
    """Likely speedups of the rows of the answer of which something is known for each GPU; None where there are none."""
    gpus = list(dict.fromkeys(each.gpu for each in estimates))
    lines = lines_of(study, estimates)
    known = [line for line in lines if all(cell(each) != UNKNOWN for each in line.of.values())]
    if not known:
        return None
    of = {id(line.answer): line.of for line in known}
    rows = [line.answer for line in known if line.answer]
    roles = dict(zip(gpus, ACCELERATORS, strict=False))
    shown, drawn, which = named_rows(
        rows, lambda row: [_mark(of[id(row)][gpu], role) for gpu, role in roles.items()], headings=False
    )
    results = [row.items[0] for row in shown]
    base = without_threads(study.names.of(results[0]))
    legend = tuple(Key(gpu, role, "hatched") for gpu, role in roles.items())
    subtitle = f"Estimated, not measured. {which}, log scale"
    note = "Estimated, not measured: from the GPUs' datasheets and each benchmark's work; bar: likely range. "
    note += _small_print([of[id(row)] for row in shown], [line.of for line in lines if line not in known])
    chart = NamedRows(drawn, "", legend, (f"{base} faster", "GPU faster"))
    title = f"Estimated speedup of GPUs over {base_of(known, base)}"
    figure = Figure("estimate", "estimate", title, subtitle, "", chart)
    return add_caption(figure, study, results, note, flagged="")


def _small_print(drawn: Sequence[Mapping[str, Outlook]], left_out: Sequence[Mapping[str, Outlook]]) -> str:
    """What the signs in the cells mean, and which benchmarks aren't drawn."""
    shown = [each for of in drawn for each in of.values()]
    cells = [cell(each) for each in shown]
    starred = any(each.job.star for each in shown)
    note = f"{STARRED}. " * starred
    note += f"{LIMITS}. " * any(each.limited for each in cells) + f"{BEYOND}. " * any(each.beyond for each in cells)
    unknown = listed(dict.fromkeys(name(next(iter(of.values())).job.case) for of in left_out), 2)
    return note + f"Unknown, and not drawn: {unknown} (gpubench estimate says why). " * bool(left_out)


def _mark(each: Outlook, role: str) -> RowMark:
    """The range as a bar; a bound alone as words."""
    low, high = each.probably if each.probably and (each.at_most or 0) >= 1 else (None, None)
    return RowMark(None, role, cell(each, star=each.job.star).words, low, high, modelled=True)
