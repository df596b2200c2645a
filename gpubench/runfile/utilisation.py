"""The share of its device's measured peak that a case achieves, with peaks from the same run.

The model is the roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009): a call of
``flops`` and ``bytes`` takes at least ``max(flops / throughput, bytes / bandwidth)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from .flags import IMPLAUSIBLE
from .quantities import text
from .schema import Bandwidth, Ceilings, CpuFacts, Result, Work

PLAUSIBLE = 1.3
"""Ceilings are measured and noisy: only a result that exceeds them by more than this factor can't be true."""
WINOGRAD = 2.25
"""Convolutions may do this many times fewer multiplications than the direct algorithm whose FLOPs are counted (A.
Lavin, S. Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016: F(2x2, 3x3))."""
FEWEST_ABOVE, MANY_ABOVE = 3, 0.1
"""The peaks of a device are disproved if at least this many results, and this share of all, exceed them."""
CONTRADICTED, FIXED_COST_S = 2.0, 1e-4
"""A small footprint can reach what a large one does: peaks are disproved if that of a smaller footprint is this factor
below that of a larger one. Passes so short that the fixed cost of a call matters are left out."""


@dataclass(frozen=True, slots=True)
class Utilisation:
    """``fraction`` of the speed that the ceiling ``of`` allows; ``bound`` is ``bandwidth`` or ``throughput``.

    ``footprint_bytes`` is the footprint that this ceiling was measured with, where the ceiling depends on it.
    """

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
    if link:
        rates = [rate for rate in (ceilings.host_to_device_byte_per_s, ceilings.device_to_host_byte_per_s) if rate]
        if not rates or not work.bytes:
            return None
        return Utilisation(work.bytes / max(rates) / seconds, "bandwidth", "copies between host and device")
    found = []
    band = ceilings.bandwidth_for(work.bytes) if work.bytes else None
    if work.bytes and band:
        share = work.bytes / band.byte_per_s / seconds
        found.append(Utilisation(share, "bandwidth", band.pattern, band.footprint_bytes))
    if work.flops and (rate := ceilings.throughput.get(dtype)):
        found.append(Utilisation(work.flops / rate / seconds, "throughput", f"{dtype} matmul"))
    return max(found, key=lambda use: use.fraction, default=None)


def most(use: Utilisation, dtype: str, ceilings: Ceilings, convolutions: float = 0.0) -> float:
    """The largest fraction that can be true, given noise and, for products, the instruction set. ``convolutions`` is
    their share of the FLOPs; fast algorithms do fewer multiplications than are counted."""
    if use.bound != "throughput":
        return PLAUSIBLE
    allowed, peak = ceilings.allowed.get(dtype), ceilings.throughput.get(dtype)
    return (1 + (WINOGRAD - 1) * convolutions) * max(PLAUSIBLE, allowed / peak if allowed and peak else 0.0)


def _achieved(
    results: Iterable[Result], peaks: Mapping[str, Ceilings]
) -> Iterator[tuple[Result, Ceilings, Utilisation]]:
    """The results with a time on a single device whose peaks are known, each with the present peaks."""
    for result in results:
        known = peaks.get(result.device)
        if known and result.times and not result.parallel:
            use = utilisation(result.work, result.times.median_s, result.compute_dtype, known)
            if use:
                yield result, known, use


def disproved(results: Iterable[Result], peaks: Mapping[str, Ceilings]) -> dict[str, str]:
    """Why measured peaks can't be those of a device, by its name: many results exceed them, or its bandwidths
    contradict each other."""
    found: dict[str, str] = {}
    above: dict[str, list[bool]] = {}
    for result, known, use in _achieved(results, peaks):
        if len(set(result.devices)) < 2:
            limit = most(use, result.compute_dtype, known, result.convolution_share or 0.0)
            above.setdefault(result.device, []).append(use.fraction > limit)
    for name, known in peaks.items():
        judged = above.get(name, [])
        if sum(judged) >= max(FEWEST_ABOVE, MANY_ABOVE * len(judged)):
            found[name] = f"{sum(judged)} of {len(judged)} results exceed them"
        elif contradiction := _contradiction(known):
            slow, fast = (f"{text(e.byte_per_s, 'B/s')} with {text(e.footprint_bytes, 'B')}" for e in contradiction)
            found[name] = f"they contradict each other: {slow}, {fast}"
    return found


def _contradiction(peaks: Ceilings) -> tuple[Bandwidth, Bandwidth] | None:
    """A smaller and a larger footprint that contradict each other, each with its best pattern, or None."""
    best: dict[float, Bandwidth] = {}
    for entry in sorted(peaks.bandwidth, key=lambda entry: entry.byte_per_s):
        if entry.footprint_bytes >= FIXED_COST_S * entry.byte_per_s:
            best[entry.footprint_bytes] = entry
    in_order = [best[size] for size in sorted(best)]
    for i, small in enumerate(in_order):
        fastest = max(in_order[i:], key=lambda entry: entry.byte_per_s)
        if fastest.byte_per_s > CONTRADICTED * small.byte_per_s:
            return small, fastest
    return None


def raise_peaks(results: Iterable[Result], measured: Mapping[str, Ceilings]) -> dict[str, Ceilings]:
    """The peaks, with those of CPUs raised to what verified results reached: such a result shows that a peak was
    measured too low.

    Convolutions raise none, as fast algorithms do fewer operations than are counted; nor do results that can't be true.
    """
    peaks = dict(measured)
    for result, known, use in _achieved(results, peaks):
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


# Slow libraries -------------------------------------------------------------------------------------------------------

SLOW = 0.8
"""A library is reported if its products run below this share of the fastest way."""
LABELS = {"torch": "PyTorch", "onednn": "oneDNN", "numpy": "NumPy"}
_HOLD_BACK = {
    "torch": ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE"),
    "onednn": ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    "numpy": ("OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
}
"""Variables that make a library use older instructions than the CPU has."""
_AVX512_KERNELS = ("SkylakeX", "Cooperlake", "Sapphirerapids")
_AVX2_KERNELS = ("Haswell", "Zen", "Excavator", *_AVX512_KERNELS)
"""OpenBLAS's kernels, by the processors that they were written for."""


def slow_products(ceilings: Ceilings, cpu: CpuFacts, place: str = "this CPU") -> list[tuple[str, str, str]]:
    """The products below :data:`SLOW`, PyTorch's first, then by dtype: libraries relative to the fastest way of a
    dtype, and short dtypes relative to float32. Each is its library, a claim about the ``place``, and the reason."""
    found: list[tuple[str, str, str]] = []
    for dtype, ways in ceilings.ways.items():
        fastest = max(ways, key=lambda way: ways[way], default="")
        rates: dict[str, float] = {}
        for way, rate in ways.items():
            rates[_library(way)] = max(rate, rates.get(_library(way), 0.0))
        for library, rate in rates.items():
            if rate < SLOW * ways[fastest]:
                than = f"what {_label(_library(fastest))} reaches on {place}"
                found.append(_slow(library, dtype, rate / ways[fastest], than, _reasons(library, dtype, cpu)))
        full, short = ceilings.throughput.get("float32"), ceilings.throughput.get(dtype)
        if dtype in ("float16", "bfloat16") and full and short and short < SLOW * full:
            lacking = cpu.instructions is not None and not computes(dtype, cpu.instructions)
            reasons = [f"this CPU has no instructions for {dtype} and emulates it"] * lacking
            found.append(_slow("torch", dtype, short / full, f"those in float32 on {place}", reasons))
    return sorted(found, key=lambda each: each[0] != "torch")


def _slow(library: str, dtype: str, share: float, than: str, reasons: Iterable[str]) -> tuple[str, str, str]:
    why = "; ".join(reasons) or "the reason isn't known"
    return library, f"{_label(library)}'s {dtype} products run at {share:.0%} of {than}", why


def computes(dtype: str, instructions: Iterable[str]) -> bool:
    """Whether a CPU with these instructions multiplies in bfloat16, or in float16, itself."""
    names = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "asimdhp")}
    return bool({*names[dtype]}.intersection(instructions))


def _library(way: str) -> str:
    """The library of a way; where a result has raised a peak, the way is the library and the result's id."""
    return way.partition(":")[0]


def _label(library: str) -> str:
    return LABELS.get(library, library)


def _reasons(library: str, dtype: str, cpu: CpuFacts) -> Iterator[str]:
    if library == "torch" and dtype in ("float16", "bfloat16"):
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
