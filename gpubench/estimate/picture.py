"""The picture of an estimate: the headline of a report, with hatched bars for what is modelled."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..report import words
from ..report.charts.layouts import NamedRow, NamedRows, RowMark
from ..report.charts.page import Figure, Key
from ..report.charts.selection import captioned, notable
from ..report.charts.theme import ACCELERATORS
from ..report.rows import Measured
from ..report.study import Study
from .outlook import MODELLED, NO, UNKNOWN, Outlook, key_of
from .printing import MOST_SHOWN, by_gpu, meanings, probably_text

MOST_GPUS = 3
"""The most GPUs in a picture: more marks in a row would leave space for few rows."""


def figure_of(study: Study, estimates: Sequence[Outlook]) -> Figure:
    """Speedups that are probable, and the most that is possible, of the benchmarks that a headline has.

    Raises UsageError for too many GPUs, and where too little is known for a picture.
    """
    gpus = list(by_gpu(estimates))
    if len(gpus) > MOST_GPUS:
        raise UsageError(f"a picture holds {MOST_GPUS} GPUs at most, not {len(gpus)}")
    known = [each for each in estimates if each.verdict != UNKNOWN]
    by_job = {(key_of(each.job.case), each.gpu): each for each in known}
    rows = [row for row in study.single_device if not row.on_accelerator]
    rows = [row for row in rows if any((key_of(row.result), gpu) in by_job for gpu in gpus)]
    if not (found := notable(study, rows, len(gpus))):
        raise UsageError("too little is known for a picture: it needs three benchmarks")
    entries, drawn = [], []
    for each in found:
        key = key_of(each.items[0].result)
        of_job = [by_job[key, gpu] for gpu in gpus if (key, gpu) in by_job]
        marks = tuple(_mark(one, ACCELERATORS[gpus.index(one.gpu)]) for one in of_job)
        entries.append(NamedRow(each.group, each.name, each.detail, marks))
        drawn += of_job
    return _figure(study, gpus, entries, drawn, [row for each in found for row in each.items])


def _figure(
    study: Study, gpus: Sequence[str], entries: Sequence[NamedRow], drawn: Sequence[Outlook], rows: Sequence[Measured]
) -> Figure:
    modelled, base = any(each.status == MODELLED for each in drawn), study.names.short(rows[0])
    looks = [("probably", "hatched"), ("at most", "tick")] if modelled else [("on another machine", "mark")]
    several = len(gpus) > 1
    legend = [Key(gpu, role, "hatched") for gpu, role in zip(gpus, ACCELERATORS, strict=False)] if several else []
    legend += [Key(label, "muted" if several else ACCELERATORS[0], look) for label, look in looks]
    sides = (f"{base} faster", f"{'GPU' if several else gpus[0]} faster")
    title = f"{'Modelled speedup' if modelled else 'Speedup'} of {' and '.join(gpus)} over {study.names.of(rows[0])}"
    lost = sum(each.verdict == NO for each in drawn)
    claim = f"The GPU can't be faster in {lost} of {len(drawn)}. " if lost else ""
    subtitle = f"{claim}Each benchmark at its largest size, against the CPU's fastest way, log scale"
    note = f"Not measured: from datasheets and each benchmark's work; {meanings()}. " if modelled else ""
    chart = NamedRows(tuple(entries), "", tuple(legend), sides)
    return captioned(Figure("estimate", "estimate", title, subtitle, "", chart), study, rows, note)


def _mark(each: Outlook, role: str) -> RowMark:
    if each.at_most is None or (each.at_most > MOST_SHOWN and not each.probably):
        return RowMark(None, role, words.NO_VALUE)
    low, high = each.probably or (None, None)
    told = probably_text(each) or f"at most {words.times(each.at_most)}"
    return RowMark(each.at_most, role, told + "*" * each.job.noisy, low, high, modelled=each.status == MODELLED)
