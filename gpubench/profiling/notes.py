"""Arithmetic over a script's notes: its steps, their parts, their mean with an interval, and the bound of a speedup.

A note is ``(seconds, sign, region, key)``: ``+`` opens a region of the training thread, ``-`` closes it. The key of the
region ``data`` is the loader's. Nothing here reads a clock, so a scripted one tests all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from ..statistics.intervals import INTERVAL, Interval, quantile

Note = tuple[float, str, str, Hashable]
Stretch = tuple[float, float, str]
StepNotes = tuple[float, float, list[Note]]
DATA, PYTHON, HOST, FORWARD, BACKWARD, OPTIMIZER, EVALUATION = PARTS = (
    "data", "python", "host", "forward", "backward", "optimizer", "evaluation",
)  # fmt: skip
"""Parts of a step: waiting for data, own Python, Python and launches of operators, operators of three regions, and an
evaluation between two steps, which is no part of the step's time."""
REGULAR = 12
"""An optimizer that steps less often than once in so many steps of another one doesn't mark a step."""
LEAST_BLOCK, LEAST_BLOCKS, MOST_BLOCKS = 4, 4, 8
"""Steps of a block at least, and blocks of an interval."""
CORRELATED = 0.5
"""Correlation of neighbouring steps above which fewer independent steps would say as much as these."""
HOST_SHARE = 0.6
"""Share of the host's measured time that a host needs which only launches: on a CPU the network evicts the host's
caches, so that the time reads 1.1 to 1.65 times too high."""


def segments(
    notes: Sequence[Note], begin_s: float, end_s: float, train: frozenset[Hashable], by_rule: bool = False
) -> Iterator[Stretch]:
    """Yield ``(begin, end, region)``, in seconds, for each stretch of a step. Each instant belongs to the innermost
    open region, without one to PYTHON.

    ``train``: the keys of the steps' loaders, so that another one opens an evaluation. ``by_rule``: modules were not
    seen, so FORWARD lasts from the last batch, or from the optimizer, to the backward pass.
    """
    stack, loose, at_s, evaluates = list[str](), list[tuple[float, float]](), begin_s, False
    for seconds, sign, region, key in (*notes, (end_s, "", "", None)):
        now_s = min(max(seconds, at_s), end_s)
        name = EVALUATION if evaluates else stack[-1] if stack else PYTHON
        if by_rule and name == PYTHON:
            loose.append((at_s, now_s))
        elif now_s > at_s:
            yield at_s, now_s, name
        at_s, into = now_s, FORWARD if sign == "+" and region == BACKWARD else PYTHON
        yield from ((*each, into) for each in loose)
        loose.clear()
        if sign == "+":
            evaluates = key not in train if region == DATA else evaluates and region not in (BACKWARD, OPTIMIZER)
            stack.append(region)
        elif region in stack:  # it also closes regions that an exception left open
            del stack[len(stack) - 1 - stack[::-1].index(region) :]


def parts_of(*step: Any) -> dict[str, float]:
    """Return the seconds of each region in a step, as :func:`segments` takes it; they sum to the step's time."""
    parts = dict.fromkeys(PARTS, 0.0)
    for begin, end, region in segments(*step):
        parts[region] += end - begin
    return parts


def train_keys(steps: Sequence[Sequence[Note]]) -> frozenset[Hashable]:
    """Return the loaders of at least half of the steps, or else the most frequent one."""
    counts = Counter(key for notes in steps for key in {n[3] for n in notes if n[2] == DATA})
    often = [key for key, count in counts.items() if 2 * count >= len(steps)]
    return frozenset(often or [key for key, _ in counts.most_common(1)])


def mark_of(keys: Sequence[Hashable], rarest: bool = True) -> Hashable:
    """Return the key of the events that end a step: the rarest regular one, and of equally frequent ones the last of
    their cycle; the most frequent one unless ``rarest``."""
    counts = Counter(keys)
    (first, most), *_ = counts.most_common()
    regular = [key for key, count in counts.items() if count * REGULAR >= most]
    least = min(counts[key] for key in regular)
    return [key for key in regular if counts[key] <= least + 1][-1] if rarest else first


def is_steady(steps_s: Sequence[float]) -> bool:
    """Return whether the mean of the last five steps is within a quarter of the mean of the five before."""
    last, before = sum(steps_s[-5:]), sum(steps_s[-10:-5])
    return len(steps_s) >= 10 and abs(last - before) <= 0.25 * before


def mean_interval(steps_s: Sequence[float], cycle: int = 1) -> Interval:
    """Return the mean of two or more steps with a 95 % interval, from the means of at most 8 blocks of whole cycles:
    with k workers of a loader each k-th step waits. If neighbouring steps depend on each other, the interval is at
    least as wide as for an AR(1) series with their correlation."""
    cycles = math.ceil(LEAST_BLOCK / cycle) * cycle
    count = min(MOST_BLOCKS, len(steps_s) // cycles)
    if count < LEAST_BLOCKS:  # too few for blocks of several steps
        cycles, count = 1, min(MOST_BLOCKS, len(steps_s))
    size = len(steps_s) // count // cycles * cycles
    last = steps_s[len(steps_s) - count * size :]
    means = [fmean(last[i * size : (i + 1) * size]) for i in range(count)]
    mean, half = fmean(means), quantile(count - 1) * stdev(means) / math.sqrt(count)
    if (rho := correlation(steps_s)) > CORRELATED:
        independent = len(steps_s) * (1 - rho) / (1 + rho)
        half = max(half, quantile(max(1, int(independent) - 1)) * stdev(steps_s) / math.sqrt(independent))
    return Interval(mean, max(0.0, mean - half), mean + half, INTERVAL)


def correlation(steps_s: Sequence[float]) -> float:
    """Return the correlation of neighbouring steps."""
    gaps = [each - fmean(steps_s) for each in steps_s]
    return sum(a * b for a, b in pairwise(gaps)) / (sum(gap * gap for gap in gaps) or 1.0)


def least_s(parts: Mapping[str, float], alone_s: float | None, workers: int) -> float:
    """Return the seconds of a step that no GPU shortens on a host like this one: the host's own work, and the loader,
    beside it if it has workers. ``alone_s``: seconds of the loader for a step's batches while nothing else runs."""
    host_s, waiting_s = HOST_SHARE * (parts[PYTHON] + parts[HOST]), parts[DATA]
    if workers:
        return max(waiting_s if alone_s is None else alone_s, host_s)
    return min(waiting_s, math.inf if alone_s is None else alone_s) + host_s
