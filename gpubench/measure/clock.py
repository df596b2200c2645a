"""Clocks that wait for the device before they are read, and loops that use them: a call returns when its work is
queued, and a clock that doesn't wait times the queueing."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter  # imported by name: a benchmark may patch time.perf_counter
from typing import Any

from ..devices import Device, in_use, kinds

_Call = Callable[[], Any]
MIN_ROUND, MIN_WAITS = 2e-3, 100
"""Shortest round: in seconds, and in multiples of the time that one wait for the device takes."""
STALLED, MOST_STALLS = 2.0, 3
"""A block whose calls take more than 2 times as long as the shortest was interrupted; at most 3 are judged so."""
LONGEST_WARMUP, RISING, HIGHEST = 1.5, 1.03, 0.97
"""Seconds after which an accelerator's warm-up ends, the factor above which its clocks or calls still change, and the
share of its highest clock above which they can't rise."""
HEAVY_WARMUP, HEAVY = 0.5, 0.9
"""Least seconds of warm-up under heavy load, as nvbench's least time of a measurement, because the power controller
needs tenths of a second to lower the clocks; and the share of the power limit above which a load is heavy."""


def repeat(
    call: _Call, clock: Callable[[], float], *, least: int, most: int, seconds: float = math.inf, calls: int = 1,
    before: _Call | None = None,
) -> list[float]:  # fmt: skip
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


def settle_clocks(
    warm: Callable[[], tuple[float, float]],
    clock: Callable[[], float],
    accelerators: Sequence[Device],
    agree: Callable[[bool], bool] = bool,
) -> tuple[float, float]:
    """Repeat the warm-up of accelerators until neither their clocks rise nor the calls, whose seconds ``warm`` returns
    first, get shorter; under heavy load also until the power limit acts and the calls stop getting longer. Return the
    seconds of the last warm-up.

    The clocks of laptops' and gamers' cards fall between two cases, and take up to a second to rise; one warm-up is
    enough where they are at their highest already. ``agree`` makes one process's decision that of all that warm up
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
    """Waits for the devices of one case, then reads the time, at both ends of a round: its calls share one wait."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._by_library: dict[Device, _Call] = {}
        self.use(devices)

    def use(self, devices: Iterable[Device]) -> None:
        """Wait for these devices from now on, and read the accelerator's clock if there is one."""
        self.devices = tuple(dict.fromkeys(devices))
        accelerators = [device for device in self.devices if device.accelerator]
        plain = [device.synchronize for device in accelerators if device not in self._by_library]
        self._waits = [*self._by_library.values(), *plain]
        self.now = accelerators[0].now if accelerators else perf_counter  # doesn't wait: times what the host does

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
    """Return the names of the libraries that this process has loaded and for whose work no clock waits."""
    return [] if _own_waits else [name for module, name in UNAWARE.items() if module in sys.modules]


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
    for device in in_use(_watched):
        device.synchronize()
    return perf_counter()
