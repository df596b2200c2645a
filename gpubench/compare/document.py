"""What a comparison found, and as the JSON that other programs read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .sides import Key, Side
from .verdict import AMBIGUOUS, FASTER, SAME, SLOWER, Verdict, overall, percent

NO_SLOWDOWN, SLOWDOWN, UNUSABLE, NOTHING = 0, 1, 2, 3
NOTHING_COMPARED = "nothing"
NEW = "new"


@dataclass(frozen=True, slots=True)
class Missing:
    """A case that one side lacks, or couldn't measure for a ``reason``."""

    key: Key
    side: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``notes`` are lines that a reader should know of before believing the verdicts; ``fail_missing`` makes a case
    that base measured and new didn't as bad as a slowdown."""

    verdicts: tuple[Verdict, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    threshold: float
    pairs: int | None = None
    fail_missing: bool = False

    @property
    def lost(self) -> list[Missing]:
        """What base measured and new didn't."""
        return [each for each in self.missing if each.side == NEW]

    @property
    def exit_code(self) -> int:
        """0 no proven slowdown, 1 a proven one or a lost case where that fails, 3 nothing to compare."""
        if not self.verdicts:
            return NOTHING
        if self.fail_missing and self.lost:
            return SLOWDOWN
        return SLOWDOWN if any(each.verdict == SLOWER for each in self.verdicts) else NO_SLOWDOWN

    @property
    def verdict(self) -> str:
        return overall(self.verdicts) if self.verdicts else NOTHING_COMPARED

    @property
    def line(self) -> str:
        """All of it in one line."""
        if not self.verdicts:
            return "nothing to compare: no case was measured on both sides"
        counts = dict.fromkeys((SLOWER, AMBIGUOUS, FASTER, SAME), 0)
        for each in self.verdicts:
            counts[each.verdict] += 1
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        head = "slowdown proven" if counts[SLOWER] else "no slowdown proven"
        return f"{head} at a threshold of {percent(self.threshold)}: {told}{self._missing_line()}"

    def _missing_line(self) -> str:
        told, lost = "", len(self.lost)
        if lost:
            why = ", ".join(sorted({each.reason.partition(":")[0] for each in self.lost}))
            told = f"; {lost} {'case' if lost == 1 else 'cases'} that base measured gave no number in new ({why})"
        only_new = len(self.missing) - lost
        return f"{told}; {only_new} only in new" if only_new else told


def missing_cases(base: Side, new: Side) -> tuple[Missing, ...]:
    """What can't be compared, each with the reason that its file gives."""
    found = []
    for side, other in ((base, new), (new, base)):
        for key in sorted(set(other.cases) - set(side.cases)):
            found.append(Missing(key, side.name, side.unmeasured.get(key, "not there")))
    return tuple(found)


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


def sorted_verdicts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """What matters first: slower, ambiguous, faster, same; within each the largest change."""
    order = (SLOWER, AMBIGUOUS, FASTER, SAME)
    return sorted(verdicts, key=lambda each: (order.index(each.verdict), -abs(math.log(each.ratio.value))))


def _case(each: Verdict) -> dict[str, Any]:
    bounded = each.ratio.low > 0 and math.isfinite(each.ratio.high)
    return {
        "id": each.key.name,
        **_source(each.key),
        "verdict": each.verdict,
        "ratio": each.ratio.value,
        "low": each.ratio.low if bounded else None,
        "high": each.ratio.high if bounded else None,
        "base_s": each.base_s,
        "new_s": each.new_s,
        "p": each.p,
        "processes": {"base": each.processes[0], "new": each.processes[1]},
        "advice": each.advice or None,
    }


def _source(key: Key) -> dict[str, str | None]:
    return {"device": key.device or None, "implementation": key.implementation or None}
