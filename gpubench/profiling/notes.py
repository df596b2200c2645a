"""Arithmetic over a script's notes: its steps, their parts, their mean with an interval, and the bound of a speedup.

A note is ``(seconds, sign, region, key)``: ``+`` opens a region of the training thread, ``-`` closes it. The key of the
region ``data`` is the dataset. Nothing here reads a clock, so a scripted one tests all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise

from ..statistics.intervals import INTERVAL, Interval, quantile

Note = tuple[float, str, str, Hashable]
DATA, PYTHON, HOST, FORWARD, BACKWARD, OPTIMIZER, EVALUATION = PARTS = (
    "data", "python", "host", "forward", "backward", "optimizer", "evaluation",
)  # fmt: skip
"""Parts of a step: waiting for data, own Python, Python and launches of operators, operators of three regions, and an
evaluation between two steps, which is no part of the step's time."""
REGULAR = 12
"""An optimizer that steps less often than once in so many steps of another one doesn't mark a step."""
LEAST_BLOCK, MOST_BLOCKS = 4, 8
"""Steps of a block at least, and blocks of an interval at most."""
CORRELATED = 0.6
"""Correlation of neighbouring steps above which the interval is too narrow."""
HOST_SHARE = 0.6
"""Share of the host's measured time that a host needs which only launches: on a CPU the network evicts the host's
caches, so that the time reads 1.1 to 1.65 times too high."""


def segments(
    notes: Sequence[Note], begin_s: float, end_s: float, train: frozenset[Hashable], by_rule: bool = False
) -> Iterator[tuple[float, float, str]]:
    """Yield ``(begin, end, region)``, in seconds, for each stretch of a step. Each instant belongs to the innermost
    open region, without one to PYTHON.

    ``train``: the datasets of the steps, so that another one opens an evaluation. ``by_rule``: modules were not seen,
    so FORWARD lasts from the last batch, or from the optimizer, to the backward pass.
    """
    stack, loose, at_s, evaluates = list[str](), list[tuple[float, float]](), begin_s, False
    for seconds, sign, region, key in (*notes, (end_s, "", "", None)):
        now_s = min(max(seconds, at_s), end_s)
        name = EVALUATION if evaluates else stack[-1] if stack else PYTHON
        if now_s > at_s:
            if by_rule and name == PYTHON:
                loose.append((at_s, now_s))
            else:
                yield at_s, now_s, name
        at_s = now_s
        if loose:
            into = FORWARD if sign == "+" and region == BACKWARD else PYTHON
            yield from ((*each, into) for each in loose)
            loose = []
        if sign == "+":
            evaluates = key not in train if region == DATA else evaluates and region not in (BACKWARD, OPTIMIZER)
            stack.append(region)
        elif region in stack:  # what an exception left open inside closes with it
            del stack[len(stack) - 1 - stack[::-1].index(region) :]


def parts_of(
    notes: Sequence[Note], begin_s: float, end_s: float, train: frozenset[Hashable], by_rule: bool = False
) -> dict[str, float]:
    """Return the seconds of each region in a step; they sum to the step's time."""
    parts = dict.fromkeys(PARTS, 0.0)
    for begin, end, region in segments(notes, begin_s, end_s, train, by_rule):
        parts[region] += end - begin
    return parts


def train_keys(steps: Sequence[Sequence[Note]]) -> frozenset[Hashable]:
    """Return the datasets of at least half of the steps, or else the most frequent one."""
    counts = Counter(key for notes in steps for key in {n[3] for n in notes if n[2] == DATA})
    often = [key for key, count in counts.items() if 2 * count >= len(steps)]
    return frozenset(often or [key for key, _ in counts.most_common(1)])


def mark_of(keys: Sequence[Hashable], rarest: bool = True) -> Hashable:
    """Return the key whose events end a step: the rarest regular one, and of equally frequent ones the last of their
    cycle; the most frequent one unless ``rarest``."""
    counts = Counter(keys)
    most = max(counts.values())
    if not rarest:
        return next(key for key, count in counts.items() if count == most)
    regular = [key for key, count in counts.items() if count * REGULAR >= most]
    least = min(counts[key] for key in regular)
    return [key for key in regular if counts[key] <= least + 1][-1]


def seconds_of(ends: Sequence[float]) -> list[float]:
    """Return the seconds between neighbouring moments."""
    return [end - begin for begin, end in pairwise(ends)]


def is_steady(steps_s: Sequence[float]) -> bool:
    """Return whether the mean of the last five steps is within a quarter of the mean of the five before."""
    last, before = sum(steps_s[-5:]), sum(steps_s[-10:-5])
    return len(steps_s) >= 10 and abs(last - before) <= 0.25 * before


def mean_interval(steps_s: Sequence[float], cycle: int = 1) -> Interval:
    """Return the mean of the steps with a 95 % interval, from the means of at most 8 blocks of whole cycles: with k
    workers of a loader each k-th step waits. Of fewer than two steps the interval is as wide as it can be."""
    cycles = max(1, math.ceil(LEAST_BLOCK / cycle)) * cycle
    count = min(MOST_BLOCKS, len(steps_s) // cycles)
    if count < 4:  # too few for blocks of several steps
        cycles, count = 1, min(MOST_BLOCKS, len(steps_s))
    size = len(steps_s) // count // cycles * cycles
    last = steps_s[len(steps_s) - count * size :]
    means = [sum(last[i * size : (i + 1) * size]) / size for i in range(count)]
    mean = sum(means) / count
    if count < 2:
        return Interval(mean, 0.0, math.inf, INTERVAL)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in means) / (count - 1))
    half = quantile(count - 1) * deviation / math.sqrt(count)
    return Interval(mean, max(0.0, mean - half), mean + half, INTERVAL)


def correlation(steps_s: Sequence[float]) -> float:
    """Return the correlation of neighbouring steps."""
    mean = sum(steps_s) / len(steps_s)
    gaps = [each - mean for each in steps_s]
    square = sum(gap * gap for gap in gaps)
    return sum(a * b for a, b in pairwise(gaps)) / square if square else 0.0


def least_s(parts: Mapping[str, float], alone_s: float | None, workers: int) -> float:
    """Return the seconds of a step that no GPU shortens on a host like this one: the host's own work, and the loader,
    beside it if it has workers. ``alone_s``: seconds that the loader takes for a step's batches while nothing else
    runs."""
    host_s = HOST_SHARE * (parts[PYTHON] + parts[HOST])
    if workers:
        return max(parts[DATA] if alone_s is None else alone_s, host_s)
    return min(parts[DATA], math.inf if alone_s is None else alone_s) + host_s


def uncovered(
    spans: Sequence[tuple[float, float]], stretches: Sequence[tuple[float, float, str]]
) -> Iterator[tuple[str, float, int]]:
    """Yield the region of each stretch, the seconds in it that no span covers, and the number of spans that begin
    there. Both are in order, and spans don't overlap."""
    at = 0
    for begin, end, region in stretches:
        covered, count = 0.0, 0
        while at < len(spans) and spans[at][1] <= begin:
            at += 1
        i = at
        while i < len(spans) and spans[i][0] < end:
            covered += min(end, spans[i][1]) - max(begin, spans[i][0])
            count += spans[i][0] >= begin
            i += 1
        yield region, end - begin - covered, count
