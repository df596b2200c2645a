"""Which results of a run do the same job, and the fastest way that a CPU was measured to do it, which is a fair
baseline for a GPU.

The same job is the same workload and parameters in arithmetic that is no less exact, whatever library, variant, form or
layout does it. A result is the value that a benchmark returns; a library that computes more on its way has done the
same job.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from ..statistics import intervals
from ..statistics.intervals import INTERVAL, Interval
from .flags import Level, judge
from .schema import Result, Times

FORM = "form"
"""Parameter of the suite's own benchmarks that says where the result is written, and so how a job is done rather than
which job, except ``inplace``, which overwrites an input."""
LAYOUT = "_channels_last"  # suffix of benchmarks that do the job of the benchmark without it, in another memory order
FASTER = 1.03  # ways that differ by less are equally fast


def job(result: Result) -> Hashable:
    """The key of a job: two results on one device that have it did the same."""
    own = not result.kind  # the parameters of a user's own benchmark have unknown meanings
    params = {n: v for n, v in result.params.items() if v is not None and (own or n != FORM)}
    workload = result.workload if own else result.workload.removesuffix(LAYOUT)
    terms = workload, result.device, result.cache, not own and result.params.get(FORM) == "inplace"
    return *terms, frozenset((name, type(value), value) for name, value in params.items())


def fastest_way(result: Result, others: Iterable[Result]) -> Result:
    """The fastest result on the same CPU that does the same job, or ``result`` itself where none is reliably faster.

    Results that waited for the scheduler or can't be true don't count, nor do unverified ones where ``result`` was
    verified.
    """
    if result.times is None:
        return result
    limit = 1.001 * result.times.median_s / FASTER  # beyond doubt too slow: a job may have thousands of ways
    shorter = [(times, other) for other in others if (times := other.times) and times.median_s <= limit]
    for times, other in sorted(shorter, key=lambda entry: entry[0].median_s):
        if _stands_for(other, result) and _surely_faster(times, result.times):
            return other
    return result


class Basis(NamedTuple):
    """The kind of a ratio's range, and the number of processes on each side if they differ."""

    kind: str
    processes: tuple[int, ...] = ()

    def __str__(self) -> str:
        """``95% interval, 2 and 3 processes``."""
        return self.kind + f", {' and '.join(map(str, self.processes))} processes" * bool(self.processes)


def times_and_ratio(base: Times, other: Times) -> tuple[float, float, Interval, Basis]:
    """Both times, their ratio and the basis of its range.

    With two processes or more on both sides a process is one observation, and a side's time is the median of their
    medians; else there is nothing but the spread of the rounds, which is no interval.
    """
    tops, bottoms = ([process.median_s for process in side.processes] for side in (base, other))
    if min(len(tops), len(bottoms)) < 2:
        quartiles = [(side.q1_s, side.median_s, side.q3_s) for side in (base, other)]
        return base.median_s, other.median_s, intervals.ratio_spread(*quartiles), Basis("spread within one process")
    basis = Basis(INTERVAL, tuple(dict.fromkeys((len(tops), len(bottoms)))))
    return intervals.median(tops), intervals.median(bottoms), intervals.ratio_interval(tops, bottoms), basis


def _stands_for(other: Result, result: Result) -> bool:
    exact = {result.compute_dtype} | ({"float32"} if result.compute_dtype in ("bfloat16", "float16") else set())
    passed = [each.check is not None and each.check.status == "passed" for each in (result, other)]
    if other.compute_dtype not in exact or passed[0] > passed[1] or job(other) != job(result):
        return False
    itself = (other.id, other.implementation) == (result.id, result.implementation)  # measured again
    return not itself and judge(flag.name for flag in other.flags).level < Level.UNUSABLE


def _surely_faster(times: Times, slower: Times) -> bool:
    """Whether the interval proves it faster, or the slowest of its three processes or more is faster than all of the
    slower ones: their times may be so far apart that their interval is endless (H. B. Mann, D. R. Whitney, Ann. Math.
    Statist. 18 (1947): a chance of 1 in 20)."""
    ratio = times_and_ratio(slower, times)[2]
    slow, fast = ([process.median_s for process in side.processes] for side in (slower, times))
    return ratio.value >= FASTER and (ratio.low > 1 or (min(len(slow), len(fast)) >= 3 and max(fast) < min(slow)))
