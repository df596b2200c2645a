"""What a call costs on a GPU: where its time goes (copy in, launch and wait, compute, copy out), and its energy."""

from __future__ import annotations

from ...runfile.quantities import counted, text
from .. import words
from ..study import Measured, Study, grouped
from .layouts import NamedRow, NamedRows, RowMark, SharedBar, StackedBars
from .page import Figure
from .selection import LEAST_VALUES, brief, captioned, keys, notable, role_of

_PARTS = ("copy in", "launch and wait", "compute", "copy out")


def gpu_figures(study: Study) -> list[Figure]:
    """Return a picture of times for each GPU whose copies and device times were measured, and one of energy for all
    devices."""
    rows = [row for row in study.single_device if not row.doubt]
    return [*_times(study, [row for row in rows if row.on_accelerator and _parts(row)]), *_energy(study, rows)]


def _times(study: Study, rows: list[Measured]) -> list[Figure]:
    figures: list[Figure] = []
    for _, members in sorted(grouped(rows, study.names.order).items()):
        found, rank = notable(study, members), len(figures)
        if not found:
            continue
        bars = tuple(SharedBar(each.group, each.name, each.detail, _parts(each.items[0])) for each in found)
        shown = [each.items[0] for each in found]
        half = sum(bar.seconds[2] < bar.total / 2 for bar in bars)
        title = f"Where the time of a call with copies goes: {study.names.of(shown[0])}"
        subtitle = f"Less than half of it is computing in {half} of {counted(len(bars), 'benchmark')}"
        chart = StackedBars(bars, _PARTS)
        figure = Figure("gpu-time", "gpu-time", title, subtitle, "", chart, 5 + 0.01 * rank, rank < 2)
        figures.append(captioned(figure, study, shown, "At the right: the time of one call with copies. ", ""))
    return figures


def _parts(row: Measured) -> tuple[float, ...]:
    """Seconds of each part, empty where unknown. What a call takes beyond its device time is launch and wait."""
    moved, compute, call = row.result.transfer, row.result.device_s, row.times.latency_s or row.time_s
    if moved is None or compute is None:
        return ()
    return moved.in_s or 0.0, max(0.0, call - compute), min(compute, call), moved.out_s or 0.0


def _energy(study: Study, rows: list[Measured]) -> list[Figure]:
    """Return a picture of the energy of a call on each device relative to the last device, mostly the CPU; none for a
    single device."""
    found = [each for each in notable(study, [row for row in rows if row.result.energy_j]) if len(each.items) > 1]
    base = max((row for each in found for row in each.items), key=study.names.order, default=None)
    found = [each for each in found if base and each.items[-1].source == base.source]
    shown = [row for each in found for row in each.items]
    if base is None or len(shown) - len(found) < LEAST_VALUES:
        return []
    entries = tuple(
        NamedRow(
            each.group, each.name, each.detail, tuple(_saved(study, row, each.items[-1]) for row in each.items[:-1])
        )
        for each in found
    )
    *others, against = keys(study, shown, "mark")
    against_it = brief(against.label)
    sides = f"more than {against_it}", f"less than {against_it}"
    chart = NamedRows(entries, "", tuple(others) if len(others) > 1 else (), sides)
    watts = {brief(study.names.of(row)): [_watts(each) for each in shown if each.source == row.source] for row in shown}
    ends = {name: dict.fromkeys(text(pick(each), "W", 2) for pick in (min, max)) for name, each in watts.items()}
    drawn = [f"{name} {' to '.join(each)}" for name, each in ends.items()]
    title = f"Energy of a call{f' on {brief(others[0].label)}' * (len(others) == 1)}, against {against_it}"
    note = "From the device's own counter, idle power included. " + "A CPU's is that of all its sockets. " * any(
        not row.on_accelerator for row in shown
    )
    subtitle = f"Power meanwhile: {', '.join(drawn)}. Log scale"
    return [captioned(Figure("energy", "energy", title, subtitle, "", chart, 6.0), study, shown, note)]


def _saved(study: Study, row: Measured, base: Measured) -> RowMark:
    ratio = (base.result.energy_j or 0.0) / (row.result.energy_j or 1.0)
    told = f"{words.times(max(ratio, 1 / ratio))} {'less' if ratio >= 1 else 'more'}{'*' * row.noisy}"
    return RowMark(ratio, role_of(study, row), told)


def _watts(row: Measured) -> float:
    return (row.result.energy_j or 0.0) / row.time_s
