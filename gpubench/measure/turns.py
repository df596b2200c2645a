"""Rounds of several calls in turn, so that a machine that gets slower meanwhile slows all of them alike."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..runfile.flags import Flag
from .budget import Preset, rounds
from .clock import repeat

MOST_TURNS = 20
"""Most turns; more would leave each call with caches that the others have filled."""
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(slots=True)
class Share:
    """A call's rounds: ``rounds`` rounds of ``calls`` calls each; ``times`` are the seconds of each, once they were
    taken.

    ``flags`` are what was noticed meanwhile, one list for all shares that were measured in turn.
    """

    call: Callable[[], Any]
    clock: Callable[[], float]
    rounds: int
    calls: int
    times: list[float] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)


def share(call: Callable[[], Any], clock: Callable[[], float], call_s: float, preset: Preset, round_s: float) -> Share:
    """Return as many rounds as pytest-benchmark takes of a call of ``call_s`` seconds, each of at least ``round_s``
    seconds."""
    few = rounds(call_s, preset)
    if few is not None:
        return Share(call, clock, few, 1)
    calls = max(1, math.ceil(round_s / max(call_s, 1e-9)))
    return Share(call, clock, max(preset.min_rounds, math.ceil(preset.max_time / max(calls * call_s, round_s))), calls)


def take_turns(shares: Mapping[_Key, Share]) -> None:
    """Time all rounds, a few of each call in every turn: A B B A …. A short call is made once before each turn,
    untimed, to bring its data back into the caches. Python's garbage collector is off meanwhile, as in
    pytest-benchmark."""
    contenders, collects = list(shares.values()), gc.isenabled()
    turns, noticed = min([MOST_TURNS, *(each.rounds for each in contenders)]), contenders[0].flags
    gc.disable()
    try:
        for turn in range(turns):
            for each in contenders if turn % 2 == 0 else reversed(contenders):
                each.flags = noticed
                now = each.rounds * (turn + 1) // turns - len(each.times)
                if each.calls > 1:
                    each.call()
                each.times += repeat(each.call, each.clock, least=now, most=now, calls=each.calls)
    finally:
        if collects:
            gc.enable()
