"""What a run will take, told before it: for the run's first line and for ``--list`` alike; standard library only.

All constants were seen on two cores with the preset ``quick``, but for those that name presets.
"""

from __future__ import annotations

START_S = 4.0
"""What a process takes beside its cases: it imports torch, collects, ends."""
FURTHER = 0.5
"""A case in a further process, of what it took in the first: the rounds are shared, and nothing is checked again."""
RANKS_S = 2.0
"""A case of several processes."""
CEILINGS_S = {"smoke": 1.0, "quick": 5.0, "full": 15.0}
"""The ceilings of a device."""


def whole_s(first_s: float, processes: int) -> float:
    """Seconds of a run whose first process spends so many on cases and ceilings."""
    return processes * START_S + first_s * (1 + FURTHER * (processes - 1))
