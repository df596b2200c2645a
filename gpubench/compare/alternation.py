"""Run files of both sides that were made in turn, A B A B …: known by their time stamps, and judged in pairs."""

from __future__ import annotations

from datetime import datetime

from .samples import Side

LEAST_PAIRS = 5
"""Fewer pairs prove less than the same processes do as single observations."""


def alternating_pairs(base: Side, new: Side) -> list[tuple[int, int]]:
    """Numbers of the runs of base and new that follow one another, pair after pair; empty where the runs of both sides
    don't alternate, or their time stamps don't tell."""
    if len(base.runs) != len(new.runs) or len(base.runs) < LEAST_PAIRS:
        return []
    moments = [
        (_moment(run.started), side, i) for side, each in enumerate((base, new)) for i, run in enumerate(each.runs)
    ]
    if any(moment is None for moment, _, _ in moments) or len({moment for moment, _, _ in moments}) < len(moments):
        return []
    order = sorted((moment, side, i) for moment, side, i in moments if moment is not None)
    pairs = []
    for (_, side, i), (_, other, j) in zip(order[::2], order[1::2], strict=True):
        if side == other:
            return []
        pairs.append((j, i) if side else (i, j))
    return pairs


def _moment(text: str | None) -> float | None:
    """Seconds; a time without its zone is that of this machine."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError, OSError):
        return None
