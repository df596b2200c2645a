"""The loop that times: rounds of one call, or of several in turn, so that a slower machine slows all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..runfile.flags import Flag

MOST_TURNS = 20
"""Most turns; more would leave each call with caches that the others have filled."""


@dataclass(slots=True)
class Share:
    """A call's rounds: ``rounds`` rounds of ``calls`` calls each; ``times`` are the seconds of those that were taken.

    ``next_call`` returns the call of a round; it runs untimed before each. ``result`` is that of the last round, where
    a round has one call. ``collects`` leaves Python's garbage collector on. ``flags`` are what was noticed meanwhile,
    one list for all shares that were measured in turn.
    """

    next_call: Callable[[], Callable[[], Any]]
    clock: Callable[[], float]
    rounds: int
    calls: int = 1
    collects: bool = False
    times: list[float] = field(default_factory=list)
    result: Any = None
    flags: list[Flag] = field(default_factory=list)

    def take_round(self) -> float:
        """Time one round, and return its seconds. The garbage collector is off only within it, so that garbage does not
        pile up over all rounds."""
        call, clock, result, enabled = self.next_call(), self.clock, None, gc.isenabled()
        several = range(self.calls) if self.calls > 1 else None
        if not self.collects:
            gc.disable()
        try:
            start = clock()
            if several:  # no result is kept, so that the next call can have its memory
                for _ in several:
                    call()
            else:
                result = call()
            seconds = clock() - start
        finally:
            if enabled:
                gc.enable()
        self.times.append(seconds)
        self.result = result
        return seconds

    def take(self, other: Share) -> None:
        """Take over the rounds that another share of the same call has taken."""
        self.calls, self.times, self.result, self.flags = other.calls, other.times, other.result, other.flags

    def note(self, flags: Iterable[Flag]) -> tuple[Flag, ...]:
        """Add what was noticed; return all that was noticed during the rounds, which another test may have timed."""
        known = {flag.name for flag in self.flags}
        self.flags += [flag for flag in flags if flag.name not in known]
        return tuple(self.flags)


def take_turns(shares: Sequence[Share]) -> None:
    """Time all rounds; of several calls a few of each in every turn: A B B A …. A short call is then made once before
    each turn, untimed, to bring its data back into the caches."""
    several = len(shares) > 1
    turns, noticed = min([MOST_TURNS, *(each.rounds for each in shares)]) if several else 1, shares[0].flags
    for turn in range(turns):
        for each in shares if turn % 2 == 0 else reversed(shares):
            each.flags = noticed
            if several and each.calls > 1:
                each.next_call()()
            while len(each.times) < each.rounds * (turn + 1) // turns:
                each.take_round()
