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
from itertools import islice
from typing import Any

Bound = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
"""A function, and the arguments that it is called with."""
PLACEMENTS = 4
"""Placements of a call's data, its own included; Student's interval of fewer is several times as wide."""
ROUNDS_EACH, ROUNDS_A_BLOCK = 2, 4
"""Fewest rounds at each placement, and the fewest in a block of several that each placement has."""
MOST_BLOCKS = 20
"""Most blocks of a call's rounds, so that a drift meets all placements, and all calls that take turns, alike. More
blocks would leave each call with caches that the others have filled."""
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
    current: Bound | None = None
    """The call that rounds are taken of."""
    _kept: list[Any] = field(default_factory=list)
    """Memory between the copies, and results of untimed calls: no two placements write to the same address."""

    def add_spacer(self) -> None:
        """Take memory, so that the data of the next copy begin elsewhere in their page and cache sets."""
        self._kept.append(bytearray(random.Random().randrange(64, 4 * _PAGE, 64)))

    def enter(self, place: int, clock: Callable[[], float]) -> None:
        """Let rounds begin at a placement, after untimed calls there."""
        self.current = function, args, kwargs = self.calls[place]
        start, result = clock(), None
        while result is None or clock() - start < _REVISIT_S:
            result = (function(*args, **kwargs),)
        if len(self._kept) < 2 * len(self.calls) - 1:
            self._kept.append(result)

    def release(self) -> None:
        """Free the copies and the results."""
        self.current = None
        del self.calls[1:], self._kept[:]


def place_of(block: int) -> int:
    """Return the placement of a block: 0 1 2 3, 3 2 1 0, …."""
    visit, place = divmod(block, PLACEMENTS)
    return place if visit % 2 == 0 else PLACEMENTS - 1 - place


def count_blocks(rounds: int, *, placed: bool, alone: bool, spread: bool = False) -> int:
    """Return the number of blocks of so many rounds. Each placement has as many; calls that aren't ``alone`` take turns
    after each block; rounds that are ``spread`` over a longer time have blocks too."""
    if placed:
        most = min(MOST_BLOCKS, rounds // ROUNDS_A_BLOCK if alone else rounds)
        return max(1, most // PLACEMENTS) * PLACEMENTS
    return min(MOST_BLOCKS, rounds) if spread or not alone else 1


Grouping = Callable[[int], int]
"""Gives the group of a block: its placement, or itself."""


def each_block(block: int) -> int:
    """Return the block: each is a group of its own."""
    return block


def medians(times: Sequence[float], blocks: Sequence[int], group: Grouping = place_of) -> list[float]:
    """Return the median time of each group that has rounds; ``blocks`` are the numbers of rounds of each block."""
    return [statistics.median(part) for _, part in sorted(_groups(times, blocks, group).items()) if part]


def levelled(times: Sequence[float], blocks: Sequence[int], group: Grouping = place_of) -> list[float]:
    """Return the times without the differences between groups, which are neither noise nor drift."""
    middle = statistics.median(times)
    middles = {each: statistics.median(part) for each, part in _groups(times, blocks, group).items() if part}
    groups = [group(block) for block, count in enumerate(blocks) for _ in range(count)]
    return [seconds * middle / middles[each] for seconds, each in zip(times, groups, strict=True)]


def _groups(times: Sequence[float], blocks: Sequence[int], group: Grouping) -> dict[int, list[float]]:
    at: dict[int, list[float]] = {}
    left = iter(times)
    for block, count in enumerate(blocks):
        at.setdefault(group(block), []).extend(islice(left, count))
    return at
