"""What a report, a table, a picture or a comparison is made of: runs, read as rows, pairs, lines and crossovers.

Everything that reads results takes a :class:`Study`; each thing is computed once, when it is first asked for. What a
study is made of has modules of its own, and is imported from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from ..runfile.schema import Run
from . import scaling, words
from .pairs import (
    Baseline,
    LeftOut,
    Pair,
    against_slowest,
    find_pairs,
    leading,
    library_baseline,
    resolve,
)
from .rows import (
    Measured,
    Rate,
    Row,
    Source,
    Values,
    grouped,
    leaves_open,
    measured,
    number,
    rows_of,
    size_parameter,
    too_noisy,
)
from .scaling import ONE_THREAD, SINGLE, Gain, Scaled
from .sweeps import (
    Crossing,
    Item,
    Line,
    Point,
    Sweep,
    crossings,
    in_order,
    plainest_first,
    plainness,
    sweeps,
    time_of,
)
from .words import Names

__all__ = [
    "ONE_THREAD", "SINGLE", "Crossing", "Gain", "Item", "LeftOut", "Line", "Measured", "Pair", "Point", "Rate",
    "Row", "Scaled", "Source", "Study", "Sweep", "Values", "against_slowest",
    "crossings", "grouped", "in_order", "leading", "leaves_open", "measured", "number",
    "plainest_first", "plainness", "rows_of", "size_parameter",
    "sweeps", "time_of", "too_noisy",
]  # fmt: skip


class Study:
    """Results of one run or more.

    ``baseline`` names what speedups are measured against: a device, an implementation, a machine or a run; by default
    each machine's CPU, and the first machine where there are several. ``allow`` are terms in which compared results may
    differ, ``labels`` names that a person gave to devices, ``expression`` is what ``-k`` chooses.
    Raises UsageError for a baseline that isn't there, and where the expression chooses nothing.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        baseline: str | None = None,
        allow: Collection[str] = (),
        labels: Mapping[tuple[str, str], str] | None = None,
        expression: str | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.rows: list[Row] = words.name_apart(rows_of(runs, expression))
        self.measured: list[Measured] = measured(self.rows)
        self.baseline: Baseline | None = resolve(self.measured, baseline)
        self.allow = frozenset(allow)
        self.labels = labels or {}

    @cached_property
    def names(self) -> Names:
        """The names of its devices."""
        return Names(self.measured or self.rows, self.labels)

    @cached_property
    def named_runs(self) -> dict[str, Run]:
        """The runs that have a benchmark here, by name."""
        return {row.run_name: row.run for row in self.rows}

    @property
    def several_runs(self) -> bool:
        """Whether there is more than one run."""
        return len(self.named_runs) > 1

    @cached_property
    def _compared(self) -> tuple[list[Pair], list[LeftOut]]:
        return find_pairs(self.measured, self.baseline, self.allow)

    @property
    def device_pairs(self) -> list[Pair]:
        """Each benchmark against the baseline; without one each accelerator against a CPU, and machines with each
        other."""
        return self._compared[0]

    @property
    def left_out(self) -> list[LeftOut]:
        """The benchmarks that have no comparable baseline."""
        return self._compared[1]

    @cached_property
    def pairs(self) -> list[Pair]:
        """The pairs of devices. If there are none, libraries on the same device against NumPy, or where that wasn't
        measured against PyTorch."""
        return self.device_pairs or find_pairs(self.measured, library_baseline(self.measured))[0]

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
        gpus = against_slowest(gpu_rows, {"threads", *self.allow})
        base = gpus[0].base.source if gpus else sources[0]
        with_gpu = {source.run for source in sources}
        cpus = {row.run_name for row in self.measured} - with_gpu or {base.run}
        plain = [row for row in self.measured if not (row.on_accelerator or row.library) and row.run_name in cpus]
        return find_pairs([*gpu_rows, *plain], Baseline("source", base), {"threads", *self.allow}, self.measured)[0]

    @cached_property
    def crossings(self) -> list[Crossing]:
        """The crossovers of every line of speedups, with and without copies."""
        return crossings(self.pairs)

    @cached_property
    def starts(self) -> dict[int, str]:
        """The size from which the device is faster with data that stays on it, in words, by the id of the pair at the
        largest size."""
        return {id(each.line.items[-1]): words.crossing(each) for each in self.crossings if each.resident}

    @cached_property
    def scaled(self) -> list[Scaled]:
        """Benchmarks of several devices, and what they are compared with."""
        return scaling.scaled(self.measured)

    @cached_property
    def single_device(self) -> list[Measured]:
        """Results of workloads that use one device; the others have pictures of their own."""
        several = {row.result.workload for row in self.measured if row.parallel.devices > 1}
        return [row for row in self.measured if row.result.workload not in several]
