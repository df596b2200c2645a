"""Speedups: each benchmark against its baseline, with its uncertainty, and with the copies of its data.

The same means equal workload, parameters and variant, and equal implementation unless the baseline is one. A ratio of
benchmarks that differ in dtype, precision, cache, threads or seed is no speedup: such pairs are left out unless
the difference is allowed and named. An unknown fact is no difference, except TF32 that is on at the other side.

A benchmark has one baseline and one speedup. A GPU's baseline is the CPU's fastest measured way to do the job
(``runfile/ways``): another library, a compiler, another form. Of several machines the first is the reference of all
others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from ..errors import UsageError
from ..runfile.facts import switches, threads_available
from ..runfile.flags import Level, Quality, Reason
from ..runfile.quantities import SWITCH, holds_words
from ..runfile.schema import Process, Result
from ..runfile.ways import Basis, fastest_way, job, times_and_ratio
from ..statistics import intervals
from ..statistics.intervals import Interval
from .number import MISSING, Number, Sign, State, seconds
from .rows import NEAR, Measured, Values, grouped, leaves_open, too_noisy

RESIDENT, ONE_SHOT, PINNED = "resident", "one-shot", "one-shot, pinned"
"""resident: the data is on the device. one-shot: copy inputs, one call, copy outputs; from and to pageable memory, or
pinned (page-locked) memory."""
DEVICE, IMPLEMENTATION, MACHINE, RUN = "result.device", "result.implementation", "run.machine.label", "run_name"
"""Roles of a baseline: attributes of a row."""
_HALVES = {"float16": ("fp16_",), "bfloat16": ("bf16_",)}
"""How the switches of products in that dtype begin."""
_OF_ACCELERATORS = ("cudnn_benchmark", "cudnn_deterministic", "variables")
"""Switches that change nothing of a CPU's times."""
_OWN = "own switches"
"""The difference of one program's TF32 on an accelerator and not on the CPU: it is named, and needs no leave."""
_Differences = dict[str, str]
"""Differences between two sides in words, by term, the other's value first: ``{"threads": "threads 2 against 1"}``."""
_Partners = Iterator[tuple[Measured, list[list[Measured]]]]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A ``--baseline``: the rows with this ``name`` as their attribute ``role``."""

    role: str
    name: str

    def holds(self, row: Measured) -> bool:
        """Whether the row is of this baseline."""
        return bool(attrgetter(self.role)(row) == self.name)


@dataclass(frozen=True, eq=False)
class Pair:
    """A benchmark against its baseline, in a ``regime``. ``differs`` names allowed differences of the two.

    ``fastest_way`` is the CPU's row to compare, if the CPU has a faster way to do the job.
    ``batches`` is how many of the baseline's calls do the work of one call of several devices.
    """

    base: Measured
    other: Measured
    differs: str = ""
    batches: float = 1.0
    fastest_way: Measured | None = None
    regime: str = RESIDENT

    @property
    def sides(self) -> tuple[Measured, Measured]:
        """The two rows to compare."""
        if self.fastest_way is None:
            return self.base, self.other
        return (self.base, self.fastest_way) if self.base.on_accelerator else (self.fastest_way, self.other)

    def in_regime(self, regime: str) -> Pair | None:
        """The same pair with copies, where work moves from a CPU to an accelerator and its copies were measured."""
        base, other = self.sides
        moves = other.on_accelerator and not base.on_accelerator
        return replace(self, regime=regime) if moves and _copies_s(other.result, regime) is not None else None

    @cached_property
    def copies(self) -> Pair | None:
        """The same pair with copies from and to pageable memory."""
        return self.in_regime(ONE_SHOT)

    @property
    def observed(self) -> list[dict[int, float]]:
        """Seconds of a call on each side, by process: its median; with copies an accelerator's are the latency and the
        copies."""
        copied = (0.0, _copies_s(self.sides[1].result, self.regime) or 0.0)

        def call_s(process: Process, side: Measured) -> float:
            alone = side.on_accelerator and self.regime != RESIDENT
            return (process.latency_s if alone else None) or process.median_s

        return [
            {process.index: more_s + call_s(process, side) for process in side.times.processes}
            for side, more_s in zip(self.sides, copied, strict=True)
        ]

    @cached_property
    def _compared(self) -> tuple[float, float, Interval, Basis | None]:
        """Both times, their ratio and the basis of its range; a single process with copies has no range."""
        if self.regime == RESIDENT:
            return times_and_ratio(*(side.times for side in self.sides))
        tops, bottoms = (list(side.values()) for side in self.observed)
        base_s, time_s = intervals.median(tops), intervals.median(bottoms)
        value = base_s / time_s
        several = min(len(tops), len(bottoms)) > 1
        if not several:
            return base_s, time_s, Interval(value, value, value, ""), None
        ratio = intervals.ratio_interval(tops, bottoms)
        return base_s, time_s, ratio, Basis(ratio.kind)

    @property
    def base_s(self) -> float:
        """Seconds of the baseline."""
        return self._compared[0]

    @property
    def time_s(self) -> float:
        """Seconds of the other side."""
        return self._compared[1]

    @property
    def uncertainty(self) -> Basis | None:
        """The basis of the range; None if there is no range."""
        return self._compared[3]

    @property
    def subject(self) -> Measured:
        """The row that is compared with the baseline."""
        return self.other

    @cached_property
    def values(self) -> Values:
        """The speedup and the ends of its range; nothing is known of times that waited."""
        ratio = self._compared[2]
        value, low, high = (self.batches * end for end in (ratio.value, ratio.low, ratio.high))
        waited = any(Reason.WAITED in side.quality.why for side in self.sides)
        return Values(value, 0.0, math.inf) if waited else Values(value, low, high)

    @property
    def speedup(self) -> float:
        """The ratio of the two times that are shown."""
        return self.values.value

    @property
    def fills(self) -> bool:
        """Whether its work fills the GPUs of both sides."""
        return self.base.fills and self.other.fills

    @property
    def in_cache(self) -> bool:
        """Whether the data of a side fit into its GPU's cache."""
        return any(side.in_cache for side in self.sides)

    @property
    def within_run(self) -> bool:
        """Whether both were measured in one run."""
        return self.base.run_name == self.other.run_name

    @property
    def within_device(self) -> bool:
        """Whether two libraries are compared on one device."""
        return self.within_run and self.base.result.device == self.other.result.device

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """The flags of both sides."""
        base, other = self.sides
        return tuple(dict.fromkeys((*other.flags, *base.flags)))

    @property
    def busy(self) -> bool:
        """Whether other programs may have made a time longer."""
        return any(side.busy for side in self.sides)

    @property
    def few_threads(self) -> bool:
        """Whether a CPU of the two took fewer threads than it has, which is no fair CPU."""
        return any(threads_available(side.run) for side in self.sides if not side.on_accelerator)

    @cached_property
    def quality(self) -> Quality:
        """The quality of the speedup. A rate above the peak is no reason, because a ratio needs no peak."""
        why = [reason for side in self.sides for reason in side.quality.why if reason is not Reason.ABOVE_PEAK]
        why += [Reason.FEW_THREADS] * self.few_threads
        waited = Reason.WAITED in why
        unusable = [Reason.WAITED] * waited + [Reason.TOO_NOISY] * (not waited and leaves_open(self.values))
        level = Level.UNUSABLE if unusable else Level.NOISY if why else Level.SOUND
        return Quality(level, tuple(dict.fromkeys([*unusable, *why])))

    @property
    def limit(self) -> float | None:
        """The end of the range that says which side is faster, and by more than rounding."""
        _, low, high = self.values
        return low if low >= NEAR else high if high <= 1 / NEAR else None

    @cached_property
    def ratio(self) -> Number:
        """The speedup, or the limit if only one is known; with a star if a time is noisy.

        It has no range if the machine was busy, because then no range says how far off the speedup is.
        """
        value, low, high = self.values
        star = (Sign.NOISY,) * self.quality.noisy
        if self.quality.doubt is None and not too_noisy(low, high):
            known = Number(value, low=low, high=high, state=State.KNOWN, signs=star)
            return known.brief if self.busy else known
        if self.limit:
            return Number(self.limit, state=State.AT_LEAST if self.limit > 1 else State.AT_MOST, signs=star)
        if self.quality.doubt:
            return Number(words=str(self.quality.doubt))
        return Number(low=low, high=high, state=State.RANGE, signs=star)

    @property
    def full_ratio(self) -> Number:
        """The speedup with the signs of another way of the CPU, of too little work for a GPU, and of its cache."""
        signs = {Sign.OTHER_WAY: self.fastest_way, Sign.UNFILLED: not self.fills, Sign.IN_CACHE: self.in_cache}
        return replace(self.ratio, signs=(*self.ratio.signs, *(sign for sign, holds in signs.items() if holds)))

    @property
    def copied_ratio(self) -> Number:
        """The speedup with inputs and results copied for every call."""
        return self.copies.ratio.brief if self.copies else MISSING

    @property
    def drawn(self) -> Values | None:
        """The speedup in a picture, or the limit if only one is known; None if not even a limit is."""
        return None if self.ratio.value is None else Values(self.ratio.value, *self.values[1:])

    @property
    def faster(self) -> bool:
        """Whether it is surely faster than its baseline, by more than rounding."""
        return self.values.low > 1 and (self.ratio.value or 0.0) >= NEAR

    def side_time(self, place: int) -> Number:
        """The time of the baseline (place 0) or of the other side."""
        return seconds((self.base_s, self.time_s)[place], bool(self.sides[place].quality.star))


def resolve(rows: Sequence[Measured], name: str | None) -> Baseline | None:
    """Return the baseline that the name stands for. Raises UsageError, with the known names, for a name that isn't in
    the results."""
    if name is None:
        return None
    known: dict[str, None] = {}
    for role in (DEVICE, IMPLEMENTATION, MACHINE, RUN):
        values = dict.fromkeys(value for row in rows if (value := attrgetter(role)(row)))
        if name in values:
            return Baseline(role, name)
        known |= values
    labels = dict.fromkeys(label for row in rows if (label := row.facts.label))
    called = [label for label in labels if holds_words(label, name)]
    if len(called) == 1:  # as it is shown: a part of what its maker calls it
        return Baseline("facts.label", called[0])
    known |= labels
    raise UsageError(f"unknown baseline {name!r}: choose from {', '.join(known)}")


def find_pairs(
    rows: Sequence[Measured], baseline: Baseline | None = None, allow: Collection[str] = ()
) -> tuple[list[Pair], list[tuple[Measured, _Differences]]]:
    """Return a pair for each row that has a baseline, and the rows without a comparable one, with their differences.

    ``rows`` are all rows of the runs, because the fastest way of a CPU is looked for among them. Two rows of a pair
    differ only in the terms of ``allow``. A library brings its own number of threads: NumPy's elementwise work has one.
    """
    allowed, of_libraries = {*allow, _OWN}, bool(baseline and baseline.role == IMPLEMENTATION)
    any_threads = {*allowed, "threads"}
    jobs = grouped((row for row in rows if not (of_libraries or row.on_accelerator)), _job)
    if of_libraries:
        allowed = any_threads
    first = rows[0].run_name if rows else ""
    if baseline and baseline.role in (MACHINE, RUN):
        first = next(row.run_name for row in rows if baseline.holds(row))
    pairs, left_out = [], []
    groups = _group_alike(rows, of_libraries)
    for row, tiers in (each for group in groups for each in _find_partners(group, baseline, first)):
        base, differences = _find_closest(row, tiers, allowed)
        if base is not None:
            fastest = _fastest_way(base, row, jobs, any_threads)
            pairs.append(Pair(base, row, ", ".join(differences.values()), fastest_way=fastest))
        elif differences:
            left_out.append((row, differences))
    return pairs, left_out


def _group_alike(rows: Sequence[Measured], of_libraries: bool) -> list[list[Measured]]:
    """Return groups of rows that are the same benchmark; if one was measured twice in a run, the first is paired with
    the first."""
    groups: dict[Hashable, list[Measured]] = {}
    repeats: Counter[Hashable] = Counter()
    for row in rows:
        case = row.result
        params = frozenset((name, type(value), value) for name, value in case.params.items() if value is not None)
        same = (case.workload, case.variant, params, "" if of_libraries else case.implementation)
        itself = (same, row.run_name, case.device, case.implementation, case.threads, case.dtype, case.cache)
        repeats[itself] += 1
        groups.setdefault((same, repeats[itself]), []).append(row)
    return list(groups.values())


def _fastest_way(
    base: Measured, other: Measured, jobs: Mapping[Hashable, Sequence[Measured]], allowed: Collection[str]
) -> Measured | None:
    """Return the fastest way of the CPU, if a GPU and a CPU are compared and it isn't the way that is compared."""
    if base.on_accelerator == other.on_accelerator:
        return None
    cpu, gpu = sorted((base, other), key=lambda row: row.on_accelerator)
    ways = (row for row in jobs.get(_job(cpu), ()) if not row.quality.doubt)
    able = [row for row in ways if _find_differences(row, gpu).keys() <= {*allowed, "dtype"}]
    best = fastest_way(cpu.result, (row.result for row in able))
    return None if best is cpu.result else replace(cpu, result=best)


def _job(row: Measured) -> Hashable:
    return row.run_name, job(row.result)


def _find_closest(
    row: Measured, tiers: Iterable[list[Measured]], allowed: Collection[str]
) -> tuple[Measured | None, _Differences]:
    """Return the baseline from the first tier that has a fitting one, and its differences; it may be in float32. If
    there is none, return None and the fewest differences that prevent it."""
    nearest: _Differences = {}
    for tier in tiers:
        candidates = [(_find_differences(base, row), base) for base in tier if base.dtype in (row.dtype, "float32")]
        for differing, base in sorted(candidates, key=lambda each: len(each[0])):
            own = {"threads"} if base.run_name != row.run_name else set()  # each machine has its own number
            barred = {term: words for term, words in differing.items() if term not in {*allowed, *own}}
            if not barred:
                return base, differing
            if not nearest or len(barred) < len(nearest):
                nearest = barred
    return None, nearest


def _find_partners(rows: list[Measured], baseline: Baseline | None, first: str) -> _Partners:
    """Yield each benchmark that needs a baseline, and the rows to look for it in, best first.

    The rows of a baseline device or library are of the same run; a run without it takes them from the first run
    that has it. Without such a baseline the reference is the ``first`` run, or the run that was asked for: its
    accelerators are compared with its CPU, and the rows of other runs with its rows on the same device, the same kind
    of device, another accelerator, or the CPU. If the reference lacks the benchmark of an accelerator, the baseline
    is the CPU of its own run.
    """
    runs = grouped(rows, lambda row: row.run_name)
    others = runs.get(first, [])
    if baseline is not None and baseline.role not in (MACHINE, RUN):
        anywhere = [row for row in rows if baseline.holds(row)]
        elsewhere = [row for row in anywhere if row.run_name == anywhere[0].run_name]
        for row in (row for row in rows if not baseline.holds(row)):
            yield row, [[other for other in runs[row.run_name] if baseline.holds(other)], elsewhere]
        return

    def tiers(row: Measured) -> list[list[Measured]]:
        same = [other for other in others if other.result.device == row.result.device]
        kin = [other for other in others if other.facts.kind == row.facts.kind]
        accelerators = [other for other in others if other.on_accelerator and row.on_accelerator]
        return [same, kin, accelerators, [other for other in others if not other.on_accelerator]]

    for row in rows:
        if others and row.run_name != first:
            yield row, tiers(row)
        elif row.on_accelerator:
            yield row, [[other for other in runs[row.run_name] if not other.on_accelerator]]


def _find_differences(base: Measured, other: Measured) -> _Differences:
    tf32 = _tf32(base, other)
    # A CPU and an accelerator ran one program in one run, with the program's own switches.
    switches_of = (other if other.on_accelerator else base).result.precision
    across = base.run_name == other.run_name and base.on_accelerator != other.on_accelerator
    own = tf32 and across and switches_of.get("own_switches")
    differing = {
        "dtype": _against("dtype", other.dtype or "unknown", base.dtype or "unknown"),
        "cache": _against("cache", other.result.cache or "unknown", base.result.cache or "unknown"),
        _OWN if own else "precision": tf32 or _switched(base, other),
        "threads": _against("threads", other.result.threads, base.result.threads),
        "seed": _against("seed", other.run.seed, base.run.seed),
    }
    return {term: told for term, told in differing.items() if told}


def _against(what: str, theirs: object, ours: object) -> str:
    """``threads 2 against 1``; empty where they are equal, or one is unknown."""
    return "" if theirs == ours or None in (theirs, ours) else f"{what} {theirs} against {ours}"


def _tf32(base: Measured, other: Measured) -> str:
    """Return how TF32 differs if float32 products were shortened to TF32 on one side only, which the dtypes don't
    show."""
    dtypes = {base.dtype, other.dtype}
    if dtypes == {"float32", "tf32"}:
        return ""
    base_state, state = (_shortened(row) for row in (base, other))
    if dtypes == {"float32"} and base_state and state:  # a switch of the whole program, and CPUs have no TF32
        base_state, state = base.on_accelerator, other.on_accelerator
    if (base_state is True) == (state is True):
        return ""
    return f"TF32 {SWITCH[state]} against {SWITCH[base_state]}"


def _shortened(row: Measured) -> bool | None:
    switch = row.result.precision.get("tf32")
    if row.dtype == "tf32":
        return switch is not False
    if row.dtype != "float32":
        return False
    known = switch if switch is not None else row.run.machine.tf32
    return known if isinstance(known, bool) else None


def _switched(base: Measured, other: Measured) -> str:
    """Return how the dtype of autocast differs, or the first switch that is known on both sides."""
    if base.result.variant == other.result.variant == "autocast" and (
        told := _against("autocast in", other.result.compute_dtype, base.result.compute_dtype)
    ):
        return told
    theirs, ours = _switches(other), _switches(base)
    names = sorted(theirs.keys() & ours.keys())
    return next((told for name in names if (told := _against(name, theirs[name], ours[name]))), "")


def _switches(row: Measured) -> dict[str, str]:
    """Return the known switches that change the times: deterministic algorithms, the switches of accelerators if it ran
    on one, and the switches of products in its half precision."""
    of_accelerators = _OF_ACCELERATORS if row.on_accelerator else ()
    names = ("deterministic", *of_accelerators, *_HALVES.get(row.result.compute_dtype, ()))
    known = row.result.precision or row.run.machine.precision or {}
    return switches({name: state for name, state in known.items() if name.startswith(names)})


def _copies_s(result: Result, regime: str) -> float | None:
    """Return the seconds of the copies in and out in that regime; None where one of them isn't known."""
    copies = result.transfer
    if regime == RESIDENT or copies is None:
        return None
    seconds = (copies.in_pinned_s, copies.out_pinned_s) if regime == PINNED else (copies.in_s, copies.out_s)
    needed = [each for each, nbytes in zip(seconds, (copies.in_bytes, copies.out_bytes), strict=True) if nbytes]
    return None if None in needed else sum(each for each in needed if each is not None)
