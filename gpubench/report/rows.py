"""One benchmark of one run: its identity, its device, its numbers, and the flags of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import structs

from ..devices.implementations import TORCH
from ..errors import RunFileError, clean
from ..runfile.flags import FEW, IMPLAUSIBLE, NOISY, NOISY_FLAG, Quality, Reason, judge
from ..runfile.kinds import KINDS, Kind, names_of
from ..runfile.matching import matcher, nothing_matches, shown_name
from ..runfile.naming import shared_params
from ..runfile.quantities import shorten
from ..runfile.schema import MOST_NAMES, DeviceFacts, Parallel, Process, Result, Run, Scalar, Times
from ..runfile.utilisation import Utilisation, most, utilisation
from ..statistics.intervals import Interval, median_interval
from .number import HALF_INTERVAL, HALF_SPREAD, MISSING, SECONDS, Number, Sign, State, seconds, share

FILLED = 0.1
"""A GPU that reaches less than this share of its measured peak isn't filled."""
NOISY_FACTOR = 4.0
"""An interval counts as too noisy if its ends differ by more than this factor."""
NEAR = 1.05
"""A ratio below prints as 1.0×, which says of neither side that it is faster."""
PEOPLE_COUNT = ("sample", "token", "image", "sequence", "frame")
_LONGEST_UNIT = 24
_K = TypeVar("_K")
_T = TypeVar("_T")


class Source(NamedTuple):
    """The run, device and library of a result: a line of a picture. ``library`` is empty for PyTorch, or unknown."""

    run: str
    device: str
    library: str


class Values(NamedTuple):
    """A quantity, and the ends of its range."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate by which a benchmark is judged: the amount of work that it counts, and its unit; or TIME."""

    amount: str
    unit: str
    label: str

    def of(self, row: Measured) -> Values | None:
        """Return the value at the median and the quartiles of the rounds; None where that amount of work isn't
        declared."""
        times = row.times
        if self is TIME:
            return Values(times.median_s, times.q1_s, times.q3_s)
        amount = getattr(row.result.work, self.amount)
        return None if amount is None else Values(amount / times.median_s, amount / times.q3_s, amount / times.q1_s)


TIME = Rate("", "s", "Time per call")


@dataclass(frozen=True, eq=False)
class Row:
    """A benchmark of a run, measured or not: a line of results.csv.

    ``size_name`` is the parameter that varies among the benchmarks of its workload, None where there is no such axis.
    ``on_cpu_alone``: nothing of its run names an accelerator, so a benchmark without a device ran on the CPU.
    """

    run: Run
    run_name: str
    result: Result
    size_name: str | None
    on_cpu_alone: bool = False

    @property
    def facts(self) -> DeviceFacts:
        """The device that it ran on."""
        return self.run.machine.device(self.result.device)

    @property
    def on_accelerator(self) -> bool:
        """Whether it ran on anything but a CPU."""
        return self.facts.accelerator

    @property
    def library(self) -> str:
        """``numpy``: the library that does the work, if it isn't PyTorch."""
        return "" if self.result.implementation in ("", TORCH) else self.result.implementation

    @property
    def source(self) -> Source:
        """Run, device and library."""
        return Source(self.run_name, self.result.device or "cpu" * self.on_cpu_alone, self.library)

    @property
    def kind(self) -> Kind | None:
        """Its kind of work; None for the user's own benchmarks."""
        return KINDS.get(self.result.kind)

    @property
    def parallel(self) -> Parallel:
        """How it used several devices; one device where the result doesn't state it."""
        return self.result.parallel or Parallel()

    @property
    def own(self) -> bool:
        """Whether it is the user's own benchmark, or an expression."""
        return self.kind is None

    @property
    def dtype(self) -> str:
        """``float32``; empty where none applies."""
        return self.result.dtype

    @property
    def size(self) -> Scalar:
        """The value of the parameter that varies."""
        return self.result.params.get(self.size_name) if self.size_name else None

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values of its parameters that are numbers, by which benchmarks of several sizes are sorted."""
        return tuple(value for value in self.result.params.values() if isinstance(value, int | float))

    @property
    def setting(self) -> Hashable:
        """The difference from other benchmarks of its workload, except its size."""
        return self.setting_without(self.size_name if number(self.result, self.size_name) is not None else None)

    def setting_without(self, size_name: str | None) -> tuple[Hashable, ...]:
        """The same for another parameter as its size."""
        case = self.result
        params = tuple((name, repr(value)) for name, value in case.params.items() if name != size_name)
        return case.dtype, case.variant, case.cache, params


def interval_of(processes: Sequence[Process]) -> Interval | None:
    """Return the interval of the processes' medians, or of a single process's placements, in which the medians of all
    stretches of its time lie too; None without either."""
    medians, blocks = [process.median_s for process in processes], tuple[float, ...]()
    if len(processes) == 1:
        medians, blocks = [*processes[0].placements], processes[0].blocks
    if len(medians) < 2:
        return None
    interval = median_interval(medians)
    return replace(interval, low=min(interval.low, *blocks), high=max(interval.high, *blocks)) if blocks else interval


@dataclass(frozen=True, eq=False)
class Measured(Row):
    """A benchmark that has times. Each number is computed once."""

    @property
    def subject(self) -> Measured:
        """The row itself; a pair's subject is the row that is compared with the baseline."""
        return self

    @property
    def times(self) -> Times:
        """The times of its rounds."""
        assert self.result.times is not None
        return self.result.times

    @property
    def time_s(self) -> float:
        """Seconds per call."""
        return self.times.median_s

    @property
    def time(self) -> Number:
        """``10.0 ms``; ``10 ms*``, to two digits, if the result is flagged."""
        return seconds(self.time_s, bool(self.quality.star))

    @property
    def accuracy(self) -> Number:
        """``±2%``: half the interval of several processes; ``~2%`` of one process: half the interquartile range; the
        reason why neither says how far off the time is; ``7.70 ms of CPU time`` of an interrupted thread."""
        if self.interrupted:
            return Number(self.times.cpu_s, SECONDS, state=State.KNOWN, note=" of CPU time")
        if self.vague is not None:
            return Number(words=self.vague.interval)
        return share(self.spread, HALF_INTERVAL if self.interval else HALF_SPREAD)

    @property
    def vague(self) -> Reason | None:
        """The reason why no range says how far off the time is."""
        return None if self.interrupted else next((reason for reason in self.quality.why if reason.interval), None)

    @cached_property
    def interval(self) -> Interval | None:
        """The interval that its processes give."""
        return interval_of(self.times.processes)

    @property
    def rate(self) -> Rate | None:
        """The customary rate of such work: its samples or tokens, else its FLOP, its bytes, its items.

        Below one FLOP per byte, memory is the limit, so bytes per second are shown.
        """
        work, items = self.result.work, None
        if work.items is not None:
            unit = shorten(work.unit, _LONGEST_UNIT)
            items = Rate("items", f"{unit}s/s", f"{unit[:1].upper()}{unit[1:]}s per second".replace("_", " "))
        if items and work.unit in PEOPLE_COUNT:
            return items
        if work.flops is None and work.bytes is None:
            return items
        if work.flops is not None and (work.bytes is None or work.flops >= work.bytes):
            return Rate("flops", "FLOP/s", "Throughput")
        return Rate("bytes", "B/s", "Bandwidth")

    @property
    def throughput(self) -> Values | None:
        """Its rate, where work is declared."""
        return self.rate.of(self) if self.rate else None

    @property
    def speed(self) -> Number | None:
        """``15.0 TFLOP/s``; to two digits if the result is flagged; with the sign of data in the GPU's cache; None if
        no work is declared."""
        if not self.rate or not self.throughput:
            return None
        digits = 2 if self.quality.star else 3
        known = Number(self.throughput.value, self.rate.unit, state=State.KNOWN, digits=digits)
        return MISSING if self.quality.doubt else known.signed(Sign.IN_CACHE, self.in_cache)

    @property
    def starred_speed(self) -> str:
        """The same with its star, where the time with its star doesn't stand beside it."""
        return f"{self.speed.without(Sign.IN_CACHE) if self.speed else ''}{self.quality.star}"

    @property
    def peak_share(self) -> Number | None:
        """``73%`` of a measured peak; None if no peak is known."""
        if self.utilisation is None:
            return None
        return MISSING if self.utilisation > 1 or self.quality.doubt else share(self.utilisation)

    @property
    def shown_interval(self) -> Interval | None:
        """The interval, unless it is too noisy to show."""
        return None if Reason.TOO_NOISY in self.quality.why else self.interval

    @cached_property
    def _use(self) -> Utilisation | None:
        machine, ceilings = self.run.machine, self.run.ceilings.get(self.result.device)
        names = (self.result.device, *self.result.devices)
        link = len({machine.device(name).accelerator for name in names}) > 1
        return utilisation(self.result.work, self.time_s, self.result.compute_dtype, ceilings, link)

    @property
    def utilisation(self) -> float | None:
        """Share of the roofline limit: the least time at its device's measured peaks / the measured time."""
        return self._use.fraction if self._use else None

    @property
    def peak_unit(self) -> str:
        """The unit of the peak that limits it; empty if no peak is known."""
        return {"throughput": "FLOP/s", "bandwidth": "B/s"}[self._use.bound] if self._use else ""

    @property
    def above_peak(self) -> bool:
        """Whether its rate is above the measured peak by more than noise, the instruction set, or a fast algorithm of
        convolutions explains."""
        ceilings = self.run.ceilings.get(self.result.device)
        if self._use is None or ceilings is None:
            return False
        limit = most(self._use, self.result.compute_dtype, ceilings, self.result.convolution_share or 0.0)
        return self._use.fraction > limit

    @property
    def launch_bound(self) -> bool:
        """Whether launching its work takes longer than the work."""
        result = self.result
        return result.device_s is not None and result.launch_s is not None and result.launch_s > result.device_s

    @property
    def fills(self) -> bool:
        """Whether it has enough work to fill its GPU, as far as is known; always true on a CPU."""
        share = self.utilisation
        return not self.on_accelerator or not (self.launch_bound or (share is not None and share < FILLED))

    @property
    def in_cache(self) -> bool:
        """Whether it is memory-bound on a GPU, and its data fit into the GPU's cache, which is faster than memory."""
        nbytes, ceilings = self.result.work.bytes, self.run.ceilings.get(self.result.device)
        if not (self.on_accelerator and nbytes and ceilings and self._use and self._use.footprint_bytes):
            return False
        return self.result.cache != "cold" and self.fills and nbytes <= ceilings.l2_bytes

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Names of the flags of its time."""
        of_a_peak = self.result.device not in self.run.disproved
        names = [flag.name for flag in self.result.flags if flag.name != IMPLAUSIBLE or of_a_peak]
        names += [NOISY_FLAG] * (self.noisy_rounds and NOISY_FLAG not in names)
        return (*names, IMPLAUSIBLE) if self.above_peak and IMPLAUSIBLE not in names else tuple(names)

    @property
    def noisy_rounds(self) -> bool:
        """Whether the rounds of a file of pytest-benchmark alone vary too much (:data:`NOISY`)."""
        return self.run.plain and self.times.rounds >= FEW and self.times.iqr_s > NOISY * self.time_s

    @property
    def spread(self) -> float:
        """Half the interval of several processes, or half the interquartile range of one, over the time."""
        width = self.interval.high - self.interval.low if self.interval else self.times.iqr_s
        return width / 2 / self.time_s

    @cached_property
    def quality(self) -> Quality:
        """How good its time is."""
        return judge(self.flags, self.spread)

    @cached_property
    def busy(self) -> bool:
        """Whether other programs may have made it longer: they were seen meanwhile or, where a noisy time can be held
        against that on a core, at any time of its run."""
        why = self.quality.why
        return Reason.BUSY in why or (Reason.NOISY in why and self.run.contended and self.times.cpu_s is not None)

    @property
    def interrupted(self) -> bool:
        """Whether other programs took the core of its only thread, and its CPU time is recorded."""
        alone, cpu_s = self.result.threads == 1 and not self.on_accelerator, self.times.cpu_s
        return self.busy and alone and cpu_s is not None and self.time_s > NEAR * cpu_s


def too_noisy(low: float, high: float) -> bool:
    """Whether an interval is wider than a factor of four."""
    return low <= 0 or high > NOISY_FACTOR * low


def leaves_open(values: Values) -> bool:
    """Whether the interval of a ratio is too wide and leaves open which side is faster; one that excludes 1 is an
    answer."""
    return too_noisy(values.low, values.high) and values.low <= 1 <= values.high


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Return all benchmarks of all runs. Raises RunFileError for more names of parameters than a table holds."""
    if len(named := {name for run in runs for result in run.results for name in result.params}) > MOST_NAMES:
        raise RunFileError(f"{len(named)} different names of parameters: a table holds {MOST_NAMES}; report fewer runs")
    workloads = grouped((each for run in runs for each in run.results), lambda result: result.workload)
    sizes = {workload: size_parameter(members) for workload, members in workloads.items()}
    told = {workload: _of_any(members) for workload, members in workloads.items()}
    names, shared = run_names([run.path for run in runs]), _shared(runs)
    rows = []
    for name, run in zip(names, runs, strict=True):
        of_run = (run.machine.device(device) for device in {result.device for result in run.results})
        on_cpu_alone = not any(device.accelerator for device in (*run.machine.devices, *of_run))
        for result in run.results:
            size = sizes[result.workload] or result.size
            left_out = shared.get(result.workload, frozenset()) - {size}
            more = told[result.workload] | ({"shared": left_out} if left_out else {})
            short = structs.replace(result, **more) if more else result
            rows.append((Measured if result.times else Row)(run, name, short, size, on_cpu_alone))
    return rows


def matching_rows(rows: Sequence[Row], expression: str) -> list[Row]:
    """Return the rows that an expression (``-k``) chooses. Raises UsageError where it chooses none."""
    matches, matching = matcher(expression), []
    for row in rows:
        case = row.result
        shown = case.id, case.device, case.implementation, case.fullname, row.facts.label, *names_of(case)
        matching += [row] * matches(shown)
    if not matching:
        presets = dict.fromkeys(row.run.preset for row in rows)
        raise nothing_matches(expression, (row.result.workload for row in rows), [*presets])
    return matching


def _of_any(results: Sequence[Result]) -> dict[str, object]:
    """The kind and the title of a workload: of the first file that has one, where several versions wrote the files."""
    known = {name: [getattr(each, name) for each in results] for name in ("kind", "title")}
    return {name: next(filter(None, values), "") for name, values in known.items() if len(set(values)) > 1}


def _shared(runs: Sequence[Run]) -> dict[str, frozenset[str]]:
    """By workload the parameters that the names of the user's own tests leave out. Sizes of expressions were asked
    for."""
    every = (each for run in runs for each in run.results if not each.kind)
    tests = (each for each in every if shown_name(each.workload) == each.workload)
    return shared_params({(each.id, each.device, each.implementation): each for each in tests}.values())


def size_parameter(results: Iterable[Result]) -> str | None:
    """The benchmarks' own ``size`` if it varies, else the only whole number that does, as 0.5 is a share and no size;
    None where there is no such axis."""
    results = list(results)
    declared = {result.size for result in results} - {None}
    own = declared.pop() if len(declared) == 1 else None
    names = [own] if own else {name for result in results for name in result.params}
    numbers = {name: {number(result, name) for result in results} for name in names}
    varying = [name for name, values in numbers.items() if len(values) > 1 and None not in values]
    found = [name for name in varying if own or all((value or 0.5).is_integer() for value in numbers[name])]
    return found[0] if len(found) == 1 else None


def number(result: Result, name: str | None) -> float | None:
    """The parameter's value where it can stand on a logarithmic axis."""
    value = result.params.get(name) if name else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def run_names(paths: Sequence[Path]) -> list[str]:
    """File stems, with as many parent folders in front as tell them apart; of ``NAME/run.json``, as ``gpubench run``
    calls its file in a folder, ``NAME`` where that does."""
    paths = [path.absolute() for path in paths]
    names = [clean(path.stem) for path in paths]
    for depth in range(1, max((len(path.parts) for path in paths), default=1)):
        repeated = {name for name, count in Counter(names).items() if count > 1}
        names = [
            clean("/".join([*path.parts[1:-1][-depth:], path.stem])) if name in repeated else name
            for name, path in zip(names, paths, strict=True)
        ]
    folders = [name.removesuffix("/run") for name in names]
    return folders if len(set(folders)) == len(set(names)) else names


def grouped(members: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Group by the key, keeping the order."""
    groups: dict[_K, list[_T]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
