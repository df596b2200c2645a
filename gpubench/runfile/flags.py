"""What may be wrong with a number, why, and what to try: the catalogue behind every flag in a run file.

Measuring decides which flags a case gets and what was seen; this says what they mean, for every reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct, field


class Flag(Struct, frozen=True):
    """One flag raised in one process."""

    name: Annotated[str, Meta(description="its name in the catalogue of flags")] = field(name="flag")
    seen: Annotated[str, Meta(description="what was seen, with its numbers")] = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """Why a flag may have come up, and what to try."""

    why: str
    remedy: str


NOISY = 0.15
"""Spread (IQR over median) above which a median of a few rounds says little."""
FEW = 5
"""With fewer rounds a process can't tell its own spread."""
APART = 1.25
"""Slowest over fastest process: on a quiet machine nine of ten cases stay below."""


def apart(processes: Sequence[tuple[float, int]], spread: float) -> str | None:
    """What is ``noisy`` about a case that no process alone could see; None for nothing.

    ``processes`` are each one's median and number of rounds, ``spread`` the IQR over the median of all their rounds.
    """
    if len(processes) < 2:
        return None
    medians = sorted(median for median, _ in processes)
    if medians[-1] > APART * medians[0]:
        return f"the slowest process took {medians[-1] / medians[0]:.3g} times the fastest"
    rounds = [count for _, count in processes]
    if max(rounds) < FEW <= sum(rounds) and spread > NOISY:
        return f"half of all {sum(rounds)} rounds are spread over {spread:.0%} of the median"
    return None


ADVICE = {
    "implausible": Advice(
        "the call returned before its work was done, the declared work is too large, or the answer was cached",
        "name every device the call uses (devices=), check nbytes= and flops=, look at the answer",
    ),
    "contended": Advice(
        "other work ran on the same cores or the same device",
        "stop it, or measure with fewer threads (--threads); on a shared machine compare only interleaved runs",
    ),
    "throttled": Advice(
        "the device lowered its clocks: heat, power limit or a slowdown signal",
        "improve cooling, raise the power limit, or lock the clocks below it and say so",
    ),
    "noisy": Advice(
        "background work, changing clocks, or a call whose cost depends on its data",
        "more processes (--processes 10), an idle machine, --preset full",
    ),
    "drifting": Advice(
        "clocks that settle, memory that fragments or a device that warms up while it is measured",
        "a longer warm-up: --preset full; locked clocks",
    ),
    "cold": Advice(
        "the first rounds were slower than the rest: caches, lazy loading, clocks that rise",
        "a longer warm-up: --preset full",
    ),
    "too-short": Advice(
        "a round was so short that reading the clock, or waiting for the device, is part of the figure",
        "a larger size; without setup= rounds are filled with as many calls as it takes",
    ),
}
