"""A comparison as JSON for programs, as a table for the terminal, and as Markdown for a pull request."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import clean
from ..report.number import Number, State, seconds
from ..report.render import UNBOUNDED, Column, Table, escape, markdown as markdown_table, screen_width, table, terminal
from ..report.rows import grouped
from ..runfile.quantities import listed, shared_place, shorten_apart
from ..statistics.intervals import Interval
from .comparison import ORDER, Comparison, change_text
from .samples import CaseKey
from .verdict import FASTER, INCONCLUSIVE, NO_SIGN, SAME, SLOWER, Verdict, percent

TABLE_ROWS = 200  # rows of a table for people; the JSON has them all
_MISSING_ROWS = 20
_FEW_ROWS = 10  # how many inconclusive benchmarks the table shows; lines above it count them all and give the reasons
_LONGEST = 80  # most characters of a benchmark's label on a screen
_NAMED = 3  # how many benchmarks a line names


def to_json(comparison: Comparison) -> str:
    """One object. ``p`` is null without evidence about noise, ``low`` and ``high`` where nothing bounds the ratio."""
    cases = [
        _named(verdict.key) | {
            "name": comparison.shown.get(verdict.key, verdict.key.name),
            "verdict": verdict.verdict,
            "ratio": verdict.ratio.value,
            "low": verdict.ratio.low if verdict.bounded else None,
            "high": verdict.ratio.high if verdict.bounded else None,
            "base_s": verdict.base_s,
            "new_s": verdict.new_s,
            "p": verdict.p,
            "sees": None if verdict.seen is None else verdict.sees(comparison.threshold),
            "processes": dict(zip(("base", "new"), verdict.processes, strict=True)),
            "cause": verdict.cause.name.lower() if verdict.cause else None,
            "reason": verdict.reason or None,
            "advice": verdict.advice or None,
        }
        for verdict in comparison.verdicts
    ]  # fmt: skip
    document: dict[str, Any] = {
        "verdict": comparison.verdict,
        "exit_code": comparison.exit_code,
        "threshold": comparison.threshold,
        "cases": cases,
        "missing": [_named(row.key) | {"side": row.side, "reason": str(row.reason)} for row in comparison.missing],
        "notes": comparison.notes,
    }
    document |= {} if comparison.pairs is None else {"pairs": comparison.pairs}
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _named(key: CaseKey) -> dict[str, Any]:
    return {"id": key.name, "device": key.device or None, "implementation": key.implementation or None}


def show(comparison: Comparison, form: str) -> int:
    """Print the comparison as ``json``, ``markdown`` or a ``table``; where there is nothing to compare, one line on
    stderr instead of the table. Returns the exit code."""
    if form != "table":
        print((to_json if form == "json" else comparison_markdown)(comparison), end="")
    elif comparison.verdicts:
        width = screen_width()
        longest = _LONGEST if width < UNBOUNDED else UNBOUNDED
        lines = lead_lines(comparison, longest)
        for part in (_changes("Comparison", _rows(comparison), comparison, longest), _missing(comparison, longest)):
            lines += ["", *terminal(part, width)] if part.rows else []
        print("\n".join([*lines, f"gpubench compare: {comparison.line}"]))
    if not comparison.verdicts:
        print(clean(f"gpubench compare: {comparison.line}"), file=sys.stderr)
    return comparison.exit_code


def lead_lines(comparison: Comparison, longest: int = _LONGEST) -> list[str]:
    """Changes; inconclusive benchmarks with reason and remedy; how the machine disturbed them."""
    labels, lines = _labels(comparison, longest), []
    by_word = grouped(_sorted(comparison), lambda verdict: verdict.verdict)
    for word in (SLOWER, FASTER):
        if word in by_word:
            names = (f"{labels[verdict.key]} {change_text(verdict.ratio.value)}" for verdict in by_word[word])
            lines.append(f"{word.capitalize()}: {listed(names, _NAMED)}")
    inconclusive = [verdict for verdict in comparison.verdicts if verdict.verdict == INCONCLUSIVE]
    causes = grouped(inconclusive, lambda verdict: verdict.cause.head if verdict.cause else "")
    for cause, group in sorted(causes.items(), key=lambda entry: -len(entry[1])):
        reasons = {verdict.reason for verdict in group}
        why = reasons.pop() if len(reasons) == 1 else cause
        lines.append(f"Inconclusive ({len(group)}), {why}. {_toward_conclusive(group, labels)}.")
    return [*lines, *(f"Note: {note}" for note in comparison.notes)]


def _toward_conclusive(advised: Sequence[Verdict], labels: Mapping[CaseKey, str]) -> str:
    """The need of a conclusive result, for the easiest case."""
    solvable = [verdict for verdict in advised if verdict.more is not None]
    easiest = min(solvable or advised, key=lambda verdict: verdict.more or 0)
    words = easiest.advice[:1].upper() + easiest.advice[1:]
    return f"{words} in {labels[easiest.key]}" if len(advised) > 1 and solvable else words


def _labels(comparison: Comparison, longest: int) -> dict[CaseKey, str]:
    """The label of each benchmark: the name that reports show if no other benchmark has it, else its id, without the
    folders, or the file, that all tests share."""
    keys = [*(verdict.key for verdict in comparison.verdicts), *(row.key for row in comparison.missing)]
    counts = Counter(comparison.shown.values())
    shared = shared_place(key.name for key in keys if not key.implementation)
    names = {key: str(key).removeprefix(shared) for key in keys}
    names |= {key: comparison.shown[key] for key in keys if counts[comparison.shown.get(key, "")] == 1}
    short = shorten_apart(names.values(), longest)
    return {key: short[name] for key, name in names.items()}


def _rows(comparison: Comparison) -> list[Verdict]:
    """All verdicts except inconclusive ones beyond the :data:`_FEW_ROWS` that changed most."""
    rows = _sorted(comparison)
    left_out = [verdict.key for verdict in rows if verdict.verdict == INCONCLUSIVE][_FEW_ROWS:]
    return [verdict for verdict in rows if verdict.key not in {*left_out}]


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown; benchmarks that didn't change are folded away."""
    rows = [verdict for verdict in _rows(comparison) if verdict.verdict not in (SAME, NO_SIGN)]
    shown = {verdict.key for verdict in rows}
    rest = grouped((each for each in _sorted(comparison) if each.key not in shown), lambda verdict: verdict.verdict)
    lines = ["## Benchmark comparison", "", f"**{escape(comparison.line)}**", ""]
    lines += [*(f"- {escape(line)}" for line in lead_lines(comparison, UNBOUNDED)), ""]
    if rows:
        lines += [*markdown_table(_changes("", rows, comparison, UNBOUNDED)), ""]
    for words, word in (("the same", SAME), (NO_SIGN, NO_SIGN), ("more inconclusive", INCONCLUSIVE)):
        if word in rest:
            lines += ["<details><summary>", f"{len(rest[word])} {words}", "</summary>", ""]
            lines += [*markdown_table(_changes("", rest[word], comparison, UNBOUNDED)), "", "</details>", ""]
    missing = _missing(comparison, UNBOUNDED)
    if comparison.verdicts and missing.rows:
        lines += [f"### {missing.title}", "", *markdown_table(missing), ""]
    return "\n".join(lines)


def _sorted(comparison: Comparison) -> list[Verdict]:
    """Slower, inconclusive, faster, same; within each the largest change first."""
    return sorted(comparison.verdicts, key=lambda each: (ORDER.index(each.verdict), -abs(math.log(each.ratio.value))))


def _changes(title: str, verdicts: Sequence[Verdict], comparison: Comparison, longest: int = _LONGEST) -> Table:
    labels, unknown = _labels(comparison, longest), Number(words="unknown")

    def known(value: float, words: str) -> Number:
        return Number(value, state=State.KNOWN, words=words)

    def reason(each: Verdict) -> str:
        sees = comparison.unchanged and each.seen is not None
        return f"sees a change of {percent(each.sees(comparison.threshold))}" if sees else each.reason

    columns: list[Column[Verdict]] = [
        Column("benchmark", lambda each: labels[each.key]),
        Column("verdict", lambda each: each.verdict),
        Column(
            "change", lambda each: unknown if each.held_up else known(each.ratio.value, change_text(each.ratio.value))
        ),
        Column(
            "interval", lambda each: known(each.ratio.value, _interval_text(each.ratio)) if each.bounded else unknown
        ),
        Column("base", lambda each: seconds(each.base_s)),
        Column("new", lambda each: seconds(each.new_s)),
        Column("processes", lambda each: known(each.processes[0], ", ".join(dict.fromkeys(map(str, each.processes))))),
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


def _interval_text(ratio: Interval) -> str:
    """The ends of a bounded interval in the unit of the change: percent, or how many times slower or faster."""
    if 1 / 3 < ratio.value < 3:
        return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"
    least, most = (ratio.low, ratio.high) if ratio.value > 1 else (1 / ratio.high, 1 / ratio.low)
    return f"{least:.3g} … {most:.3g}×"


def _missing(comparison: Comparison, longest: int = _LONGEST) -> Table:
    labels = _labels(comparison, longest)
    rows = [(labels[row.key], f"{row.side}: {row.reason}") for row in comparison.missing]
    left = len(rows) - _MISSING_ROWS
    note = f"{left} more are in --format json." if left > 0 else ""
    return Table("Not on both sides", ("benchmark", "missing from"), tuple(rows[:_MISSING_ROWS]), note)
