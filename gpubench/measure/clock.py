"""Clocks that wait for the device before they are read, and the loops that use them: work on an accelerator is queued,
not done, when a call returns, and a clock that doesn't wait times the queueing."""

from __future__ import annotations

import gc
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, thread_time  # imported by name: a benchmark may patch time.perf_counter
from typing import Any

from ..devices import Device, in_use, kinds
from ..runfile.flags import Flag
from .placements import Bound, Placements, count_blocks, place_of

_Call = Callable[[], Any]
MIN_ROUND, MIN_WAITS = 2e-3, 100
"""Shortest round: in seconds, and in multiples of the time that one wait for the device takes."""


def repeat(
    call: _Call,
    clock: Callable[[], float],
    *,
    least: int,
    most: int,
    seconds: float = math.inf,
    calls: int = 1,
    before: _Call | None = None,
) -> list[float]:
    """Time ``call`` repeatedly and return the seconds of each timing, of which callers take the minimum or the median.

    There are at least ``least`` and at most ``most`` timings; none begins after ``seconds`` were spent in earlier ones.
    One timing covers ``calls`` calls, which share the clock's wait. ``before`` runs untimed before each timing.
    """
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


@dataclass(slots=True)
class Share:
    """A call's rounds: ``rounds`` rounds of ``calls`` calls each; ``times`` are the seconds of those that were taken.

    ``next_call`` returns the function of a round with its arguments; it runs untimed before each. ``result`` is that of
    the last round, where a round has one call. ``collects`` leaves Python's garbage collector on. ``flags`` are what
    was noticed meanwhile, one list for all shares that were measured in turn. ``cpu_s`` is the least time that this
    thread had a core for a call: without other programs a call doesn't take less.
    """

    next_call: Callable[[], Bound]
    clock: Callable[[], float]
    rounds: int
    calls: int = 1
    collects: bool = False
    times: list[float] = field(default_factory=list)
    result: Any = None
    flags: list[Flag] = field(default_factory=list)
    cpu_s: float = math.inf
    placements: Placements | None = None
    """Copies of the call that take the rounds in turn with it."""
    seconds: float | None = None
    """Seconds that the blocks share evenly, however many rounds that makes."""
    blocks: list[int] = field(default_factory=list)
    """Numbers of rounds of each block."""
    halfway: _Call | None = None
    """Other work, which is done between two blocks in the middle."""
    unplaced: str = ""
    """Why no copies of the call take rounds."""
    latency_s: float | None = None
    """Seconds of one call that waits for its own end."""
    clocks: dict[str, float] = field(default_factory=dict)
    """The devices' clocks before the rounds."""

    def take_round(self) -> float:
        """Time one round, and return its seconds. The garbage collector is off only within it, so that garbage does not
        pile up over all rounds."""
        clock, result, enabled = self.clock, None, gc.isenabled()
        self.result = None  # so that the call can have its memory
        placed = self.placements and self.placements.current
        function, args, kwargs = placed or self.next_call()
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
        return seconds

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

    def note(self, flags: Iterable[Flag]) -> tuple[Flag, ...]:
        """Add what was noticed; return all that was noticed during the rounds, which another test may have timed."""
        known = {flag.name for flag in self.flags}
        self.flags += [flag for flag in flags if flag.name not in known]
        return tuple(self.flags)


def take_turns(shares: Sequence[Share]) -> None:
    """Time all rounds in blocks; several calls take turns: A B B A …. Before a block at another placement, or one of
    another call that is short, come untimed calls to bring its data back into the caches."""
    alone, noticed, place = len(shares) == 1, shares[0].flags, None
    fewest, placed = min(each.rounds for each in shares), any(each.placements for each in shares)
    spread = alone and shares[0].seconds is not None
    blocks = count_blocks(fewest, placed=placed, alone=alone, spread=spread)
    for block in range(blocks):
        if alone and (halfway := shares[0].halfway) and block == blocks // 2:
            halfway()
            place = None
        for each in shares if block % 2 == 0 else reversed(shares):
            each.flags = noticed
            if each.placements and not (alone and place == place_of(block)):
                each.placements.enter(place := place_of(block), each.clock)
            elif not (alone or each.placements) and each.calls > 1:
                each.call_once()
            each.take_block(block, blocks)


STALLED, MOST_STALLS = 2.0, 3
"""A block whose calls take more than 2 times as long as the shortest was interrupted; at most 3 blocks are judged
so."""


def warm_up(
    call: _Call, clock: Callable[[], float], *, seconds: float, first_s: float, before: _Call | None = None
) -> tuple[float, float]:
    """Call for about ``seconds``; return the seconds of one call in the last block, without and with ``before``.

    The calls of a block share one wait. Each block has twice as many calls as the one before, up to 1000, or a single
    one where ``before`` runs first. A stalled block is repeated and doesn't count, since the pause would be taken for
    the calls' cost; a fourth slow block is no stall. ``first_s``, the seconds of an earlier call, reveals a stall in
    the first block.
    """
    shortest_s, warm_s, stalls, calls = first_s, 0.0, 0, 1
    while True:
        begin = start = clock()
        if before is not None:
            before()
            start = clock()
        for _ in range(calls):
            call()
        end = clock()
        call_s = (end - start) / calls
        shortest_s = min(shortest_s, call_s)
        if call_s > STALLED * shortest_s and stalls < MOST_STALLS:
            stalls += 1
            continue
        warm_s += end - begin
        if warm_s >= seconds:
            return call_s, (end - begin) / calls
        calls = 1 if before is not None else min(2 * calls, 1000)


LONGEST_WARMUP, RISING = 1.5, 1.03
"""Seconds after which an accelerator's warm-up ends, and the factor from one part of it to the next above which its
clocks or calls still change."""
HEAVY_WARMUP, HEAVY = 0.5, 0.9
"""Least seconds of warm-up under heavy load, as nvbench's least time of a measurement, because the power controller
needs tenths of a second to lower the clocks; and the share of the power limit above which a load is heavy."""


def until_clocks_stand(
    warm: Callable[[], tuple[float, float]],
    clock: Callable[[], float],
    accelerators: Sequence[Device],
    agree: Callable[[bool], bool] = bool,
) -> tuple[float, float]:
    """Repeat the warm-up of accelerators until neither their clocks rise nor the calls, whose seconds ``warm`` returns
    first, get shorter; under heavy load also until the power limit acts and the calls stop getting longer. Return the
    seconds of the last warm-up.

    The clocks of laptops' and gamers' cards fall between two cases, and take up to a second to rise. ``agree`` makes
    one process's decision that of all that warm up together.
    """

    def clocks() -> dict[tuple[Device, str], float]:
        return {(each, name): hertz for each in accelerators for name, hertz in (each.clocks() or {}).items()}

    begin, stand = clock(), False
    warmed, now = warm(), clocks()
    while accelerators and not agree(stand or clock() - begin >= LONGEST_WARMUP):
        before, risen_from = warmed, now
        warmed, now = warm(), clocks()
        rising = any(now[name] > RISING * risen_from.get(name, math.inf) for name in now)
        stand = not rising and RISING * warmed[0] >= before[0]
        if any((each.power_share() or 0.0) > HEAVY for each in accelerators):
            stand = stand and warmed[0] <= RISING * before[0] and clock() - begin >= HEAVY_WARMUP
    return warmed


class DeviceClock:
    """Waits for the devices of one case, then reads the time.

    It is read at both ends of a round, so all calls of the round share the wait at its end.
    """

    def __init__(self, devices: Iterable[Device]) -> None:
        self._by_library: dict[Device, _Call] = {}
        self.use(devices)

    def use(self, devices: Iterable[Device]) -> None:
        """Wait for these devices from now on, and read the accelerator's clock if there is one."""
        self.devices = tuple(dict.fromkeys(devices))
        accelerators = [device for device in self.devices if device.accelerator]
        plain = [device.synchronize for device in accelerators if device not in self._by_library]
        self._waits = [*self._by_library.values(), *plain]
        self.now = accelerators[0].now if accelerators else perf_counter
        """Reads the time without waiting, to time what the host does meanwhile."""

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


def add_wait(wait: _Call) -> _Call:
    """Call ``wait`` before every reading of :func:`timer` and of the fixture's clock, and return it. It must return
    once the work of a library other than torch is done: ``add_wait(cupy.cuda.Device().synchronize)`` in a conftest.py.
    """
    if wait not in _own_waits:
        _own_waits.append(wait)
    return wait


def unwaited() -> list[str]:
    """Names of the libraries that this process has loaded and for whose work no clock waits."""
    return [] if _own_waits else [name for module, name in UNAWARE.items() if module in sys.modules]


_watched: list[type[Device]] | None = None


def watch_present_kinds() -> None:
    """Restrict :func:`timer` to the kinds of which a device is present: asking all kinds takes ten microseconds, which
    would show in a round of one short call."""
    global _watched
    _watched = [kind for kind in kinds().values() if kind.count()] if "torch" in sys.modules else None


def timer() -> float:
    """Return the time in seconds after waiting for every accelerator in use: ``--benchmark-timer=gpubench.timer`` for
    plain ``benchmark`` tests."""
    for wait in _own_waits:
        wait()
    if "torch" in sys.modules:  # else none of torch's is in use
        for device in in_use(_watched):
            device.synchronize()
    return perf_counter()
