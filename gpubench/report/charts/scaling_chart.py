"""The gain by several devices: efficiency as bars with the ideal as a tick."""

from __future__ import annotations

from operator import attrgetter

from ...runfile.quantities import counted
from .. import words
from ..number import PERCENT, Sign, share
from ..study import Scaled, Study, grouped
from .layouts import NamedRow, NamedRows, RowMark
from .page import Figure, Key
from .selection import LEAST_VALUES, add_caption

_MOST_ROWS = 16
_ORDER = attrgetter("parallel.method", "parallel.devices")
_CONTROL = "unsynchronised"
"""The method without communication: a reference for the other methods, not an answer."""


def scaling_figures(study: Study) -> list[Figure]:
    """Return a picture with a group for each job (the same network, mode and kind of device) and a bar for each method
    and number of devices; none if fewer benchmarks used several devices than a picture needs."""
    scaled = [each for each in study.scaled if each.efficiency and each.parallel.devices > 1]
    if len(scaled) < LEAST_VALUES:
        return []
    jobs = grouped(scaled, lambda each: _job(study, each))
    every = [(job, each) for job, members in jobs.items() for each in sorted(members, key=_ORDER)]
    bars, shown = (tuple(_bar(*each) for each in every[:_MOST_ROWS]), [each for _, each in every[:_MOST_ROWS]])
    order = [(each.parallel.method != _CONTROL, each.efficiency or ()) for each in shown]
    best = bars[order.index(max(order))]
    reached = f"Best: {best.name} reaches {best.marks[0].words}"
    control = f" ({_CONTROL}: without communication, for reference)"
    reached += control * any(each.parallel.method == _CONTROL for each in shown)
    kinds = words.uncertainty(each.uncertainty for each in shown)
    note = f"On a CPU one device is one process with one thread. Thin line: {kinds}. "
    note += f"{len(every) - len(shown)} more not shown. " * (len(every) > len(shown))
    subtitle = f"{reached}. Efficiency is the speedup over one device / number of devices"
    looks = (Key("measured", "accelerator0", "bar"), Key("ideal for this split", "text", "tick"))
    chart = NamedRows(bars, PERCENT, looks)
    figure = Figure("scaling-efficiency", "scaling", "Several devices: efficiency", subtitle, note, chart, 7.0)
    return [add_caption(figure, study, [each.row for each in scaled])]


def _job(study: Study, each: Scaled) -> str:
    mode = f"{each.parallel.mode} scaling" if each.parallel.mode else ""
    device = study.names.short(study.names.of(each.row))
    return " · ".join(filter(None, (words.name(each.row.result), mode, device)))


def _bar(job: str, each: Scaled) -> NamedRow:
    how, (value, low, high) = each.parallel, each.efficiency or (0.0, 0.0, 0.0)
    name = f"{how.method} on {counted(how.devices, 'device')}"
    told, ideal = share(value).signed(Sign.NOISY, each.row.quality.noisy).mark, how.ideal_speedup or how.devices
    ends, title = (100 * low, 100 * high, 100 * ideal / how.devices), f"{job}, {name}: {told}"
    return NamedRow(job, name, (RowMark(100 * value, "accelerator0", told, *ends, title=title),))
