"""What can go wrong, for callers to catch:

GpubenchError
├── UsageError        an option, name or path that can't be used: the message names what exists
├── RunFileError      a file that can't be trusted: the message names the file, the place and what was expected
├── WrongAnswer       a benchmarked call returned something else than its reference
├── WorkMismatch      a declared amount of work disagrees with what was counted
├── RankFailure       one of several processes died, hung or raised: the message names its rank
└── Unmeasurable      a case that this machine can't measure within its limits: a skip with a reason
    ├── TooLarge      not enough memory
    └── OverBudget    not enough time
"""

import argparse


class GpubenchError(Exception):
    """Base of all errors this package raises on purpose; its text is one line."""


class UsageError(GpubenchError, argparse.ArgumentTypeError):
    """An option, name or path that can't be used; argparse prints its text as it is."""


class RunFileError(GpubenchError):
    """A run file that is missing, truncated, foreign or inconsistent."""


class WrongAnswer(GpubenchError, AssertionError):
    """The benchmarked call is wrong: its time would be meaningless."""


class WorkMismatch(GpubenchError, ValueError):
    """Declared FLOPs disagree with those counted from the call itself."""


class RankFailure(GpubenchError):
    """A rank that ended its case: ``status`` is that of the case."""

    def __init__(self, rank: int | None, reason: str, status: str) -> None:
        super().__init__(reason if rank is None else f"rank {rank}: {reason}")
        self.rank, self.reason, self.status = rank, reason, status

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.rank, self.reason, self.status)


class Unmeasurable(GpubenchError):
    """The case doesn't fit this machine: it becomes a skip with the numbers in its reason."""


class TooLarge(Unmeasurable):
    """The case doesn't fit into the free memory; the text has both numbers."""


class OverBudget(Unmeasurable):
    """The case would take longer than it may; the text has the prediction and what it rests on."""
