"""How many devices to try: the same numbers on every machine, up to what the larger ones have."""

from __future__ import annotations

from .. import devices
from ..devices.cpu import cores
from .rendezvous import launched

MOST_RANKS_ON_A_CPU = 8


def device_counts() -> list[int]:
    """2, 4, 8, … up to the most devices of a kind (the cores of a CPU, 8 at most), and that number itself.

    Under torchrun its ranks count, wherever they are.
    """
    most = max(min(cores(), MOST_RANKS_ON_A_CPU), *(kind.count() for kind in devices.kinds().values()))
    place = launched()
    if place is not None:
        most = place.size
    counts = [2]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    return counts if most <= counts[-1] else [*counts, most]
