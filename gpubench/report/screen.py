"""What a person reads at the end of ``run``, ``report``, ``time`` and ``show``, and where a notebook shows results."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from pathlib import Path

from ..runfile.quantities import counted, seconds_text, shorten, text
from ..runfile.reader import clean
from ..runfile.schema import Run
from . import words
from .answer import Answer, Concern, Warning, findings, left_out_line
from .machines import Priced, cost_table
from .render import UNFILLED, Table, terminal
from .rows import Measured, Row, grouped
from .study import Study
from .tables import NOT_IN_CARDS, beside_each_other, leading_tables, results_table

WIDTH, MOST_LINES = 80, 25
_MOST_WARNING_LINES, _MOST_RUNS, _MOST_BESIDE = 3, 4, 40
_SKIPPED = (
    (r"needs? (an accelerator|a GPU|two)", "need a GPU", "needs a GPU"),
    (r"not in preset|preset full only", "run with --preset full only", "runs with --preset full only"),
    (r"too slow|over budget", "too slow", "too slow"),
    (r"memory|[kMGT]?B more", "too large for the memory", "too large for the memory"),
    (r"needs (\S+) ?(devices|CPU cores)", "need more devices", "needs more devices"),
    (r"is not (here|available)|does not exist on", "need a device that isn't here", "needs a device that isn't here"),
    (r"not for this workload", "have no such variant", "has no such variant"),
)
_PLACES = ("report.html", "summary.md", "results.csv")


class Ending(Enum):
    """What is printed: the answer on one screen, the few benchmarks of ``time`` side by side, or every result."""

    ANSWER = auto()
    BESIDE = auto()
    EVERYTHING = auto()


def screen(
    study: Study,
    ending: Ending,
    width: int = WIDTH,
    *,
    files: Sequence[Path] = (),
    elapsed_s: float | None = None,
    prices: Sequence[Priced] = (),
) -> list[str]:
    """The lines. Of an answer at most 25, the most important first, and all costs; ``files`` are those that were
    written."""
    if ending == Ending.EVERYTHING:
        return _everything(study, width)
    return _beside(study, width) if ending == Ending.BESIDE else _answer(study, width, files, elapsed_s, prices)


# The answer -----------------------------------------------------------------------------------------------------------


def _answer(
    study: Study, width: int, files: Sequence[Path], elapsed_s: float | None, prices: Sequence[Priced]
) -> list[str]:
    answer = Answer(study)
    first, mark, rest = answer.hint.partition("Have a GPU?")
    head = [*_wrapped(_headline(study, elapsed_s), width), *_wrapped(first, width)]
    if earlier := len(study.all_runs) - len(study.runs):
        trend = f"{counted(earlier, 'earlier run')} left out here: the report's trend pictures show what changed."
        head += _wrapped(trend, width)
    head += _wrapped(f"  {mark}{rest}", width, "  ") if mark else []
    head += ["", *_wrapped(answer.sentence, width), "", *warning_lines(answer.warnings, width)]
    head += [""] * bool(answer.warnings)
    left_out = left_out_line(study.left_out)
    foot = [
        *_wrapped(left_out[:1].upper() + left_out[1:], width),
        *_wrapped(_unmeasured(study), width),
        *_places(files, width),
    ]
    tables = leading_tables(answer, (), brief=True)
    own = all(row.own for row in study.measured)
    tables += [beside_each_other(study)] * bool(own and answer.cards and not study.several_runs)
    body = [line for i, each in enumerate(tables) for line in _shown(each, width, title=len(tables) > 1 and i > 0)]
    costs = ["", *_shown(cost_table(study, prices), width, title=True)] if prices else []  # asked for: never cut
    return [*head, *_cut(body, max(4, MOST_LINES - len(head) - len(foot))), *costs, *foot]


def _shown(table: Table, width: int, title: bool) -> list[str]:
    return [*([table.title] if title and table.title else []), *terminal(table, width, title=False)]


def _cut(lines: Sequence[str], room: int) -> list[str]:
    """The lines that there is room for, how many more there are, and what their signs mean."""
    if len(lines) <= room:
        return list(lines)
    kept, found = lines[: room - 1], {UNFILLED: "doesn't fill the GPU", "*": "noisy"}
    signs = "; ".join(f"{sign} {means}" for sign, means in found.items() if any(sign in line for line in kept))
    return [*kept, f"… {counted(len(lines) - room + 1, 'more line')} in summary.md{f' ({signs})' if signs else ''}"]


def _headline(study: Study, elapsed_s: float | None) -> str:
    seconds = max(1.0, elapsed_s or 0.0)
    took = f" in {seconds_text(seconds) if seconds >= 60 else text(seconds, 's', 2)}" if elapsed_s else ""
    return f"{counted(len(study.measured), 'benchmark')}{took} · {'; '.join(_machines(study))}"


def _machines(study: Study) -> list[str]:
    shown = [words.machine(run) for run in study.runs[:_MOST_RUNS]]
    return [*shown, *([f"and {len(study.runs) - _MOST_RUNS} more runs"] if len(study.runs) > _MOST_RUNS else [])]


def warning_lines(warnings: Sequence[Warning], width: int, most: int = _MOST_WARNING_LINES) -> list[str]:
    """Whole warnings in at most so many lines, of the first all its lines; of the others what is wrong."""
    lines: list[str] = []
    for shown, warning in enumerate(warnings):
        wrapped = _wrapped(f"WARNING: {warning}", width, "  ")
        if lines and len(lines) + len(wrapped) > most:
            others = "; ".join(each.brief for each in warnings[shown:])
            return [*lines, *_wrapped(f"Also: {others} (see summary.md).", width, "  ")]
        lines += wrapped
    return lines


def skip_kind(reason: str) -> tuple[str, str]:
    """Why a benchmark was skipped, for several and for one; the reason itself where it is of no known kind."""
    for pattern, many, single in _SKIPPED:
        if re.search(pattern, reason):
            return many, single
    return (shorten(reason, 60),) * 2


def _unmeasured(study: Study) -> str:
    rows = [row for row in study.rows if not isinstance(row, Measured)]
    skipped = Counter(skip_kind(row.result.reason or "") for row in rows if row.result.status == "skipped")
    failed = [words.name(row.result) for row in rows if row.result.status != "skipped"]
    parts = [f"{count} {why[count == 1]}" for why, count in skipped.most_common(3)]
    more = skipped.total() - sum(count for _, count in skipped.most_common(3))
    parts += [f"{more} for other reasons"] if more else []
    names = f" ({', '.join(failed[:2])}{' …' * (len(failed) > 2)})" if failed else ""
    return f"Skipped: {', '.join(parts) or 0}. Failed: {len(failed)}{names}."


def _places(files: Sequence[Path], width: int) -> list[str]:
    """In a line where it is wide enough: the name of a file isn't folded."""
    page, summary, data = ([path for path in files if path.name == name] for name in _PLACES)
    parts = [f"Report  {path}   (all results, charts)" for path in page] or [f"Report  {path}" for path in summary]
    parts = [clean(part) for part in (*parts, *(f"Data  {path}" for path in data))]
    line = "   ".join(parts)
    return parts if len(line) > width else [line] if line else []


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


# A few benchmarks, and all of them ------------------------------------------------------------------------------------


def _beside(study: Study, width: int) -> list[str]:
    """Machines, times side by side, and what they mean; of many results the answer's sentence alone."""
    found = [w for w in Answer(study).warnings if w.what != Concern.ONE_PROCESS]
    head, failed = [*_machines(study), *(f"WARNING: {each}" for each in found)], _failures(study)
    if study.several_runs or len(study.measured) > _MOST_BESIDE:
        what = f"{counted(len(study.measured), 'benchmark')}: see .df, .speedups, .machines and .plot()"
        return [*head, "", Answer(study).sentence, *failed, what]
    if not study.measured:
        return [*head, "", *(failed or ["Nothing was measured."])]
    return [*head, "", *terminal(beside_each_other(study), width, title=False), "", *findings(study), *failed]


def _failures(study: Study) -> list[str]:
    """A line for each reason why benchmarks have no time."""
    rows: list[Row] = [row for row in study.rows if not isinstance(row, Measured)]
    reasons = grouped(rows, lambda row: (words.name(row.result), row.result.status, row.result.reason))
    return [
        f"{name}{_settings(members)}: {status}: {reason or 'no reason given'}"
        for (name, status, reason), members in list(reasons.items())[:_MOST_BESIDE]
    ]


def _settings(rows: Iterable[Row]) -> str:
    """`` n=64, n=256 on H200``."""
    rows = list(rows)
    settings = dict.fromkeys(words.setting(row.result) for row in rows)
    devices = words.listed(list(dict.fromkeys(row.result.device for row in rows if row.result.device)))
    return shorten(" ".join(["", *settings]).rstrip(), 60) + (f" on {devices}" if devices else "")


def _everything(study: Study, width: int) -> list[str]:
    lines = terminal(results_table(study), width, title=False) if study.measured else []
    for row in study.rows:
        if not isinstance(row, Measured):
            why = row.result.reason or "no reason given"
            where = f"{row.run_name}: " if study.several_runs else ""
            lines.append(f"{where}{words.benchmark(row.result)}  {row.result.device}  {row.result.status}: {why}")
    if any(run.card for run in study.runs):
        lines += _wrapped(f"Not known from a card: {NOT_IN_CARDS}.", width)
    return lines


def machine_lines(runs: Iterable[Run]) -> list[str]:
    """What each run was measured on, each once."""
    return list(dict.fromkeys(map(words.machine, runs)))
