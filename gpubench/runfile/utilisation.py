"""How much a case achieves of what its device can do, as measured in the same run.

The model is the roofline (S. Williams, A. Waterman, D. Patterson, Communications of the ACM 52(4), 2009): a call of
``flops`` and ``bytes`` takes at least ``max(flops / throughput, bytes / bandwidth)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .schema import Ceilings, Scalar, Work

PLAUSIBLE = 1.3
"""Ceilings are measured, and noisy: only what beats them by more than this factor can't be true."""
WINOGRAD = 2.25
"""Convolutions may do that many times fewer multiplications than the direct algorithm whose FLOPs are counted
(A. Lavin, S. Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016: F(2x2, 3x3))."""


@dataclass(frozen=True, slots=True)
class Utilisation:
    """``fraction`` of the speed that the ceiling ``of`` allows; ``bound`` is ``bandwidth`` or ``throughput``.

    ``footprint_bytes``: how much that ceiling moved, where it depends on it.
    """

    fraction: float
    bound: str
    of: str
    footprint_bytes: float | None = None


def utilisation(
    work: Work, seconds: float, dtype: str, ceilings: Ceilings | None, link: bool = False
) -> Utilisation | None:
    """Least time that the ceilings allow over the time taken; ``None`` where no ceiling matches the work.

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


def compute_dtype(dtype: str, variant: str, precision: Mapping[str, Scalar] | None = None) -> str:
    """The dtype that products are computed in: under autocast the one that the record's ``precision`` names."""
    return str((precision or {}).get("autocast") or "bfloat16") if variant == "autocast" else dtype
