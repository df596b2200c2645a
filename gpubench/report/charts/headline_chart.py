"""The headline: how much faster each benchmark of the answer is, without another device how much of the measured peak
it reaches, or of benchmarks that declare no work how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...runfile.flags import Reason
from ...runfile.quantities import counted, listed
from .. import words
from ..answer import MOST_ROWS, Answer, AnswerRow, Speedups, at_largest, choose_rows
from ..number import LIMITS, Sign, State
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
    found = [_speedups(study, each, rank) for rank, each in enumerate(answer.speedups)]
    times = answer.times if study.measured else []
    shares = [row for row in times if any(item.utilisation for item in row.items)]
    if found or not times or (len(times) < LEAST_VALUES and any(each.efficiency for each in study.scaled)):
        return found
    share = len(shares) >= LEAST_VALUES
    return [_alone(study, shares if share else times, share)]


def named_rows(
    rows: Sequence[AnswerRow[Item]], marks: Callable[[AnswerRow[Item]], Iterable[RowMark]], headings: bool = True
) -> tuple[list[AnswerRow[Item]], tuple[NamedRow, ...], str]:
    """The rows that a picture has room for, as they are drawn, and a sentence on which they are. Headings are left out
    of one's own benchmarks alone, and if most would stand above a single row."""
    headings = headings and any(each.heading != words.OWN for each in rows)
    for most in range(MOST_ROWS, 0, -1):
        shown = choose_rows(rows, most)
        headings = headings and 2 * len({each.heading for each in shown}) <= len(shown)
        drawn = tuple(_named(each, headings, tuple(marks(each))) for each in shown)
        if NamedRows(drawn).height <= _ROOM:
            break
    which = f"{len(drawn)} of {len(rows)} rows are shown. " * (len(drawn) < len(rows))
    return shown, drawn, f"{which}{at_largest(rows)}"


def _named(row: AnswerRow[Item], headings: bool, marks: tuple[RowMark, ...]) -> NamedRow:
    """The row under its heading, whose words its name doesn't repeat."""
    name = row.indented
    short = name.removeprefix(f"{row.heading} ") if headings else name
    return NamedRow(row.heading * headings, short[:1].upper() + short[1:] if short != name else name, marks)


def _speedups(study: Study, found: Speedups, rank: int) -> Figure:
    rows, drawn, which = named_rows(found.rows, lambda row: [_ratio(study, row, pair) for pair in row.items])
    shown = [pair for row in rows for pair in row.items]
    marks = [mark for row in drawn for mark in row.marks]
    sign = "mark" if any(mark.value for mark in marks) else "bar"
    others = keys(study, (pair.other for pair in shown), sign)
    base, alone = words.without_threads(found.baseline), others[0] if len(others) == 1 else None
    legend, sides = others, (f"slower than {base}", f"faster than {base}")
    if alone:
        legend, sides = (), (f"{base} faster", f"{words.without_threads(alone.label)} faster")
    if any(pair.copies for pair in shown):
        look = alone.role if alone else "muted"
        copied = [Key("copied in and out for each call", look, "tick")] * any(mark.second for mark in marks)
        legend = (*legend, Key("data stays on the GPU", look, sign), *copied)
    title = f"Speedup {f'of {others[0].label} ' * (len(others) == 1)}over {found.baseline}"
    counts = [f"{words.without_threads(name)} {found.count(source)}" for source, name in found.devices.items()]
    subtitle = f"{'; '.join(counts)}. {which}, log scale"
    chart = NamedRows(drawn, "", legend, sides)
    figure = Figure("headline", "headline", title, subtitle, "", chart, rank * 20, rank == 0)
    unfilled = f"{Sign.UNFILLED.footnote}. " * any(not pair.fills for pair in shown)
    unfilled += f"{Sign.IN_CACHE.footnote}. " * any(pair.in_cache for pair in shown)
    limits = "≥: only a limit is known. " * any(pair.ratio.state in LIMITS for pair in shown)
    told = f"Thick line: {words.uncertainty(pair.uncertainty for pair in shown)}. {limits}{unfilled}"
    return add_caption(figure, study, shown, told)


def _ratio(study: Study, row: AnswerRow[Pair], pair: Pair) -> RowMark:
    told, copied = pair.full_ratio.noted(row.differing(pair)), pair.copies and pair.copies.drawn
    title = f"{row.named}, {study.names.of(pair.other)}: {told}" + f"; with copies {pair.copied_ratio}" * bool(copied)
    value = pair.ratio.value if pair.ratio.state is State.KNOWN else None
    low, high = pair.drawn[1:] if pair.drawn else (None, None)
    second = copied.value if copied and value else None
    return RowMark(value, role_of(study.names, pair.other), f"{told.mark}{told.note}", low, high, second, title=title)


def _alone(study: Study, rows: Sequence[AnswerRow[Measured]], share: bool) -> Figure:
    mark = _share if share else _time
    chosen, drawn, which = named_rows(rows, lambda each: [mark(study, row, each.differing(row)) for row in each.items])
    shown = [row for each in chosen for row in each.items]
    devices = keys(study, shown, "mark")
    if share:
        title = f"Share of the measured peak: {listed([key.label for key in devices])}"
        known = [row for row in shown if _share(study, row).value]
        known.sort(key=lambda row: row.utilisation or 0.0)
        ends = [f"{row.peak_share} ({words.name(row.result)})" for row in [*known[:1], *known[-1:]]]
        subtitle = f"From {' to '.join(ends)}. " * bool(ends) + which
        note = "Peaks were measured at the start of the run. " + "No GPU used. " * (not study.names.accelerators)
    else:
        title = f"Time per call of {counted(len(drawn), 'benchmark')}"
        ends = list(dict.fromkeys(str(pick(shown, key=lambda row: row.time_s).time) for pick in (min, max)))
        subtitle = f"{' to '.join(ends)}. {which}, log scale; lower is better"
        note = "Thick line: 95% interval. " * any(row.interval for row in shown)
    chart = NamedRows(drawn, "%" if share else "s", devices if len(devices) > 1 else ())
    return add_caption(Figure("headline", "headline", title, subtitle, "", chart), study, shown, note)


def _share(study: Study, row: Measured, size: str = "") -> RowMark:
    if row.utilisation is None or not row.peak_share or row.peak_share.value is None:
        why = row.quality.doubt or Reason.ABOVE_PEAK
        return RowMark(None, role_of(study.names, row), f"{Sign.UNKNOWN} {why}" if row.utilisation else "no peak")
    told = f"{row.peak_share.signed(Sign.NOISY, row.quality.noisy).mark} of {row.peak_unit}{size}"
    title = f"{words.benchmark(row.result)}: {told}, {row.time}"
    return RowMark(100 * row.utilisation, role_of(study.names, row), told, title=title)


def _time(study: Study, row: Measured, size: str = "") -> RowMark:
    low, high = (row.interval.low, row.interval.high) if row.interval else (None, None)
    title = f"{words.benchmark(row.result)}: {row.time} {row.accuracy}"
    return RowMark(row.time_s, role_of(study.names, row), row.time.mark + size, low, high, title=title)
