"""Ratios between machines in units of what each can do: its measured ceilings, read from its run files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UsageError
from ..jsonfile import At, load
from ..schema import KEY, Work
from .sides import Key, Side

Ceilings = tuple[Mapping[str, float], float | None]
"""FLOP/s by dtype, and bytes/s."""


def scale(base: Side, new: Side, keys: Sequence[Key]) -> tuple[dict[Key, float], list[Key]]:
    """By what to multiply each case's ratio, and the cases for which that isn't known.

    A case's least time on a machine is that of the roofline model, the greater of FLOPs / peak FLOP/s and bytes /
    peak bytes/s; the ratio of times becomes a ratio of times in units of it.
    Source: S. Williams, A. Waterman, D. Patterson, Commun. ACM 52 (2009) 65-76.
    """
    known = [_ceilings(side) for side in (base, new)]
    found: dict[Key, float] = {}
    for key in keys:
        least = [_least_s(*side.work[key], own.get(key.device)) for side, own in zip((base, new), known, strict=True)]
        if least[0] and least[1]:
            found[key] = least[0] / least[1]
    return found, [key for key in keys if key not in found]


def _least_s(work: Work, dtype: str, ceilings: Ceilings | None) -> float | None:
    if ceilings is None:
        return None
    throughput, bandwidth = ceilings
    times = []
    if work.flops:
        if dtype not in throughput:
            return None
        times.append(work.flops / throughput[dtype])
    if work.bytes and bandwidth:
        times.append(work.bytes / bandwidth)
    return max(times, default=None)


def _ceilings(side: Side) -> dict[str, Ceilings]:
    """By device, the best over the side's runs. Raises UsageError for a side that measured none."""
    found: dict[str, tuple[dict[str, float], list[float]]] = {}
    for run in side.runs:
        devices = load(run.path)[KEY]["ceilings"]
        for name in devices.mapping():
            flops, widths = found.setdefault(name, ({}, []))
            widths += [entry["byte_per_s"].positive() for entry in devices[name]["bandwidth"]]
            for dtype, rate in _throughput(devices[name]["throughput"]):
                flops[dtype] = max(rate, flops.get(dtype, 0.0))
    if not found:
        raise UsageError(f"{side.name}: no ceilings in {side.runs[0].path}: --normalise needs runs that measured them")
    return {name: (flops, max(widths, default=None)) for name, (flops, widths) in found.items()}


def _throughput(at: At) -> list[tuple[str, float]]:
    return [(dtype, at[dtype]["flop_per_s"].positive()) for dtype in at.mapping() if not at[dtype].missing]
