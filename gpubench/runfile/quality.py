"""Judge a run: noise that no process alone could see, peaks that can't be true, other programs, slow libraries, and the
fastest way of a CPU to do a job, which is a fair baseline for a GPU.

The same job is the same workload and parameters in arithmetic that is no less exact, whatever library, variant, form or
layout does it, and whatever else a library computes on its way.

A benchmark's share of its device's measured peak follows the roofline (S. Williams, A. Waterman, D. Patterson,
Communications of the ACM 52(4), 2009): ``flops`` and ``bytes`` take at least ``max(flops / throughput, bytes /
bandwidth)``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from ..statistics import intervals
from ..statistics.intervals import INTERVAL, Interval
from .flags import CONTENDED, FEW, IMPLAUSIBLE, NOISY, NOISY_FLAG, judge
from .quantities import text
from .schema import Bandwidth, Ceilings, CpuFacts, Raised, Result, Run, Times, Work

APART = 1.25  # slowest over fastest process: on a quiet machine nine of ten benchmarks stay below
FEWEST_ABOVE, MANY_ABOVE = 3, 0.1  # results, and share of all, that disprove a device's peaks by exceeding them
CONTRADICTED, FIXED_COST_S = 2.0, 1e-4
"""A small footprint can reach the rate of a large one: peaks are disproved if a smaller footprint's is this factor
below. Passes so short that the fixed cost of a call matters are left out."""
PLAUSIBLE = 1.3  # only a result that exceeds noisy peaks by more than this factor can't be true
WINOGRAD = 2.25
"""Convolutions may do this many times fewer multiplications than the direct algorithm with the counted FLOPs (A. Lavin,
S. Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016: F(2x2, 3x3))."""
SLOW = 0.8  # a library is reported if its products run below this share of the fastest way
_LABELS = {"torch": "PyTorch", "onednn": "oneDNN", "numpy": "NumPy"}
_HOLD_BACK = {
    "torch": ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE"),
    "onednn": ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    "numpy": ("OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
}  # variables that make a library use older instructions than the CPU has
_AVX512_KERNELS = ("SkylakeX", "Cooperlake", "Sapphirerapids")  # of OpenBLAS, by processors
_AVX2_KERNELS = ("Haswell", "Zen", "Excavator", *_AVX512_KERNELS)
_COMPUTE = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"avx512_fp16", "amx_fp16", "asimdhp"}}
"""Instructions that multiply in a short dtype."""

FORM = "form"
"""Parameter of the suite's own benchmarks that says where the result is written, and so how a job is done rather than
which job, except ``inplace``, which overwrites an input."""
LAYOUT = "_channels_last"  # suffix of benchmarks that do the job of the benchmark without it, in another memory order
FASTER = 1.03  # ways that differ by less are equally fast


def library_label(name: str) -> str:
    """``NumPy`` for ``numpy``; the label of another library is its name."""
    return _LABELS.get(name, name)


def judged(run: Run) -> Run:
    """The run with conclusions from all results: flags of processes that lie apart, peaks that results raise or
    disprove, and whether other programs were seen at any time."""
    if run.plain:
        return run
    results = [*run.results]
    for at, result in enumerate(results):
        times, known = result.times, any(flag.name == NOISY_FLAG for flag in result.flags)
        if times and not known and (seen := apart(times)):
            raised = Raised(NOISY_FLAG, seen, tuple(process.index for process in times.processes))
            results[at] = replace(result, flags=(*result.flags, raised))
    peaks = raise_peaks(results, run.ceilings)
    why = disproved(results, peaks)
    ceilings = {name: known for name, known in peaks.items() if name not in why}
    contended = any(flag.name == CONTENDED for flag in chain(run.flags, *(result.flags for result in results)))
    return replace(run, results=tuple(results), ceilings=ceilings, disproved=why, contended=contended)


def apart(times: Times) -> str | None:
    """Why a benchmark is ``noisy`` in a way that no process alone could see; None if it isn't."""
    medians = sorted(process.median_s for process in times.processes)
    rounds = [process.rounds for process in times.processes]
    spread = times.iqr_s / times.median_s
    if medians[-1] > APART * medians[0]:
        return f"the slowest process took {medians[-1] / medians[0]:.3g} times the fastest"
    if len(rounds) > 1 and max(rounds) < FEW <= sum(rounds) and spread > NOISY:
        return f"half of all {sum(rounds)} rounds are spread over {spread:.0%} of the median"
    return None


class Utilisation(NamedTuple):
    """``fraction`` of the speed that the ceiling ``of`` allows; ``bound`` is ``bandwidth`` or ``throughput``.
    ``footprint_bytes`` is the footprint that this ceiling was measured with, where the ceiling depends on it."""

    fraction: float
    bound: str
    of: str
    footprint_bytes: float | None = None


def utilisation(
    work: Work, seconds: float, dtype: str, ceilings: Ceilings | None, link: bool = False
) -> Utilisation | None:
    """The least time that the ceilings allow, divided by the time taken; ``None`` where no ceiling matches the work.

    ``dtype`` is the one that products are computed in (``bfloat16`` under autocast). With ``link`` the bytes cross
    between host and device, and the faster direction is their ceiling.
    """
    if ceilings is None:
        return None
    uses = []
    if link:
        rate = max(ceilings.host_to_device_byte_per_s or 0.0, ceilings.device_to_host_byte_per_s or 0.0)
        if rate and work.bytes:
            uses.append(Utilisation(work.bytes / rate / seconds, "bandwidth", "copies between host and device"))
    elif work.bytes and (band := ceilings.bandwidth_for(work.bytes)):
        share = work.bytes / band.byte_per_s / seconds
        uses.append(Utilisation(share, "bandwidth", band.pattern, band.footprint_bytes))
    if not link and work.flops and (rate := ceilings.throughput.get(dtype, 0.0)):
        uses.append(Utilisation(work.flops / rate / seconds, "throughput", f"{dtype} matmul"))
    return max(uses, key=lambda use: use.fraction, default=None)


def most(use: Utilisation, dtype: str, ceilings: Ceilings, convolutions: float = 0.0) -> float:
    """The largest fraction that can be true, given noise and, for products, the instruction set. ``convolutions`` is
    their share of the FLOPs; fast algorithms do fewer multiplications than are counted."""
    if use.bound != "throughput":
        return PLAUSIBLE
    allowed, peak = ceilings.allowed.get(dtype), ceilings.throughput.get(dtype)
    return (1 + (WINOGRAD - 1) * convolutions) * max(PLAUSIBLE, allowed / peak if allowed and peak else 0.0)


def _uses(results: Iterable[Result], peaks: Mapping[str, Ceilings]) -> Iterator[tuple[Result, Ceilings, Utilisation]]:
    """The results with a time on a single device with known peaks, each with the present peaks."""
    for result in results:
        known = peaks.get(result.device)
        if known and result.times and not result.parallel:
            use = utilisation(result.work, result.times.median_s, result.compute_dtype, known)
            yield from [(result, known, use)] if use else []


def disproved(results: Iterable[Result], peaks: Mapping[str, Ceilings]) -> dict[str, str]:
    """Why measured peaks can't be the peaks of a device, by its name: many results exceed them, or its bandwidths
    contradict each other."""
    why: dict[str, str] = {}
    above: dict[str, list[bool]] = {name: [] for name in peaks}
    for result, known, use in _uses(results, peaks):
        if len(set(result.devices)) < 2:
            limit = most(use, result.compute_dtype, known, result.convolution_share or 0.0)
            above[result.device].append(use.fraction > limit)
    for name, exceed in above.items():
        if sum(exceed) >= max(FEWEST_ABOVE, MANY_ABOVE * len(exceed)):
            why[name] = f"{sum(exceed)} of {len(exceed)} results exceed them"
        elif contradiction := _contradiction(peaks[name]):
            slow, fast = (f"{text(e.byte_per_s, 'B/s')} with {text(e.footprint_bytes, 'B')}" for e in contradiction)
            why[name] = f"they contradict each other: {slow}, {fast}"
    return why


def _contradiction(peaks: Ceilings) -> tuple[Bandwidth, Bandwidth] | None:
    """A smaller and a larger footprint that contradict each other, each with its best pattern, or None."""
    entries = sorted(peaks.bandwidth, key=lambda entry: entry.byte_per_s)
    best = {e.footprint_bytes: e for e in entries if e.footprint_bytes >= FIXED_COST_S * e.byte_per_s}
    sizes = sorted(best)
    pairs = (
        (best[size], max((best[larger] for larger in sizes[i:]), key=lambda entry: entry.byte_per_s))
        for i, size in enumerate(sizes)
    )
    return next((pair for pair in pairs if pair[1].byte_per_s > CONTRADICTED * pair[0].byte_per_s), None)


def raise_peaks(results: Iterable[Result], measured: Mapping[str, Ceilings]) -> dict[str, Ceilings]:
    """The peaks, of CPUs raised to the rates of verified results: such a result shows that a peak was measured too low.
    Convolutions raise none, as fast algorithms do fewer operations than are counted; nor do results that can't be
    true."""
    peaks = dict(measured)
    for result, known, use in _uses(results, peaks):
        passed = result.check is not None and result.check.status == "passed"
        doubted = any(flag.name == IMPLAUSIBLE for flag in result.flags) or bool(result.convolution_share)
        if known.ways and passed and not doubted and 1 < use.fraction <= most(use, result.compute_dtype, known):
            peaks[result.device] = _raised(known, result, use)
    return peaks


def _raised(known: Ceilings, result: Result, use: Utilisation) -> Ceilings:
    work, dtype, seconds = result.work, result.compute_dtype, result.times.median_s if result.times else 0.0
    if use.bound == "throughput" and work.flops:
        rate = work.flops / seconds
        ways = {**known.ways.get(dtype, {}), f"{result.implementation}: {result.id}": rate}
        return replace(known, throughput={**known.throughput, dtype: rate}, ways={**known.ways, dtype: ways})
    nbytes = work.bytes or 0.0
    smaller = [entry for entry in known.bandwidth if entry.footprint_bytes <= nbytes]
    level = max(smaller or known.bandwidth, key=lambda entry: entry.footprint_bytes).level
    return replace(known, bandwidth=(*known.bandwidth, Bandwidth(result.id, nbytes, nbytes / seconds, level)))


def slow_products(ceilings: Ceilings, cpu: CpuFacts, place: str = "this CPU") -> list[tuple[str, str, str]]:
    """The products below :data:`SLOW`, PyTorch's first, then by dtype: libraries relative to the fastest way of a
    dtype, and short dtypes relative to float32. Each is its library, a claim about the ``place``, and the reason."""
    products: list[tuple[str, str, float, str, list[str]]] = []
    for dtype, ways in ceilings.ways.items():
        rates: dict[str, float] = {}
        for way, rate in ways.items():
            library = way.partition(":")[0]  # a result that raised a peak stands there with its id
            rates[library] = max(rate, rates.get(library, 0.0))
        best = max(rates, key=lambda library: rates[library], default="")
        for library, rate in rates.items():
            than = f"what {library_label(best)} reaches on {place}"
            products.append((library, dtype, rate / rates[best], than, list(_reasons(library, dtype, cpu))))
        full, short = ceilings.throughput.get("float32"), ceilings.throughput.get(dtype)
        if dtype in _COMPUTE and full and short:
            lacking = cpu.instructions is not None and _COMPUTE[dtype].isdisjoint(cpu.instructions)
            reasons = [f"this CPU has no instructions for {dtype} and emulates it"] * lacking
            products.append(("torch", dtype, short / full, f"those in float32 on {place}", reasons))
    claims = [
        (library, f"{library_label(library)}'s {dtype} products run at {share:.0%} of {than}",
         "; ".join(reasons) or "the reason isn't known")
        for library, dtype, share, than, reasons in products if share < SLOW
    ]  # fmt: skip
    return sorted(claims, key=lambda claim: claim[0] != "torch")


def _reasons(library: str, dtype: str, cpu: CpuFacts) -> Iterator[str]:
    if library == "torch" and dtype in _COMPUTE:
        library = "onednn"  # which torch calls for these, as BLAS has none
    for name in _HOLD_BACK.get(library, ()):
        if value := (cpu.variables or {}).get(name):
            yield f"{name}={value} is set"
    blas, _, kernel = (cpu.kernels or {}).get(library, "").partition(" ")
    if blas == "mkl" and "AMD" in (cpu.model or ""):
        yield "MKL on AMD, where it takes other paths than on Intel"
    able = cpu.instructions or ()
    newest = _AVX512_KERNELS if "avx512f" in able else _AVX2_KERNELS if "avx2" in able else None
    if blas == "openblas" and kernel and newest and kernel not in newest:
        yield f"OpenBLAS's kernel for {kernel}, an older processor"


# The fastest way of a CPU ---------------------------------------------------------------------------------------------


def job(result: Result) -> Hashable:
    """The key of a job: two results on one device that have it did the same."""
    own = not result.kind  # the parameters of a user's own benchmark have unknown meanings
    params = {n: v for n, v in result.params.items() if v is not None and (own or n != FORM)}
    workload = result.workload if own else result.workload.removesuffix(LAYOUT)
    terms = workload, result.device, result.cache, not own and result.params.get(FORM) == "inplace"
    return *terms, frozenset((name, type(value), value) for name, value in params.items())


def fastest_way(result: Result, others: Iterable[Result]) -> Result:
    """The fastest result on the same CPU that does the same job, or ``result`` itself where none is reliably faster.

    Results that waited for the scheduler or can't be true don't count, nor do unverified ones where ``result`` was
    verified.
    """
    if result.times is None:
        return result
    limit = 1.001 * result.times.median_s / FASTER  # beyond doubt too slow: a job may have thousands of ways
    shorter = [(times, other) for other in others if (times := other.times) and times.median_s <= limit]
    for times, other in sorted(shorter, key=lambda entry: entry[0].median_s):
        if _stands_for(other, result) and _surely_faster(times, result.times):
            return other
    return result


class Basis(NamedTuple):
    """The kind of a ratio's range, and the number of processes on each side if they differ."""

    kind: str
    processes: tuple[int, ...] = ()

    def __str__(self) -> str:
        """``95% interval, 2 and 3 processes``."""
        return self.kind + f", {' and '.join(map(str, self.processes))} processes" * bool(self.processes)


def times_and_ratio(base: Times, other: Times) -> tuple[float, float, Interval, Basis]:
    """Both times, their ratio and the basis of its range.

    With two processes or more on both sides a process is one observation, and a side's time is the median of their
    medians; else there is nothing but the spread of the rounds, which is no interval.
    """
    tops, bottoms = ([process.median_s for process in side.processes] for side in (base, other))
    if min(len(tops), len(bottoms)) < 2:
        quartiles = [(side.q1_s, side.median_s, side.q3_s) for side in (base, other)]
        return base.median_s, other.median_s, intervals.ratio_spread(*quartiles), Basis("spread within one process")
    basis = Basis(INTERVAL, tuple(dict.fromkeys((len(tops), len(bottoms)))))
    return intervals.median(tops), intervals.median(bottoms), intervals.ratio_interval(tops, bottoms), basis


def _stands_for(other: Result, result: Result) -> bool:
    exact = {result.compute_dtype} | ({"float32"} if result.compute_dtype in ("bfloat16", "float16") else set())
    passed = [each.check is not None and each.check.status == "passed" for each in (result, other)]
    if other.compute_dtype not in exact or passed[0] > passed[1] or job(other) != job(result):
        return False
    itself = (other.id, other.implementation) == (result.id, result.implementation)  # measured again
    return not itself and judge(flag.name for flag in other.flags).doubt is None


def _surely_faster(times: Times, slower: Times) -> bool:
    """Whether the interval proves it faster, or the slowest of its three processes or more is faster than all of the
    slower ones: their times may be so far apart that their interval is endless (H. B. Mann, D. R. Whitney, Ann. Math.
    Statist. 18 (1947): a chance of 1 in 20)."""
    ratio = times_and_ratio(slower, times)[2]
    slow, fast = ([process.median_s for process in side.processes] for side in (slower, times))
    return ratio.value >= FASTER and (ratio.low > 1 or (min(len(slow), len(fast)) >= 3 and max(fast) < min(slow)))
