"""What several devices bring: efficiency as bars with the ideal as a tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from ...runfile.quantities import counted
from .. import words
from ..study import Scaled, Study, grouped
from .layouts import NamedRow, NamedRows, RowMark
from .page import Figure, Key
from .selection import LEAST_VALUES, add_caption

_MOST_ROWS = 16
_ORDER = attrgetter("parallel.method", "parallel.devices", "parallel.microbatches")
_CONTROL = "unsynchronised"
"""The method without communication: a reference for the other methods, not an answer."""


def scaling_figures(study: Study) -> list[Figure]:
    """Return the pictures of scaling; none if no benchmark used several devices."""
    bars = [each for each in study.scaled if each.efficiency and each.parallel.devices > 1]
    pipelines = [each for each in bars if each.parallel.microbatches]
    figures = [
        *_efficiency(study, [each for each in bars if not each.parallel.microbatches], "Several devices"),
        *_efficiency(study, pipelines, "Pipeline"),
    ]
    return [replace(figure, rank=7 + 0.1 * i) for i, figure in enumerate(figures)]


def _efficiency(study: Study, scaled: Sequence[Scaled], what: str) -> list[Figure]:
    """Return a picture with a group for each job (the same network, mode and kind of device) and a bar for each method
    and number of devices."""
    bars: list[NamedRow] = []
    used: list[Scaled] = []
    for job, members in grouped(scaled, lambda each: _job(study, each)).items():
        for each in sorted(members, key=_ORDER):
            how, known = each.parallel, each.efficiency or ()
            name = f"{how.method} on {counted(how.devices, 'device')}"
            name += f", {counted(how.microbatches, 'microbatch')}" if how.microbatches else ""
            ideal = (how.ideal_speedup or how.devices) / how.devices
            value, low, high = (100 * share for share in known)
            told = f"{value:.0f}%{'*' * each.row.quality.noisy}"
            mark = RowMark(value, "accelerator0", told, low, high, 100 * ideal, title=f"{job}, {name}: {told}")
            bars.append(NamedRow(job, name, (mark,)))
            used.append(each)
    if len(bars) < LEAST_VALUES:
        return []
    shown = [(bar, each) for bar, each in zip(bars[:_MOST_ROWS], used, strict=False)]
    best, _ = max(shown, key=lambda both: (both[1].parallel.method != _CONTROL, both[0].marks[0].value or 0.0))
    reached = f"Best: {best.name} reaches {best.marks[0].words}"
    control = f" ({_CONTROL}: without communication, for reference)"
    reached += control * any(each.parallel.method == _CONTROL for _, each in shown)
    kinds = words.uncertainty(each.uncertainty for each in used)
    left = len(bars[_MOST_ROWS:])
    note = f"On a CPU one device is one process with one thread. Thin line: {kinds}. "
    note += f"{left} more not shown. " * bool(left)
    subtitle = f"{reached}. Efficiency is the speedup over one device / number of devices"
    name = "scaling-efficiency" if what == "Several devices" else "scaling-pipeline"
    looks = Key("measured", "accelerator0", "bar"), Key("ideal for this split", "text", "tick")
    chart = NamedRows(tuple(bars[:_MOST_ROWS]), "%", looks)
    figure = Figure(name, "scaling", f"{what}: efficiency", subtitle, "", chart)
    return [add_caption(figure, study, [each.row for each in used], note)]


def _job(study: Study, each: Scaled) -> str:
    mode = f"{each.parallel.mode} scaling" if each.parallel.mode and not each.parallel.microbatches else ""
    device = words.without_threads(study.names.of(each.row))
    return " · ".join(filter(None, (words.name(each.row.result), mode, device)))
