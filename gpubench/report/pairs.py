"""Speedups: each benchmark against its baseline, with its uncertainty, and with the copies of its data.

The same means equal workload, parameters and variant, and equal implementation unless the baseline is one. A ratio of
benchmarks that differ in dtype, precision, cache, threads or seed is no speedup: such pairs are left out unless
the difference is allowed and named. An unknown fact is no difference, except TF32 that is on at the other side.

A benchmark has one baseline and one speedup. A GPU's baseline is the CPU's fastest measured way to do the job
(``runfile/quality``): another library, a compiler, another form. Of several machines the first is the reference of all
others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from ..errors import UsageError
from ..runfile.facts import switches, threads_available
from ..runfile.flags import Quality, Reason
from ..runfile.quality import Basis, fastest_way, job, times_and_ratio
from ..runfile.quantities import SWITCH, holds_words
from ..statistics import intervals
from ..statistics.intervals import Interval
from .number import MISSING, Number, Sign, State
from .rows import NEAR, Measured, Values, grouped, too_noisy

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


@dataclass(frozen=True, slots=True)
class Baseline:
    """A ``--baseline``: the rows with this ``name`` as their attribute ``role``."""

    role: str
    name: str

    def holds(self, row: Measured) -> bool:
        """Whether the row is of this baseline."""
        return bool(attrgetter(self.role)(row) == self.name)


class Comparison(NamedTuple):
    """Seconds of the baseline and of the other side, their ratio, and the basis of its range, if it has one."""

    base_s: float
    time_s: float
    ratio: Interval
    basis: Basis | None


@dataclass(eq=False)
class Pair:
    """A benchmark against its baseline, in a ``regime``. ``differs`` names allowed differences of the two.

    ``fastest_way`` is the CPU's row to compare, if the CPU has a faster way to do the job.
    ``batches`` is how many of the baseline's calls do the work of one call of several devices.

    From these follow the ``sides``, which are the two rows to compare, and their ``flags``; whether both are
    ``within_run`` or ``within_device``; and whether a side is ``busy``, ``in_cache`` of its GPU, or a CPU on fewer
    threads than it has (``few_threads``), which is no fair CPU. ``fills``: the work fills the GPUs of both sides.
    """

    base: Measured
    other: Measured
    differs: str = ""
    batches: float = 1.0
    fastest_way: Measured | None = None
    regime: str = RESIDENT

    def __post_init__(self) -> None:
        base, other = self.base, self.other
        self.subject = other
        self.within_run = base.run_name == other.run_name
        self.within_device = self.within_run and base.result.device == other.result.device
        self.fills, self.in_cache = base.fills and other.fills, base.in_cache or other.in_cache
        if self.fastest_way:
            base, other = (base, self.fastest_way) if base.on_accelerator else (self.fastest_way, other)
        self.sides = base, other
        self.flags = tuple(dict.fromkeys((*other.flags, *base.flags)))
        self.busy = base.busy or other.busy
        self.few_threads = any(threads_available(side.run) for side in self.sides if not side.on_accelerator)

    def in_regime(self, regime: str) -> Pair | None:
        """The same pair with copies, if work moves from a CPU to an accelerator and its copies were measured."""
        moves = self.sides[1].on_accelerator and not self.sides[0].on_accelerator
        return replace(self, regime=regime) if moves and _copies_s(self.sides[1], regime) is not None else None

    @cached_property
    def copies(self) -> Pair | None:
        """The same pair with copies from and to pageable memory."""
        return self.in_regime(ONE_SHOT)

    @property
    def observed(self) -> list[dict[int, float]]:
        """Seconds of a call on each side, by process: its median; with copies an accelerator's are the latency and the
        copies."""
        (base, other), copied_s = self.sides, _copies_s(self.sides[1], self.regime)
        calls = {process.index: process.median_s for process in other.times.processes}
        if copied_s is not None:
            calls = {p.index: copied_s + (p.latency_s or p.median_s) for p in other.times.processes}
        return [{process.index: process.median_s for process in base.times.processes}, calls]

    @cached_property
    def compared(self) -> Comparison:
        """Both times and their ratio; a single process with copies has no range."""
        if self.regime == RESIDENT:
            return Comparison(*times_and_ratio(*(side.times for side in self.sides)))
        tops, bottoms = (list(side.values()) for side in self.observed)
        base_s, time_s = intervals.median(tops), intervals.median(bottoms)
        if min(len(tops), len(bottoms)) < 2:
            value = base_s / time_s
            return Comparison(base_s, time_s, Interval(value, value, value, ""), None)
        ratio = intervals.ratio_interval(tops, bottoms)
        return Comparison(base_s, time_s, ratio, Basis(ratio.kind))

    @property
    def uncertainty(self) -> Basis | None:
        """The basis of the range; None if there is no range."""
        return self.compared.basis

    @cached_property
    def values(self) -> Values:
        """The speedup and the ends of its range; nothing is known of times that waited."""
        ratio = self.compared.ratio
        value, low, high = (self.batches * end for end in (ratio.value, ratio.low, ratio.high))
        waited = any(Reason.WAITED in side.quality.why for side in self.sides)
        return Values(value, 0.0, math.inf) if waited else Values(value, low, high)

    @property
    def speedup(self) -> float:
        """The ratio of the two times that are shown."""
        return self.values.value

    @property
    def ends(self) -> Values | None:
        """The values, for the ends of the range; None of a baseline compared with itself, or if nothing is known."""
        return None if self.base is self.other or not self.values.low or self.values.high == math.inf else self.values

    @cached_property
    def quality(self) -> Quality:
        """The quality of the speedup. A rate above the peak is no reason, because a ratio needs no peak. A wide range
        is none if it shows which side is faster."""
        reasons = [reason for side in self.sides for reason in side.quality.why if reason is not Reason.ABOVE_PEAK]
        reasons += [Reason.FEW_THREADS] * self.few_threads
        _, low, high = self.values
        undecided = too_noisy(low, high) and low <= 1 <= high
        doubts = [Reason.WAITED] * (Reason.WAITED in reasons) or [Reason.TOO_NOISY] * undecided
        return Quality(tuple(dict.fromkeys([*doubts, *reasons])), next(iter(doubts), None))

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
            number = Number(value, low=low, high=high, state=State.KNOWN, signs=star)
            return number.brief if self.busy else number
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


def _copies_s(row: Measured, regime: str) -> float | None:
    """Return the seconds of the copies in and out in that regime; None if one of them isn't known."""
    copies = row.result.transfer
    if regime == RESIDENT or copies is None:
        return None
    directions = (copies.in_pinned_s, copies.out_pinned_s) if regime == PINNED else (copies.in_s, copies.out_s)
    needed = [time for time, nbytes in zip(directions, (copies.in_bytes, copies.out_bytes), strict=True) if nbytes]
    return None if None in needed else sum(time for time in needed if time is not None)


def resolve(rows: Sequence[Measured], name: str | None) -> Baseline | None:
    """Return the baseline that the name stands for. Raises UsageError, with the possible names, for a name that isn't
    in the results."""
    if name is None:
        return None
    choices: dict[str, None] = {}
    for role in (DEVICE, IMPLEMENTATION, MACHINE, RUN):
        values = dict.fromkeys(value for row in rows if (value := attrgetter(role)(row)))
        if name in values:
            return Baseline(role, name)
        choices |= values
    labels = dict.fromkeys(label for row in rows if (label := row.facts.label))
    matching = [label for label in labels if holds_words(label, name)]
    if len(matching) == 1:  # as it is shown: a part of the maker's name
        return Baseline("facts.label", matching[0])
    raise UsageError(f"unknown baseline {name!r}: choose from {', '.join(choices | labels)}")


def find_pairs(
    rows: Sequence[Measured], baseline: Baseline | None = None, allow: Collection[str] = ()
) -> tuple[list[Pair], list[tuple[Measured, _Differences]]]:
    """Return a pair for each row that has a baseline, and the rows without a comparable one, with their differences.

    ``rows`` are all rows of the runs, because the fastest way of a CPU is looked for among them. Two rows of a pair
    differ only in the terms of ``allow``. A library brings its own number of threads: NumPy's elementwise work has one.
    If a benchmark was measured twice in a run, the first is paired with the first.
    """
    of_libraries = bool(baseline and baseline.role == IMPLEMENTATION)
    any_threads = {*allow, _OWN, "threads"}
    allowed = any_threads if of_libraries else {*allow, _OWN}
    jobs = grouped((row for row in rows if not (of_libraries or row.on_accelerator)), _job)
    first = next((row.run_name for row in rows), "")
    if baseline and baseline.role in (MACHINE, RUN):
        first = next(row.run_name for row in rows if baseline.holds(row))
    alike: dict[Hashable, list[Measured]] = {}
    repeats: Counter[Hashable] = Counter()
    for row in rows:
        case = row.result
        params = frozenset((name, type(value), value) for name, value in case.params.items() if value is not None)
        benchmark = (case.workload, case.variant, params, "" if of_libraries else case.implementation)
        repeated = (benchmark, row.run_name, case.device, case.implementation, case.threads, case.dtype, case.cache)
        repeats[repeated] += 1
        alike.setdefault((benchmark, repeats[repeated]), []).append(row)
    pairs, left_out = [], []
    for row, tiers in (item for group in alike.values() for item in _find_partners(group, baseline, first)):
        base, differences = _find_closest(row, tiers, allowed)
        if base is not None:
            fastest = _fastest_way(base, row, jobs, any_threads)
            pairs.append(Pair(base, row, ", ".join(differences.values()), fastest_way=fastest))
        elif differences:
            left_out.append((row, differences))
    return pairs, left_out


def _job(row: Measured) -> Hashable:
    return row.run_name, job(row.result)


def _fastest_way(
    base: Measured, other: Measured, jobs: Mapping[Hashable, Sequence[Measured]], allowed: Collection[str]
) -> Measured | None:
    """Return the fastest way of the CPU, if a GPU and a CPU are compared and it isn't the way that is compared."""
    if base.on_accelerator == other.on_accelerator:
        return None
    cpu, gpu = sorted((base, other), key=lambda row: row.on_accelerator)
    ways = (row for row in jobs.get(_job(cpu), ()) if not row.quality.doubt)
    able = (row.result for row in ways if _find_differences(row, gpu).keys() <= {*allowed, "dtype"})
    best = fastest_way(cpu.result, able)
    return None if best is cpu.result else replace(cpu, result=best)


def _find_partners(
    rows: list[Measured], baseline: Baseline | None, first: str
) -> Iterator[tuple[Measured, list[list[Measured]]]]:
    """Yield each benchmark that needs a baseline, and the rows to look for it in, best first.

    The rows of a baseline device or library are of the same run; a run without it takes them from the first run
    that has it. Without such a baseline the reference is the ``first`` run, or the run that was asked for: its
    accelerators are compared with its CPU, and the rows of other runs with its rows on the same device, the same kind
    of device, another accelerator, or the CPU. If the reference lacks a comparable benchmark of an accelerator, the
    baseline is the CPU of its own run.
    """
    runs = grouped(rows, lambda row: row.run_name)
    reference = runs.get(first, [])
    by_rows = baseline if baseline and baseline.role not in (MACHINE, RUN) else None
    anywhere = [row for row in rows if by_rows and by_rows.holds(row)]
    for row in rows:
        own = runs[row.run_name]
        cpus = [base for base in own if row.on_accelerator and not base.on_accelerator]
        if by_rows:
            if not by_rows.holds(row):
                elsewhere = [base for base in anywhere if base.run_name == anywhere[0].run_name]
                yield row, [[base for base in own if by_rows.holds(base)], elsewhere]
        elif reference and row.run_name != first:
            same = [base for base in reference if base.result.device == row.result.device]
            kin = [base for base in reference if base.facts.kind == row.facts.kind]
            accelerators = [base for base in reference if base.on_accelerator and row.on_accelerator]
            yield row, [same, kin, accelerators, [base for base in reference if not base.on_accelerator], cpus]
        elif row.on_accelerator:
            yield row, [cpus]


def _find_closest(
    row: Measured, tiers: Iterable[list[Measured]], allowed: Collection[str]
) -> tuple[Measured | None, _Differences]:
    """Return the baseline from the first tier that has a fitting one, and its differences; it may be in float32. If
    there is none, return None and the fewest differences that prevent it."""
    nearest: _Differences = {}
    for tier in tiers:
        candidates = [(_find_differences(base, row), base) for base in tier if base.dtype in (row.dtype, "float32")]
        for differing, base in sorted(candidates, key=lambda candidate: len(candidate[0])):
            own = {"threads"} if base.run_name != row.run_name else set()  # each machine has its own number
            barred = {term: words for term, words in differing.items() if term not in {*allowed, *own}}
            if not barred:
                return base, differing
            if not nearest or len(barred) < len(nearest):
                nearest = barred
    return None, nearest


def _find_differences(base: Measured, other: Measured) -> _Differences:
    tf32 = _tf32(base, other)
    # A CPU and an accelerator ran one program in one run, with the program's own switches.
    switches_of = (other if other.on_accelerator else base).result.precision
    across = base.run_name == other.run_name and base.on_accelerator != other.on_accelerator
    own = tf32 and across and switches_of.get("own_switches")
    differences = {
        "dtype": _against("dtype", other.dtype or "unknown", base.dtype or "unknown"),
        "cache": _against("cache", other.result.cache or "unknown", base.result.cache or "unknown"),
        _OWN if own else "precision": tf32 or _switched(base, other),
        "threads": _against("threads", other.result.threads, base.result.threads),
        "seed": _against("seed", other.run.seed, base.run.seed),
    }
    return {term: words for term, words in differences.items() if words}


def _against(term: str, theirs: object, ours: object) -> str:
    """``threads 2 against 1``; empty if they are equal, or one is unknown."""
    return "" if theirs == ours or None in (theirs, ours) else f"{term} {theirs} against {ours}"


def _tf32(base: Measured, other: Measured) -> str:
    """Return how TF32 differs if float32 products were shortened to TF32 on one side only, which the dtypes don't
    show."""
    dtypes = {base.dtype, other.dtype}
    if dtypes == {"float32", "tf32"}:
        return ""
    base_state, state = (_shortened(row) for row in (base, other))
    if dtypes == {"float32"} and base_state and state:  # a switch of the whole program, and CPUs have no TF32
        base_state, state = base.on_accelerator, other.on_accelerator
    return "" if bool(base_state) == bool(state) else f"TF32 {SWITCH[state]} against {SWITCH[base_state]}"


def _shortened(row: Measured) -> bool | None:
    switch = row.result.precision.get("tf32")
    if row.dtype == "tf32":
        return switch is not False
    if row.dtype != "float32":
        return False
    state = switch if switch is not None else row.run.machine.tf32
    return state if isinstance(state, bool) else None


def _switched(base: Measured, other: Measured) -> str:
    """Return how the dtype of autocast differs, or the first switch that differs.

    Switches that change the times are deterministic algorithms, the switches of accelerators of a row that ran on one,
    and the switches of products in the row's half precision. Only a switch that both sides know can differ.
    """
    if base.result.variant == other.result.variant == "autocast" and (
        words := _against("autocast in", other.result.compute_dtype, base.result.compute_dtype)
    ):
        return words

    def states(row: Measured) -> dict[str, str]:
        prefixes = ("deterministic", *_OF_ACCELERATORS * row.on_accelerator, *_HALVES.get(row.result.compute_dtype, ()))
        precision = row.result.precision or row.run.machine.precision or {}
        return switches({name: state for name, state in precision.items() if name.startswith(prefixes)})

    theirs, ours = states(other), states(base)
    differing = (_against(name, theirs[name], ours[name]) for name in sorted(theirs.keys() & ours.keys()))
    return next(filter(None, differing), "")
