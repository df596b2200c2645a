"""One benchmark of one run: its identity, its device, its numbers, and the flags of its time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import structs

from ..errors import RunFileError, clean
from ..runfile.flags import FEW, IMPLAUSIBLE, NOISY, NOISY_FLAG, Reason, judge
from ..runfile.matching import KINDS, matcher, names_of, nothing_matches, unmatched_words
from ..runfile.quality import Utilisation, most, utilisation
from ..runfile.quantities import listed, shorten
from ..runfile.schema import MOST_NAMES, Parallel, Process, Result, Run, Scalar, Times
from ..statistics.intervals import Interval, median_interval
from .number import HALF_INTERVAL, HALF_SPREAD, MISSING, SECONDS, Number, Sign, State, seconds, share

FILLED = 0.1
"""A GPU that reaches less than this share of its measured peak isn't filled."""
NOISY_FACTOR = 4.0
"""An interval counts as too noisy if its ends differ by more than this factor."""
LATER = 2.0
"""Factor, in logarithms, by which times of other runs may differ more than stretches of one: a shared machine changes
its speed for longer than a run's two seconds. Measured by ``docs/experiments/placement.py``."""
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
        """Return the value at the median and the quartiles of the rounds; None if that amount isn't declared."""
        times = row.times
        if self is TIME:
            return Values(times.median_s, times.q1_s, times.q3_s)
        amount = getattr(row.result.work, self.amount)
        return None if amount is None else Values(amount / times.median_s, amount / times.q3_s, amount / times.q1_s)


TIME = Rate("", "s", "Time per call")


@dataclass(eq=False)
class Row:
    """A benchmark of a run, measured or not: a line of results.csv.

    ``size_name`` is the parameter that varies among the benchmarks of its workload, None without such an axis.
    ``on_cpu_alone``: nothing of its run names an accelerator, so a benchmark without a device ran on the CPU.

    From these follow the ``facts`` of its device; the ``library`` that does the work, empty for PyTorch; its ``kind``
    of work, None for the user's ``own`` benchmarks and expressions; its use of several devices (``parallel``); its
    ``size``; the ``numbers`` among its parameters, by which benchmarks of several sizes are sorted; and its
    ``setting``, the difference from other benchmarks of its workload, except its size.
    """

    run: Run
    run_name: str
    result: Result
    size_name: str | None
    on_cpu_alone: bool = False

    def __post_init__(self) -> None:
        case = self.result
        self.facts = self.run.machine.device(case.device)
        self.on_accelerator = self.facts.accelerator
        self.library = "" if case.implementation in ("", "torch") else case.implementation
        self.source = Source(self.run_name, case.device or "cpu" * self.on_cpu_alone, self.library)
        self.kind = KINDS.get(case.kind)
        self.own = self.kind is None
        self.parallel = case.parallel or Parallel()
        self.dtype = case.dtype
        self.size: Scalar = case.params.get(self.size_name) if self.size_name else None
        self.numbers = tuple(value for value in case.params.values() if isinstance(value, int | float))
        self.setting = self.setting_without(self.size_name if number(case, self.size_name) is not None else None)

    def setting_without(self, size_name: str | None) -> tuple[Hashable, ...]:
        """Return the ``setting`` for another parameter as its size."""
        case = self.result
        params = tuple((name, repr(value)) for name, value in case.params.items() if name != size_name)
        return case.dtype, case.variant, case.cache, params


def interval_of(processes: Sequence[Process]) -> Interval | None:
    """Return the interval of the processes' medians, or of a single process's placements; None without either. With
    the medians of stretches of its time the interval holds these too, and is :data:`LATER` as wide."""
    medians, blocks = [process.median_s for process in processes], tuple[float, ...]()
    if len(processes) == 1:
        medians, blocks = [*processes[0].placements], processes[0].blocks
    if len(medians) < 2:
        return None
    interval = median_interval(medians)
    if not blocks:
        return interval
    low, high = min(interval.low, *blocks), max(interval.high, *blocks)
    further = (high / low) ** ((LATER - 1) / 2)
    return replace(interval, low=low / further, high=high * further)


@dataclass(eq=False)
class Measured(Row):
    """A benchmark that has ``times`` of its rounds; ``time_s`` are its seconds per call, ``time`` the same with a star
    if the result is flagged, and ``ceilings`` the measured peaks of its device, if there are any.

    ``utilisation`` is its share of the roofline limit: the least time at these peaks / the measured time; ``peak_unit``
    the unit of the peak that limits it, empty if none is known. ``launch_bound``: launching its work takes longer than
    the work. ``fills``: it has enough work to fill its GPU, as far as is known; always true on a CPU. ``in_cache``: it
    is memory-bound on a GPU, and its data fit into the GPU's cache, which is faster than memory.

    ``interval`` is given by its processes; ``shown_interval`` is empty if it is too noisy to show; ``spread`` is half
    of it, or half the interquartile range of one process, over the time. ``flags`` are names of the flags of its time:
    of the file; noisy if the rounds of a file of pytest-benchmark alone vary too much; implausible if its rate is above
    the measured peak by more than noise, the instruction set, or a fast algorithm of convolutions explains. Disproved
    peaks raise none. ``busy``: other programs may have made it longer, since they were seen meanwhile or, where a noisy
    time can be held against that on a core, at any time of its run. ``interrupted``: they took the core of its only
    thread, and its CPU time is recorded. ``vague`` is the reason why no range says how far off the time is.

    ``rate`` is customary for such work: its samples or tokens, else its FLOP, its bytes, its items. Below one FLOP per
    byte, memory is the limit, so bytes per second are shown. ``throughput`` is its value, None without declared work.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        result, machine = self.result, self.run.machine
        assert result.times is not None
        self.subject = self
        self.times: Times = result.times
        self.time_s = self.times.median_s
        self.ceilings = self.run.ceilings.get(result.device)
        link = len({machine.device(name).accelerator for name in (result.device, *result.devices)}) > 1
        use = utilisation(result.work, self.time_s, result.compute_dtype, self.ceilings, link)
        self.utilisation = use.fraction if use else None
        self.peak_unit = {"throughput": "FLOP/s", "bandwidth": "B/s"}[use.bound] if use else ""
        launch_s, device_s = result.launch_s, result.device_s
        self.launch_bound = launch_s is not None and device_s is not None and launch_s > device_s
        little = self.launch_bound or (use is not None and use.fraction < FILLED)
        self.fills = not (self.on_accelerator and little)
        fits = self.ceilings is not None and 0 < (result.work.bytes or 0) <= self.ceilings.l2_bytes
        in_memory = use is not None and use.footprint_bytes and result.cache != "cold"
        self.in_cache = bool(self.on_accelerator and fits and in_memory and self.fills)
        self.rate = _rate_of(result)
        self.throughput = self.rate.of(self) if self.rate else None
        self._judge(use)

    def _judge(self, use: Utilisation | None) -> None:
        case, times, run = self.result, self.times, self.run
        self.interval = interval_of(times.processes)
        self.spread = (self.interval.high - self.interval.low if self.interval else times.iqr_s) / 2 / self.time_s
        names = [flag.name for flag in case.flags if flag.name != IMPLAUSIBLE or case.device not in run.disproved]
        names += [NOISY_FLAG] * (run.plain and times.rounds >= FEW and times.iqr_s > NOISY * self.time_s)
        if use is not None and self.ceilings is not None:
            limit = most(use, case.compute_dtype, self.ceilings, case.convolution_share or 0.0)
            names += [IMPLAUSIBLE] * (use.fraction > limit)
        self.flags = tuple(dict.fromkeys(names))
        self.quality = judge(self.flags, self.spread)
        reasons, cpu_s, alone = self.quality.why, times.cpu_s, case.threads == 1 and not self.on_accelerator
        self.busy = Reason.BUSY in reasons or (Reason.NOISY in reasons and run.contended and cpu_s is not None)
        self.interrupted = self.busy and alone and cpu_s is not None and self.time_s > NEAR * cpu_s
        self.vague = None if self.interrupted else next((reason for reason in reasons if reason.interval), None)
        self.shown_interval = None if Reason.TOO_NOISY in reasons else self.interval
        self.time = seconds(self.time_s, bool(self.quality.star))

    @property
    def accurate_time(self) -> Number:
        """The time with its accuracy: ``10.0 ms ±2%``."""
        return self.time.noted(f"{',' * self.interrupted} {self.accuracy}")

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
    def speed(self) -> Number | None:
        """``15.0 TFLOP/s``; to two digits if the result is flagged; with the sign of data in the GPU's cache; None if
        no work is declared."""
        if not self.rate or not self.throughput:
            return None
        digits = 2 if self.quality.star else 3
        number = Number(self.throughput.value, self.rate.unit, state=State.KNOWN, digits=digits)
        return MISSING if self.quality.doubt else number.signed(Sign.IN_CACHE, self.in_cache)

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


def _rate_of(result: Result) -> Rate | None:
    work, items = result.work, None
    if work.items is not None:
        unit = shorten(work.unit, _LONGEST_UNIT)
        items = Rate("items", f"{unit}s/s", f"{unit[:1].upper()}{unit[1:]}s per second".replace("_", " "))
    if (work.flops is None and work.bytes is None) or (items and work.unit in PEOPLE_COUNT):
        return items
    if work.flops is not None and (work.bytes is None or work.flops >= work.bytes):
        return Rate("flops", "FLOP/s", "Throughput")
    return Rate("bytes", "B/s", "Bandwidth") if work.bytes is not None else None


def too_noisy(low: float, high: float) -> bool:
    """Whether an interval is wider than a factor of four."""
    return low <= 0 or high > NOISY_FACTOR * low


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Return all benchmarks of all runs. Raises RunFileError for more names of parameters than a table holds.

    If several versions wrote the files, a workload's kind and title stand in the first file that has one.
    """
    results = [result for run in runs for result in run.results]
    if len(params := {name for result in results for name in result.params}) > MOST_NAMES:
        raise RunFileError(
            f"{len(params)} different names of parameters: a table holds {MOST_NAMES}; report fewer runs"
        )
    workloads = grouped(results, lambda result: result.workload)
    sizes = {workload: size_parameter(members) for workload, members in workloads.items()}
    common = {
        (workload, name): next(filter(None, values), "")
        for workload, members in workloads.items()
        for name in ("kind", "title")
        if len(values := dict.fromkeys(getattr(result, name) for result in members)) > 1
    }
    rows = []
    for name, run in zip(run_names([run.path for run in runs]), runs, strict=True):
        of_run = (run.machine.device(device) for device in {result.device for result in run.results})
        on_cpu_alone = not any(device.accelerator for device in (*run.machine.devices, *of_run))
        for result in run.results:
            workload, size = result.workload, sizes[result.workload] or result.size
            more = {of: common[workload, of] for of in ("kind", "title") if (workload, of) in common}
            renamed = structs.replace(result, **more) if more else result
            rows.append((Measured if result.times else Row)(run, name, renamed, size, on_cpu_alone))
    return rows


def matching_rows(rows: Sequence[Row], expression: str) -> list[Row]:
    """Return the rows that an expression (``-k``) chooses, and name words that match none on stderr. Raises UsageError
    if it chooses none."""
    cases = [(row, row.result) for row in rows]
    names = [(c.id, c.device, c.implementation, c.fullname, row.facts.label, *names_of(c)) for row, c in cases]
    matching = [row for row, _ in compress(cases, map(matcher(expression), names))]
    if not matching:
        presets = dict.fromkeys(row.run.preset for row in rows)
        raise nothing_matches(expression, (row.result.workload for row in rows), [*presets])
    if unmatched := unmatched_words(expression, names):
        print(clean(f"gpubench: -k: nothing matches {listed(unmatched)}"), file=sys.stderr)
    return matching


def size_parameter(results: Iterable[Result]) -> str | None:
    """The benchmarks' own ``size`` if it varies, else the only whole number that does, as 0.5 is a share and no size;
    None without such an axis."""
    results = list(results)
    declared = {result.size for result in results} - {None}
    own = declared.pop() if len(declared) == 1 else None
    varying = []
    for name in [own] if own else {name for result in results for name in result.params}:
        numbers = {number(result, name) for result in results}
        if len(numbers) > 1 and None not in numbers and (own or all((value or 0.5).is_integer() for value in numbers)):
            varying.append(name)
    return varying[0] if len(varying) == 1 else None


def number(result: Result, name: str | None) -> float | None:
    """The parameter's value if it can stand on a logarithmic axis."""
    value = result.params.get(name) if name else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 1e-100 < value < 1e100 else None


def run_names(paths: Sequence[Path]) -> list[str]:
    """File stems, with as many parent folders in front as tell them apart; ``NAME`` of ``NAME/run.json``, as
    ``gpubench run`` calls its file in a folder, if that tells them apart too."""
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
