"""Why a benchmark has no verdict: one table of causes, with their words. Programs read the cause, people the words."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

BUSY, USE_QUIETER = "the machine was busy: measure again, or use --interleave", "use a quieter machine"
_QUIETER = "a quieter machine"
_MORE = "more runs"
FEWER_THREADS = ", or fewer --threads"


class Cause(Enum):
    """The head, the text after a colon with gaps for figures, advice that doesn't depend on figures, and the need of a
    benchmark with this cause."""

    SMOKE = (
        "smoke run", "too few rounds", "smoke runs take too few rounds to prove anything: use --preset quick",
        "--preset quick",
    )  # fmt: skip
    HELD_UP = "machine busy", "something held up {} processes of base and {} of new", BUSY, _QUIETER
    SLOW_THREADS = "machine busy", "all threads were slower than one", f"{BUSY}, or --threads 1", "--threads 1"
    BESIDE = "machine busy", "other programs ran beside each process of {}, and none of the other side", BUSY, _QUIETER
    WAITED = (
        "one run a side on a busy machine", "its rounds may have waited", BUSY, _QUIETER
    )  # fmt: skip
    UNKNOWN_CPU = "the CPU is unknown", "no model in {}", "--allow machine compares anyway", "--allow machine"
    ONE_PROCESS = "one process per side", "its noise is unknown", "more processes of each side would show it", _MORE
    SHARED = (
        "all benchmarks changed alike", "perhaps the machine did", "use --interleave, which tells them apart",
        "--interleave",
    )  # fmt: skip
    UNCONFIRMED = "may have changed, not confirmed", "", "fresh pairs can confirm it: run again", "fresh pairs"
    NEAR = "near the threshold", "the interval has smaller and larger changes", "", _MORE
    DRIFT = "too noisy", "that whole runs drifted by about {} can't be ruled out", "", _MORE
    NOISY = "too noisy", "processes vary by {}", "", _MORE
    HIDDEN = "too noisy", "even {} could have gone unnoticed", USE_QUIETER, _QUIETER
    UNSEEN = "", "a change of {} would have been noticed 4 times out of 5", "", ""

    def __init__(self, head: str, text: str, advice: str, need: str) -> None:
        self.head, self.text, self.advice, self.need = head, text, advice, need


HELD_UP = frozenset({Cause.HELD_UP, Cause.SLOW_THREADS, Cause.BESIDE, Cause.WAITED})
"""Causes for which too few processes could be used."""
EASED = frozenset({Cause.HELD_UP, Cause.BESIDE, Cause.HIDDEN})
"""Causes that fewer threads make rarer, where the work has several."""


class Reason(NamedTuple):
    """A cause, and the figures of one benchmark."""

    cause: Cause
    figures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.cause.head, self.cause.text.format(*self.figures))))
