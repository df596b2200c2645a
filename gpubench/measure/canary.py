"""The thread canary: one small matrix product on one thread and on all of them.

With a busy neighbour, threads that wait for each other make more of them slower than one, by up to 50 times, and
the spread of the rounds shows nothing of it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

from ..flags import Flag
from ..quantity import seconds_text

SIZE = 256
CALLS = 30
SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Canary:
    """Median seconds of the product on one thread and on ``threads``."""

    threads: int
    one_s: float
    all_s: float

    def flag(self) -> Flag | None:
        """``contended`` when more threads are slower than one."""
        if self.all_s <= self.one_s:
            return None
        one, every = seconds_text(self.one_s), seconds_text(self.all_s)
        return Flag("contended", f"a {SIZE}×{SIZE} product took {every} on {self.threads} threads and {one} on one")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def canary(threads: int) -> Canary | None:
    """``None`` with one thread: there is nothing to compare. The thread count is as before afterwards."""
    import torch

    if threads < 2:
        return None
    a = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(a)
    medians = []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            torch.mm(a, a, out=out)
            torch.mm(a, a, out=out)
            times: list[float] = []
            while len(times) < 5 or (len(times) < CALLS and sum(times) < SECONDS):
                start = time.perf_counter()
                torch.mm(a, a, out=out)
                times.append(time.perf_counter() - start)
            medians.append(statistics.median(times))
    finally:
        torch.set_num_threads(threads)
    return Canary(threads, *medians)
