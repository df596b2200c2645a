"""The share of its device's measured peak that a case achieves, with peaks from the same run.

The model is the roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009): a call of
``flops`` and ``bytes`` takes at least ``max(flops / throughput, bytes / bandwidth)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .schema import Ceilings, CpuFacts, Work

PLAUSIBLE = 1.3
"""Ceilings are measured and noisy: only a result that exceeds them by more than this factor can't be true."""
WINOGRAD = 2.25
"""Convolutions may do this many times fewer multiplications than the direct algorithm whose FLOPs are counted (A.
Lavin, S. Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016: F(2x2, 3x3))."""
SLOW = 0.8  # a library is reported if its products run below this share of the fastest way
LABELS = {"torch": "PyTorch", "onednn": "oneDNN", "numpy": "NumPy"}
_HOLD_BACK = {
    "torch": ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE"),
    "onednn": ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    "numpy": ("OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
}  # variables that make a library use older instructions than the CPU has
_AVX512_KERNELS = ("SkylakeX", "Cooperlake", "Sapphirerapids")
_AVX2_KERNELS = ("Haswell", "Zen", "Excavator", *_AVX512_KERNELS)
"""OpenBLAS's kernels, by the processors that they were written for."""
_COMPUTE = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"avx512_fp16", "amx_fp16", "asimdhp"}}
"""Instructions that multiply in a short dtype."""


class Utilisation(NamedTuple):
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
        rate = max(ceilings.host_to_device_byte_per_s or 0.0, ceilings.device_to_host_byte_per_s or 0.0)
        use = Utilisation((work.bytes or 0.0) / (rate or 1.0) / seconds, "bandwidth", "copies between host and device")
        return use if rate and work.bytes else None
    uses = []
    if work.bytes and (band := ceilings.bandwidth_for(work.bytes)):
        share = work.bytes / band.byte_per_s / seconds
        uses.append(Utilisation(share, "bandwidth", band.pattern, band.footprint_bytes))
    if work.flops and (rate := ceilings.throughput.get(dtype, 0.0)):
        uses.append(Utilisation(work.flops / rate / seconds, "throughput", f"{dtype} matmul"))
    return max(uses, key=lambda use: use.fraction, default=None)


def most(use: Utilisation, dtype: str, ceilings: Ceilings, convolutions: float = 0.0) -> float:
    """The largest fraction that can be true, given noise and, for products, the instruction set. ``convolutions`` is
    their share of the FLOPs; fast algorithms do fewer multiplications than are counted."""
    if use.bound != "throughput":
        return PLAUSIBLE
    allowed, peak = ceilings.allowed.get(dtype), ceilings.throughput.get(dtype)
    return (1 + (WINOGRAD - 1) * convolutions) * max(PLAUSIBLE, allowed / peak if allowed and peak else 0.0)


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
            than = f"what {LABELS.get(best, best)} reaches on {place}"
            products.append((library, dtype, rate / rates[best], than, list(_reasons(library, dtype, cpu))))
        full, short = ceilings.throughput.get("float32"), ceilings.throughput.get(dtype)
        if dtype in _COMPUTE and full and short:
            lacking = cpu.instructions is not None and _COMPUTE[dtype].isdisjoint(cpu.instructions)
            reasons = [f"this CPU has no instructions for {dtype} and emulates it"] * lacking
            products.append(("torch", dtype, short / full, f"those in float32 on {place}", reasons))
    claims = [
        (library, f"{LABELS.get(library, library)}'s {dtype} products run at {share:.0%} of {than}",
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
