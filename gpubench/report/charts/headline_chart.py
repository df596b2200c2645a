"""The headline: how much faster each benchmark of the answer is, without another device how much of the measured peak
it reaches, or of benchmarks that declare no work how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...runfile.flags import Reason
from ...runfile.quantities import counted, listed
from .. import words
from ..answer import MOST_ROWS, Answer, AnswerRow, Speedups, at_largest, choose_rows
from ..number import LIMITS, PERCENT, SECONDS, Sign, State
from ..study import Item, Measured, Pair, Study
from .layouts import NamedRow, NamedRows, RowMark
from .page import Figure, Key
from .selection import LEAST_VALUES, add_caption, keys
from .theme import role_of

_ROOM = 560
"""Pixels that the rows have with their headings."""


def headline_figures(study: Study) -> list[Figure]:
    """Return one picture for each baseline, of the same rows as the answer's table."""
    answer = Answer(study)
    times = answer.times if study.measured else []
    shares = [row for row in times if any(item.utilisation for item in row.items)]
    scaling = len(times) < LEAST_VALUES and any(each.efficiency for each in study.scaled)
    if answer.speedups or not times or scaling:
        return [_speedups(study, each, rank) for rank, each in enumerate(answer.speedups)]
    share = len(shares) >= LEAST_VALUES
    return [_alone(study, shares if share else times, share)]


def named_rows(
    rows: Sequence[AnswerRow[Item]], marks: Callable[[AnswerRow[Item]], Iterable[RowMark]], headings: bool = True
) -> tuple[list[AnswerRow[Item]], tuple[NamedRow, ...], str]:
    """The rows that a picture has room for, as they are drawn, and a sentence on which they are. Headings are left out
    of one's own benchmarks alone, and if most would stand above a single row."""

    def name(row: AnswerRow[Item]) -> str:
        """Without the words of the heading above it."""
        short = row.indented.removeprefix(f"{row.heading} ") if headings else row.indented
        return row.indented if short == row.indented else short[:1].upper() + short[1:]

    headings = headings and any(row.heading != words.OWN for row in rows)
    for most in range(MOST_ROWS, 0, -1):
        shown = choose_rows(rows, most)
        headings = headings and 2 * len({row.heading for row in shown}) <= len(shown)
        drawn = tuple(NamedRow(row.heading * headings, name(row), tuple(marks(row))) for row in shown)
        if NamedRows(drawn).height <= _ROOM:
            break
    which = f"{len(drawn)} of {len(rows)} rows are shown. " * (len(drawn) < len(rows))
    return shown, drawn, f"{which}{at_largest(rows)}"


def _speedups(study: Study, found: Speedups, rank: int) -> Figure:
    shown, drawn, which = named_rows(found.rows, lambda row: [_ratio(study, row, pair) for pair in row.items])
    pairs = [pair for row in shown for pair in row.items]
    marks = [mark for row in drawn for mark in row.marks]
    sign = "mark" if any(mark.value for mark in marks) else "bar"
    legend = others = keys(study, (pair.other for pair in pairs), sign)
    base, alone = study.names.short(found.baseline), len(others) == 1
    sides = (f"slower than {base}", f"faster than {base}")
    if alone:
        legend, sides = ((), (f"{base} faster", f"{study.names.short(others[0].label)} faster"))
    if any(pair.copies for pair in pairs):
        look = others[0].role if alone else "muted"
        copied = [Key("copied in and out for each call", look, "tick")] * any(mark.second for mark in marks)
        legend = (*legend, Key("data stays on the GPU", look, sign), *copied)
    title = f"Speedup {f'of {others[0].label} ' * alone}over {found.baseline}"
    counts = [f"{study.names.short(name)} {found.count(source)}" for source, name in found.devices.items()]
    subtitle = f"{'; '.join(counts)}. {which}, log scale"
    note = f"Thick line: {words.uncertainty(pair.uncertainty for pair in pairs)}. "
    note += "≥: only a limit is known. " * any(pair.ratio.state in LIMITS for pair in pairs)
    note += f"{Sign.UNFILLED.footnote}. " * any(not pair.fills for pair in pairs)
    note += f"{Sign.IN_CACHE.footnote}. " * any(pair.in_cache for pair in pairs)
    chart = NamedRows(drawn, "", legend, sides)
    return add_caption(Figure("headline", "headline", title, subtitle, note, chart, rank * 20, rank == 0), study, pairs)


def _ratio(study: Study, row: AnswerRow[Pair], pair: Pair) -> RowMark:
    told, copied = (pair.full_ratio.noted(row.differing(pair)), pair.copies and pair.copies.drawn)
    title = f"{row.named}, {study.names.of(pair.other)}: {told}" + f"; with copies {pair.copied_ratio}" * bool(copied)
    value = pair.ratio.value if pair.ratio.state is State.KNOWN else None
    low, high = pair.drawn[1:] if pair.drawn else (None, None)
    second = copied.value if copied and value else None
    return RowMark(value, role_of(study.names, pair.other), f"{told.mark}{told.note}", low, high, second, title=title)


def _alone(study: Study, rows: Sequence[AnswerRow[Measured]], share: bool) -> Figure:
    mark = _share if share else _time
    shown, drawn, which = named_rows(rows, lambda row: [mark(study, row, item) for item in row.items])
    items = [item for row in shown for item in row.items]
    devices = keys(study, items, "mark")
    if share:
        title = f"Share of the measured peak: {listed([key.label for key in devices])}"
        known = [item for item in items if item.peak_share and item.peak_share.value is not None]
        known.sort(key=lambda item: item.utilisation or 0.0)
        ends = [f"{item.peak_share} ({words.name(item.result)})" for item in [*known[:1], *known[-1:]]]
        subtitle = f"From {' to '.join(ends)}. " * bool(ends) + which
        note = "Peaks were measured at the start of the run. " + "No GPU used. " * (not study.names.accelerators)
    else:
        title = f"Time per call of {counted(len(drawn), 'benchmark')}"
        ends = list(dict.fromkeys(str(pick(items, key=lambda item: item.time_s).time) for pick in (min, max)))
        subtitle = f"{' to '.join(ends)}. {which}, log scale; lower is better"
        note = "Thick line: 95% interval. " * any(item.interval for item in items)
    chart = NamedRows(drawn, PERCENT if share else SECONDS, devices if len(devices) > 1 else ())
    return add_caption(Figure("headline", "headline", title, subtitle, note, chart), study, items)


def _share(study: Study, row: AnswerRow[Measured], item: Measured) -> RowMark:
    role = role_of(study.names, item)
    if item.utilisation is None or not item.peak_share or item.peak_share.value is None:
        why = item.quality.doubt or Reason.ABOVE_PEAK
        return RowMark(None, role, f"{Sign.UNKNOWN} {why}" if item.utilisation else "no peak")
    noisy = item.peak_share.signed(Sign.NOISY, item.quality.noisy)
    told = f"{noisy.mark} of {item.peak_unit}{row.differing(item)}"
    title = f"{words.benchmark(item.result)}: {told}, {item.time}"
    return RowMark(100 * item.utilisation, role, told, title=title)


def _time(study: Study, row: AnswerRow[Measured], item: Measured) -> RowMark:
    low, high = (item.interval.low, item.interval.high) if item.interval else (None, None)
    title, text = f"{words.benchmark(item.result)}: {item.accurate_time}", item.time.mark + row.differing(item)
    return RowMark(item.time_s, role_of(study.names, item), text, low, high, title=title)
