"""The ending of a run: the answer in at most 25 lines of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..format import counted, seconds_text
from ..runfile.schema import OK, Result, Run
from .answer import ANSWER_COLUMNS, TIMING_COLUMNS, Answer
from .labels import device_label

MOST_LINES = 25
WIDTH = 80
_SHORTER = {"every size measured": "every size", "◐ if the data stays": "◐ if data stays"}
_REASONS = (
    (r"needs? (an accelerator|a GPU|two)", "need a GPU", "needs a GPU"),
    (r"not in preset", "run with --preset full only", "runs with --preset full only"),
    (r"too slow|over budget", "too slow", "too slow"),
    (r"memory|[kMGT]?B more", "too large for the memory", "too large for the memory"),
    (r"needs (\S+) ?(devices|CPU cores)", "need more devices", "needs more devices"),
    (r"is not (here|available)|does not exist on", "need a device that isn't here", "needs a device that isn't here"),
    (r"not for this workload", "have no such variant", "has no such variant"),
)


def ending(answer: Answer, run: Run, files: Sequence[Path], elapsed_s: float | None = None) -> list[str]:
    """The lines: what was measured where, warnings, the answer, what has no time, and where the files are."""
    head = [*_wrapped(_headline(run, elapsed_s)), *_hint(answer.hint)]
    head += [""] if answer.warnings else []
    for line in answer.warnings:
        head += _wrapped(f"WARNING: {line}", "  ")
    foot = [*_wrapped(_unmeasured(run)), *_wrapped(_places(files), "        ")]
    body = ["", *_wrapped(answer.sentence), ""]
    room = MOST_LINES - len(head) - len(body) - len(foot)
    return [*head, *body, *_table(answer, room), *foot]


def _headline(run: Run, elapsed_s: float | None) -> str:
    measured = [result for result in run.results if result.times]
    parts = [counted(len(measured), "benchmark") + (f" in {seconds_text(round(elapsed_s) or 1)}" if elapsed_s else "")]
    threads = f", {counted(run.machine.threads, 'thread')}" if run.machine.threads else ""
    parts += [device_label(run, each.name) + (threads if each.name == "cpu" else "") for each in run.machine.devices]
    return " · ".join([*parts, *([f"PyTorch {run.machine.torch.partition('+')[0]}"] if run.machine.torch else [])])


def _hint(hint: str) -> list[str]:
    first, mark, rest = hint.partition("Have a GPU?")
    return [*_wrapped(first), *_wrapped(f"  {mark}{rest}", "  ")] if hint else []


def _table(answer: Answer, room: int) -> list[str]:
    """Aligned columns, and no more lines than there is room for."""
    lines: list[str] = []
    for card in answer.cards:
        title = [f"{card.device} against {card.baseline}"] if len(answer.cards) > 1 else []
        cells = [ANSWER_COLUMNS, *(row.cells for row in card.rows)]
        if sum(max(len(row[i]) for row in cells) + 2 for i in range(len(ANSWER_COLUMNS))) > WIDTH:
            cells = [tuple(_SHORTER.get(cell, cell) for cell in (*row[:2], *row[3:])) for row in cells]  # no range
        lines += [*title, *aligned(cells)]
    if answer.times:
        lines += aligned([TIMING_COLUMNS, *(row.cells for row in answer.times)])
    if len(lines) > room:
        left = len(lines) - room + 1
        lines = [*lines[: room - 1], f"  … {counted(left, 'more line')} in summary.md"]
    return lines


def aligned(rows: Iterable[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Lines of a table whose first row is its heading: the first column is cut where a line would be too long, the
    others are aligned to the right."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    first = max(1, min(widths[0], width - 2 - sum(each + 2 for each in widths[1:])))
    lines = []
    for row in cells:
        name = row[0] if len(row[0]) <= first else row[0][: first - 1] + "…"
        rest = [cell.rjust(each) for cell, each in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(["", name.ljust(first), *rest]).rstrip())
    return lines


def skip_kind(reason: str) -> tuple[str, str]:
    """Why a benchmark was skipped, for several and for one; the reason itself where it is of no known kind."""
    for pattern, many, single in _REASONS:
        if re.search(pattern, reason):
            return many, single
    return reason[:60], reason[:60]


def _unmeasured(run: Run) -> str:
    skipped = Counter(skip_kind(str(result.reason or "")) for result in run.results if result.status == "skipped")
    failed: list[Result] = [result for result in run.results if result.status not in (OK, "skipped")]
    parts = [f"{count} {words[count == 1]}" for words, count in skipped.most_common(3)]
    more = sum(skipped.values()) - sum(count for _, count in skipped.most_common(3))
    parts += [f"{more} for other reasons"] if more else []
    text = f"Skipped: {', '.join(parts)}. " if parts else "Skipped: 0. "
    names = ", ".join(result.case.workload for result in failed[:2])
    return text + (f"Failed: {len(failed)} ({names}{' …' * (len(failed) > 2)})." if failed else "Failed: 0.")


def _places(files: Sequence[Path]) -> str:
    by_name = {path.name: path for path in files}
    page = by_name.get("report.html")
    summary, data = by_name.get("summary.md"), by_name.get("results.csv")
    parts = [f"Report  {page}   (all results, charts)"] if page else [f"Report  {summary}"] if summary else []
    return "   ".join([*parts, *([f"Data  {data}"] if data else [])])


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
