"""Why a benchmark has no verdict: one table of causes, with their words. Programs read the cause, people the words."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

_BUSY = "the machine was busy: measure again, or use --interleave"

FEWER_THREADS = ", or fewer --threads"


class Cause(Enum):
    """What people read first, what follows a colon with figures in the gaps, and advice that doesn't depend on them."""

    SMOKE = "smoke run", "too few rounds", "smoke runs take too few rounds to prove anything: use --preset quick"
    HELD_UP = "machine busy", "something held up {} processes of base and {} of new", _BUSY
    SLOW_THREADS = "machine busy", "all threads were slower than one", f"{_BUSY}{FEWER_THREADS}"
    BESIDE = "machine busy", "other programs ran beside each process of {}, and none of the other side", _BUSY
    WAITED = "one run a side on a busy machine", "its rounds may have waited", "measure again, or --interleave"
    UNKNOWN_CPU = "the CPU is unknown", "no model in {}", "--allow machine compares anyway"
    ONE_PROCESS = "one process per side", "its noise is unknown", ""
    SHARED = "changed as the others did", "perhaps drift", "what all benchmarks share may be drift: use --interleave"
    UNCONFIRMED = "suspect, not confirmed", "", "only --interleave with a larger --budget can confirm it"
    NEAR = "near the threshold", "the interval has smaller and larger changes", ""
    DRIFT = "too noisy", "that whole runs drifted by about {} can't be ruled out", ""
    NOISY = "too noisy", "processes vary by {}", ""
    HIDDEN = "too noisy", "screening may have missed a change of {}", "use a quieter machine"
    UNSEEN = "", "a change of {} would have made it suspect 4 times out of 5", ""

    @property
    def head(self) -> str:
        """What several benchmarks without a verdict are listed under."""
        return str(self.value[0])

    @property
    def advice(self) -> str:
        """What to do, whatever the figures."""
        return str(self.value[2])


HELD_UP = frozenset({Cause.HELD_UP, Cause.SLOW_THREADS, Cause.BESIDE, Cause.WAITED})
"""Causes for which too few processes could be used."""
EASED = frozenset({Cause.HELD_UP, Cause.BESIDE, Cause.HIDDEN})
"""Causes that fewer threads make rarer, where the work has several."""


class Reason(NamedTuple):
    """A cause, and the figures of one benchmark."""

    cause: Cause
    figures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.cause.head, self.cause.value[1].format(*self.figures))))
