"""The result of comparing two sides: a verdict for each case, missing cases, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import UsageError, clean
from ..runfile.facts import differences
from ..runfile.matching import matcher, nothing_matches, unmatched_words
from ..runfile.quantities import counted, listed
from ..runfile.schema import UNMEASURED
from . import samples
from .samples import ABSENT, SKIPPED, STOPPED, CaseKey, Side, Unmeasured
from .verdict import FASTER, INCONCLUSIVE, NO_SIGN, SAME, SLOWER, Terms, Verdict, judge, percent

BASE, NEW, BOTH = "base", "new", "both"
_NAMED = 3  # how many workloads of each side are named where the sides have none in common
ORDER = (SLOWER, INCONCLUSIVE, FASTER, NO_SIGN, SAME)  # the verdicts from the worst to the best


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
    def lost(self) -> list[Missing]:
        """Cases that base measured and new didn't."""
        return [row for row in self.missing if row.side == NEW]

    @property
    def failed(self) -> list[Missing]:
        """Cases that a side tried and couldn't measure."""
        statuses = {*UNMEASURED, STOPPED} - {SKIPPED}
        return [row for row in self.missing if row.reason.status in statuses]

    @property
    def exit_code(self) -> int:
        """0 no proven slowdown, 1 a proven one or another failure that was asked for, 2 something couldn't be measured,
        3 nothing to compare."""
        undecided = self.fail_inconclusive and any(verdict.verdict == INCONCLUSIVE for verdict in self.verdicts)
        if self.verdict == SLOWER or undecided or (self.fail_missing and self.lost):
            return 1
        if self.ended or self.interrupted or (self.failed and not self.verdicts):
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
            why = [f"{row.key}, {row.side}: {row.reason}" for row in self.failed[:1]] or ["; ".join(self.contents)]
            return ": ".join(filter(None, ["nothing to compare: no benchmark was measured on both sides", *why]))
        counts = Counter(verdict.verdict for verdict in self.verdicts)
        unproven = "no verdict" if self.exit_code == 2 else "no slowdown proven"
        head = "slowdown proven" if counts[SLOWER] else unproven
        words = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
        parts = [f"{head} at a threshold of {percent(self.threshold)}: {words}"]
        needs = Counter(each.need for each in self.verdicts if each.verdict == INCONCLUSIVE and each.need)
        parts.append(", ".join(f"{n} need{'s' * (n == 1)} {need}" for need, n in needs.most_common()))
        parts.append("interrupted" if self.interrupted else "ended early" if self.ended else "")
        reasons = Counter(row.reason.status for row in self.lost)
        lost = ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items()))
        parts.append(f"in base but not in new: {lost}" if lost else "")
        sides = Counter(row.side for row in self.missing)
        parts.append(f"{sides[BASE]} only in new" if sides[BASE] else "")
        parts.append(f"{sides[BOTH]} without a number on both sides" if sides[BOTH] else "")
        return "; ".join(filter(None, parts))


def content_text(side: str, workloads: Sequence[str]) -> str:
    """``base has 12 benchmarks (matmul.square, matmul.batched, copy.h2d and 9 more)``."""
    names = f" ({listed(sorted(set(workloads)), _NAMED)})"
    return f"{side} has {counted(len(workloads), 'benchmark') + names if workloads else 'none'}"


def missing_cases(base: Side, new: Side) -> tuple[Missing, ...]:
    """Cases of just one side, each with the reason in the other's file, and cases that both sides failed."""
    one = [
        Missing(key, side.name, side.unmeasured.get(key, ABSENT))
        for side, other in ((base, new), (new, base))
        for key in sorted(set(other.cases) - set(side.cases))
    ]
    shared = (set(base.unmeasured) & set(new.unmeasured)) - set(base.cases) - set(new.cases)
    tried = sorted(key for key in shared if new.unmeasured[key].status != SKIPPED)
    return (*one, *(Missing(key, BOTH, new.unmeasured[key]) for key in tried))


def compare_sides(base: Side, new: Side, terms: Terms, moved: bool = False) -> Comparison:
    """Judge all cases of both sides. Raises UsageError where the machines differ, unless the sides were ``moved`` on
    purpose."""
    common = [key for key in new.cases if key in base.cases]
    machine, software, cpu = differences(base.runs, new.runs, (key.device for key in common))
    if common and machine and not moved:
        same = "measure both with the same --threads N, or " * ("threads" in machine)
        facts = "; ".join(f"{fact} {words}" for fact, words in machine.items())
        raise UsageError(f"the machines differ: {facts} ({same}compare them anyway with --allow machine)")
    differ = {"another machine": machine, "other software": software, "the CPU was used otherwise": cpu}
    notes = [f"{what}: {fact} {words}" for what, facts in differ.items() for fact, words in facts.items()]
    notes += samples.doubts(base, new)
    notes += [f"{side.name}: {side.plain_memory}" for side in (base, new) if side.plain_memory]
    digests = {run.digest for run in base.runs}
    copies = (clean(str(run.path)) for run in new.runs if run.digest in digests)
    notes += [f"on both sides: {path}: a run compared with itself shows no noise" for path in copies]
    if not moved:
        in_turn = samples.measured_in_turn(base, new, False), samples.measured_in_turn(base, new, True)
        terms = replace(terms, in_turn=in_turn, unknown=samples.sides_of_unknown_cpu(base, new))
    verdicts = judge(base.cases, new.cases, replace(terms, moved=moved))
    stopped = samples.stopped_cases(base, new)
    # A slowdown that was proven before the other side stopped stays one.
    left_out = {verdict.key for verdict in verdicts if verdict.key in stopped and verdict.verdict != SLOWER}
    missing = (*missing_cases(base, new), *(Missing(key, *stopped[key]) for key in sorted(left_out)))
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
