"""Durations that were measured elsewhere, entered as a case's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..flags import Flag
from .check import Check, unchecked


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What several processes or devices found for one case.

    ``durations``: seconds of each round, of its slowest rank; ``iterations``: calls in each. ``flags``: what was wrong
    meanwhile.
    """

    durations: Sequence[float]
    iterations: int = 1
    devices: Sequence[str] = ()
    threads: int | None = None
    check: Check = field(default_factory=lambda: unchecked("not checked"))
    first_s: float = 0.0
    steps: int | None = None
    flags: Sequence[Flag] = ()
