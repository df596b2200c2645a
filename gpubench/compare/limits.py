"""Limits: the longest that a call may take, set by a test's mark or a table of pyproject.toml, checked against the new
side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import variance
from typing import NamedTuple

from ..runfile.matching import matcher
from ..statistics import inference
from ..statistics.inference import Change
from ..statistics.intervals import Interval
from .samples import ABSENT, SKIPPED, CaseKey, Observation, Side
from .verdict import FALSE_DISCOVERIES, LEAST_SPREAD, SINGLE_SPREAD, STUCK

ABOVE, PERHAPS, BELOW = "above", "perhaps above", "below"


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a benchmark, and the interval of its time in seconds: the verdict is certain if the whole interval
    lies on one side of the limit."""

    key: CaseKey
    limit_s: float
    time: Interval

    @property
    def verdict(self) -> str:
        """``above``, ``perhaps above`` or ``below``."""
        if self.time.low > self.limit_s:
            return ABOVE
        return PERHAPS if self.time.high > self.limit_s else BELOW


class Unchecked(NamedTuple):
    """A limit without a time to check: of a benchmark, or of an expression (``key`` is None) that matches none."""

    name: str
    reason: str
    key: CaseKey | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.reason}"


def check_limits(base: Side, new: Side, table: Mapping[str, float]) -> tuple[tuple[Limit, ...], tuple[Unchecked, ...]]:
    """Limits of the new side's benchmarks, and those that can't be checked; where several apply to one benchmark, the
    smallest counts. ``table`` has seconds by the expressions that choose benchmarks, as ``-k`` does. What new skips,
    and base doesn't measure either, needs no number.

    The interval is that of the mean logarithm of the processes' medians, with moderated variances as for verdicts. The
    level is divided by the number of limits (Bonferroni).
    """
    named = dict.fromkeys([*new.cases, *new.unmeasured, *base.cases])
    bounds, unchecked = dict(new.limits), []
    for expression, limit_s in table.items():
        matches = matcher(expression, "[tool.gpubench.limits]")
        chosen = [key for key in named if matches(key.names)]
        bounds |= {key: min(limit_s, bounds.get(key, math.inf)) for key in chosen}
        if not any(key in new.cases or _is_due(key, base, new) for key in chosen):
            skipped = f"matches only what is skipped ({chosen[0]})" if chosen else "matches no benchmark"
            unchecked.append(Unchecked(repr(expression), skipped))
    unchecked += [
        Unchecked(str(key), f"has no number ({new.unmeasured.get(key, ABSENT)})", key)
        for key in bounds
        if key not in new.cases and _is_due(key, base, new)
    ]
    found = {key: limit_s for key, limit_s in bounds.items() if key in new.cases}
    logs = {key: _usable(new.cases[key]) for key in found}
    several = [key for key, values in logs.items() if len(values) > 1]
    freedoms = [len(logs[key]) - 1 for key in several]
    variances, prior = inference.moderated([max(variance(logs[key]), LEAST_SPREAD**2) for key in several], freedoms)
    known = dict(zip(several, zip(variances, freedoms, strict=True), strict=True))
    tail, checked = FALSE_DISCOVERIES / max(1, len(found)), []
    for key, limit_s in found.items():
        if not logs[key]:
            continue
        count = len(logs[key])
        squared, freedom = known.get(key, (SINGLE_SPREAD**2, math.inf))
        error = math.sqrt(max(squared, LEAST_SPREAD**2) / count)
        change = Change(sum(logs[key]) / count, error, min(freedom + prior, 1e6))
        checked.append(Limit(key, limit_s, change.interval(tail, tail)))
    return tuple(checked), tuple(unchecked)


def _is_due(key: CaseKey, base: Side, new: Side) -> bool:
    """Whether new should have a number of a case: it failed, or base has one."""
    return key in base.cases or new.unmeasured.get(key, ABSENT).status != SKIPPED


def _usable(processes: list[Observation]) -> list[float]:
    """Logarithms of the medians, without smoke runs and processes that waited for something else; where waiting may
    explain the rounds, of the fastest one."""
    timed = [each for each in processes if not each.smoke]
    least = min((each.least_s for each in timed), default=0.0)
    return [math.log(each.least_s if each.uneven else each.median_s) for each in timed if each.least_s < STUCK * least]
