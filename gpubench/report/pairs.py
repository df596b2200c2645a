"""Speedups: each benchmark against the same benchmark elsewhere, with its uncertainty, and with the copies of its data.

The same means equal workload, parameters and variant, and equal implementation unless the baseline is one. A ratio of
benchmarks that differ in dtype, precision, cache, threads or seed is no speedup: such pairs are left out unless
the difference is allowed and named. An unknown fact is no difference, except TF32 that is on at the other side.

Between a GPU and a CPU, what counts is the fastest way that the CPU was measured to do the job (``runfile/ways``):
another library, a compiler, another form. The speedup of like with like is kept beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter

from ..errors import UsageError
from ..runfile.facts import switches
from ..runfile.flags import Level, Quality, Reason
from ..runfile.quantities import SWITCH, holds_words
from ..runfile.schema import Process, Result, Times
from ..runfile.ways import fastest_way, job, times_and_ratio
from ..statistics import intervals
from ..statistics.intervals import Interval
from .rows import NEAR, Measured, Source, Values, grouped, leaves_open, too_noisy

RESIDENT, ONE_SHOT, PINNED = "resident", "one-shot", "one-shot, pinned"
"""resident: the data is on the device. one-shot: copy inputs, one call, copy outputs; from and to pageable memory, or
pinned (page-locked) memory."""
DEVICE, IMPLEMENTATION, MACHINE, RUN = "result.device", "result.implementation", "run.machine.label", "run_name"
SOURCE = "source"
"""What a baseline may be: attributes of a row."""
OF_TIMES = (Reason.WAITED, Reason.BUSY)
"""Reasons for which little or nothing is known of what is made of the times."""
SLICE_S = 3e-3
"""Seconds that a scheduler gives each of several programs, at the least: only a shorter round can have a core alone."""
THREADS_WAIT_S = 10 * SLICE_S
"""Seconds of a call below which threads that wait for each other, each for a slice, may take nearly all of its time."""
SHARED, BESIDE = 5.0, 1.25
"""How many times as long as alone a longer round takes at most, and a shorter one, which shares caches, memory and
clocks with the other programs: seen were 3.8 times and 1.09 times, beside two and three programs on two cores."""
_LIMITS = "limits beside other programs"
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
    """What a name given as ``--baseline`` stands for: rows whose attribute ``role`` has that name."""

    role: str
    name: str | Source

    def holds(self, row: Measured) -> bool:
        """Whether the row is of this baseline."""
        return bool(attrgetter(self.role)(row) == self.name)


@dataclass(frozen=True, eq=False)
class Pair:
    """A benchmark against its baseline, in a ``regime``. ``differs`` is in what the two differ, where that was allowed.
    ``batches``: how many of the baseline's calls do the work of one, where the CPU was too slow for the batch; the
    speedup is then that of an item.

    Where the CPU of the two has a faster way to do the job, ``best_cpu``, the times compared are those of that row.
    """

    base: Measured
    other: Measured
    differs: str = ""
    batches: float = 1.0
    best_cpu: Measured | None = None
    regime: str = RESIDENT

    @property
    def sides(self) -> tuple[Measured, Measured]:
        """The two rows whose times are compared."""
        if self.best_cpu is None:
            return self.base, self.other
        return (self.base, self.best_cpu) if self.base.on_accelerator else (self.best_cpu, self.other)

    @cached_property
    def like_with_like(self) -> Pair:
        """The pair in the same way on both sides: the pair itself if the CPU has no faster way."""
        return replace(self, best_cpu=None) if self.best_cpu else self

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
    def _compared(self) -> tuple[float, float, Interval, str]:
        """Both times, their ratio and what its range is; of a single process with copies no range is known."""
        if self.regime == RESIDENT:
            return times_and_ratio(*(side.times for side in self.sides))
        tops, bottoms = (list(side.values()) for side in self.observed)
        base_s, time_s = intervals.median(tops), intervals.median(bottoms)
        value = base_s / time_s
        several = min(len(tops), len(bottoms)) > 1
        ratio = intervals.ratio_interval(tops, bottoms) if several else Interval(value, value, value, "")
        return base_s, time_s, ratio, ratio.kind

    @property
    def base_s(self) -> float:
        """Seconds of the baseline."""
        return self._compared[0]

    @property
    def time_s(self) -> float:
        """Seconds of what is compared with it."""
        return self._compared[1]

    @property
    def uncertainty(self) -> str:
        """What the range is; empty if there is none."""
        return _LIMITS if self._busy else self._compared[3]

    @property
    def subject(self) -> Measured:
        """What is compared with the baseline."""
        return self.other

    @property
    def _busy(self) -> bool:
        return any(side.busy for side in self.sides)

    @property
    def _delayed(self) -> bool:
        return any(map(_delayed, self.sides))

    @cached_property
    def _range(self) -> Values:
        ratio = self._compared[2]
        return Values(*(self.batches * each for each in (ratio.value, ratio.low, ratio.high)))

    @cached_property
    def values(self) -> Values:
        """The speedup and the ends of what is known of it. Where other programs took part of a time, the least that the
        work needs is compared with the longer rounds of the other side; if they took much, copies may have taken longer
        than they need too, so that only the low end counts them. Nothing is known of times that waited."""
        value = self._range.value
        if any(Reason.WAITED in side.quality.why for side in self.sides):
            return Values(value, 0.0, math.inf)
        if not self._busy:
            return self._range
        base, other = self.sides
        least_s = _least_s(other)
        low, high = _least_s(base) / other.times.q3_s, base.times.q3_s / least_s if least_s else math.inf
        if self.regime != RESIDENT:
            longer = self.time_s / replace(self, regime=RESIDENT).time_s
            low, high = low / longer, high if self._delayed else high / longer
        return Values(value, self.batches * low, self.batches * high)

    @property
    def speedup(self) -> float:
        """The ratio of the two times that are shown."""
        return self.values.value

    @property
    def fills(self) -> bool:
        """Whether its work fills the GPUs of both sides."""
        return self.base.fills and self.other.fills

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

    @cached_property
    def quality(self) -> Quality:
        """How good the speedup is. It needs no peak, so a rate above one is no reason; and of a busy machine no range
        of the times shows how far off they are."""
        why = [reason for side in self.sides for reason in side.quality.why if reason is not Reason.ABOVE_PEAK]
        disturbed = self._delayed or (self._busy and leaves_open(self.values))
        unusable = [Reason.WAITED] * (Reason.WAITED in why) + [Reason.BUSY] * disturbed
        unusable += [Reason.TOO_NOISY] * leaves_open(self._range)
        level = Level.UNUSABLE if unusable else Level.NOISY if why else Level.SOUND
        return Quality(level, tuple(dict.fromkeys([*unusable, *why])))

    @property
    def shown(self) -> bool:
        """Whether the value is shown: else only a limit is, where one is known."""
        return self.quality.doubt is None and not too_noisy(*self.values[1:])

    @property
    def limit(self) -> float | None:
        """The end of the range that says which side is faster, and by more than rounding."""
        _, low, high = self.values
        return low if low >= NEAR else high if high <= 1 / NEAR else None

    @property
    def drawn(self) -> Values | None:
        """The speedup in a picture; where only a limit is known, the limit. None where not even that is known."""
        if self.shown:
            return self.values
        return Values(self.limit, *self.values[1:]) if self.limit else None

    @property
    def faster(self) -> bool:
        """Whether it is surely faster than its baseline, by more than rounding."""
        return self.drawn is not None and self.values.low > 1 and self.drawn.value >= NEAR

    @property
    def unknown(self) -> bool:
        """Whether its speedup isn't known well enough to say which side is faster."""
        return self.quality.doubt is not None and self.limit is None


def least_s(times: Times, threads: int, slow: bool) -> float:
    """Seconds that a call at least takes without the other programs that were seen: in its fastest round, or as long
    as its thread had a core. If rounds are longer than a time slice, they all were interrupted, the shortest one too.

    Several threads wait for each other, and take a core meanwhile: of a network's 4 ms 38 became, in a round of 326.
    They are known to need what they had of a core only in a round that had it all along; nothing is known where more
    was taken than SHARED allows, nor of a short call on ``slow`` threads, which took longer than one.
    """
    several, away = threads > 1, times.min_s / (times.cpu_s or times.min_s)
    interrupted = times.min_s * times.iterations > SLICE_S
    if several and ((slow and times.min_s < THREADS_WAIT_S) or (interrupted and away > SHARED)):
        return 0.0
    waited = several and (slow or away > BESIDE)
    shared = interrupted and (waited or times.cpu_s is None)
    return times.min_s / max(1.0, away) / (SHARED if shared else BESIDE)


def _least_s(row: Measured) -> float:
    if not row.busy:
        return row.times.min_s
    return least_s(row.times, 1 if row.on_accelerator else row.result.threads or 1, bool(row.run.slow_threads))


def _delayed(row: Measured) -> bool:
    """Whether other programs may account for more of its time than sharing caches, memory and clocks with them does; a
    single process doesn't show it."""
    return row.busy and (len(row.times.processes) < 2 or row.time_s > BESIDE**2 * _least_s(row))


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
    rows: Sequence[Measured],
    baseline: Baseline | None = None,
    allow: Collection[str] = (),
    ways: Sequence[Measured] | None = None,
) -> tuple[list[Pair], list[tuple[Measured, _Differences]]]:
    """Pairs that differ in nothing, or only in the terms of ``allow``; and what has no such baseline, with its
    differences from the nearest.

    ``ways`` of a CPU to do the same job are looked for among all rows, or these; a baseline implementation is the way
    that was asked for. A library brings its own number of threads: NumPy's elementwise work has one.
    """
    allowed, of_libraries = {*allow, _OWN}, bool(baseline and baseline.role == IMPLEMENTATION)
    any_threads = {*allowed, "threads"}
    jobs = grouped((row for row in ways or rows if not (of_libraries or row.on_accelerator)), _job)
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
            best_cpu = _best_cpu(base, row, jobs, any_threads)
            pairs.append(Pair(base, row, ", ".join(differences.values()), best_cpu=best_cpu))
        elif differences:
            left_out.append((row, differences))
    if baseline is None:
        known = {id(row) for row, _ in left_out}.union(id(pair.other) for pair in pairs)
        pairs += _pair_per_item([row for row in rows if id(row) not in known], rows, allowed)
    return pairs, left_out


def _pair_per_item(alone: Iterable[Measured], rows: Sequence[Measured], allowed: Collection[str]) -> Iterator[Pair]:
    """Batches for which a CPU was too slow, against the largest batch that it has measured, per item."""
    bases = grouped((row for row in rows if not row.on_accelerator and row.result.size), _but_for_size)
    for row in (row for row in alone if row.on_accelerator):
        found = [(base, _batches(base, row)) for base in bases.get(_but_for_size(row), [])]
        smaller = sorted((each for each in found if each[1] > 1), key=itemgetter(1))[:1]
        base, differences = _find_closest(row, [[base] for base, _ in smaller], allowed)
        if base is not None:
            sizes = (str(each.result.params.get(str(row.result.size))) for each in (row, base))
            of_an_item = f"{_against(str(row.result.size), *sizes)}, per {row.result.work.unit}"
            yield Pair(base, row, ", ".join([*differences.values(), of_an_item]), smaller[0][1])


def _but_for_size(row: Measured) -> Hashable:
    case = row.result
    params = frozenset((name, repr(value)) for name, value in case.params.items() if name != case.size)
    return row.run_name, case.workload, case.variant, case.implementation, params, case.dtype, case.cache


def _batches(base: Measured, other: Measured) -> float:
    """How many times the base's work the other does, where an item has the same FLOPs in both; 0 elsewhere."""
    ours, theirs = other.result.work, base.result.work
    if not (ours.items and theirs.items and ours.flops and theirs.flops):
        return 0.0
    batches = ours.items / theirs.items
    return batches if math.isclose(batches, ours.flops / theirs.flops, rel_tol=0.01) else 0.0


def compare_with_slowest(rows: Sequence[Measured], allow: Collection[str] = ()) -> list[Pair]:
    """Several devices against the slowest of them, by the median of its speedups over the first."""
    found = find_pairs(rows, Baseline(SOURCE, rows[0].source), allow)[0]
    by_source = grouped(found, lambda pair: pair.other.source)
    speeds = {source: intervals.median([pair.speedup for pair in of]) for source, of in by_source.items()}
    slowest = min(speeds, key=speeds.__getitem__, default=None)
    if slowest and speeds[slowest] < 1:
        found = find_pairs(rows, Baseline(SOURCE, slowest), allow)[0]
    return found


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


def _best_cpu(
    base: Measured, other: Measured, jobs: Mapping[Hashable, Sequence[Measured]], allowed: Collection[str]
) -> Measured | None:
    """Return the fastest way of the CPU, if a GPU and a CPU are compared and it isn't the way that is compared."""
    if base.on_accelerator == other.on_accelerator:
        return None
    cpu, gpu = sorted((base, other), key=lambda row: row.on_accelerator)
    ways = (row for row in jobs.get(_job(cpu), ()) if not row.quality.doubt)
    able = [row for row in ways if _find_differences(row, gpu).keys() <= {*allowed, "dtype"}]
    best = fastest_way(cpu.result, (row.result for row in able))
    return None if best is cpu.result else Measured(cpu.run, cpu.run_name, best, cpu.size_name)


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
            barred = {term: words for term, words in differing.items() if term not in allowed}
            if not barred:
                return base, differing
            if not nearest or len(barred) < len(nearest):
                nearest = barred
    return None, nearest


def _find_partners(rows: list[Measured], baseline: Baseline | None, first: str) -> _Partners:
    """Yield each benchmark that needs a baseline, and the rows to look for it in, best first.

    The rows of another baseline are those of the same run; a run without it takes them from the first run that has
    it. Without one, and for that of a machine or run: accelerators with the CPU of their own run, and the rows of other
    runs with those of the ``first`` on the same device, the same kind of device, or an accelerator of another kind;
    with the CPU only if that run was asked for.
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
        return [same, kin, accelerators, [other for other in others if baseline and not other.on_accelerator]]

    across = [(row, tiers(row)) for row in rows if row.run_name != first]
    gpus = [row for row in (others if baseline else rows) if row.on_accelerator]
    within = [(row, [[other for other in runs[row.run_name] if not other.on_accelerator]]) for row in gpus]
    yield from [*across, *within] if baseline else [*within, *across]


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
    on one, and those of products in its half precision."""
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
