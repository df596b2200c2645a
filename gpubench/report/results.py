"""Results for scripts and notebooks: tables, speedups and charts of runs; and the texts at the end of ``run``,
``report``, ``time`` and ``show``."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cached_property
from html import escape as escape_html
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from ..errors import UsageError, clean
from ..runfile.flags import judge
from ..runfile.quantities import counted, listed, ratio_text, seconds_text, shorten, text, times, times_range
from ..runfile.runs import read_runs
from ..runfile.schema import Run
from . import words
from .answer import MOST_ROWS, Answer, Warning
from .columns import crossover_columns, frame, results_columns, speedup_columns
from .number import Sign, Start, StartKind, State
from .render import escape, markdown, terminal, wrapped
from .study import Measured, Pair, Study, grouped
from .tables import answer_tables, beside_each_other, results_table, unmeasured_by_reason
from .why import reasons

if TYPE_CHECKING:
    import pandas as pd

    from .charts.page import Figure

WIDTH, MOST_LINES, _LEAST_TABLE = 80, 36, 14
_MOST_WARNING_LINES, _MOST_MACHINES, _MOST_BESIDE, _FEW = 3, 4, 40, 20
_FIRST_CALL, _FIRST_CALL_S = 10.0, 1e-3
"""A first call is worth a line where it takes so many times a later one, and so many seconds."""


class Ratio(float):
    """How many times as fast, with the ends of its interval; the limit if only a limit is known, NaN if nothing is.
    ``star`` is ``*`` if a time is noisy, and ``simulated`` is true if a model made one. As a text it is the cell of a
    table, ``≥ 3.5×* (simulated)``."""

    low: float
    high: float
    star: str
    simulated: bool
    _text: str

    def __new__(cls, pair: Pair) -> Ratio:
        """Make the ratio that is shown of a pair."""
        value, low, high = pair.drawn or (math.nan,) * 3
        ratio = super().__new__(cls, value)
        ratio.low, ratio.high, ratio.star = low, high, str(Sign.NOISY) * pair.quality.noisy
        ratio.simulated = any(side.facts.simulated for side in pair.sides)
        ratio._text = pair.ratio.mark + " (simulated)" * ratio.simulated
        return ratio

    def __str__(self) -> str:
        return self._text


class Picture:
    """A chart with the words around it: a notebook shows it, :meth:`save` writes it."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def save(self, path: str | os.PathLike[str], theme: str = "light") -> None:
        """Write a file, by its name .svg or .png, for a light or a dark page. An earlier one is replaced. Raises
        UsageError for another theme or name."""
        from ..runfile.writer import picture_format, replace
        from .charts.pictures import render
        from .charts.theme import THEMES

        if theme not in THEMES:
            raise UsageError(f"unknown theme {theme!r}: choose {' or '.join(THEMES)}")
        replace(Path(path), render(self._figure, picture_format(path), theme))

    def _repr_svg_(self) -> str:
        """The picture in a notebook: without the head of a file."""
        from .charts.pictures import render

        return render(self._figure, "svg", "light").decode().partition("<svg")[2].join(("<svg", ""))

    def __repr__(self) -> str:
        return f"<Picture: {self._figure.title}>"


class Results:
    """Results of one or more runs. Printing it shows them on a screen.

    Frames have SI base units, and ``None`` or NaN for unknown values. ``k`` chooses benchmarks as ``-k`` does.
    """

    def __init__(self, runs: Sequence[Run], k: str | None = None) -> None:
        self.runs = tuple(runs)
        self._k = k

    @classmethod
    def load(cls, *paths: str | os.PathLike[str], k: str | None = None) -> Results:
        """Read results files, journals of interrupted runs, or folders of them at any depth. Raises RunFileError for
        one that can't be trusted and UsageError for a path without any."""
        return cls([*read_runs(map(Path, paths))], k)

    @cached_property
    def study(self) -> Study:
        """The typed rows, pairs and crossovers that everything here is made of."""
        return Study(self.runs, expression=self._k)

    @property
    def df(self) -> pd.DataFrame:
        """One row per benchmark: the columns of results.csv."""
        return frame(results_columns(self.study.rows), self.study.rows)

    @property
    def speedups(self) -> pd.DataFrame:
        """One row per benchmark and other device: the columns of speedup.csv. PyTorch against NumPy without a GPU."""
        return frame(speedup_columns(self.study), self.study.pairs)

    @property
    def crossovers(self) -> pd.DataFrame:
        """One row per line of speedups, with the size from which the device is faster: the columns of crossover.csv."""
        return frame(crossover_columns(self.study), self.study.crossings)

    @property
    def speedup(self) -> Ratio | None:
        """How many times as fast as its baseline the benchmark is at its largest size, with ``.low`` and ``.high``.

        The baseline is the CPU; of several expressions on a CPU alone, the first one. ``None`` without any. Raises
        UsageError where several benchmarks are compared, naming them: choose one with ``k``.
        """
        groups = grouped(self.study.pairs, lambda p: (words.name(p.other.result), p.other.setting, p.other.source))
        if len(groups) > 1:
            names = dict.fromkeys(words.benchmark(pairs[-1].other.result) for pairs in groups.values())
            choose = f"choose one with load(…, k={next(iter(names))!r})"
            raise UsageError(f"several benchmarks are compared: {choose}: {listed(names)}")
        if self.study.pairs:
            return Ratio(max(self.study.pairs, key=lambda pair: pair.other.numbers))
        rivals = self.study.rivals
        return next((Ratio(pair) for pair in rivals if pair.base is rivals[-1].base), None)

    def chart(self, kind: str | None = None) -> Picture:
        """The picture that ``gpubench chart`` draws, which a notebook shows and :meth:`.Picture.save` keeps.

        ``kind`` is one of its ``--kind``, except estimate. By default it is of one benchmark the speedup, or else the
        time, by size; of several expressions their times side by side; else the first of a report. Raises UsageError
        where none can be made, with the reason.
        """
        from .charts.pictures import figures_of

        return Picture(figures_of(self.study, kind)[0])

    def __str__(self) -> str:
        return "\n".join(_beside(self.study))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The results in a notebook."""
        return f"<pre>{escape_html(str(self))}</pre>"


def answer_screen(
    study: Study, width: int = WIDTH, *, files: Sequence[Path] = (), elapsed_s: float | None = None
) -> list[str]:
    """Return about 36 lines, the most important first; ``files`` are the written ones."""
    answer, seconds = Answer(study), max(1.0, elapsed_s or 0.0)
    took = f" in {seconds_text(seconds) if seconds >= 60 else text(seconds, 's', 2)}" * bool(elapsed_s)
    title = f"{counted(len(study.measured), 'benchmark')}{took} · {_machines(study)}"
    head = [*wrapped(title, width), *wrapped(answer.hint, width), "", *wrapped(answer.sentence, width), ""]
    head += [*list_warnings(answer.warnings, width), *[""] * bool(answer.warnings)]
    foot = [*wrapped(answer.left_out, width), *wrapped(_unmeasured(study), width)]
    places = {"report.html": "Report  {}   (all results, charts)", "results.csv": "Data    {}"}
    foot += [clean(place.format(path)) for name, place in places.items() for path in files if path.name == name]
    room = max(_LEAST_TABLE, MOST_LINES - len(head) - len(foot))
    body: list[str] = []
    for most in range(max(4, min(MOST_ROWS, room - 5)), 1, -1):  # fewer rows rather than no small print
        tables = answer_tables(answer, most)
        body = [line for i, table in enumerate(tables) for line in terminal(table, width, title=i > 0)]
        if len(body) <= room:
            return [*head, *body, *foot]
    return [*head, *body[: room - 1], "… the rest is in summary.md", *foot]


def _machines(study: Study) -> str:
    return listed(dict.fromkeys(map(words.machine, study.runs)), _MOST_MACHINES, "; ")


def list_warnings(
    warnings: Sequence[Warning], width: int, most: int = _MOST_WARNING_LINES, where: str = "see summary.md"
) -> list[str]:
    """Return whole warnings in a limited number of lines: all lines of the first, and the summaries of the others."""
    lines: list[str] = []
    for place, warning in enumerate(warnings):
        folded = wrapped(f"WARNING: {warning}", width, "  ")
        if lines and len(lines) + len(folded) > most:
            others = "; ".join(other.summary for other in warnings[place:])
            return [*lines, *wrapped(f"Also: {others} ({where}).", width, "  ")]
        lines += folded
    return lines


def _unmeasured(study: Study) -> str:
    groups = unmeasured_by_reason(study)
    skipped = [rows for rows in groups if rows[0].result.status == "skipped"]
    sentences = [rows[0].result.reason or "no reason given" for rows in skipped[:3]]
    cut = (sentence if len(sentence) <= 60 else f"{sentence[:59].rstrip()}…" for sentence in sentences)
    parts = [f"{len(rows)} ({sentence})" for rows, sentence in zip(skipped, cut, strict=False)]
    more = sum(map(len, skipped[3:]))
    parts += [f"{more} for other reasons"] * bool(more)
    failed = [
        f"{shorten(words.benchmark(row.result), 60)} on {study.names.short(study.names.of(row))}"
        for rows in groups
        if rows not in skipped
        for row in rows
    ]
    names = f" ({listed(failed, 2, '; ')})" * bool(failed)
    return f"Skipped: {', '.join(parts) or 0}. Failed: {len(failed)}{names}."


def _beside(study: Study, width: int = 160) -> list[str]:
    """Machines, times side by side, and findings; of many results the answer's sentence alone."""
    answer, failed = Answer(study), _failures(study)[:_MOST_BESIDE]
    head = [_machines(study), *(f"WARNING: {warning}" for warning in answer.warnings if not warning.minor), ""]
    if study.several_runs or len(study.measured) > _MOST_BESIDE:
        rest = f"{counted(len(study.measured), 'benchmark')}: see .df, .speedups and .chart()"
        rows = [line for table in answer_tables(answer, MOST_ROWS) for line in ("", *terminal(table, width))]
        return [*head, answer.sentence, *rows, "", *failed, rest]
    if not study.measured:
        return [*head, *(failed or ["Nothing was measured."])]
    return [*head, *terminal(beside_each_other(study), width, title=False), "", *findings(study), *failed]


def _failures(study: Study) -> list[str]:
    """A line for each reason why benchmarks have no time: ``a @ b float32, n=8; float32, n=9 on cpu: oom: no room``."""
    rows = [row for row in study.rows if not isinstance(row, Measured)]
    reasons = grouped(rows, lambda row: (row.run_name, words.name(row.result), row.result.status, row.result.reason))
    lines = []
    for (run, name, status, reason), members in reasons.items():
        settings = listed(dict.fromkeys(words.setting(row.result) for row in members), 3, "; ")
        devices = listed(dict.fromkeys(row.result.device for row in members if row.result.device))
        subject = f"{f'{run}: ' * study.several_runs}{f'{name} {settings}'.rstrip()}{f' on {devices}' * bool(devices)}"
        lines.append(f"{subject}: {status}: {reason or 'no reason given'}")
    return lines


def everything(study: Study, width: int) -> list[str]:
    """The machines, the answer's sentence if there are many results, and each result."""
    answer = Answer(study)
    lines = wrapped(_machines(study), width)
    if len(study.measured) > _FEW:
        lines += ["", *wrapped(answer.sentence, width)]
    lines += [*list_warnings(answer.warnings, width, 2, "gpubench report tells more"), ""]
    table = terminal(results_table(study), width, title=False) if study.measured else []
    return [*lines, *table, *_failures(study)]


def page_table(study: Study, every: bool) -> list[str]:
    """The answer's tables in Markdown, or a row for every size, with the machines below."""
    tables = [beside_each_other(study, "benchmark")] if every else answer_tables(Answer(study))
    notes = [table.title for table in tables if every and table.title] + [
        *dict.fromkeys(map(words.machine, study.runs))
    ]
    notes += filter(None, [words.simulated(row.facts for row in study.measured)])
    return [*(line for table in tables for line in (*markdown(table), "")), f"{escape('; '.join(notes))}."]


def findings(study: Study) -> list[str]:
    """Findings of a few benchmarks, one sentence each: for ``gpubench time`` and notebooks."""
    crossings = [crossing for crossing in study.crossings if crossing.resident]
    swept = {pair for crossing in crossings for pair in crossing.line.items}
    lines = [_sentence(study, at.pair, at.start if len(at.line.points) > 1 else None) for at in crossings]
    lines += [_sentence(study, pair) for pair in study.pairs if pair not in swept]
    causes = reasons(study.pairs)
    for pairs in grouped(study.rivals, lambda pair: pair.base.source[:2]).values():
        base = pairs[-1].base
        at = ", ".join(filter(None, [study.names.of(base), words.setting(base.result)]))
        for pair in (pair for pair in pairs if pair.base is base):
            claim = _faster(pair) if pair.ratio.state is State.KNOWN else "is too noisy to compare with"
            lines.append(f"{at}: {words.name(pair.other.result)} {claim} {words.name(base.result)}.")
    lines += (f"{_who(pair.other)}: {study.names.subject(pair)}{sizes}: {cause}." for pair, sizes, cause in causes)
    for members in grouped(study.measured, lambda row: row.source).values():
        first_s, row = max(((row.result.first_call_s or 0.0, row) for row in members), key=lambda both: both[0])
        if first_s >= max(_FIRST_CALL * row.time_s, _FIRST_CALL_S):
            took = f"{seconds_text(first_s)}, {times(first_s / row.time_s)} as long as later calls"
            lines.append(f"{words.benchmark(row.result)} on {study.names.of(row)}: the first call took {took}.")
    if not any(row.on_accelerator for row in study.measured):
        lines.append("No GPU was measured; gpubench env says why.")
    checks = [row.result.check for row in study.measured]
    unchecked = {check.reason for check in checks if check and check.status != "passed" and check.reason}
    lines += [f"Result not checked: {reason}." for reason in sorted(unchecked)]
    flags = {flag.name: flag.seen for row in study.measured for flag in row.result.flags}
    return [*lines, *(f"{judge([name]).star} {name}: {seen}".strip() for name, seen in sorted(flags.items()))]


def _who(row: Measured) -> str:
    """``a @ b, float32 autocast``: a benchmark without its parameters."""
    arithmetic = " ".join(words.settings(structs.replace(row.result, params={})))
    return ", ".join(filter(None, (words.name(row.result), arithmetic)))


def _sentence(study: Study, pair: Pair, start: Start | None = None) -> str:
    """``a @ b, float32: H200 is 12× (11× to 13×) as fast as the Xeon.``; with the ``start`` of its line ``… is faster
    than the Xeon from n ≈ 72.``"""
    subject, base = study.names.subject(pair), study.names.of(pair.base)
    if start and start.kind is StartKind.UNSURE:
        claim = f"{subject} or {base}: too noisy to say from which size on either is faster"
    elif start:
        claim = f"{subject} is {start.sentence(f'faster than {base}')}"
    elif pair.ratio.state is not State.KNOWN:
        claim = f"{subject} against {base}: {pair.ratio}"
    else:
        claim = f"{subject} {_faster(pair)} {base}" + f" by {words.way(pair)}" * bool(pair.fastest_way)
    return f"{_who(pair.other)}: {claim}."


def _faster(pair: Pair) -> str:
    """``is 3.1× (2.9× to 3.3×) as fast as``, ``is 1.4× slower (…) than``."""
    _, low, high = pair.values
    if low <= 1 <= high:
        return f"can't be told apart here ({times_range(low, high)}) from"
    ends = dict.fromkeys(ratio_text(max(end, 1 / end)) for end in ((low, high) if pair.speedup >= 1 else (high, low)))
    spread = f" ({' to '.join(ends)})" * (not pair.busy)
    return f"is {pair.ratio.mark}{spread} {'than' if pair.speedup < 1 else 'as fast as'}"
