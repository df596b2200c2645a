"""The texts at the end of ``run``, ``report``, ``time`` and ``show``, and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import structs

from ..errors import clean
from ..runfile.flags import judge
from ..runfile.quantities import counted, listed, ratio_text, seconds_text, shorten, text
from . import words
from .answer import MOST_ROWS, Answer, Warning
from .number import StartKind, State, times, times_range
from .render import escape, markdown, terminal, wrapped
from .study import Crossing, Measured, Pair, Study, grouped
from .tables import answer_tables, beside_each_other, results_table, short_reason, unmeasured_by_reason
from .why import reasons

WIDTH, MOST_LINES, _LEAST_TABLE = 80, 36, 14
_MOST_WARNING_LINES, _MOST_MACHINES, _MOST_BESIDE, _FEW = 3, 4, 40, 20
_FIRST_CALL, _FIRST_CALL_S = 10.0, 1e-3
"""A first call is worth a line where it takes so many times a later one, and so many seconds."""


# The answer -----------------------------------------------------------------------------------------------------------


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
    parts = [f"{len(rows)} ({short_reason(rows[0])})" for rows in skipped[:3]]
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


# A few benchmarks, and all of them ------------------------------------------------------------------------------------


def beside(study: Study, width: int) -> list[str]:
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


# One's own expressions ------------------------------------------------------------------------------------------------


def findings(study: Study) -> list[str]:
    """Findings of a few benchmarks, one sentence each: for ``gpubench time`` and notebooks."""
    crossings = [crossing for crossing in study.crossings if crossing.resident]
    swept = {pair for crossing in crossings for pair in crossing.line.items}
    lines = [_crossing_sentence(study, crossing) for crossing in crossings]
    lines += [_pair_sentence(study, pair) for pair in study.pairs if pair not in swept]
    causes = reasons(study.pairs)
    lines += _against_first(study)
    lines += (f"{_who(pair.other)}: {study.names.subject(pair)}{sizes}: {cause}." for pair, sizes, cause in causes)
    lines += _first_calls(study)
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


def _crossing_sentence(study: Study, crossing: Crossing) -> str:
    """``a @ b, float32: H200 is faster than the Xeon from n ≈ 72.``"""
    pair = crossing.pair
    if len(crossing.line.points) == 1:
        return _pair_sentence(study, pair)
    subject, base = study.names.subject(pair), study.names.of(pair.base)
    if crossing.start.kind is StartKind.UNSURE:
        return f"{_who(pair.other)}: {subject} or {base}: too noisy to say from which size on either is faster."
    return f"{_who(pair.other)}: {subject} is {crossing.start.sentence(f'faster than {base}')}."


def _pair_sentence(study: Study, pair: Pair) -> str:
    """``a @ b, float32: H200 is 12× (11× to 13×) as fast as the Xeon.``"""
    subject, base = study.names.subject(pair), study.names.of(pair.base)
    if pair.ratio.state is not State.KNOWN:
        return f"{_who(pair.other)}: {subject} against {base}: {pair.ratio}."
    base += f" by {words.way(pair)}" * bool(pair.fastest_way)
    return f"{_who(pair.other)}: {subject} {_faster(pair)} {base}."


def _faster(pair: Pair) -> str:
    """``is 3.1× (2.9× to 3.3×) as fast as``, ``is 1.4× slower (…) than``."""
    _, low, high = pair.values
    if low <= 1 <= high:
        return f"can't be told apart here ({times_range(low, high)}) from"
    ends = dict.fromkeys(ratio_text(max(end, 1 / end)) for end in ((low, high) if pair.speedup >= 1 else (high, low)))
    spread = f" ({' to '.join(ends)})" * (not pair.busy)
    return f"is {pair.ratio.mark}{spread} {'than' if pair.speedup < 1 else 'as fast as'}"


def _against_first(study: Study) -> Iterator[str]:
    """Yield how each expression compares with the first one on each device, at the largest size."""
    for pairs in grouped(study.rivals, lambda pair: pair.base.source[:2]).values():
        base = pairs[-1].base
        at = ", ".join(filter(None, [study.names.of(base), words.setting(base.result)]))
        for pair in (pair for pair in pairs if pair.base is base):
            said = _faster(pair) if pair.ratio.state is State.KNOWN else "is too noisy to compare with"
            yield f"{at}: {words.name(pair.other.result)} {said} {words.name(base.result)}."


def _first_calls(study: Study) -> Iterator[str]:
    """Yield the devices with a first call much longer than later ones, on the benchmark where it took longest."""
    for members in grouped(study.measured, lambda row: row.source).values():
        first_s, row = max(((row.result.first_call_s or 0.0, row) for row in members), key=lambda both: both[0])
        if first_s >= max(_FIRST_CALL * row.time_s, _FIRST_CALL_S):
            took = f"{seconds_text(first_s)}, {times(first_s / row.time_s)} as long as later calls"
            yield f"{words.benchmark(row.result)} on {study.names.of(row)}: the first call took {took}."
