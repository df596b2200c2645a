"""The rounds of calls, in blocks that take turns between calls and between addresses of their data.

The time of a call depends on the addresses of its data, by the cache sets and pages that they share, and each run has
others (T. Mytkowicz et al., *Producing wrong data without doing anything obviously wrong*, ASPLOS 2009; C. Curtsinger,
E. Berger, *Stabilizer*, ASPLOS 2013). So copies of the call elsewhere in memory take a part of its rounds.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import thread_time
from typing import Any

from ..runfile.flags import Flag

Bound = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
"""A function, and the arguments that it is called with."""
PLACEMENTS = 4
"""Placements of a call's data, its own included; Student's interval of fewer is several times as wide."""
ROUNDS_EACH, ROUNDS_A_BLOCK = 2, 4
"""Fewest rounds at each placement, and the fewest in a block of several that each placement has."""
MOST_BLOCKS = 20
"""Most blocks of a call's rounds, so that a drift meets all placements, and all calls that take turns, alike. More
blocks would leave each call with caches that the others have filled."""
_REVISIT_S, _PAGE = 0.002, 4096
"""Seconds of untimed calls that bring the data of a placement back into the caches; bytes of a page."""


@dataclass(slots=True)
class Share:
    """A call's rounds: ``rounds`` rounds of ``calls`` calls each; ``times`` are the seconds of the rounds taken, and
    ``blocks`` the numbers of rounds in each block.

    ``next_call`` returns the function of a round with its arguments; it runs untimed before each. ``result`` is that of
    the last round, where a round has one call. ``collects`` leaves Python's garbage collector on. ``flags`` are what
    was noticed meanwhile, one list for all shares that were measured in turn. ``cpu_s`` is the least time that this
    thread had a core for a call: without other programs a call doesn't take less. ``places`` are the call and its
    copies, which take the rounds in turn; ``unplaced`` is the reason why there are no copies. Blocks share ``seconds``
    evenly, however many rounds that makes; ``halfway`` is other work between two blocks in the middle. ``latency_s``:
    seconds of one call that waits for its own end; ``clocks``: the devices' clocks before the rounds.
    """

    next_call: Callable[[], Bound]
    clock: Callable[[], float]
    rounds: int
    calls: int = 1
    collects: bool = False
    places: list[Bound] = field(default_factory=list)
    unplaced: str = ""
    seconds: float | None = None
    halfway: Callable[[], Any] | None = None
    latency_s: float | None = None
    clocks: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    result: Any = None
    flags: list[Flag] = field(default_factory=list)
    cpu_s: float = math.inf
    _current: Bound | None = None
    _kept: list[Any] = field(default_factory=list)  # between the copies, and results: each writes to its own address

    def take_round(self) -> None:
        """Time one round. The garbage collector is off only within it, so that garbage doesn't pile up over all
        rounds."""
        clock, result, enabled = self.clock, None, gc.isenabled()
        self.result = None  # so that the call can have its memory
        function, args, kwargs = self._current or self.next_call()
        several = range(self.calls) if self.calls > 1 else None
        if not self.collects:
            gc.disable()
        try:
            begun_s = thread_time()
            start = clock()
            if several:  # no result is kept, so that the next call can have its memory
                for _ in several:
                    function(*args, **kwargs)
            else:
                result = function(*args, **kwargs)
            seconds = clock() - start
            self.cpu_s = min(self.cpu_s, (thread_time() - begun_s) / self.calls)
        finally:
            if enabled:
                gc.enable()
        self.times.append(seconds)
        self.result = result

    def take_block(self, block: int, blocks: int) -> None:
        """Take the rounds of a block: its part of them or, where they share :attr:`seconds`, of these."""
        taken, rounds = len(self.times), self.rounds * (block + 1) // blocks
        end_s = None if self.seconds is None else self.clock() + self.seconds / blocks
        while len(self.times) < rounds if end_s is None else len(self.times) == taken or self.clock() < end_s:
            self.take_round()
        self.blocks.append(len(self.times) - taken)

    def call_once(self) -> Any:
        """Make an untimed call, and return its result."""
        function, args, kwargs = self.next_call()
        return function(*args, **kwargs)

    def add_spacer(self) -> None:
        """Take memory, so that the data of the next copy begin elsewhere in their page and cache sets."""
        self._kept.append(bytearray(random.Random().randrange(64, 4 * _PAGE, 64)))

    def enter(self, place: int) -> None:
        """Let rounds begin at a placement, after untimed calls there."""
        self._current = function, args, kwargs = self.places[place]
        start, result = self.clock(), None
        while result is None or self.clock() - start < _REVISIT_S:
            result = (function(*args, **kwargs),)
        if len(self._kept) < 2 * len(self.places) - 1:
            self._kept.append(result)

    def release(self) -> None:
        """Free the copies and the results."""
        self._current = None
        del self.places[1:], self._kept[:]

    def note(self, flags: Iterable[Flag]) -> tuple[Flag, ...]:
        """Add what was noticed; return all that was noticed during the rounds, which another test may have timed."""
        known = {flag.name for flag in self.flags}
        self.flags += [flag for flag in flags if flag.name not in known]
        return tuple(self.flags)


def take_turns(shares: Sequence[Share]) -> None:
    """Time all rounds in blocks; several calls take turns: A B B A …. Before a block at another placement, or one of
    another call that is short, come untimed calls to bring its data back into the caches."""
    first, alone, place = shares[0], len(shares) == 1, None
    fewest, placed = min(each.rounds for each in shares), any(each.places for each in shares)
    blocks = count_blocks(fewest, placed=placed, alone=alone, spread=alone and first.seconds is not None)
    for block in range(blocks):
        if alone and first.halfway and block == blocks // 2:
            first.halfway()
            place = None
        for each in shares if block % 2 == 0 else reversed(shares):
            each.flags = first.flags
            if each.places and not (alone and place == place_of(block)):
                each.enter(place := place_of(block))
            elif not (alone or each.places) and each.calls > 1:
                each.call_once()
            each.take_block(block, blocks)


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
"""Returns the group of a block: its placement, or with ``int`` the block itself."""


def medians(times: Sequence[float], blocks: Sequence[int], group: Grouping = place_of) -> list[float]:
    """Return the median time of each group that has rounds; ``blocks`` are the numbers of rounds of each block."""
    return list(_medians(times, blocks, group).values())


def levelled(times: Sequence[float], blocks: Sequence[int], group: Grouping = place_of) -> list[float]:
    """Return the times without the differences between groups, which are neither noise nor drift."""
    middle, middles = statistics.median(times), _medians(times, blocks, group)
    groups = [group(block) for block, count in enumerate(blocks) for _ in range(count)]
    return [seconds * middle / middles[each] for seconds, each in zip(times, groups, strict=True)]


def _medians(times: Sequence[float], blocks: Sequence[int], group: Grouping) -> dict[int, float]:
    at, left = defaultdict[int, list[float]](list), iter(times)
    for block, count in enumerate(blocks):
        at[group(block)] += islice(left, count)
    return {each: statistics.median(part) for each, part in sorted(at.items()) if part}
