"""A comparison as JSON for programs, as a table for the terminal, and as Markdown for a pull request."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..format import text
from ..report.labels import shorten
from ..report.render import Summary, Table, escape, markdown_table, show_summary
from .comparison import Comparison, change_text, sorted_verdicts
from .samples import CaseKey
from .verdict import SAME, Verdict

TABLE_ROWS = 200
"""Rows of a table for people; the JSON has them all."""
LONGEST_NAME = 90
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
SUMMARY_LIMIT = 1024 * 1024
"""Bytes of a step summary; GitHub refuses a larger one whole."""
_COLUMNS = ("benchmark", "verdict", "change", "95% interval", "base", "new", "p", "processes")


def to_json(comparison: Comparison) -> str:
    """One object. ``p`` is null without evidence about noise, ``low`` and ``high`` where nothing bounds the ratio."""
    cases = [_case(each) for each in comparison.verdicts]
    document: dict[str, Any] = {
        "verdict": comparison.verdict,
        "exit_code": comparison.exit_code,
        "threshold": comparison.threshold,
        "cases": cases,
        "missing": [
            {"id": each.key.name, **_source(each.key), "side": each.side, "reason": each.reason}
            for each in comparison.missing
        ],
        "notes": list(comparison.notes),
    }
    if comparison.pairs is not None:
        document["pairs"] = comparison.pairs
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _case(each: Verdict) -> dict[str, Any]:
    return {
        "id": each.key.name,
        **_source(each.key),
        "verdict": each.verdict,
        "ratio": each.ratio.value,
        "low": each.ratio.low if each.bounded else None,
        "high": each.ratio.high if each.bounded else None,
        "base_s": each.base_s,
        "new_s": each.new_s,
        "p": each.p,
        "processes": {"base": each.processes[0], "new": each.processes[1]},
        "advice": each.advice or None,
    }


def _source(key: CaseKey) -> dict[str, str | None]:
    return {"device": key.device or None, "implementation": key.implementation or None}


def show_table(comparison: Comparison) -> None:
    """Print it for the terminal."""
    tables = [_changes("Comparison", sorted_verdicts(comparison.verdicts), comparison)]
    tables += [_missing(comparison), _notes(comparison)]
    show_summary(Summary(tuple(table for table in tables if table.rows)))
    print(f"gpubench compare: {comparison.line}")


def comparison_markdown(comparison: Comparison) -> str:
    """What didn't change is folded away."""
    verdicts = sorted_verdicts(comparison.verdicts)
    changed = [each for each in verdicts if each.verdict != SAME]
    same = [each for each in verdicts if each.verdict == SAME]
    lines = ["## Benchmark comparison", "", f"**{escape(comparison.line)}**", ""]
    if changed:
        lines += [*markdown_table(_changes("", changed, comparison)), ""]
    if same:
        lines += ["<details><summary>", f"{len(same)} the same", "</summary>", ""]
        lines += [*markdown_table(_changes("", same, comparison)), "", "</details>", ""]
    for table in (_missing(comparison), _notes(comparison)):
        if table.rows:
            lines += [f"### {table.title}", "", *markdown_table(table), ""]
    return "\n".join(lines)


def step_summary() -> Path:
    """The file that GitHub names. Raises UsageError where there is none."""
    name = os.environ.get(STEP_SUMMARY)
    if not name:
        raise UsageError(f"--github-summary: {STEP_SUMMARY} is not set: this is no GitHub Actions step")
    return Path(name)


def append_step_summary(content: str) -> None:
    """Append to the step's summary. Raises UsageError where it can't be written."""
    path = step_summary()
    try:
        size = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(truncated(content, SUMMARY_LIMIT - size).encode())
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror or error}") from None


def truncated(content: str, limit: int) -> str:
    """At most ``limit`` bytes, whole lines, with a note where something was left out; nothing if not even that fits."""
    if len(content.encode()) <= limit:
        return content
    note = "\n</details>\n\n*Cut off: the rest doesn't fit into a step summary. `--format json` has it all.*\n"
    room = limit - len(note.encode())
    kept = content.encode()[: max(room, 0)].decode(errors="ignore")
    kept = kept[: kept.rfind("\n") + 1]
    note = note if kept.count("<details>") > kept.count("</details>") else note.replace("</details>\n\n", "")
    return kept + note if room >= 0 else ""


def _interval_text(verdict: Verdict) -> str:
    return f"{change_text(verdict.ratio.low)} … {change_text(verdict.ratio.high)}" if verdict.bounded else "—"


def _changes(title: str, verdicts: Sequence[Verdict], comparison: Comparison) -> Table:
    rows = []
    for each in verdicts[:TABLE_ROWS]:
        base, new = each.processes
        rows.append(
            (
                shorten(str(each.key), LONGEST_NAME),
                each.verdict,
                change_text(each.ratio.value),
                _interval_text(each),
                text(each.base_s, "s"),
                text(each.new_s, "s"),
                "—" if each.p is None else "<0.0001" if each.p < 1e-4 else f"{each.p:.2g}",
                f"{base}" if base == new else f"{base}, {new}",
            )
        )
    in_turn = comparison.pairs is not None
    notes = [_toward_conclusive(verdicts, in_turn)] if any(each.advice for each in verdicts) else []
    if len(verdicts) > TABLE_ROWS:
        notes.append(f"{len(verdicts) - TABLE_ROWS} more rows are in --format json.")
    return Table(title, _COLUMNS, tuple(rows), " ".join(notes))


def _toward_conclusive(verdicts: Sequence[Verdict], in_turn: bool) -> str:
    """What a conclusive result takes, for the cases that need least and most."""
    open_ = [each for each in verdicts if each.advice]
    solvable = sorted((each for each in open_ if each.more is not None), key=lambda each: each.more or 0)
    if not solvable:
        return f"Inconclusive: {open_[0].advice}."
    text = f"Inconclusive: {solvable[0].advice}"
    if solvable[-1].more != solvable[0].more:
        text += f" in {shorten(str(solvable[0].key))}, {solvable[-1].more} in {shorten(str(solvable[-1].key))}"
    hopeless = len(open_) - len(solvable)
    quieter = "a quieter machine" if in_turn else "a quieter machine, or --interleave"
    return text + (f"; {hopeless} need {quieter}." if hopeless else ".")


def _missing(comparison: Comparison) -> Table:
    rows = [(str(each.key), f"{each.side}: {each.reason}") for each in comparison.missing]
    left = len(rows) - TABLE_ROWS
    note = f"{left} more are in --format json." if left > 0 else ""
    return Table("Not on both sides", ("benchmark", "missing from"), tuple(rows[:TABLE_ROWS]), note)


def _notes(comparison: Comparison) -> Table:
    return Table("Notes", ("note",), tuple((note,) for note in comparison.notes))
