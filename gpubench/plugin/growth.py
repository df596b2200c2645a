"""The time and memory of a call by its size, to predict those of the next size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..devices import CPU
from ..errors import Unmeasurable
from ..measure.data import MEMORY_SHARE
from ..runfile.quantities import seconds_text, text
from ..runfile.schema import KEY

LONGEST_S = 5.0
"""Seconds of a call beyond which a larger size isn't begun."""


class Growth:
    """Work and memory grow as powers of the size, and the time at most as the work."""

    def __init__(self) -> None:
        self._last: list[tuple[float, float, float, float]] = []

    def note(self, size: float, rounds: Any) -> None:
        """Note a size whose rounds were taken."""
        ours: Mapping[str, Any] = rounds.extra_info[KEY]
        work = max(ours["work"].get("flops") or 0.0, ours["work"].get("bytes") or 0.0)
        self._last.append((size, rounds.stats.stats.median, work, ours.get("memory_bytes") or 0))

    def require(self, size: float) -> None:
        """Raise :class:`Unmeasurable` where a call of this size is predicted to take more than :data:`LONGEST_S`, or
        :data:`MEMORY_SHARE` of the free memory."""
        if len(self._last) < 2:
            return
        (small, _, *before), (large, seconds, *now) = self._last[-2:]
        factor, step = size / large, math.log(large / small)
        work, memory = (math.log(max(1.0, b / a)) / step if a > 0 else 1.0 for a, b in zip(before, now, strict=True))
        if (seconds := seconds * factor**work) > LONGEST_S:
            raise Unmeasurable(f"predicted {seconds_text(seconds)} a call")
        if (needed := now[1] * factor**memory) > MEMORY_SHARE * CPU.memory().free:
            raise Unmeasurable(f"predicted to need {text(needed, 'B')}")
