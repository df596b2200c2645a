"""What can go wrong, for callers to catch."""

import argparse


class GpubenchError(Exception):
    """Base of all errors this package raises on purpose; its text is one line."""


class UsageError(GpubenchError, argparse.ArgumentTypeError):
    """An option, name or path that can't be used: the text names what exists, and argparse prints it as it is."""


class Unrepeatable(UsageError):
    """The call can't be repeated in float64 to check its result."""


class RunFileError(GpubenchError):
    """A run file that can't be trusted: the text names the file, the place and what was expected."""


class WrongAnswer(GpubenchError, AssertionError):
    """The benchmarked call returned something else than its reference: its time would be meaningless."""


class WorkMismatch(GpubenchError, ValueError):
    """Declared FLOPs disagree with those counted from the call itself."""


class RankFailure(GpubenchError):
    """A rank that died, hung or raised ends its case: the text names the rank, ``status`` is that of the case."""

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
