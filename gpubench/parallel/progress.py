"""How far a rank has come, told to the process that watches it."""

from __future__ import annotations

from typing import Any

_count: Any = [0]
_rank = 0


def tell_into(counts: Any, rank: int) -> None:
    """From now on count in shared memory."""
    global _count, _rank
    _count, _rank = counts, rank


def advance() -> None:
    """Something was finished: a rank that doesn't say so for as long as the deadline counts as hanging."""
    _count[_rank] += 1
