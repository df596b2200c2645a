"""Ratios between machines in units of what each can do: the ceilings that each run measured."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..roofline import Ceilings, utilisation
from ..schema import Work
from .sides import Key, Side


def scale(base: Side, new: Side, keys: Sequence[Key]) -> tuple[dict[Key, float], list[Key]]:
    """By what to multiply each case's ratio, and the cases for which that isn't known.

    The ratio of times becomes a ratio of times in units of the least time that each machine's ceilings allow
    (:func:`gpubench.roofline.utilisation`).
    """
    known = [_ceilings(side) for side in (base, new)]
    found: dict[Key, float] = {}
    for key in keys:
        least = [_least_s(*side.work[key], own.get(key.device)) for side, own in zip((base, new), known, strict=True)]
        if least[0] and least[1]:
            found[key] = least[0] / least[1]
    return found, [key for key in keys if key not in found]


def _least_s(work: Work, dtype: str, ceilings: Ceilings | None) -> float | None:
    if ceilings is None or (work.flops and dtype not in ceilings.throughput):
        return None
    use = utilisation(work, 1.0, dtype, ceilings)
    return use.fraction if use else None


def _ceilings(side: Side) -> dict[str, Ceilings]:
    """By device, the best over the side's runs. Raises UsageError for a side that measured none."""
    found: dict[str, Ceilings] = {}
    for run in side.runs:
        for name, own in run.ceilings.items():
            found[name] = found[name].raised(own) if name in found else own
    if not found:
        raise UsageError(f"{side.name}: no ceilings in {side.runs[0].path}: --normalise needs runs that measured them")
    return found
