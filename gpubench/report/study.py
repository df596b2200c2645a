"""The model of reports, tables, pictures and comparisons: runs, read as rows, pairs, lines and crossovers.

Everything that reads results takes a :class:`Study`; each thing is computed once, when it is first asked for. Its
parts have modules of their own, and are imported from here.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from ..runfile.matching import is_expression
from ..runfile.quality import Basis
from ..runfile.schema import Run
from . import words
from .number import Start
from .pairs import IMPLEMENTATION, PINNED, Baseline, Pair, find_pairs, resolve
from .rows import TIME, Measured, Rate, Row, Source, Values, grouped, matching_rows, rows_of, size_parameter, too_noisy
from .sweeps import Crossing, Item, Line, Point, crossings, in_order, lines_of, plainest_first, plainness
from .words import Names

__all__ = [
    "ONE_THREAD", "PINNED", "SINGLE", "TIME", "Crossing", "Item", "Line", "Measured", "Pair", "Point", "Rate", "Row",
    "Scaled", "Source", "Study", "Values", "crossings", "grouped", "in_order", "lines_of", "plainest_first",
    "plainness", "size_parameter", "too_noisy",
]  # fmt: skip
SINGLE, ONE_THREAD, REPLICATED = "single", "one thread", "data_parallel"
"""Methods of a single device: a CPU's process with all threads and with one, and a GPU's."""


class Study:
    """Results of one run or more.

    ``baseline`` names the reference of all speedups: a device, an implementation, a machine or a run; by default the
    CPU, and of several machines the first. ``allow`` are terms in which compared results may differ. ``pairs`` are the
    benchmarks against their baselines; ``left_out`` have no comparable baseline. ``device_pairs`` are the pairs unless
    no devices are compared: then ``library_pairs`` are libraries against NumPy, or if that wasn't measured, PyTorch.

    All rows are named and paired once; :meth:`only` chooses rows, and changes no number. Raises UsageError for a
    baseline that isn't there, and where the ``expression`` (``-k``) chooses nothing.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        baseline: str | None = None,
        allow: Collection[str] = (),
        expression: str | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self._named_as_in_file = rows_of(runs)
        self._every: list[Row] = words.name_apart(self._named_as_in_file)
        self._measured = [row for row in self._every if isinstance(row, Measured)]
        self.baseline: Baseline | None = resolve(self._measured, baseline)
        self.names = Names(self._measured or self._every)
        self._pairs, self._left_out = find_pairs(self._measured, self.baseline, allow)
        self._of_devices = bool(self._pairs)
        if not self._pairs:
            library = "numpy" if any(row.library == "numpy" for row in self._measured) else "torch"
            self._pairs = find_pairs(self._measured, Baseline(IMPLEMENTATION, library))[0]
        self._choose(expression)

    def only(self, expression: str) -> Study:
        """Return a view of the rows that the expression chooses. Raises UsageError where it chooses none."""
        view = copy(self)
        for name in [name for name, value in vars(Study).items() if isinstance(value, cached_property)]:
            vars(view).pop(name, None)
        view._choose(expression)
        return view

    def _choose(self, expression: str | None) -> None:
        self.rows = self._every
        if expression is not None:
            matching = {*matching_rows(self._named_as_in_file, expression)}
            both = zip(self._named_as_in_file, self._every, strict=True)
            self.rows = [row for as_in_file, row in both if as_in_file in matching]
        self._shown = {*self.rows}
        self.measured = [row for row in self._measured if row in self._shown]
        self.pairs = [pair for pair in self._pairs if pair.other in self._shown]
        self.device_pairs, self.library_pairs = (self.pairs, []) if self._of_devices else ([], self.pairs)
        self.left_out = [(row, differences) for row, differences in self._left_out if row in self._shown]
        self.named_runs: dict[str, Run] = {row.run_name: row.run for row in self.rows}
        self.several_runs = len(self.named_runs) > 1

    @cached_property
    def rivals(self) -> list[Pair]:
        """Expressions against the first one in the same setting on the same device; the largest size last."""
        expressions = [row for row in self._measured if is_expression(row.result.workload)]
        by_size = sorted(expressions, key=lambda row: row.numbers)
        groups = grouped(by_size, lambda row: (row.setting, repr(row.size), row.run_name, row.result.device))
        pairs = (Pair(base, other) for base, *others in groups.values() for other in others)
        return [pair for pair in pairs if pair.other in self._shown]

    @cached_property
    def answered(self) -> list[Pair]:
        """The pairs of the answer: PyTorch's, if any, unless a baseline was named."""
        torch = [] if self.baseline else [pair for pair in self.device_pairs if not pair.other.library]
        return torch or self.device_pairs

    @cached_property
    def crossings(self) -> list[Crossing]:
        """The crossovers of the lines of speedups that have a chosen row, with and without copies."""
        return crossings(self._pairs, lambda pair: pair.other in self._shown)

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

    @cached_property
    def single_device(self) -> list[Measured]:
        """Results of workloads that use one device; the others have pictures of their own."""
        several = {row.result.workload for row in self._measured if row.parallel.devices > 1}
        return [row for row in self.measured if row.result.workload not in several]


@dataclass(eq=False)
class Scaled:
    """A benchmark that states how it used several devices, or that is a baseline of such benchmarks.

    ``speedup`` is over the best that is not parallel (on a CPU one process with all threads), ``scaling`` over one
    device (of a CPU: one thread), both per item, so that strong scaling (the work stays) and weak scaling (it grows
    with the devices) read alike: with the total work fixed that is t1 / tk, with the work per device fixed k t1 / tk.
    Both are None without a baseline. ``parallel`` is the row's use of its devices.
    """

    row: Measured
    speedup: Pair | None = None
    scaling: Pair | None = None

    def __post_init__(self) -> None:
        self.parallel = self.row.parallel

    @property
    def base_threads(self) -> int | None:
        """CPU threads of the single process."""
        base = self.speedup and self.speedup.base
        return (base.parallel.threads or base.result.threads) if base else None

    @property
    def efficiency(self) -> Values | None:
        """Scaling over the number of devices: all threads of a CPU are no single device."""
        if self.scaling is None or self.speedup is None:
            return None
        if self.parallel.method == SINGLE and self.scaling.base is not self.speedup.base:
            return None
        values = self.scaling.ends or [self.scaling.speedup] * 3
        return Values(*(value / self.parallel.devices for value in values))

    @property
    def uncertainty(self) -> Basis | None:
        """The basis of the ranges."""
        return next((pair.uncertainty for pair in (self.speedup, self.scaling) if pair and pair.ends), None)


def _scaled(row: Measured, members: Sequence[Measured]) -> Scaled:
    base = _fastest(row, members, SINGLE) or _fastest(row, members, REPLICATED)
    if base is None or not row.result.work.items:
        return Scaled(row)
    device = _fastest(row, members, ONE_THREAD) or base
    items = row.result.work.items
    return Scaled(row, *(Pair(one, row, batches=items / (one.result.work.items or 1)) for one in (base, device)))


def _fastest(row: Measured, members: Sequence[Measured], method: str) -> Measured | None:
    """Return the benchmark with the least time per item on one device by this method: of the row's own workload if it
    has any, because the least of several measurements of the same step is biased."""
    able = [one for one in members if one.parallel.method == method and one.parallel.devices == 1]
    able = [one for one in able if one.result.work.items]
    own = [one for one in able if one.result.workload == row.result.workload]
    return min(own or able, key=lambda one: one.time_s / (one.result.work.items or 1), default=None)
