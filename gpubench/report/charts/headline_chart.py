"""The headline: how much faster each kind of work is, without another device how much of the measured peak it reaches,
or of benchmarks that declare no work how long each takes."""

from __future__ import annotations

from collections.abc import Sequence

from ...runfile.quantities import UNFILLED, UNFILLED_SIGN, counted
from .. import words
from ..study import Doubt, Measured, Pair, Study, grouped, known_pairs, leading, slowest_first
from .layouts import NamedRow, NamedRows, RowMark
from .page import Figure, Key
from .selection import LEAST_VALUES, Notable, brief, captioned, in_order, keys, marked, notable, role_of, uncertainty

_MOST_TIMES = 20
_ABOVE = f"{words.NO_VALUE} {Doubt.ABOVE_PEAK}"


def headline_figures(study: Study) -> list[Figure]:
    """Return one picture for each baseline; with a GPU in several machines, the first one shows all devices."""
    drawn = [study.gpu_pairs] if study.gpu_pairs else []
    for pairs in study.comparisons:
        for members in grouped(leading(pairs), lambda pair: pair.base.source).values():
            against_itself = all(pair.within_device for pair in members) and study.baseline is None
            said = study.gpu_pairs and (members[0].base.on_accelerator or all(pair.within_run for pair in members))
            drawn += [] if against_itself or said else [members]
    figures = [figure for rank, pairs in enumerate(drawn) for figure in _speedups(study, pairs, rank)]
    return figures or _shares(study) or _times(study)


def _speedups(study: Study, pairs: Sequence[Pair], rank: int) -> list[Figure]:
    found = notable(study, pairs)
    if not found:
        return []
    shown = [pair for each in found for pair in each.items]
    base, others = study.names.baseline(shown), keys(study, (pair.other for pair in shown), "mark")
    legend, sides = others, (f"slower than {brief(base)}", f"faster than {brief(base)}")
    if len(others) == 1:
        legend, sides = (), (f"{brief(base)} faster", f"{brief(others[0].label)} faster")
    if any(pair.copies for pair in shown):
        looks = Key("data stays on the GPU", "muted", "mark"), Key("copied in and out for each call", "muted", "hollow")
        legend = (
            *legend,
            *(Key(key.label, others[0].role if len(others) == 1 else key.role, key.look) for key in looks),
        )
    chart = NamedRows(marked(found, lambda pair: _ratio(study, pair)), "", legend, sides)
    title = f"Speedup {f'of {others[0].label} ' * (len(others) == 1)}over {base}"
    ranges = []
    for key in others:
        own = [pair for pair in shown if study.names.of(pair.other) == key.label]
        known = known_pairs(own)
        told = words.times_range(known[0].speedup, known[-1].speedup) if known else str(own[0].doubt)
        ranges.append(f"{brief(key.label)} {told}")
    subtitle = f"{'; '.join(ranges)}. Each benchmark at its largest size, log scale"
    figure = Figure("headline", "headline", title, subtitle, "", chart, rank * 20, rank == 0)
    unfilled = f"{UNFILLED_SIGN}. " * any(not pair.fills for pair in shown)
    return [captioned(figure, study, shown, f"Thick line: {uncertainty(shown)}. {unfilled}")]


def _ratio(study: Study, pair: Pair) -> RowMark:
    look = role_of(study, pair.other)
    if pair.doubt:
        return RowMark(None, look, _ABOVE if pair.doubt == Doubt.ABOVE_PEAK else str(pair.doubt))
    copied = pair.copies.speedup if pair.copies and not pair.copies.too_noisy else None
    marks = "*" * pair.noisy + words.OTHER_WAY * bool(pair.like) + UNFILLED * (not pair.fills)
    told = words.times(pair.speedup) + marks
    return RowMark(pair.speedup, look, told, pair.ratio.low, pair.ratio.high, copied)


def _shares(study: Study) -> list[Figure]:
    """Return a picture of the shares of the measured peak, for a study without another device."""
    rows = [row for row in study.single_device if row.utilisation and not row.library]
    if not (found := notable(study, rows)):
        return []
    shown = [row for each in found for row in each.items]
    devices = keys(study, shown, "mark")
    chart = NamedRows(marked(found, lambda row: _share(study, row)), "%", devices if len(devices) > 1 else ())
    title = f"Share of the measured peak: {words.listed([key.label for key in devices])}"
    known = sorted((row for row in shown if (row.utilisation or 2) <= 1), key=lambda row: row.utilisation or 0.0)
    ends = [f"{words.share_of_peak(row)} ({words.name(row.result)})" for row in [*known[:1], *known[-1:]]]
    subtitle = f"From {' to '.join(ends)}. " * bool(ends) + "Each benchmark at its largest size"
    note = "Peaks were measured at the start of the run. " + "No GPU used. " * (not study.names.accelerators)
    return [captioned(Figure("headline", "headline", title, subtitle, "", chart), study, shown, note)]


def _share(study: Study, row: Measured) -> RowMark:
    if row.utilisation is None or row.utilisation > 1:
        return RowMark(None, role_of(study, row), _ABOVE)
    return RowMark(100 * row.utilisation, role_of(study, row), words.share_of_peak(row) + "*" * row.noisy)


def _times(study: Study) -> list[Figure]:
    """Return a picture of the times of the slowest benchmarks, each at its largest size, as many as a picture has room
    for."""
    every = slowest_first(row for kind in in_order(study.single_device) for row in kind)
    most = max(4, int(_MOST_TIMES / max(map(len, every), default=1)))
    if len(every) < LEAST_VALUES:
        return []
    found = [
        Notable("", words.name(rows[0].result), words.setting(rows[0].result), tuple(rows)) for rows in every[:most]
    ]
    shown = [row for each in found for row in each.items]
    devices = keys(study, shown, "mark")
    entries: tuple[NamedRow, ...] = marked(found, lambda row: _time(study, row))
    chart = NamedRows(entries, "s", devices if len(devices) > 1 else ())
    title = f"Time per call of the {len(found)} slowest of {counted(len(every), 'benchmark')}"
    title = title if len(found) < len(every) else f"Time per call of {counted(len(every), 'benchmark')}"
    ends = [
        words.time(pick((row for rows in every for row in rows), key=lambda row: row.time_s)) for pick in (min, max)
    ]
    subtitle = f"All: {ends[0]} to {ends[1]}. Each at its largest size, log scale; lower is better"
    note = "Thick line: 95% interval. " * any(row.interval for row in shown)
    return [captioned(Figure("headline", "headline", title, subtitle, "", chart), study, shown, note)]


def _time(study: Study, row: Measured) -> RowMark:
    low, high = (row.interval.low, row.interval.high) if row.interval else (None, None)
    return RowMark(row.time_s, role_of(study, row), words.time(row), low, high)
