"""What several devices bring: each such benchmark against the best single process, and against one device.

Time is compared per item, so that strong scaling (the work stays) and weak scaling (it grows with the devices) read
alike: speedup = items/s over the baseline's items/s. With the total work fixed that is t1 / tk, with the work per
device fixed k t1 / tk; efficiency is speedup / k either way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..runfile.schema import Parallel
from ..runfile.ways import times_and_ratio
from .rows import Measured, Values, grouped

SINGLE, ONE_THREAD, REPLICATED = "single", "one thread", "data_parallel"


@dataclass(frozen=True, slots=True)
class Gain:
    """Items/s over a baseline's; ``range`` is None for the baseline itself."""

    value: float
    range: tuple[float, float] | None
    uncertainty: str


@dataclass(frozen=True, eq=False)
class Scaled:
    """A benchmark that states how it used several devices, or that is a baseline of such benchmarks.

    ``speedup`` is over ``base``, the best that is not parallel (on a CPU one process with all threads), ``scaling``
    over one device (of a CPU: one thread). All three are None without a baseline.
    """

    row: Measured
    base: Measured | None = None
    speedup: Gain | None = None
    scaling: Gain | None = None
    is_single_device: bool = False

    @property
    def parallel(self) -> Parallel:
        """How it used its devices."""
        return self.row.parallel

    @property
    def base_threads(self) -> int | None:
        """CPU threads of the single process."""
        return (self.base.parallel.threads or self.base.result.threads) if self.base else None

    @property
    def efficiency(self) -> Values | None:
        """Scaling over the number of devices: all threads of a CPU are no single device."""
        if self.scaling is None or (self.parallel.method == SINGLE and not self.is_single_device):
            return None
        low, high = self.scaling.range or (self.scaling.value, self.scaling.value)
        return Values(*(value / self.parallel.devices for value in (self.scaling.value, low, high)))

    @property
    def algorithm_byte_per_s(self) -> float | None:
        """Bytes of a collective per second."""
        nbytes = self.row.result.work.bytes
        return nbytes / self.row.time_s if nbytes and self.parallel.bus_share else None

    @property
    def bus_byte_per_s(self) -> float | None:
        """Bytes per second on the link (bus bandwidth), as nccl-tests define it."""
        rate, share = self.algorithm_byte_per_s, self.parallel.bus_share
        return rate * share if rate and share else None

    @property
    def uncertainty(self) -> str:
        """What the ranges are."""
        return next((gain.uncertainty for gain in (self.speedup, self.scaling) if gain and gain.uncertainty), "")


def scaled(measured: Sequence[Measured]) -> list[Scaled]:
    """Return every benchmark that states how it used several devices, or that is a baseline of such benchmarks."""
    rows = [row for row in measured if row.parallel.method]
    return [_scaled(row, members) for members in grouped(rows, _job).values() for row in members]


def _job(row: Measured) -> Hashable:
    """Return what benchmarks have in common that differ only in method and number of devices."""
    case = row.result
    name = case.workload.partition(".")[2] or case.workload
    return row.run_name, row.facts.kind, name, case.dtype, case.variant, row.parallel.mode or "strong"


def _scaled(row: Measured, members: Sequence[Measured]) -> Scaled:
    base = _fastest(row, members, SINGLE) or _fastest(row, members, REPLICATED)
    if base is None or not row.result.work.items:
        return Scaled(row)
    device = _fastest(row, members, ONE_THREAD) or base
    return Scaled(row, base, _gain(base, row), _gain(device, row), device is base)


def _fastest(row: Measured, members: Sequence[Measured], method: str) -> Measured | None:
    """Return the benchmark with the least time per item among those that use one device by this method.

    Of the row's own workload where it has any: the least of several measurements of the same step is biased.
    """
    able = [other for other in members if other.parallel.method == method and other.parallel.devices == 1]
    able = [other for other in able if other.result.work.items]
    same = [other for other in able if other.result.workload == row.result.workload]
    return min(same or able, key=lambda other: other.time_s / (other.result.work.items or 1), default=None)


def _gain(base: Measured, row: Measured) -> Gain:
    if base is row:
        return Gain(1.0, None, "")
    items = (row.result.work.items or 1) / (base.result.work.items or 1)
    _, _, ratio, uncertainty = times_and_ratio(base.times, row.times)
    return Gain(ratio.value * items, (ratio.low * items, ratio.high * items), uncertainty)
