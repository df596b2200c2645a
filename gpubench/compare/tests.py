"""The test of each benchmark: a moderated t test (G. Smyth, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3), once for the
medians and once for the lower quartiles.

A busy neighbour delays many rounds, a change of the code delays all of them, so the larger p value counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..statistics import inference
from ..statistics.inference import Change
from .drift import LEAST_SPREAD, hidden_variance
from .evidence import Evidence
from .samples import CaseKey

FALSE_DISCOVERIES = 0.025  # the false discovery rate that is asked for
SUSPICION, SUSPICION_OF_LEAST = 0.1, 0.05
"""One-sided p values, for the medians and for the fastest rounds. Either makes a benchmark suspect if that summary
changed by half the threshold. On a busy machine the fastest rounds alone may show a change; only fresh runs decide."""
POWER = 0.8
SINGLE_SPREAD = 0.25
"""Spread assumed for a single process a side: the noisiest of 11 benchmarks over 24 processes, idle machine."""
_SUMMARIES = ("median_s", True), ("quartile_s", True), ("median_s", False), ("least_s", True)
"""Each summary of the changes of an evidence, and whether the drift is subtracted."""


def tested(evidence: Mapping[CaseKey, Evidence]) -> dict[CaseKey, Evidence]:
    """The same evidence, with the ``changes`` of benchmarks if their processes show how they vary."""
    cases = {key: item for key, item in evidence.items() if not item.unfit and sum(map(len, item.sides)) > 3}
    columns = [_moderated(list(cases.values()), *summary) for summary in _SUMMARIES]
    rows = zip(cases.items(), zip(*columns, strict=True), strict=True)
    return {**evidence, **{key: replace(item, changes=changes) for (key, item), changes in rows}}


def _moderated(cases: Sequence[Evidence], summary: str, corrected: bool) -> list[Change]:
    """The moderated t statistics. The known variance of a hidden drift, which the processes of a run share and so don't
    show, is added to that of the difference (degrees of freedom after F. E. Satterthwaite, 1946)."""
    sides = [item.logs(summary, corrected) for item in cases]
    pooled = [inference.pooled_variance(*logs) for logs in sides]
    least = LEAST_SPREAD**2
    variances, prior = inference.moderated([max(variance, least) for variance, _ in pooled], [n for _, n in pooled])
    changes = []
    for item, (base, new), variance, (_, own) in zip(cases, sides, variances, pooled, strict=True):
        within = max(variance, least) * (1 / len(base) + 1 / len(new))
        total = within + hidden_variance(item)
        freedom = min((own + prior) * (total / within) ** 2, 1e6)
        changes.append(Change(sum(new) / len(new) - sum(base) / len(base), math.sqrt(total), freedom))
    return changes


def larger_p(evidence: Evidence, slower: bool, least: float) -> float:
    """The one-sided p value of ``slower`` or of faster, the larger one of both summaries; 1 where the logarithms of the
    medians changed by less than ``least``."""
    if evidence.unfit:
        return 1.0
    if not evidence.changes:  # the fastest round of the slower side must be slower than the other side's median
        slow, fast = evidence.sides[::-1] if slower else evidence.sides
        ratio = min(one.least_s for one in slow) / max(one.median_s for one in fast)
        return inference.larger_p_of_one(ratio, SINGLE_SPREAD)
    changes = evidence.changes[:2] if slower else [change.inverse() for change in evidence.changes[:2]]
    return max(change.larger_p() for change in changes) if changes[0].log >= least else 1.0


def suspicions(evidence: Evidence) -> list[tuple[Change, float]]:
    """The changes that may make the benchmark suspect, each with its level."""
    return list(zip(evidence.changes[::3], (SUSPICION, SUSPICION_OF_LEAST), strict=True))


def tail(adjusted: Sequence[float], level: float) -> float:
    """The probability that an interval leaves out on one side so that it excludes 1 just where the adjusted p value
    reaches the level: with r discoveries among m benchmarks, r / m of the level, or 1 / m without any.

    Source: Y. Benjamini, D. Yekutieli, J. Am. Stat. Assoc. 100 (2005) 71-81.
    """
    return level * max(1, sum(p <= level for p in adjusted)) / max(1, len(adjusted))
