"""The result of comparing two sides: verdicts, missing cases and the exit code, as JSON, as a table and as Markdown."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..errors import UsageError, clean
from ..report.number import Number, State, seconds
from ..report.render import UNBOUNDED, Column, Table, escape, markdown as markdown_table, screen_width, table, terminal
from ..report.rows import grouped
from ..runfile.facts import differences
from ..runfile.matching import matcher, nothing_matches, unmatched_words
from ..runfile.quantities import counted, listed, shared_place, shorten_apart
from ..runfile.schema import UNMEASURED
from ..statistics.intervals import Interval
from . import samples
from .evidence import Terms
from .samples import ABSENT, SKIPPED, STOPPED, CaseKey, Side, Unmeasured
from .verdict import FASTER, INCONCLUSIVE, NO_SIGN, SAME, SLOWER, Verdict, judge, percent

BASE, NEW, BOTH = "base", "new", "both"
ORDER = (SLOWER, INCONCLUSIVE, FASTER, NO_SIGN, SAME)  # the verdicts from the worst to the best
TABLE_ROWS = 200  # rows of a table for people; the JSON has them all
_MISSING_ROWS = 20
_FEW_ROWS = 10  # how many inconclusive benchmarks the table shows; lines above it count them all and give the reasons
_LONGEST = 80  # most characters of a benchmark's label on a screen
_NAMED = 3  # how many benchmarks a line names


class Missing(NamedTuple):
    """A case that a side, or both, lacks or couldn't measure for a ``reason``."""

    key: CaseKey
    side: str
    reason: Unmeasured


@dataclass(frozen=True, slots=True)
class Comparison:
    """``notes`` are lines to read before believing the verdicts; ``pairs`` counts the pairs measured in turn,
    ``contents`` describes each side, ``shown`` has the names that reports show. ``ended`` says why a side couldn't be
    measured to the end, ``interrupted`` that a signal ended it. With ``fail_missing`` a case that base measured and
    new didn't is as bad as a slowdown, with ``fail_inconclusive`` one without a conclusive verdict. ``unchanged``
    means that both sides are the same code."""

    verdicts: tuple[Verdict, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    threshold: float
    pairs: int | None = None
    fail_missing: bool = False
    fail_inconclusive: bool = False
    contents: tuple[str, ...] = ()
    shown: Mapping[CaseKey, str] = field(default_factory=dict)
    ended: str = ""
    interrupted: bool = False
    unchanged: bool = False

    @property
    def _lost(self) -> list[Missing]:
        return [row for row in self.missing if row.side == NEW]

    @property
    def _failed(self) -> list[Missing]:
        return [row for row in self.missing if row.reason.status in {*UNMEASURED, STOPPED} - {SKIPPED}]

    @property
    def exit_code(self) -> int:
        """0 no proven slowdown, 1 a proven one or another failure that was asked for, 2 something couldn't be measured,
        3 nothing to compare."""
        undecided = self.fail_inconclusive and any(verdict.verdict == INCONCLUSIVE for verdict in self.verdicts)
        if self.verdict == SLOWER or undecided or (self.fail_missing and self._lost):
            return 1
        if self.ended or self.interrupted or (self._failed and not self.verdicts):
            return 2
        return 0 if self.verdicts else 3

    @property
    def verdict(self) -> str:
        """The worst verdict of any case."""
        return min((verdict.verdict for verdict in self.verdicts), key=ORDER.index, default="nothing")

    @property
    def line(self) -> str:
        """The result of the comparison in one line."""
        if not self.verdicts:
            why = [f"{row.key}, {row.side}: {row.reason}" for row in self._failed[:1]] or ["; ".join(self.contents)]
            return ": ".join(filter(None, ["nothing to compare: no benchmark was measured on both sides", *why]))
        counts = Counter(verdict.verdict for verdict in self.verdicts)
        sides = Counter(row.side for row in self.missing)
        unproven = "no verdict" if self.exit_code == 2 else "no slowdown proven"
        head = "slowdown proven" if counts[SLOWER] else unproven
        words = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
        needs = Counter(each.need for each in self.verdicts if each.verdict == INCONCLUSIVE and each.need)
        reasons = Counter(row.reason.status for row in self._lost)
        lost = ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items()))
        parts = [
            f"{head} at a threshold of {percent(self.threshold)}: {words}",
            ", ".join(f"{n} need{'s' * (n == 1)} {need}" for need, n in needs.most_common()),
            "interrupted" if self.interrupted else "ended early" if self.ended else "",
            f"in base but not in new: {lost}" if lost else "",
            f"{sides[BASE]} only in new" if sides[BASE] else "",
            f"{sides[BOTH]} without a number on both sides" if sides[BOTH] else "",
        ]
        return "; ".join(filter(None, parts))


def content_text(side: str, workloads: Sequence[str]) -> str:
    """``base has 12 benchmarks (matmul.square, matmul.batched, copy.h2d and 9 more)``."""
    names = f" ({listed(sorted(set(workloads)), _NAMED)})"
    return f"{side} has {counted(len(workloads), 'benchmark') + names if workloads else 'none'}"


def _missing_cases(base: Side, new: Side) -> tuple[Missing, ...]:
    """Cases of just one side, each with the reason in the other's file, and cases that both sides failed."""
    one = [
        Missing(key, side.name, side.unmeasured.get(key, ABSENT))
        for side, other in ((base, new), (new, base))
        for key in sorted(set(other.cases) - set(side.cases))
    ]
    shared = (set(base.unmeasured) & set(new.unmeasured)) - set(base.cases) - set(new.cases)
    tried = sorted(key for key in shared if new.unmeasured[key].status != SKIPPED)
    return (*one, *(Missing(key, BOTH, new.unmeasured[key]) for key in tried))


def compare_sides(base: Side, new: Side, terms: Terms, allowed: bool = False) -> Comparison:
    """Judge all cases of both sides. Raises UsageError where the machines differ, unless that is ``allowed``."""
    common = [key for key in new.cases if key in base.cases]
    machine, software, cpu = differences(base.runs, new.runs, (key.device for key in common))
    hardware = machine.keys() & {"CPU", *(key.device for key in common)}
    # On one machine the code itself has set other threads.
    if common and machine and not allowed and (hardware or not samples.is_staged(base, new)):
        same = "measure both with the same --threads N, or " * ("threads" in machine)
        facts = "; ".join(f"{fact} {words}" for fact, words in machine.items())
        raise UsageError(f"the machines differ: {facts} ({same}compare them anyway with --allow machine)")
    unknown = samples.sides_of_unknown_cpu(base, new)
    moved = allowed and bool(machine or unknown)
    differ = {"another machine" if moved else "other settings": machine, "other software": software}
    differ |= {"the CPU was used otherwise": cpu}
    notes = [f"{what}: {fact} {words}" for what, facts in differ.items() for fact, words in facts.items()]
    notes += samples.doubts(base, new)
    notes += [f"{side.name}: {side.plain_memory}" for side in (base, new) if side.plain_memory]
    digests = {run.digest for run in base.runs}
    copies = (clean(str(run.path)) for run in new.runs if run.digest in digests)
    notes += [f"on both sides: {path}: a run compared with itself shows no noise" for path in copies]
    in_turn = samples.measured_in_turn(base, new, False), samples.measured_in_turn(base, new, True)
    terms = replace(terms, in_turn=in_turn if not moved else (False, False), moved=moved)
    verdicts = judge(base.cases, new.cases, replace(terms, unknown="" if allowed else unknown))
    stopped = samples.stopped_cases(base, new)
    # A slowdown that was proven before the other side stopped stays one.
    left_out = {verdict.key for verdict in verdicts if verdict.key in stopped and verdict.verdict != SLOWER}
    missing = (*_missing_cases(base, new), *(Missing(key, *stopped[key]) for key in sorted(left_out)))
    names = {side.name: [key.name.partition("[")[0] for key in side.cases] for side in (base, new)}
    return Comparison(
        tuple(verdict for verdict in verdicts if verdict.key not in left_out), missing, tuple(notes), terms.threshold,
        pairs=min(len(base.runs), len(new.runs)) if any(terms.in_turn) else None,
        contents=tuple(content_text(*entry) for entry in names.items()), shown=base.shown | new.shown,
    )  # fmt: skip


def noise_of_runner(comparison: Comparison) -> Comparison:
    """A comparison of unchanged code with the sensitivity of this machine: for each benchmark the smallest change that
    would be detected four times out of five, and how many were called changed."""
    least = sorted(each.sees(comparison.threshold) for each in comparison.verdicts if each.seen is not None)
    changed = sum(each.verdict in (SLOWER, FASTER) for each in comparison.verdicts)
    notes = [f"unchanged code: {changed} of {counted(len(comparison.verdicts), 'benchmark')} called changed"]
    if least:
        words = f"{percent(least[0])} in the quietest benchmark, {percent(least[len(least) // 2])} in the middle one"
        notes.append(f"4 times out of 5 this machine sees a change of {words}, {percent(least[-1])} in the noisiest")
    return replace(comparison, notes=(*notes, *comparison.notes), unchanged=True)


def narrowed(comparison: Comparison, expression: str) -> Comparison:
    """The comparison of the cases that ``-k`` chooses. Each case is judged as among all, so that looking again
    doesn't change a verdict. Raises UsageError for a wrong expression, and where nothing matches."""
    matches = matcher(expression)
    keys = [*(verdict.key for verdict in comparison.verdicts), *(row.key for row in comparison.missing)]
    names = {key: [*key.names, comparison.shown.get(key, "")] for key in keys}
    verdicts = tuple(verdict for verdict in comparison.verdicts if matches(names[verdict.key]))
    missing = tuple(row for row in comparison.missing if matches(names[row.key]))
    if keys and not verdicts and not missing:
        raise nothing_matches(expression, (key.name.partition("[")[0] for key in keys))
    unmatched = unmatched_words(expression, names.values())
    notes = [f"-k: nothing matches {listed(unmatched)}"] * bool(unmatched)
    return replace(comparison, verdicts=verdicts, missing=missing, notes=(*notes, *comparison.notes))


def change_text(ratio: float) -> str:
    """``+20.3 %`` for a ratio of times; ``3.2× slower`` where that is clearer."""
    if 1 / 3 < ratio < 3:
        return f"{100 * (ratio - 1):+.1f} %"
    return f"{ratio:.3g}× slower" if ratio > 1 else f"{1 / ratio:.3g}× faster"


def _json(comparison: Comparison) -> str:
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
        print((_json if form == "json" else _markdown)(comparison), end="")
    elif comparison.verdicts:
        width = screen_width()
        longest = _LONGEST if width < UNBOUNDED else UNBOUNDED
        lines = _lead_lines(comparison, longest)
        for part in (_changes("Comparison", _rows(comparison), comparison, longest), _missing(comparison, longest)):
            lines += ["", *terminal(part, width)] if part.rows else []
        print("\n".join([*lines, f"gpubench compare: {comparison.line}"]))
    if not comparison.verdicts:
        print(clean(f"gpubench compare: {comparison.line}"), file=sys.stderr)
    return comparison.exit_code


def _lead_lines(comparison: Comparison, longest: int) -> list[str]:
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
        solvable = [verdict for verdict in group if verdict.more is not None]
        easiest = min(solvable or group, key=lambda verdict: verdict.more or 0)
        advice = easiest.advice[:1].upper() + easiest.advice[1:]
        where = f" in {labels[easiest.key]}" if len(group) > 1 and solvable else ""
        lines.append(f"Inconclusive ({len(group)}), {why}. {advice}{where}.")
    return [*lines, *(f"Note: {note}" for note in comparison.notes)]


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


def _markdown(comparison: Comparison) -> str:
    """Benchmarks that didn't change are folded away."""
    rows = [verdict for verdict in _rows(comparison) if verdict.verdict not in (SAME, NO_SIGN)]
    shown = {verdict.key for verdict in rows}
    rest = grouped((each for each in _sorted(comparison) if each.key not in shown), lambda verdict: verdict.verdict)
    lines = ["## Benchmark comparison", "", f"**{escape(comparison.line)}**", ""]
    lines += [*(f"- {escape(line)}" for line in _lead_lines(comparison, UNBOUNDED)), ""]
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


def _changes(title: str, verdicts: Sequence[Verdict], comparison: Comparison, longest: int) -> Table:
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


def _missing(comparison: Comparison, longest: int) -> Table:
    labels = _labels(comparison, longest)
    rows = [(labels[row.key], f"{row.side}: {row.reason}") for row in comparison.missing]
    left = len(rows) - _MISSING_ROWS
    note = f"{left} more are in --format json." if left > 0 else ""
    return Table("Not on both sides", ("benchmark", "missing from"), tuple(rows[:_MISSING_ROWS]), note)
