"""The addresses of a call's data: copies of the call elsewhere in memory take a part of its rounds.

The time of a call depends on the addresses of its data, by the cache sets and pages that they share, and each run has
others (T. Mytkowicz et al., *Producing wrong data without doing anything obviously wrong*, ASPLOS 2009; C. Curtsinger,
E. Berger, *Stabilizer*, ASPLOS 2013). A process that measures at one placement can't see that.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Bound = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
"""A function, and the arguments that it is called with."""
PLACEMENTS = 4
"""Placements of a call's data, its own included; Student's interval of fewer is several times as wide."""
ROUNDS_EACH = 2
"""Fewest rounds at each placement."""
_VISITS, _ROUNDS_A_VISIT = 5, 4
"""Most visits of each placement, so that a drift meets all of them alike, and the fewest rounds that earn one."""
_REVISIT_S = 0.002
"""Seconds of untimed calls that bring the data of a placement back into the caches."""
_PAGE = 4096
USUAL_CACHE = 32 << 20
"""Bytes of the last cache where the system doesn't tell them, as in some containers."""
COPYING_SHARE = 0.25
"""Most time of making copies, as a share of the time of the rounds and the warm-up."""


@dataclass(slots=True)
class Placements:
    """A call and its copies, which take the rounds in turn."""

    calls: list[Bound]
    _kept: list[Any] = field(default_factory=list)
    """Memory between the copies, and results of untimed calls: no two placements write to the same address."""

    def add_spacer(self) -> None:
        """Take memory, so that the data of the next copy begin elsewhere in their page and cache sets."""
        self._kept.append(bytearray(random.Random().randrange(64, 4 * _PAGE, 64)))

    def enter(self, index: int, rounds: int, clock: Callable[[], float]) -> Bound:
        """Return the call of a round, after untimed calls where the placement of the round before was another."""
        place = placement_of(index, rounds)
        function, args, kwargs = self.calls[place]
        if index == 0 or placement_of(index - 1, rounds) != place:
            start, result = clock(), None
            while result is None or clock() - start < _REVISIT_S:
                result = (function(*args, **kwargs),)
            if index < rounds // 2 and len(self._kept) < 2 * len(self.calls) - 1:
                self._kept.append(result)
        return function, args, kwargs

    def release(self) -> None:
        """Free the copies and the results."""
        del self.calls[1:], self._kept[:]


def placement_of(index: int, rounds: int) -> int:
    """Return the placement of a round: 0 1 2 3, 3 2 1 0, …, in as many visits as the rounds allow."""
    visits = max(1, min(_VISITS, rounds // (PLACEMENTS * _ROUNDS_A_VISIT)))
    visit, place = divmod(min(index, rounds - 1) * PLACEMENTS * visits // rounds, PLACEMENTS)
    return place if visit % 2 == 0 else PLACEMENTS - 1 - place


def medians(times: Sequence[float], rounds: int) -> dict[int, float]:
    """Return the median time at each placement that has rounds."""
    at: dict[int, list[float]] = {}
    for index, seconds in enumerate(times):
        at.setdefault(placement_of(index, rounds), []).append(seconds)
    return {place: statistics.median(each) for place, each in sorted(at.items())}


def levelled(times: Sequence[float], rounds: int) -> list[float]:
    """Return the times without the differences between placements, which are neither noise nor drift."""
    at, middle = medians(times, rounds), statistics.median(times)
    return [seconds * middle / at[placement_of(index, rounds)] for index, seconds in enumerate(times)]
