"""The ending of a run: the answer in at most 25 lines of 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..format import aligned, counted, seconds_text
from ..runfile.schema import OK, Result, Run
from .answer import ANSWER_COLUMNS, TIMING_COLUMNS, Answer
from .headline import kind_of
from .judgement import IF_IT_STAYS
from .labels import device_label

MOST_LINES = 25
WIDTH = 80
_SHORTER = {"every size measured": "every size", "◐ if the data stays": "◐ if it stays"}
_REASONS = (
    (r"needs? (an accelerator|a GPU|two)", "need a GPU", "needs a GPU"),
    (r"not in preset|preset full only", "run with --preset full only", "runs with --preset full only"),
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
    own = _own(run) if answer.cards else []
    own = own if len(own) <= max(1, room // 2) else [*own[: max(1, room // 2) - 1], "  …"]
    return [*head, *body, *_table(answer, room - len(own)), *own, *foot]


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
        lines += [*title, *aligned(cells, WIDTH)]
    if answer.times:
        lines += aligned([TIMING_COLUMNS, *(row.cells for row in answer.times)], WIDTH)
    if any(row.verdict == IF_IT_STAYS for card in answer.cards for row in card.rows) and len(lines) < room:
        lines.append("  ◐ worth it only while the data stays on the device between calls")
    if len(lines) > room:
        left = len(lines) - room + 1
        lines = [*lines[: room - 1], f"  … {counted(left, 'more line')} in summary.md"]
    return lines


def _own(run: Run) -> list[str]:
    """Times on all devices of benchmarks that aren't the suite's, a line each."""
    lines: dict[str, list[str]] = {}
    for result in run.results:
        if result.times and kind_of(result.workload) == result.workload:
            device = "CPU" if result.device == "cpu" else result.device
            star = "*" if result.flags else ""
            lines.setdefault(result.case.id, []).append(f"{device} {seconds_text(result.times.median_s)}{star}")
    rows = []
    for name, times in lines.items():
        rest = "  ".join(times)
        room = max(8, WIDTH - 4 - len(rest))
        rows.append(f"  {name if len(name) <= room else name[: room - 1] + '…'}  {rest}")
    return rows


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
