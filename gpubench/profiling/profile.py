"""The result of ``gpubench profile``, as its JSON holds it, and arithmetic over a script's notes: steps, their parts,
their mean with an interval, and the bound of a speedup.

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

from msgspec import Struct

from ..runfile.schema import Operators
from ..statistics.intervals import INTERVAL, Interval, quantile

Span = tuple[float, float]
Note = tuple[float, str, str, Hashable]
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


class Step(Struct):
    """A step: the event that ends it, its batches and rows (``items``), and its mean over ``n`` steps with the interval
    within this run, after ``warm`` others; ``rho`` is the correlation of neighbours."""

    mark: str
    rank: str
    n: int
    mean_s: float
    low_s: float
    high_s: float | None
    batches: float = 0.0
    items: int | None = None
    shape: str = ""
    warm: int = 0
    rho: float = 0.0


class LoaderFacts(Struct):
    """A loader of the steps: the line that makes it, and the seconds of a batch while nothing else runs."""

    line: str
    workers: int
    pinned: bool
    alone_s: float | None = None


class Place(Struct):
    """A call in the counted step: its name, its line, how often and how many bytes."""

    call: str
    line: str
    n: int = 1
    bytes: int = 0


class Cause(Struct):
    """A cause with the seconds of a step at stake, and the next thing to do."""

    name: str
    seconds: float
    says: str
    next: str = ""


class OnGpu(Struct):
    """A step on a GPU: ranges of seconds, and of the speedup over the CPU."""

    gpu: str
    step_s: Span
    host_s: Span
    gpu_s: Span
    optimizer_s: Span
    copies_s: Span
    speedup: Span
    without_waiting: Span
    capacity: float | None = None

    @property
    def busy_s(self) -> Span:
        """Seconds of the GPU's work in a step, without copies."""
        return self.gpu_s[0] + self.optimizer_s[0], self.gpu_s[1] + self.optimizer_s[1]


class Profile(Struct):
    """The whole answer, in SI units, null if unknown. ``regions`` are seconds of a mean step by the notes alone,
    ``steps`` the seconds of each step in the same order; ``parts`` have the host's time apart if a step was ``traced``:
    before, PYTHON also holds operators outside of modules. ``refusal`` is the reason why there is none; ``lost`` has
    the missing parts, and why."""

    script: str
    version: int = 1
    refusal: str = ""
    ended: str = "stopped"
    machine: str = ""
    torch: str = ""
    device: str = "cpu"
    gpu: str = ""
    runs: int = 1
    threads: int = 0
    dtype: str = "float32"
    busy: str = ""
    step: Step | None = None
    parts: dict[str, float] = {}
    regions: dict[str, float] = {}
    steps: list[list[float]] = []
    evaluation_s: float = 0.0
    loaders: list[LoaderFacts] = []
    lines: dict[str, str] = {}
    waits: list[Place] = []
    copies: list[Place] = []
    copied_bytes: int = 0
    operators: list[Operators] = []
    optimizer: list[Operators] = []
    launches: int | None = None
    optimizer_launches: int | None = None
    memory_bytes: int | None = None
    compiled: bool = False
    traced: bool = False
    bound: float | None = None
    causes: list[Cause] = []
    gpus: list[OnGpu] = []
    unmodelled: str = ""
    measured: dict[str, tuple[float, float, float]] = {}
    lost: dict[str, str] = {}

    @property
    def mean_s(self) -> float:
        """Seconds of a mean step; 0 without one."""
        return self.step.mean_s if self.step else 0.0

    @property
    def all_launches(self) -> int:
        """Launches of a step with its optimizer; 0 if they are unknown."""
        return (self.launches or 0) + (self.optimizer_launches or 0)

    @property
    def workers(self) -> int:
        """Workers of the loader of the steps."""
        return max((loader.workers for loader in self.loaders), default=0)

    @property
    def alone_s(self) -> float | None:
        """Seconds in which the loaders alone make a step's batches, no more than the step has; None if unknown."""
        timed = [loader.alone_s for loader in self.loaders if loader.alone_s is not None]
        return min(self.step.batches * fmean(timed), self.mean_s) if timed and self.step else None

    @property
    def loading_s(self) -> float:
        """Seconds of a step that loading takes at least: workers load beside the step, and it waits for the rest."""
        return (self.workers and self.alone_s) or self.parts[DATA]

    @property
    def own_s(self) -> float:
        """Seconds of own Python; 0 if they are unknown."""
        return self.parts[PYTHON] if self.traced else 0.0

    @property
    def star(self) -> str:
        """The sign of an unreliable time or interval."""
        return "*" * bool(self.busy or (self.step and self.step.rho > CORRELATED))

    def split(self, steps: Sequence[StepNotes], by_rule: bool) -> frozenset[Hashable]:
        """Fill in the parts of these steps, as :func:`segments` has them; return the keys of their loaders."""
        train = train_keys([notes for _, _, notes in steps])
        split = [parts_of(notes, begin, end, train, by_rule) for begin, end, notes in steps]
        means = {name: sum(parts[name] for parts in split) / len(split) for name in PARTS}
        self.evaluation_s = means.pop(EVALUATION)
        self.parts = self.regions = means
        self.steps = [[parts[name] for name in means] for parts in split]
        return train


def segments(
    notes: Sequence[Note], begin_s: float, end_s: float, train: frozenset[Hashable], by_rule: bool = False
) -> Iterator[tuple[float, float, str]]:
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
            evaluates = key not in train if region == DATA else evaluates and region != BACKWARD
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
    regular = {key: count for key, count in counts.items() if count * REGULAR >= most}
    return [key for key in regular if regular[key] <= min(regular.values()) + 1][-1] if rarest else first


def mean_interval(steps_s: Sequence[float], cycle: int = 1) -> Interval:
    """Return the mean of two or more steps with a 95 % interval, from the means of at most 8 blocks of whole cycles:
    with k workers of a loader each k-th step waits. If neighbouring steps depend on each other, the interval is at
    least as wide as for an AR(1) series with their correlation."""
    count = min(MOST_BLOCKS, len(steps_s) // (math.ceil(LEAST_BLOCK / cycle) * cycle))
    if count < LEAST_BLOCKS:  # too few for blocks of several steps
        cycle, count = 1, min(MOST_BLOCKS, len(steps_s))
    edges = (i * len(steps_s) // count // cycle * cycle for i in range(count + 1))
    means = [fmean(steps_s[begin:end]) for begin, end in pairwise(edges)]
    mean, half = fmean(steps_s), quantile(count - 1) * stdev(means) / math.sqrt(count)
    if (rho := correlation(steps_s)) > CORRELATED:
        independent = len(steps_s) * (1 - rho) / (1 + rho)
        half = max(half, quantile(max(1, int(independent) - 1)) * stdev(steps_s) / math.sqrt(independent))
    return Interval(mean, max(0.0, mean - half), mean + half, INTERVAL)


def correlation(steps_s: Sequence[float]) -> float:
    """Return the correlation of neighbouring steps."""
    mean_s = fmean(steps_s)
    gaps = [each - mean_s for each in steps_s]
    return sum(a * b for a, b in pairwise(gaps)) / (sum(gap * gap for gap in gaps) or 1.0)


def least_s(parts: Mapping[str, float], alone_s: float | None, workers: int) -> float:
    """Return the seconds of a step that no GPU shortens on a host like this one: the host's own work, and the loader,
    beside it if it has workers. ``alone_s``: seconds of the loader for a step's batches while nothing else runs."""
    host_s, waiting_s = HOST_SHARE * (parts[PYTHON] + parts[HOST]), parts[DATA]
    if workers:
        return max(waiting_s if alone_s is None else alone_s, host_s)
    return min(waiting_s, math.inf if alone_s is None else alone_s) + host_s
