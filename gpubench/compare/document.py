"""A comparison as JSON for programs, as a table for the terminal, and as Markdown for a pull request."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import clean
from ..report.number import Number, State, seconds
from ..report.render import Column, Table, escape, markdown as markdown_table, table, terminal
from ..report.rows import grouped
from ..runfile.naming import shared_place
from ..runfile.quantities import listed, shorten_apart
from ..statistics.intervals import Interval
from .comparison import ORDER, Comparison, change_text
from .samples import CaseKey
from .verdict import FASTER, INCONCLUSIVE, NO_SIGN, SAME, SLOWER, Verdict, percent

TABLE_ROWS = 200
"""Rows of a table for people; the JSON has them all."""
_MISSING_ROWS = 20
_FEW_ROWS = 10
"""How many inconclusive benchmarks the table shows; lines above it count them all and give the reasons."""
_LONGEST, _WHOLE = 80, 10_000
"""Most characters of a benchmark's label on a screen, and in Markdown."""
_NAMED = 3
"""How many benchmarks a line names."""


def to_json(comparison: Comparison) -> str:
    """One object. ``p`` is null without evidence about noise, ``low`` and ``high`` where nothing bounds the ratio."""
    cases = [
        {
            **_named(each.key),
            "name": comparison.shown.get(each.key, each.key.name),
            "verdict": each.verdict,
            "ratio": each.ratio.value,
            "low": each.ratio.low if each.bounded else None,
            "high": each.ratio.high if each.bounded else None,
            "base_s": each.base_s,
            "new_s": each.new_s,
            "p": each.p,
            "sees": None if each.seen is None else each.sees(comparison.threshold),
            "processes": {"base": each.processes[0], "new": each.processes[1]},
            "cause": each.cause.name.lower() if each.cause else None,
            "reason": each.reason or None,
            "advice": each.advice or None,
        }
        for each in comparison.verdicts
    ]
    missing = [_named(each.key) | {"side": each.side, "reason": str(each.reason)} for each in comparison.missing]
    document: dict[str, Any] = {
        "verdict": comparison.verdict,
        "exit_code": comparison.exit_code,
        "threshold": comparison.threshold,
        "cases": cases,
        "missing": missing,
        "notes": comparison.notes,
    }
    if comparison.pairs is not None:
        document["pairs"] = comparison.pairs
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _named(key: CaseKey) -> dict[str, Any]:
    return {"id": key.name, "device": key.device or None, "implementation": key.implementation or None}


def show(comparison: Comparison, form: str) -> int:
    """Print the comparison as ``json``, ``markdown`` or a ``table``; where there is nothing to compare, one line on
    stderr instead of the table. Returns the exit code."""
    if form != "table":
        print((to_json if form == "json" else comparison_markdown)(comparison), end="")
    elif comparison.verdicts:
        print("\n".join(_table_lines(comparison)))
    if not comparison.verdicts:
        print(clean(f"gpubench compare: {comparison.line}"), file=sys.stderr)
    return comparison.exit_code


def _table_lines(comparison: Comparison) -> list[str]:
    """A summary of at most a dozen lines, then the rows."""
    width = shutil.get_terminal_size((_WHOLE, 24)).columns  # a log or a file has no width
    longest = _LONGEST if width < _WHOLE else _WHOLE
    lines = lead_lines(comparison, longest)
    for part in (_changes("Comparison", _rows(comparison), comparison, longest), _missing(comparison, longest)):
        if part.rows:
            lines += ["", *terminal(part, width)]
    return [*lines, f"gpubench compare: {comparison.line}"]


def lead_lines(comparison: Comparison, longest: int = _LONGEST) -> list[str]:
    """Changes; inconclusive benchmarks with reason and remedy; how the machine disturbed them."""
    labels, lines = _labels(comparison, longest), []
    for word in (SLOWER, FASTER):
        changed = [each for each in _sorted(comparison) if each.verdict == word]
        if changed:
            named = (f"{labels[each.key]} {change_text(each.ratio.value)}" for each in changed)
            lines.append(f"{word.capitalize()}: {listed(named, _NAMED)}")
    inconclusive = [each for each in comparison.verdicts if each.verdict == INCONCLUSIVE]
    causes = grouped(inconclusive, lambda each: each.cause.head if each.cause else "")
    for cause, group in sorted(causes.items(), key=lambda entry: -len(entry[1])):
        reasons = {each.reason for each in group}
        why = reasons.pop() if len(reasons) == 1 else cause
        lines.append(f"Inconclusive ({len(group)}), {why}. {_toward_conclusive(group, labels)}.")
    return [*lines, *(f"Note: {note}" for note in comparison.notes)]


def _labels(comparison: Comparison, longest: int) -> dict[CaseKey, str]:
    """The label of each benchmark: the name that reports show if no other benchmark has it, else its id, without the
    folders, or the file, that all tests share."""
    keys = [*(verdict.key for verdict in comparison.verdicts), *(missing.key for missing in comparison.missing)]
    counts = Counter(comparison.shown.values())
    shared = shared_place(key.name for key in keys if not key.implementation)
    names = {}
    for key in keys:
        shown = comparison.shown.get(key, "")
        names[key] = shown if counts[shown] == 1 else str(key).removeprefix(shared)
    short = shorten_apart(names.values(), longest)
    return {key: short[name] for key, name in names.items()}


def _rows(comparison: Comparison) -> list[Verdict]:
    """All verdicts except inconclusive ones beyond the :data:`_FEW_ROWS` that changed most."""
    rows = _sorted(comparison)
    left = {each.key for each in [each for each in rows if each.verdict == INCONCLUSIVE][_FEW_ROWS:]}
    return [each for each in rows if each.key not in left]


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown; benchmarks that didn't change are folded away."""
    verdicts = _sorted(comparison)
    rows = [each for each in _rows(comparison) if each.verdict not in (SAME, NO_SIGN)]
    shown = {each.key for each in rows}
    rest = [each for each in verdicts if each.key not in shown]
    lines = ["## Benchmark comparison", "", f"**{escape(comparison.line)}**", ""]
    lines += [*(f"- {escape(line)}" for line in lead_lines(comparison, _WHOLE)), ""]
    if rows:
        lines += [*markdown_table(_changes("", rows, comparison, _WHOLE)), ""]
    for words, word in (("the same", SAME), (NO_SIGN, NO_SIGN), ("more inconclusive", INCONCLUSIVE)):
        if group := [each for each in rest if each.verdict == word]:
            lines += ["<details><summary>", f"{len(group)} {words}", "</summary>", ""]
            lines += [*markdown_table(_changes("", group, comparison, _WHOLE)), "", "</details>", ""]
    missing = _missing(comparison, _WHOLE)
    if comparison.verdicts and missing.rows:
        lines += [f"### {missing.title}", "", *markdown_table(missing), ""]
    return "\n".join(lines)


def _sorted(comparison: Comparison) -> list[Verdict]:
    """Slower, inconclusive, faster, same; within each the largest change first."""
    return sorted(comparison.verdicts, key=lambda each: (ORDER.index(each.verdict), -abs(math.log(each.ratio.value))))


def _changes(title: str, verdicts: Sequence[Verdict], comparison: Comparison, longest: int = _LONGEST) -> Table:
    labels = _labels(comparison, longest)

    def reason(each: Verdict) -> str:
        sees = comparison.unchanged and each.seen is not None
        return f"sees a change of {percent(each.sees(comparison.threshold))}" if sees else each.reason

    columns: list[Column[Verdict]] = [
        Column("benchmark", lambda each: labels[each.key]),
        Column("verdict", lambda each: each.verdict),
        Column("change", lambda each: _worded(each.ratio, change_text(each.ratio.value), not each.held_up)),
        Column("interval", lambda each: _worded(each.ratio, _interval_text(each.ratio), each.bounded)),
        Column("base", lambda each: seconds(each.base_s)),
        Column("new", lambda each: seconds(each.new_s)),
        Column("processes", _processes),
        Column("reason", reason),
    ]
    if len({each.reason for each in verdicts}) == 1 and verdicts[0].reason and not comparison.unchanged:
        columns = columns[:-2]  # a line above the table has the reason, and these the same processes
    notes = []
    if len(verdicts) > TABLE_ROWS:
        notes.append(f"{len(verdicts) - TABLE_ROWS} more rows are in --format json.")
    if title and len(comparison.verdicts) > len(verdicts):
        left = len(comparison.verdicts) - len(verdicts)
        notes.append(f"{left} more are inconclusive and changed less: --format markdown has them.")
    return table(title, columns, verdicts[:TABLE_ROWS], " ".join(notes))


def _worded(ratio: Interval, words: str, is_known: bool) -> Number:
    return Number(ratio.value, state=State.KNOWN, words=words) if is_known else Number(words="unknown")


def _processes(verdict: Verdict) -> Number:
    counts = dict.fromkeys(map(str, verdict.processes))
    return Number(verdict.processes[0], state=State.KNOWN, words=", ".join(counts))


def _interval_text(ratio: Interval) -> str:
    """The ends of the interval in the unit of the change: percent, or how many times slower or faster."""
    if 1 / 3 < ratio.value < 3:
        return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"
    least, most = (ratio.low, ratio.high) if ratio.value > 1 else (1 / ratio.high, 1 / ratio.low)
    return f"{least:.3g} … {most:.3g}×"


def _toward_conclusive(advised: Sequence[Verdict], labels: Mapping[CaseKey, str]) -> str:
    """The need of a conclusive result, for the easiest case."""
    solvable = [each for each in advised if each.more is not None]
    easiest = min(solvable or advised, key=lambda each: each.more or 0)
    words = easiest.advice[:1].upper() + easiest.advice[1:]
    return f"{words} in {labels[easiest.key]}" if len(advised) > 1 and easiest.more is not None else words


def _missing(comparison: Comparison, longest: int = _LONGEST) -> Table:
    labels = _labels(comparison, longest)
    rows = [(labels[each.key], f"{each.side}: {each.reason}") for each in comparison.missing]
    left = len(rows) - _MISSING_ROWS
    note = f"{left} more are in --format json." if left > 0 else ""
    return Table("Not on both sides", ("benchmark", "missing from"), tuple(rows[:_MISSING_ROWS]), note)
