"""Limits: the longest that a call may take, set by a test's mark or a table of pyproject.toml, checked against the new
side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import variance

from ..runfile.matching import matcher
from ..statistics import inference
from ..statistics.inference import Change
from ..statistics.intervals import Interval
from .samples import CaseKey, Observation, Side
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


def check_limits(new: Side, table: Mapping[str, float]) -> tuple[Limit, ...]:
    """Limits of the new side's benchmarks; where several apply to one benchmark, the smallest counts. ``table`` has
    seconds by the expressions that choose benchmarks, as ``-k`` does.

    The interval is that of the mean logarithm of the processes' medians, with moderated variances as for verdicts. Over
    all limits together it is above one that holds in at most one comparison of forty (Bonferroni).
    """
    chosen = [(matcher(expression), limit_s) for expression, limit_s in table.items()]
    found = {}
    for key in new.cases:
        limits = [limit_s for matches, limit_s in chosen if matches(key.names)]
        bound = min((*limits, new.limits.get(key, math.inf)))
        if bound < math.inf:
            found[key] = bound
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
    return tuple(checked)


def _usable(processes: list[Observation]) -> list[float]:
    """Logarithms of the medians, without smoke runs and processes that waited for something else."""
    timed = [each for each in processes if not each.smoke]
    least = min((each.least_s for each in timed), default=0.0)
    return [math.log(each.median_s) for each in timed if each.least_s < STUCK * least]
