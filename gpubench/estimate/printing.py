"""Estimates as text: a table with a column for each GPU, all values as columns of files, and the list of GPUs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..cards.datasheets import UNITS, Gpu
from ..cards.model import learned_values
from ..report import words
from ..report.answer import AnswerRow, answer_rows, choose_rows
from ..report.number import Number, Sign, State, seconds
from ..report.render import Column, Table, table, terminal
from ..report.rows import PEOPLE_COUNT, Measured, grouped
from ..report.study import Study
from ..runfile.quantities import counted, listed, text, times, times_range
from .outlook import MODELLED, TOO_SMALL, Job, Outlook, key_of

STARRED = "* busy or noisy: the CPU's time may be too long, and the speedup too large"
VALUES: Sequence[Column[Outlook]] = (
    Column("id", lambda each: each.job.case.id),
    Column("how", lambda each: each.job.how),
    Column("gpu", lambda each: each.card.name),
    Column("cpu_s", lambda each: each.job.cpu_s),
    Column("cpu_way", lambda each: each.job.way),
    Column("bound", lambda each: each.bound and each.bound.binds),
    Column("shortest_s", lambda each: each.bound and each.bound.seconds),
    Column("at_most", lambda each: each.at_most),
    Column("probably_low", lambda each: each.probably and each.probably[0]),
    Column("probably_high", lambda each: each.probably and each.probably[1]),
    Column("likely_low_s", lambda each: each.likely and each.likely.low_s),
    Column("likely_high_s", lambda each: each.likely and each.likely.high_s),
    Column("with_copies_at_most", lambda each: each.with_copies_at_most),
    Column("rate_low", lambda each: each.rate and each.rate[0]),
    Column("rate_high", lambda each: each.rate and each.rate[1]),
    Column("unit", lambda each: each.job.work.unit),
    Column("status", lambda each: MODELLED),
    Column("note", lambda each: "; ".join(filter(None, (each.note, STARRED * bool(each.at_most and each.job.star))))),
)
"""Columns of files: SI base units, and empty if a value is unknown."""
MOST_SHOWN = 200.0
"""The largest speedup shown: a larger bound often rests only on the launch of an operation. Files hold it."""
NOTICE = "Modelled, not measured: from the GPU's datasheet and each benchmark's work. How wrong: docs/estimate.md"
GUESS, LIMITS = "A range is a guess", "≤ and ≥ are limits from the datasheet"
BEYOND = f">{MOST_SHOWN:g}×: a range above that"
_MOST_LINES, _BESIDE = 6, 2
"""Most lines of small print; most GPUs with times beside the speedups, and not below them."""


class Line(NamedTuple):
    """A row of the table: its label and its estimates by GPU, or items per second instead of speedups if ``rates``."""

    label: str
    answer: AnswerRow[Measured] | None
    of: Mapping[str, Outlook]
    rates: bool = False

    @property
    def job(self) -> Job:
        """The benchmark."""
        return next(iter(self.of.values())).job


def lines_of(study: Study, estimates: Iterable[Outlook], every: bool = False) -> list[Line]:
    """Return the rows of the answer, as far as something can be estimated of them; if ``every``, each benchmark at each
    size, in each way that a GPU could compute it, and its items per second where people count them."""
    lines: dict[Hashable, list[Line]] = {}
    able = (each for each in estimates if not each.job.obstacle)
    for (key, how), members in grouped(able, lambda each: (key_of(each.job.case), each.job.how)).items():
        of, job = {each.card.name: each for each in members}, members[0].job
        own = lines.setdefault(key, [])
        own.append(Line(f"\u2003{how}" if how else words.benchmark(job.case), None, of))
        if job.work.unit in PEOPLE_COUNT and not how and any(each.rate for each in members):
            own.append(Line(f"\u2003{job.work.unit}s/s", None, of, rates=True))
    if every:
        return [line for own in lines.values() for line in own]
    rows = [row for row in study.measured if not row.on_accelerator and not row.library] or study.measured
    answer = answer_rows(study, [row for row in rows if key_of(row.result) in lines])
    return [Line(each.indented, each, lines[key_of(each.items[0].result)][0].of) for each in answer]


class Cell(NamedTuple):
    """An estimated speedup in words; ``limited`` if a limit of the datasheet is in them, ``beyond`` if the range is
    above :data:`MOST_SHOWN`."""

    words: str
    limited: bool = False
    beyond: bool = False


UNKNOWN = Cell("unknown")


def cell(each: Outlook, bound: bool = False) -> Cell:
    """``12–33×``, ``>200×``; ``12× to ≤ 33×`` if the range ends at the bound; ``≤ 2.6×`` if only a bound is known that
    excludes something; or ``unknown``. With the ``bound`` behind it if that is wanted, and the CPU's star."""
    most, star = each.at_most, each.job.star
    if each.bound is None or most is None:
        return UNKNOWN
    if most < 1:
        return Cell(f"≥ {times(most)}{star}", limited=True)
    limit = f"≤ {times(most)}{star}"
    if each.probably is None:
        return Cell(limit, limited=True) if most <= MOST_SHOWN or each.bound.binds == "memory" else UNKNOWN
    low, high = each.probably
    if high >= most and low <= MOST_SHOWN:
        return Cell(f"{times(low)} to {limit}", limited=True)
    beyond, limited = low > MOST_SHOWN and not bound, bound and most <= MOST_SHOWN
    likely = f">{MOST_SHOWN:g}×" if beyond else times_range(low, high, "–")
    return Cell(likely + star + f", {limit}" * limited, limited, beyond)


def _rate(each: Outlook) -> str:
    """``410–1,100`` items per second, with the bound where launches hide it: ``35–84, ≤ 1,100``."""
    if not (each.rate and each.likely and each.bound):
        return ""
    most = (each.job.work.items or 0.0) / each.bound.seconds
    return "–".join(map(_people_count, each.rate)) + f", ≤ {_people_count(most)}" * each.likely.launches


def _time(each: Outlook) -> str:
    """``1.0–2.1 ms``: the GPU's likely time; empty where the GPU can't be faster."""
    if not each.likely or (each.at_most or 0.0) < 1:
        return ""
    low, high = (text(value, "s", 2) for value in (each.likely.low_s, each.likely.high_s))
    return f"{low.rpartition(' ')[0] if low.split()[-1] == high.split()[-1] else low}–{high}"


def _people_count(rate: float) -> str:
    rounded = float(f"{rate:.2g}")
    return f"{rounded / 1e6:g}M" if rounded >= 1e6 else f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _cpu(line: Line) -> Number | None:
    """Return the CPU's time, or its items per second; None for another way than it was timed in."""
    job = line.job
    if job.how:
        return None
    if line.rates:
        rate = (job.work.items or 0.0) / job.cpu_s
        return Number(rate, state=State.KNOWN, words=f"{_people_count(rate)}{job.star}")
    return seconds(job.cpu_s, bool(job.star)).signed(Sign.OTHER_WAY, bool(job.way))


def base_of(lines: Sequence[Line], name: str) -> str:
    """Return the base of the speedups: ``1 of 2 threads of Xeon``, since a CPU with more would be faster."""
    threads = {(line.job.case.threads, line.job.cores) for line in lines}
    count, cores = threads.pop() if len(threads) == 1 else (None, None)
    if not count:
        return name
    return f"{count} of {cores} threads of {name}" if count < (cores or 0) else f"{counted(count, 'thread')} of {name}"


def legend(shown: Sequence[Outlook], bound: bool = False) -> list[str]:
    """Return the meaning of each sign in the cells of these estimates."""
    cells = [cell(each, bound) for each in shown]
    parts = [STARRED] * any(each.job.star for each in shown)
    parts += [LIMITS] * any(each.limited for each in cells)
    return parts + [BEYOND] * any(each.beyond for each in cells)


def table_of(lines: Sequence[Line], bound: bool) -> Table:
    """Return the table; with a ``bound`` the limits too. The times of few GPUs have columns, of many a line each."""

    def time(gpu: str, line: Line) -> str:
        return "" if line.rates else _time(line.of[gpu])

    def gain(gpu: str, line: Line) -> str:
        gained = _rate(line.of[gpu]) if line.rates else cell(line.of[gpu], bound).words
        return "\n".join(filter(None, [gained, "" if beside else time(gpu, line)]))

    shown = [each for line in lines for each in line.of.values()]
    gpus = dict.fromkeys(each.card.name for each in shown)
    beside, signs = len(gpus) <= _BESIDE, legend(shown, bound)
    columns = [Column[Line]("benchmark", lambda line: line.label), Column[Line]("CPU", _cpu)]
    for gpu in gpus:
        columns += [Column(gpu, partial(gain, gpu)), *[Column("GPU time", partial(time, gpu))] * beside]
    title = f"Estimated speedup over {base_of(lines, 'the CPU')}; GPU time ({MODELLED}, not measured)"
    if any(each.probably for each in shown):
        signs.insert(STARRED in signs, f"{GUESS}{_held(shown)}")
    return table(title, columns, lines, "".join(f"{part}. " for part in signs).strip())


def foot(lines: Sequence[Line], estimates: Iterable[Outlook]) -> list[str]:
    """Return notes on the rows, the most important first."""
    shown, parts = [each for line in lines for each in line.of.values()], []
    names = partial(_names, shown)
    lacking = [each for each in shown if each.note] or [each for each in estimates if each.note]
    if reasons := [f"{names(of)} ({reason})" for reason, of in grouped(lacking, lambda each: each.note).items()]:
        parts.append(f"Unknown: {listed(reasons, 9, joint='; ')}.")
    ways = grouped((each for each in shown if each.job.way), lambda each: each.job.way)
    if used := [f"{way} ({names(of)})" for way, of in ways.items()]:
        parts.append(f"{Sign.OTHER_WAY} the CPU's fastest way: {listed(used, joint='; ')}.")
    if any(each.job.how for each in shown):
        parts.append("TF32 and autocast: on the GPU alone, over the CPU in float32.")
    causes = dict[str, list[Outlook]]()
    for members in grouped((each for each in shown if not each.job.how), lambda each: key_of(each.job.case)).values():
        small = all(each.cause == TOO_SMALL for each in members)
        for each in [each for each in members if each.cause and (each.cause == TOO_SMALL) == small][-1:]:
            causes.setdefault(each.cause, []).append(each)
    parts += [f"{cause}: {names(of)}." for cause, of in causes.items()]
    copied = grouped((each for each in shown if each.with_copies_at_most), lambda each: key_of(each.job.case)).values()
    if lost := [each[0] for each in copied if max(one.with_copies_at_most or 0.0 for one in each) < 1]:
        parts.append(f"No GPU here is faster if the data is copied for every call: {names(lost)}.")
    return parts


def _held(shown: Sequence[Outlook]) -> str:
    """Return the share of measured times within such ranges, of GPUs that the model hadn't seen."""
    used = {each.likely.basis for each in shown if each.likely}
    shares = [share for kind, ends in learned_values().held.items() if kind in used for share in ends]
    ends = dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))) if shares else {}
    return f": on GPUs that the model hadn't seen, it held {' to '.join(ends)} of the times" if ends else ""


def _names(shown: Sequence[Outlook], some: Sequence[Outlook]) -> str:
    """Return the benchmarks of these estimates; with their sizes where others of the name are shown."""
    keys = {key_of(each.job.case) for each in some}
    others = {words.name(each.job.case) for each in shown if key_of(each.job.case) not in keys}
    cases = [each.job.case for each in some]
    return listed(
        dict.fromkeys((words.benchmark if words.name(case) in others else words.name)(case) for case in cases), 3
    )


def as_json(estimates: Iterable[Outlook], run: str) -> str:
    """Return all values as JSON."""
    rows = [{column.head: column.cell(each) for column in VALUES} for each in estimates]
    return json.dumps({"status": MODELLED, "notice": NOTICE, "run": run, "estimates": rows}, indent=1) + "\n"


def screen(lines: Sequence[Line], estimates: Sequence[Outlook], every: bool, width: int) -> list[str]:
    """Return the lines for the terminal; if ``every`` all of them, with the bounds."""
    chosen = choose_rows([line.answer for line in lines if line.answer])
    shown = [line for line in lines if line.answer is None or line.answer in chosen]
    more = f"{counted(len(lines) - len(shown), 'more row')}: " if len(shown) < len(lines) else ""
    more += "-k NAME shows all sizes, TF32, autocast; --format csv all."
    grid, small = table_of(shown, every), list[str]()
    for part in (grid.note if every else f"{grid.note} {more[:1].upper()}{more[1:]}", *foot(shown, estimates)):
        room = _MOST_LINES - len(small)
        small += textwrap.wrap(part, width, max_lines=room, placeholder=" …") if room else []
    return [*terminal(grid, width, footnote=False), "", *small]


def list_text(cards: Mapping[str, Gpu], sources: Mapping[str, str]) -> str:
    """Return all cards as text: each figure with its source."""
    lines, used = [], set()
    for card in cards.values():
        more = [f"also: {', '.join(card.aliases)}"] * bool(card.aliases)
        more += [f"emulates {', '.join(card.emulates)}"] * bool(card.emulates)
        lines.append(card.name + (f" ({'; '.join(more)})" if more else ""))
        for name, unit in UNITS.items():
            figure, label = card.figures.get(name), name.replace("_", " ")
            value = text(figure.value, unit) if figure else "—"
            source = f"  {figure.source}" + f" ({figure.note})" * bool(figure.note) if figure else ""
            lines.append(f"  {label:15} {value:>14}{source}")
            used |= {figure.source} if figure else set()
    lines += ["", "Sources", *(f"  {name:20} {sources[name]}" for name in sorted(used) if name in sources)]
    return "\n".join(lines)
