"""What a report, a table, a picture or a comparison is made of: runs, read as rows, pairs, lines and crossovers.

Everything that reads results takes a :class:`Study`; each thing is computed once, when it is first asked for. What a
study is made of has modules of its own, and is imported from here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..runfile.schema import Parallel, Run
from . import words
from .pairs import IMPLEMENTATION, PINNED, SOURCE, Baseline, Pair, compare_with_slowest, find_pairs, resolve
from .rows import TIME, Measured, Rate, Row, Source, Values, grouped, rows_of, size_parameter, too_noisy
from .sweeps import Crossing, Item, Line, Point, crossings, in_order, lines_of, plainest_first, plainness
from .words import Names

__all__ = [
    "ONE_THREAD", "PINNED", "SINGLE", "TIME", "Crossing", "Item", "Line", "Measured", "Pair", "Point", "Rate", "Row",
    "Scaled", "Source", "Study", "Values", "crossings", "ends", "grouped", "in_order",
    "lines_of", "plainest_first", "plainness", "size_parameter", "too_noisy",
]  # fmt: skip


class Study:
    """Results of one run or more.

    ``baseline`` names what speedups are measured against: a device, an implementation, a machine or a run; by default
    each machine's CPU, and the first machine where there are several. ``allow`` are terms in which compared results may
    differ, ``expression`` is what ``-k`` chooses. ``device_pairs`` are each benchmark against the baseline; without one
    each accelerator against a CPU, and machines with each other; ``left_out`` have no comparable baseline.
    Raises UsageError for a baseline that isn't there, and where the expression chooses nothing.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        baseline: str | None = None,
        allow: Collection[str] = (),
        expression: str | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.rows: list[Row] = words.name_apart(rows_of(runs, expression))
        self.measured: list[Measured] = [row for row in self.rows if isinstance(row, Measured)]
        self.baseline: Baseline | None = resolve(self.measured, baseline)
        self.allow = frozenset(allow)
        self.device_pairs, self.left_out = find_pairs(self.measured, self.baseline, self.allow)

    @cached_property
    def names(self) -> Names:
        """The names of its devices."""
        return Names(self.measured or self.rows)

    @cached_property
    def named_runs(self) -> dict[str, Run]:
        """The runs that have a benchmark here, by name."""
        return {row.run_name: row.run for row in self.rows}

    @property
    def several_runs(self) -> bool:
        """Whether there is more than one run."""
        return len(self.named_runs) > 1

    @cached_property
    def pairs(self) -> list[Pair]:
        """The pairs of devices. If there are none, libraries on the same device against NumPy, or where that wasn't
        measured against PyTorch."""
        library = "numpy" if any(row.library == "numpy" for row in self.measured) else "torch"
        return self.device_pairs or find_pairs(self.measured, Baseline(IMPLEMENTATION, library))[0]

    @cached_property
    def gpu_pairs(self) -> list[Pair]:
        """Pairs with the slowest GPU as the baseline, if several machines have a GPU: all other GPUs, and the CPUs of
        machines without a GPU; where every machine has a GPU, the CPU of the slowest GPU's machine.

        Empty where one machine alone has any, as its CPU is the baseline of all, and where a baseline was named.
        """
        sources = [source for source in self.names.accelerators if not source.library]
        if self.baseline or len({source.run for source in sources}) < 2:
            return []
        gpu_rows = [row for row in self.measured if row.source in sources]
        gpus = compare_with_slowest(gpu_rows, {"threads", *self.allow})
        base = gpus[0].base.source if gpus else sources[0]
        with_gpu = {source.run for source in sources}
        cpus = {row.run_name for row in self.measured} - with_gpu or {base.run}
        plain = [row for row in self.measured if not (row.on_accelerator or row.library) and row.run_name in cpus]
        return find_pairs([*gpu_rows, *plain], Baseline(SOURCE, base), {"threads", *self.allow}, self.measured)[0]

    @cached_property
    def answered(self) -> list[Pair]:
        """The pairs that the answer is about: those with the requested baseline; of several machines' GPUs those with
        the slowest; else those of each GPU with its CPU; else those of CPUs with the slowest."""
        if self.gpu_pairs:  # who chooses a GPU compares GPUs; the charts show each against its own CPU
            return [pair for pair in self.gpu_pairs if pair.other.on_accelerator or not pair.within_run]
        if self.baseline is not None:
            return self.device_pairs
        return self.cpu_pairs or [members[0] for members in self._by_model] or self.device_pairs

    @cached_property
    def cpu_pairs(self) -> list[Pair]:
        """CPUs with the slowest of them as the baseline, if several were measured and no GPU; empty where a baseline
        was named."""
        plain = [row for row in self.measured if not row.library]
        gpus = any(pair.other.on_accelerator for pair in self.device_pairs)
        if self.baseline or gpus or len({_model(row) for row in plain}) < 2:
            return []
        return compare_with_slowest(plain, {"threads", *self.allow})

    @cached_property
    def _by_model(self) -> list[list[Pair]]:
        """Each benchmark on each model of its machine's devices: equal ones should differ by noise alone."""
        inside = [pair for pair in self.device_pairs if pair.within_run and not pair.other.library]
        groups = grouped(inside, lambda pair: (_model(pair.other), pair.other.result.id)).values()
        return [sorted(members, key=lambda pair: self.names.order(pair.other)) for members in groups]

    @cached_property
    def twins(self) -> list[tuple[Pair, Pair]]:
        """What the answer shows, and what it leaves out for it: the same on another device of the same model."""
        if self.gpu_pairs or self.baseline:
            return []
        return [(shown, pair) for shown, *others in self._by_model for pair in others]

    @cached_property
    def crossings(self) -> list[Crossing]:
        """The crossovers of every line of speedups, with and without copies."""
        return crossings(self.pairs)

    @cached_property
    def starts(self) -> dict[int, str]:
        """The sizes at which the device is faster with data that stays on it, in words, by the id of the pair at the
        largest one."""
        return {id(each.pair): words.wins(each) for each in self.crossings if each.resident}

    @cached_property
    def scaled(self) -> list[Scaled]:
        """Benchmarks of several devices, and what they are compared with."""
        rows = [row for row in self.measured if row.parallel.method]
        return [_scaled(row, members) for members in grouped(rows, _scaled_job).values() for row in members]

    @cached_property
    def single_device(self) -> list[Measured]:
        """Results of workloads that use one device; the others have pictures of their own."""
        several = {row.result.workload for row in self.measured if row.parallel.devices > 1}
        return [row for row in self.measured if row.result.workload not in several]


def _model(row: Row) -> Hashable:
    return row.run_name, row.facts.label or row.result.device


# Several devices ------------------------------------------------------------------------------------------------------

SINGLE, ONE_THREAD, REPLICATED = "single", "one thread", "data_parallel"


@dataclass(frozen=True, eq=False)
class Scaled:
    """A benchmark that states how it used several devices, or that is a baseline of such benchmarks.

    ``speedup`` is over the best that is not parallel (on a CPU one process with all threads), ``scaling`` over one
    device (of a CPU: one thread), both per item, so that strong scaling (the work stays) and weak scaling (it grows
    with the devices) read alike: with the total work fixed that is t1 / tk, with the work per device fixed k t1 / tk.
    Both are None without a baseline.
    """

    row: Measured
    speedup: Pair | None = None
    scaling: Pair | None = None

    @property
    def parallel(self) -> Parallel:
        """How it used its devices."""
        return self.row.parallel

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
        ratio, (low, high) = self.scaling.speedup, ends(self.scaling) or (self.scaling.speedup,) * 2
        return Values(*(value / self.parallel.devices for value in (ratio, low, high)))

    @property
    def uncertainty(self) -> str:
        """What the ranges are."""
        return next((pair.uncertainty for pair in (self.speedup, self.scaling) if pair and ends(pair)), "")


def ends(pair: Pair) -> tuple[float, float] | None:
    """The ends of the speedup's range; None of a baseline compared with itself, or where nothing is known."""
    _, low, high = pair.values
    return None if pair.base is pair.other or not low or high == math.inf else (low, high)


def _scaled(row: Measured, members: Sequence[Measured]) -> Scaled:
    base = _fastest(row, members, SINGLE) or _fastest(row, members, REPLICATED)
    if base is None or not row.result.work.items:
        return Scaled(row)
    device = _fastest(row, members, ONE_THREAD) or base
    speedup, scaling = (
        Pair(each, row, batches=row.result.work.items / (each.result.work.items or 1)) for each in (base, device)
    )
    return Scaled(row, speedup, scaling)


def _scaled_job(row: Measured) -> Hashable:
    """Return what benchmarks have in common that differ only in method and number of devices."""
    case = row.result
    name = case.workload.partition(".")[2] or case.workload
    return row.run_name, row.facts.kind, name, case.dtype, case.variant, row.parallel.mode or "strong"


def _fastest(row: Measured, members: Sequence[Measured], method: str) -> Measured | None:
    """Return the benchmark with the least time per item among those that use one device by this method.

    Of the row's own workload where it has any: the least of several measurements of the same step is biased.
    """
    able = [other for other in members if other.parallel.method == method and other.parallel.devices == 1]
    able = [other for other in able if other.result.work.items]
    same = [other for other in able if other.result.workload == row.result.workload]
    return min(same or able, key=lambda other: other.time_s / (other.result.work.items or 1), default=None)
