"""Lines over a size, their crossovers at 1×, and the choice of one representative benchmark per workload (never a
mean)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from ..runfile.flags import Reason
from ..runfile.matching import KINDS
from .number import Start, StartKind
from .pairs import RESIDENT, Pair
from .rows import Measured, Values, grouped, number, size_parameter, too_noisy

if TYPE_CHECKING:
    from ..statistics.inference import Crossover

Item = TypeVar("Item", Measured, Pair)
"""The items of a line: results, or comparisons of results."""
Measure = Callable[[Item], Values | None]
"""A quantity of an item, None where it has none."""
_DTYPES = ("float32", "bfloat16", "float64", "tf32", "float16")
"""Dtypes in the order in which they represent a workload; half precision, which many CPUs only emulate, is after
float32."""
_USUAL = ("out", "preallocated")
"""Settings that time the work alone, without allocating its result."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place on a line; ``flagged`` where something was wrong while it was measured."""

    x: float
    y: float
    low: float
    high: float
    flagged: bool = False


@dataclass(eq=False)
class Line(Generic[Item]):
    """One setting of a workload on one device over its sizes; ``items`` and ``points`` belong together.

    ``last`` is the benchmark of the largest size, for facts that all share; the ``setting`` differs from lines of other
    settings, the ``form`` without the dtype.
    """

    size_name: str
    items: tuple[Item, ...]
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        self.last: Measured = self.items[-1].subject
        self.setting = self.last.setting_without(self.size_name)
        self.form: Hashable = self.setting[1:]

    @cached_property
    def shown(self) -> tuple[tuple[Point, Item], ...]:
        """The points and items that are shown to people: none in doubt (such as above the measured peak) or
        too noisy."""
        every = zip(self.points, self.items, strict=True)
        return tuple((p, item) for p, item in every if not item.quality.doubt and not too_noisy(p.low, p.high))


def lines_of(items: Iterable[Item], measure: Measure[Item]) -> list[Line[Item]]:
    """The lines of all workloads that were measured at several sizes, by workload."""
    lines: list[Line[Item]] = []
    measured = grouped((item for item in items if measure(item)), lambda item: item.subject.result.workload)
    for _, of_workload in sorted(measured.items()):
        if (size := size_parameter([item.subject.result for item in of_workload])) is None:
            continue
        groups: dict[Hashable, list[tuple[Point, Item]]] = {}
        for item in of_workload:
            x, values = number(item.subject.result, size), measure(item)
            if x is not None and values is not None:
                base = (item.base.source, item.differs) if isinstance(item, Pair) else None
                key = item.subject.source, base, item.subject.setting_without(size)
                groups.setdefault(key, []).append((Point(x, *values, item.quality.noisy), item))
        for members in groups.values():
            points, ordered = zip(*sorted(members, key=lambda member: member[0].x), strict=True)
            lines.append(Line(size, ordered, points))
    return lines


@dataclass(eq=False)
class Crossing:
    """The size at which a line of speedups crosses 1×; ``processes`` is how many the interval is computed from.

    The crossover rests on the ``whole`` line; ``line`` has the chosen sizes of it. The ``pair`` is the speedup at the
    largest size; ``resident``: the data stays on the device.
    """

    line: Line[Pair]
    crossover: Crossover
    processes: int
    whole: Line[Pair]

    def __post_init__(self) -> None:
        self.pair = self.line.items[-1]
        self.resident = self.pair.regime == RESIDENT
        self._sizes = [point.x for point in self.whole.points]

    @cached_property
    def copies(self) -> Crossing | None:
        """The crossover of the same line with copies; None of a line that has them, and if none were measured."""
        copied = [pair.copies for pair in self.whole.items if pair.copies] if self.resident else []
        lines = lines_of(copied, attrgetter("values"))
        return crossing_of(lines[0]) if lines else None

    @cached_property
    def doubtful(self) -> bool:
        """Whether vague times, or a single size, leave it open; not if all show the same side to be faster."""
        crossover, doubts = self.crossover, {pair.quality.doubt for pair in self.whole.items} - {None}
        # the latter: in some resamples of the processes it crosses where it doesn't in the mean
        several = crossover.size is None and (bool(doubts) or crossover.low != crossover.high)
        sides = {pair.faster if pair.faster or pair.limit else None for pair in self.whole.items}
        unclear = (several or Reason.WAITED in doubts) and sides not in ({True}, {False})
        return unclear or len(self._sizes) == 1

    @cached_property
    def start(self) -> Start:
        """The size from which the device is faster, as far as the interval or the nearest measured sizes make it
        certain, else the size from which it surely is. It is noisy if other programs, or fewer threads than the CPU
        has, make it too small."""
        items, size = self.whole.items, self.crossover.size
        unclear = self.doubtful or (size is not None and not self.ends)
        return replace(
            self._surely_from() if unclear else self._about(),
            noisy=any(pair.busy or pair.few_threads for pair in items),
            also_below=any(x < (size or 0.0) and pair.faster for x, pair in zip(self._sizes, items, strict=True)),
            doubt=str(items[-1].quality.doubt or Reason.TOO_NOISY) if len(items) > 1 else "unknown",
        )

    def _about(self) -> Start:
        crossover, name = self.crossover, self.whole.size_name
        if crossover.always:
            return Start(StartKind.EVERY, name)
        if crossover.size is None or not self.ends:
            ahead = [x for x, pair in zip(self._sizes, self.whole.items, strict=True) if pair.faster]
            kind = StartKind.ONLY_UP_TO if ahead else StartKind.NOT_UP_TO
            return Start(kind, name, max(ahead, default=self._sizes[-1]))
        if crossover.low is None:
            return Start(StartKind.BETWEEN, name, *self.ends)
        return Start(StartKind.ABOUT, name, crossover.size)

    def _surely_from(self) -> Start:
        """Return the smallest of the largest sizes that are all faster, or the crossover with copies if that is certain
        and smaller."""
        name, measured = self.whole.size_name, [*zip(self._sizes, self.whole.items, strict=True)]
        ahead = [x for x, _ in takewhile(lambda at: at[1].faster, reversed(measured))]
        if len(ahead) == len(measured) > 1:
            return Start(StartKind.EVERY, name)
        copied = self.copies.start if self.copies else None
        if copied and copied.kind is StartKind.ABOUT and copied.low <= min(ahead, default=math.inf):
            return replace(copied, kind=StartKind.LATEST, estimated=True)
        return Start(StartKind.LATEST, name, ahead[-1]) if ahead else Start(StartKind.UNSURE, name)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The sizes that it surely lies between: the interval's, without one the measured sizes next to it; None if
        the measurements leave it open."""
        size, low, high, sizes = self.crossover.size, self.crossover.low, self.crossover.high, self._sizes
        if size is None:
            return None
        if low is None or high is None:
            below, above = [x for x in sizes if x <= size], [x for x in sizes if x >= size]
            return max(below, default=sizes[0]), min(above, default=sizes[-1])
        wide = too_noisy(low, high) or (low <= sizes[0] and high >= sizes[-1])
        return None if not low or high == math.inf or wide else (low, high)


def crossing_of(line: Line[Pair]) -> Crossing:
    """Return the crossover of a line. Processes are resampled as a whole: with all sizes, and with both sides if they
    are of one run."""
    from ..statistics import inference

    paired = all(pair.within_run for pair in line.items)
    sides = [*zip(*(pair.observed for pair in line.items), strict=True)]
    common = [set.intersection(*map(set, side)) for side in sides]
    if paired:
        common = [common[0] & common[1]] * 2
    count = min(map(len, common))
    x = [point.x for point in line.points]
    if count < 2:
        return Crossing(line, inference.crossover(x, [point.y for point in line.points]), 1, line)
    tops, bottoms = (
        [[times[i] for i in sorted(processes)] for times in side] for side, processes in zip(sides, common, strict=True)
    )
    return Crossing(line, inference.crossover_interval(x, tops, bottoms, paired=paired), count, line)


def crossings(pairs: Iterable[Pair], is_shown: Callable[[Pair], bool]) -> list[Crossing]:
    """Return the crossovers of the lines that have a pair to show, both with data that stays on the device and with
    copies, grouped by baseline. They rest on all pairs."""
    by_base = grouped(pairs, lambda pair: pair.base.source[1:] if pair.within_run else pair.base.source)
    crossed = []
    for members in by_base.values():
        for regime in (members, [pair.copies for pair in members if pair.copies]):
            for line in lines_of(regime, attrgetter("values")):
                if chosen := [at for at in zip(line.items, line.points, strict=True) if is_shown(at[0])]:
                    items, points = zip(*chosen, strict=True)
                    crossed.append(replace(crossing_of(line), line=replace(line, items=items, points=points)))
    return crossed


def plainness(item: Measured | Pair) -> tuple[object, ...]:
    """Return a sort key, the plainest setting first: eager, float32, warm caches, without allocating its result."""
    case = item.subject.result
    dtype = _DTYPES.index(case.dtype) if case.dtype in _DTYPES else len(_DTYPES)
    usual = any(value in _USUAL for value in case.params.values())
    return case.variant != "eager", dtype, case.cache != "hot", not usual


def plainest_first(items: Sequence[Item]) -> list[Item]:
    """A workload's items on one device, the plainest setting at its largest size first, in the same order on every
    machine."""
    size = size_parameter([item.subject.result for item in items])

    def order(item: Item) -> tuple[object, ...]:
        case = item.subject.result
        numbers = [-value for _, value in sorted(case.params.items()) if isinstance(value, int | float)]
        return *plainness(item), -(number(case, size) or 0.0), numbers

    return sorted(items, key=order)


def in_order(items: Iterable[Item]) -> list[list[Item]]:
    """Group items by kind of work, the user's own first, then in the order of KINDS; copies and parts of a step are
    left out, unless there is nothing else."""
    items, order = list(items), list(KINDS)
    counted = [item for item in items if item.subject.kind is None or item.subject.kind.summarised]
    by_kind = grouped(counted or items, lambda item: order.index(item.subject.result.kind) if item.subject.kind else -1)
    return [by_kind[kind] for kind in sorted(by_kind)]
