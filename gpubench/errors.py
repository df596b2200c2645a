"""The exceptions that the package raises, for callers to catch."""

import argparse


def clean(text: str) -> str:
    """One line of printable characters: names from a file end up in terminals, CSV cells and SVG."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


class GpubenchError(Exception):
    """Base of all errors that this package raises on purpose; its text is one line of printable characters."""

    def __str__(self) -> str:
        return clean(super().__str__())


class UsageError(GpubenchError, argparse.ArgumentTypeError):
    """An option, name or path that can't be used: the text lists the possible ones, and argparse prints it
    unchanged."""


class Unwritten(UsageError):
    """A file that can't be written, on a full disk for example."""


class RunFileError(GpubenchError):
    """A run file that can't be trusted: the text names the file, the place and what was expected."""


class WrongAnswer(GpubenchError, AssertionError):
    """The benchmarked call's result differs from its reference, so its time would be meaningless."""


class WorkMismatch(GpubenchError, ValueError):
    """Declared FLOPs disagree with those counted from the call itself."""


class RankFailure(GpubenchError):
    """A rank that died, hung or raised, which ends its case: the text names the rank, ``status`` is the case's."""

    def __init__(self, rank: int | None, reason: str, status: str) -> None:
        super().__init__(reason if rank is None else f"rank {rank}: {reason}")
        self.rank, self.reason, self.status = rank, reason, status


class Unmeasurable(GpubenchError):
    """The case can't be measured on this machine; it is skipped, with the numbers as the reason."""


class TooLarge(Unmeasurable):
    """The case doesn't fit into the free memory; the text has both numbers."""


class OverBudget(Unmeasurable):
    """The case would exceed its time budget; the text has the prediction and its basis."""
