"""The model of reports, tables, pictures and comparisons: runs, read as rows, pairs, lines over a size and crossovers.

Everything that reads results takes a :class:`Study`; each thing is computed once, when it is first asked for. Rows and
pairs have modules of their own, and are imported from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from ..runfile.flags import Reason
from ..runfile.matching import KINDS, is_expression
from ..runfile.schema import Run
from . import words
from .number import Start, StartKind
from .pairs import IMPLEMENTATION, PINNED, RESIDENT, Baseline, Pair, find_pairs, resolve
from .rows import TIME, Measured, Rate, Row, Source, Values, grouped, matching_rows, rows_of, size_parameter, too_noisy
from .words import Names

if TYPE_CHECKING:
    from ..statistics.inference import Crossover

__all__ = [
    "ONE_THREAD", "PINNED", "SINGLE", "TIME", "Crossing", "Item", "Line", "Measured", "Pair", "Point", "Rate", "Row",
    "Scaled", "Source", "Study", "Values", "grouped", "in_order", "lines_of", "plainest_first",
    "plainness", "size_parameter", "too_noisy",
]  # fmt: skip
SINGLE, ONE_THREAD, REPLICATED = "single", "one thread", "data_parallel"
"""Methods of a single device: a CPU's process with all threads and with one, and a GPU's."""
Item = TypeVar("Item", Measured, Pair)
"""The items of a line: results, or comparisons of results."""
_DTYPES = ("float32", "bfloat16", "float64", "tf32", "float16")
"""Dtypes in the order in which they represent a workload; half precision, which many CPUs only emulate, is after
float32."""
_USUAL = ("out", "preallocated")
"""Settings that time the work alone, without allocating its result."""


class Study:
    """Results of one run or more.

    ``baseline`` names the reference of all speedups: a device, an implementation, a machine or a run; by default the
    CPU, and of several machines the first. ``allow`` are terms in which compared results may differ. ``pairs`` are the
    benchmarks against their baselines; ``left_out`` have no comparable baseline. ``device_pairs`` are the pairs unless
    no devices are compared: then ``library_pairs`` are libraries against NumPy, or if that wasn't measured, PyTorch.
    ``answered`` are the pairs of the answer: PyTorch's, if any, unless a baseline was named. ``single_device`` are the
    results of workloads that use one device; the others have pictures of their own.

    All rows are named and paired before the ``expression`` (``-k``) chooses some, which so changes no number. Raises
    UsageError for a baseline that isn't there, and where the expression chooses nothing.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        baseline: str | None = None,
        allow: Collection[str] = (),
        expression: str | None = None,
    ) -> None:
        self.runs = tuple(runs)
        as_in_file = rows_of(runs)
        every: list[Row] = words.name_apart(as_in_file)
        self._measured = [row for row in every if isinstance(row, Measured)]
        self.baseline: Baseline | None = resolve(self._measured, baseline)
        self.names = Names(self._measured or every)
        self._pairs, left_out = find_pairs(self._measured, self.baseline, allow)
        of_devices = bool(self._pairs)
        if not of_devices:
            library = "numpy" if any(row.library == "numpy" for row in self._measured) else "torch"
            self._pairs = find_pairs(self._measured, Baseline(IMPLEMENTATION, library))[0]
        chosen = {*(as_in_file if expression is None else matching_rows(as_in_file, expression))}
        self.rows = [row for named, row in zip(as_in_file, every, strict=True) if named in chosen]
        self._shown = {*self.rows}
        self.measured = [row for row in self._measured if row in self._shown]
        self.pairs = [pair for pair in self._pairs if pair.other in self._shown]
        self.device_pairs, self.library_pairs = (self.pairs, []) if of_devices else ([], self.pairs)
        self.left_out = [(row, differences) for row, differences in left_out if row in self._shown]
        self.named_runs: dict[str, Run] = {row.run_name: row.run for row in self.rows}
        self.several_runs = len(self.named_runs) > 1
        torch = [] if self.baseline else [pair for pair in self.device_pairs if not pair.other.library]
        self.answered = torch or self.device_pairs
        several = {row.result.workload for row in self._measured if row.parallel.devices > 1}
        self.single_device = [row for row in self.measured if row.result.workload not in several]

    @cached_property
    def rivals(self) -> list[Pair]:
        """Expressions against the first one in the same setting on the same device; the largest size last."""
        expressions = [row for row in self._measured if is_expression(row.result.workload)]
        by_size = sorted(expressions, key=attrgetter("numbers"))
        groups = grouped(by_size, lambda row: (row.setting, repr(row.size), row.run_name, row.result.device))
        pairs = (Pair(base, other) for base, *others in groups.values() for other in others)
        return [pair for pair in pairs if pair.other in self._shown]

    @cached_property
    def crossings(self) -> list[Crossing]:
        """The crossovers of the lines of speedups that have a chosen row, with and without copies, grouped by baseline;
        each rests on its whole line."""
        by_base = grouped(self._pairs, lambda pair: pair.base.source[1:] if pair.within_run else pair.base.source)
        crossed = []
        for members in by_base.values():
            for regime in (members, [pair.copies for pair in members if pair.copies]):
                for line in lines_of(regime, attrgetter("values")):
                    if chosen := [at for at in zip(line.items, line.points, strict=True) if at[0].other in self._shown]:
                        items, points = zip(*chosen, strict=True)
                        crossed.append(replace(_crossing_of(line), line=replace(line, items=items, points=points)))
        return crossed

    @cached_property
    def starts(self) -> dict[Pair, Start]:
        """The size from which the device is faster with data that stays on it, for each pair of a line."""
        return {pair: line.start for line in self.crossings if line.resident for pair in line.line.items}

    @cached_property
    def scaled(self) -> list[Scaled]:
        """Benchmarks of several devices, and their baselines; a job's differ in method and number of devices."""

        def job(row: Measured) -> Hashable:
            case = row.result
            name = case.workload.partition(".")[2] or case.workload
            return row.run_name, row.facts.kind, name, case.dtype, case.variant, row.parallel.mode or "strong"

        groups = grouped((row for row in self._measured if row.parallel.method), job).values()
        return [_scaled(row, members) for members in groups for row in members if row in self._shown]


# Several devices ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Scaled:
    """A benchmark that states how it used several devices, or that is a baseline of such benchmarks.

    ``speedup`` is over the best that is not parallel (on a CPU one process with all threads), ``scaling`` over one
    device (of a CPU: one thread), both per item, so that strong scaling (the work stays) and weak scaling (it grows
    with the devices) read alike: with the total work fixed that is t1 / tk, with the work per device fixed k t1 / tk.
    Both are None without a baseline. ``parallel`` is the row's use of its devices, ``base_threads`` are the CPU threads
    of the single process, and ``uncertainty`` is the basis of the ranges.
    """

    row: Measured
    speedup: Pair | None = None
    scaling: Pair | None = None

    def __post_init__(self) -> None:
        self.parallel = self.row.parallel
        base, pairs = self.speedup and self.speedup.base, (self.speedup, self.scaling)
        self.base_threads = (base.parallel.threads or base.result.threads) if base else None
        self.uncertainty = next((pair.uncertainty for pair in pairs if pair and pair.ends), None)

    @property
    def efficiency(self) -> Values | None:
        """Scaling over the number of devices: all threads of a CPU are no single device."""
        if self.scaling is None or self.speedup is None:
            return None
        if self.parallel.method == SINGLE and self.scaling.base is not self.speedup.base:
            return None
        values = self.scaling.ends or [self.scaling.speedup] * 3
        return Values(*(value / self.parallel.devices for value in values))


def _scaled(row: Measured, members: Sequence[Measured]) -> Scaled:
    """Return the row with its baselines, which take the least time per item on one device: of its own workload if
    any are, because the least of several measurements of the same step is biased."""
    able = [one for one in members if one.parallel.devices == 1 and one.result.work.items]

    def fastest(method: str) -> Measured | None:
        alike = [one for one in able if one.parallel.method == method]
        own = [one for one in alike if one.result.workload == row.result.workload]
        return min(own or alike, key=lambda one: one.time_s / (one.result.work.items or 1), default=None)

    base, items = fastest(SINGLE) or fastest(REPLICATED), row.result.work.items
    if base is None or not items:
        return Scaled(row)
    bases = base, fastest(ONE_THREAD) or base
    return Scaled(row, *(Pair(one, row, batches=items / (one.result.work.items or 1)) for one in bases))


# Lines over a size ----------------------------------------------------------------------------------------------------


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


def lines_of(items: Iterable[Item], measure: Callable[[Item], Values | None]) -> list[Line[Item]]:
    """The lines of all workloads that were measured at several sizes, by workload; ``measure`` gives a quantity of an
    item, None where it has none."""
    lines: list[Line[Item]] = []
    measured = grouped((item for item in items if measure(item)), lambda item: item.subject.result.workload)
    for _, of_workload in sorted(measured.items()):
        if (size := size_parameter([item.subject.result for item in of_workload])) is None:
            continue
        groups: dict[Hashable, list[tuple[Point, Item]]] = {}
        for item in of_workload:
            if values := measure(item):
                base = (item.base.source, item.differs) if isinstance(item, Pair) else None
                key = item.subject.source, base, item.subject.setting_without(size)
                x = float(item.subject.result.params[size] or 0)
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
        """Return the smallest of the largest sizes that are all faster."""
        name, measured = self.whole.size_name, [*zip(self._sizes, self.whole.items, strict=True)]
        ahead = [x for x, _ in takewhile(lambda at: at[1].faster, reversed(measured))]
        if len(ahead) == len(measured) > 1:
            return Start(StartKind.EVERY, name)
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


def _crossing_of(line: Line[Pair]) -> Crossing:
    """Return the crossover of a line. Processes are resampled as a whole: with all sizes, and with both sides if they
    are of one run."""
    from ..statistics import inference

    paired = all(pair.within_run for pair in line.items)
    sides = [*zip(*(pair.observed for pair in line.items), strict=True)]
    common = [set.intersection(*map(set, side)) for side in sides]
    if paired:
        common = [common[0] & common[1]] * 2
    count, x = min(map(len, common)), [point.x for point in line.points]
    if count < 2:
        return Crossing(line, inference.crossover(x, [point.y for point in line.points]), 1, line)
    tops, bottoms = (
        [[times[i] for i in sorted(processes)] for times in side] for side, processes in zip(sides, common, strict=True)
    )
    return Crossing(line, inference.crossover_interval(x, tops, bottoms, paired=paired), count, line)


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
        return *plainness(item), -float((size and case.params[size]) or 0), numbers, repr(item.subject.setting)

    return sorted(items, key=order)


def in_order(items: Iterable[Item]) -> list[list[Item]]:
    """Group items by kind of work, the user's own first, then in the order of KINDS; copies and parts of a step are
    left out, unless there is nothing else."""
    items, order = list(items), list(KINDS)
    summarised = [item for item in items if item.subject.kind is None or item.subject.kind.summarised]
    by_kind = grouped(summarised or items, lambda i: order.index(i.subject.result.kind) if i.subject.kind else -1)
    return [by_kind[kind] for kind in sorted(by_kind)]
