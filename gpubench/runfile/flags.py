"""The meaning of each flag in a results file: its cause, and advice.

Measuring raises the flags, with the evidence; every reader takes their meaning from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field


class Flag(Struct, frozen=True):
    """One flag raised in one process."""

    name: Annotated[str, Meta(description="its name in the catalogue of flags")] = field(name="flag")
    seen: Annotated[str, Meta(description="what was seen, with its numbers")] = ""


class Advice(NamedTuple):
    """The cause of a flag, and the remedy."""

    why: str
    remedy: str


WAITING = "waiting"  # the flag of a time that measures the scheduler: it is compared with nothing
IMPLAUSIBLE = "implausible"  # raised by a report too, where the peaks were measured too low
CONTENDED, TOO_SHORT, NOISY_FLAG = "contended", "too-short", "noisy"
DIFFERENT = "different-result"  # the flag of an expression with another result than the first one: its time is right
POWER_LIMITED = "power-limited"  # the usual state of a busy GPU: the time is right and is no noise
NOISY = 0.15  # spread (IQR over median) above which the median of a few rounds is unreliable
FEW = 5  # the fewest rounds that show a process's own spread

ADVICE = {
    IMPLAUSIBLE: Advice(
        "the call returned before its work was finished, the declared work is too large, or a result was cached",
        "name every device that the call uses (devices=); check nbytes=, flops= and the result",
    ),
    CONTENDED: Advice(
        "other programs used the same cores or the same GPU",
        "close other programs, or leave a core free (--threads); on a shared machine use compare --interleave",
    ),
    WAITING: Advice(
        "other programs used the cores, and the threads of one operation waited for each other until the scheduler let"
        " them go on, so the time mostly measures the scheduler",
        "measure with one thread: --threads 1",
    ),
    "throttled": Advice(
        "the device lowered its clocks because of heat or a slowdown signal",
        "improve the cooling, or lock the clocks at a lower rate and report that rate",
    ),
    POWER_LIMITED: Advice(
        "the device worked at its power limit, as a busy GPU does: the time is right for this limit",
        "nothing, or raise the power limit; compare with runs at the same limit",
    ),
    "noisy": Advice(
        "background programs, changing clocks, a cold cache at the start, or a call whose time depends on its data",
        "use an idle machine, more --processes or --preset full (longer warm-up), or lock the clocks",
    ),
    "altered": Advice(
        "the benchmark left settings of its process changed, or its call changes what it is given: later calls were"
        " timed with others than the first",
        "put settings back, with a context manager or pytest's monkeypatch; make what a call changes anew before each"
        " call: setup=, or --each of gpubench time",
    ),
    "switched": Advice(
        "the process was started with settings that change what an accelerator does: its times are those of other code",
        "unset the variable or the switch, unless that is what you measure; only runs with equal settings are compared",
    ),
    "unwaited": Advice(
        "the call returned before its work was done: that is done when the result is read, or a library was loaded"
        " whose queued work only it can wait for",
        "read or wait for the result in the call, or tell the clock how:"
        " gpubench.add_wait(cupy.cuda.Device().synchronize) in a conftest.py",
    ),
    DIFFERENT: Advice(
        "the result isn't that of the first expression, so the times are of different work",
        "compare expressions that compute the same",
    ),
    TOO_SHORT: Advice(
        "a round was so short that reading the clock or synchronizing takes a large part of it, or a call so short that"
        " calling a function does",
        "use a larger size, do the work many times in one call, or leave out setup=: without it a round holds as many"
        " calls as needed",
    ),
}


class Reason(StrEnum):
    """Why a number isn't sound, the most serious reason first: the text in place of the number."""

    WAITED = "unknown (threads waited)"
    ABOVE_PEAK = "above the measured peak"
    BUSY = "machine busy"
    TOO_SHORT = "too short"
    TOO_NOISY = "unknown (too noisy)"
    NOISY = "noisy"
    FEW_THREADS = "fewer threads than the CPU has"

    @property
    def interval(self) -> str:
        """The text in place of the number's interval; empty where the interval is shown."""
        words = {"WAITED": "waited", "BUSY": "busy", "TOO_SHORT": "too short", "TOO_NOISY": "too noisy"}
        return words.get(self.name, "")


class Quality(NamedTuple):
    """How good a time, or a ratio of two times, is: the reasons ``why`` it has a star, the most serious first, and the
    ``doubt`` for which no number is shown that is made of it."""

    why: tuple[Reason, ...] = ()
    doubt: Reason | None = None

    @property
    def star(self) -> str:
        """The sign beside the number."""
        return "*" if self.why else ""

    @property
    def noisy(self) -> bool:
        """Whether something was seen that may put the time far off."""
        return not {Reason.ABOVE_PEAK, Reason.TOO_NOISY}.issuperset(self.why)


_REASONS = {WAITING: Reason.WAITED, IMPLAUSIBLE: Reason.ABOVE_PEAK, CONTENDED: Reason.BUSY, TOO_SHORT: Reason.TOO_SHORT}
"""Any other flag, except the power limit and another result, says that the time is noisy."""


def judge(flags: Iterable[str], spread: float = 0.0) -> Quality:
    """The quality of a time with these flags and this spread, half its range over the time. A rate above the measured
    peak can't be true."""
    reasons = {_REASONS.get(name, Reason.NOISY) for name in flags if name not in (POWER_LIMITED, DIFFERENT)}
    why = tuple(reason for reason in Reason if reason in reasons or (reason is Reason.TOO_NOISY and spread > 1))
    return Quality(why, next((reason for reason in why[:1] if reason in (Reason.WAITED, Reason.ABOVE_PEAK)), None))
