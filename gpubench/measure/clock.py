"""Clocks that wait for the device before they are read.

Work on an accelerator is queued, not done, when a call returns. A clock that doesn't wait times the queueing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence

from ..devices import Device, in_use


class DeviceClock:
    """Waits for the devices of one case, then reads the time: the timer that pytest-benchmark is given.

    It is read at both ends of a round, so the wait at the end is shared by all the round's calls.
    """

    __name__ = "device_clock"  # pytest-benchmark writes it into the run file

    def __init__(self, devices: Iterable[Device]) -> None:
        self.use(devices)

    def use(self, devices: Iterable[Device]) -> None:
        """Wait for these devices from now on, and read the accelerator's clock if there is one."""
        self.devices = tuple(dict.fromkeys(devices))
        accelerators = [device for device in self.devices if device.accelerator]
        self._waits: tuple[Callable[[], None], ...] = tuple(device.synchronize for device in accelerators)
        self._now = accelerators[0].now if accelerators else time.perf_counter

    def __call__(self) -> float:
        for wait in self._waits:
            wait()
        return self._now()

    def wait_s(self, reads: int = 20) -> float:
        """Seconds that one wait takes when there is nothing to wait for (median of ``reads``)."""
        self()
        costs = []
        for _ in range(reads):
            start = self._now()
            for wait in self._waits:
                wait()
            costs.append(self._now() - start)
        return sorted(costs)[reads // 2]


def timer() -> float:
    """For plain ``benchmark`` tests: ``--benchmark-timer=gpubench.timer`` waits for every accelerator in use.

    A process that hasn't imported torch has none in use.
    """
    if "torch" in sys.modules:
        for device in in_use():
            device.synchronize()
    return time.perf_counter()


# Durations that were measured elsewhere, entered as a case's own.


class ReplayTimer:
    """A timer that returns 0, d0, 0, d1, …: read at both ends of each round, its rounds last d0, d1, ….

    For ``benchmark.pedantic`` only, which reads it twice a round; the calibrating mode would never end. It raises
    ``IndexError`` when it is read more often than there are durations.
    """

    __name__ = "replay"  # pytest-benchmark writes it into the run file

    def __init__(self) -> None:
        self._readings: list[float] = []

    def load(self, durations: Sequence[float]) -> None:
        """Seconds of each round."""
        self._readings = [reading for duration in reversed(durations) for reading in (duration, 0.0)]

    def __call__(self) -> float:
        return self._readings.pop()
