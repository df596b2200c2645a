"""Clocks that wait for the device before they are read, because a call returns when its work is queued; and the rounds
that they time, in blocks that take turns between calls and between addresses of their data.

The time of a call depends on the addresses of its data, by the cache sets and pages that they share, and each run has
others (T. Mytkowicz et al., *Producing wrong data without doing anything obviously wrong*, ASPLOS 2009; C. Curtsinger,
E. Berger, *Stabilizer*, ASPLOS 2013). So copies of the call elsewhere in memory take a part of its rounds.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import thread_time  # imported by name, because a benchmark may replace time.thread_time
from typing import Any

from ..devices import Device, in_use, kinds
from ..runfile.flags import Flag

_Call = Callable[[], Any]
MIN_ROUND, MIN_WAITS = 2e-3, 100
"""Shortest round: in seconds, and in multiples of the time that one wait for the device takes."""
STALLED, MOST_STALLS = 2.0, 3
"""A block with calls more than 2 times as long as the shortest was interrupted; at most 3 are judged so."""
LONGEST_WARMUP, RISING, HIGHEST = 1.5, 1.03, 0.97
"""Seconds after which an accelerator's warm-up ends, the factor above which its clocks or calls still change, and the
share of its highest clock above which they can't rise."""
HEAVY_WARMUP, HEAVY = 0.5, 0.9
"""Least seconds of warm-up under heavy load, as nvbench's least time of a measurement, because the power controller
needs tenths of a second to lower the clocks; and the share of the power limit above which a load is heavy."""
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


def repeat(
    call: _Call, clock: Callable[[], float], *, least: int, most: int, seconds: float = math.inf, calls: int = 1,
    before: _Call | None = None,
) -> list[float]:  # fmt: skip
    """Return the seconds of at least ``least`` and at most ``most`` timings; none begins after ``seconds`` of earlier
    ones. A timing covers ``calls`` calls, which share the clock's wait. ``before`` runs untimed before each."""
    times: list[float] = []
    spent = 0.0
    while len(times) < least or (len(times) < most and spent < seconds):
        if before is not None:
            before()
        start = clock()
        for _ in range(calls):
            call()
        times.append(clock() - start)
        spent += times[-1]
    return times


def warm_up(
    next_call: Callable[[], Bound], clock: Callable[[], float], *, seconds: float, first_s: float, single: bool = False
) -> tuple[float, float]:
    """Call for about ``seconds``; return the seconds of one call in the last block, without and with ``next_call``,
    which prepares it.

    The calls of a block share one wait. Each block has twice as many calls as the one before, up to 1000, or a
    ``single`` one that is prepared. A stalled block is repeated and doesn't count, since the pause would be taken for
    the calls' cost; ``first_s``, the seconds of an earlier call, reveals a stall in the first block.
    """
    shortest_s, warm_s, stalls, calls = first_s, 0.0, 0, 1
    while True:
        begin, block = clock(), Share(next_call, clock, 1, calls, collects=True)  # or garbage would count as memory
        block.take_round()
        round_s, call_s = clock() - begin, block.times[0] / calls
        shortest_s = min(shortest_s, call_s)
        if call_s > STALLED * shortest_s and stalls < MOST_STALLS:
            stalls += 1
            continue
        warm_s += round_s
        if warm_s >= seconds:
            return call_s, round_s / calls
        calls = 1 if single else min(2 * calls, 1000)


def settle_clocks(
    warm: Callable[[], tuple[float, float]],
    clock: Callable[[], float],
    accelerators: Sequence[Device],
    agree: Callable[[bool], bool] = bool,
) -> tuple[float, float]:
    """Repeat the warm-up of accelerators until neither their clocks rise nor the calls (``warm`` returns their seconds
    first) get shorter; under heavy load also until the power limit acts and the calls stop getting longer. Return the
    seconds of the last warm-up.

    The clocks of laptops' and gamers' cards fall between two cases, and take up to a second to rise; one warm-up is
    enough where they are at their highest already. ``agree`` makes one process decide for all that warm up
    together.
    """

    def clocks() -> dict[tuple[Device, str], float]:
        return {(each, name): hertz for each in accelerators for name, hertz in (each.clocks() or {}).items()}

    def is_heavy() -> bool:
        return any((each.power_share() or 0.0) > HEAVY for each in accelerators)

    begin, warmed, now = clock(), warm(), clocks()
    stand = all((each.clock_share() or 0.0) > HIGHEST for each in accelerators) and not is_heavy()
    while accelerators and not agree(stand or clock() - begin >= LONGEST_WARMUP):
        before, risen_from = warmed, now
        warmed, now = warm(), clocks()
        rising = any(now[name] > RISING * risen_from.get(name, math.inf) for name in now)
        stand = not rising and RISING * warmed[0] >= before[0]
        if is_heavy():
            stand = stand and warmed[0] <= RISING * before[0] and clock() - begin >= HEAVY_WARMUP
    return warmed


class DeviceClock:
    """Waits for the devices of one case, then reads the time: at both ends of a round: its calls share one wait."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._by_library: dict[Device, _Call] = {}
        self.use(devices)

    def use(self, devices: Iterable[Device]) -> None:
        """Wait for these devices from now on, and read the accelerator's clock if there is one."""
        self.devices = tuple(dict.fromkeys(devices))
        accelerators = [device for device in self.devices if device.accelerator]
        plain = [device.synchronize for device in accelerators if device not in self._by_library]
        self._waits = [*self._by_library.values(), *plain]
        self.now = next(iter(accelerators), Device).now  # doesn't wait: times what the host does

    def wait_by(self, device: Device, wait: _Call) -> None:
        """Wait for work that a library other than torch has queued on the device, by that library's own function."""
        self._by_library[device] = wait
        self.use((*self.devices, device))

    def __call__(self) -> float:
        """Return the time in seconds, read once the devices are done."""
        for wait in (*_own_waits, *self._waits):
            wait()
        return self.now()

    def wait_s(self) -> float:
        """Median seconds that one wait takes when there is nothing to wait for."""
        self()
        return statistics.median(repeat(lambda: [wait() for wait in self._waits], self.now, least=20, most=20))


_own_waits: list[_Call] = []
UNAWARE = {"cupy": "CuPy", "jax": "JAX", "numba.cuda": "Numba", "tensorflow": "TensorFlow"}
"""Libraries, by module, that queue work which torch can't wait for."""
_watched: list[type[Device]] | None = None


def add_wait(wait: _Call) -> _Call:
    """Call ``wait`` before every reading of :func:`timer` and of the fixture's clock, and return it. It must return
    once the work of a library other than torch is done: ``add_wait(cupy.cuda.Device().synchronize)`` in a conftest.py.
    """
    if wait not in _own_waits:
        _own_waits.append(wait)
    return wait


def unwaited() -> list[str]:
    """Return the names of the libraries that this process has loaded and no clock waits for."""
    return [] if _own_waits else [name for module, name in UNAWARE.items() if module in sys.modules]


def watch_present_kinds() -> None:
    """Restrict :func:`timer` to the kinds with a present device: asking all kinds takes ten microseconds, which
    would show in a round of one short call."""
    global _watched
    _watched = [kind for kind in kinds().values() if kind.count()] if "torch" in sys.modules else None


def timer() -> float:
    """Return the time in seconds after waiting for every accelerator in use: ``--benchmark-timer=gpubench.timer`` for
    plain ``benchmark`` tests."""
    for wait in _own_waits:
        wait()
    for device in in_use(_watched):
        device.synchronize()
    return Device.now()


@dataclass(slots=True)
class Share:
    """A call's rounds: ``rounds`` rounds of ``calls`` calls each, or at least ``least`` if calls get so slow that they
    take more than ``most_s``; ``times`` are the seconds of the rounds taken, and ``blocks`` the numbers of rounds in
    each block.

    ``next_call`` returns the function of a round with its arguments; it runs untimed before each. ``result`` is
    the last round's, where a round has one call. ``collects`` leaves the garbage collector on. ``flags`` is one list
    for all shares that were measured in turn. ``cpu_s`` is the least time that this thread had a core for a call.
    ``places`` are the call and its copies, which take the rounds in turn; ``unplaced`` is the reason why there are no
    copies. Blocks share ``seconds`` evenly, however many rounds that makes; ``halfway`` is other work between two
    blocks in the middle. ``latency_s``: seconds of one call that waits for its own end; ``clocks``: the devices' clocks
    before the rounds.
    """

    next_call: Callable[[], Bound]
    clock: Callable[[], float]
    rounds: int
    calls: int = 1
    least: int = 1
    most_s: float = math.inf
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
        """Take the rounds of a block: its part of :attr:`rounds`, or of :attr:`seconds`."""
        taken, least = len(self.times), math.ceil(self.least / blocks)
        most = math.inf if self.seconds else self.rounds * (block + 1) // blocks
        end_s = self.clock() + (self.seconds or self.most_s) / blocks
        while (count := len(self.times)) < most and (count < taken + least or self.clock() < end_s):
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


def medians(times: Sequence[float], blocks: Sequence[int], group: Callable[[int], int] = place_of) -> dict[int, float]:
    """Return the median time of each group that has rounds: of a placement or, with ``int``, of a block. ``blocks`` are
    the numbers of rounds of each block."""
    at, left = defaultdict[int, list[float]](list), iter(times)
    for block, count in enumerate(blocks):
        at[group(block)] += islice(left, count)
    return {each: statistics.median(part) for each, part in sorted(at.items()) if part}


def levelled(times: Sequence[float], blocks: Sequence[int], group: Callable[[int], int] = place_of) -> list[float]:
    """Return the times without the differences between groups, which are neither noise nor drift."""
    middle, middles = statistics.median(times), medians(times, blocks, group)
    groups = [group(block) for block, count in enumerate(blocks) for _ in range(count)]
    return [seconds * middle / middles[each] for seconds, each in zip(times, groups, strict=True)]
