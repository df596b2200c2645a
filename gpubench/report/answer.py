"""The answer: how much faster each device is, from which size, and whether it is worth it.

Pure functions from a report's tables to words and numbers; the terminal, summary.md, the pictures' titles and the page
show the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ..runfile.schema import Run
from .labels import Row

WORTH_IT, IF_IT_STAYS, NOT_WORTH_IT, UNSURE = "worth it", "if the data stays", "no", "unsure"
MARKS = {WORTH_IT: "✓", IF_IT_STAYS: "◐", NOT_WORTH_IT: "✗", UNSURE: "?"}
TOO_NOISY = "unknown (too noisy)"


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of work on a card; the numbers are those of ``row``, one measured pair, and never a mean.

    ``typically``, ``range``, ``copies`` and ``since`` are ready to print; ``members`` are the pairs that ``range``
    spans, one a workload, each at its largest size. ``row`` is None where all of them are too noisy.
    """

    name: str
    typically: str
    range: str
    copies: str
    since: str
    verdict: str
    row: Row | None
    members: tuple[Row, ...]

    @property
    def worth(self) -> str:
        """``✓ worth it``"""
        return f"{MARKS[self.verdict]} {self.verdict}"


@dataclass(frozen=True, slots=True)
class Card:
    """One device against a named baseline: ``NVIDIA H200`` against ``Intel Xeon, 2 threads``."""

    run: str
    device: str
    baseline: str
    rows: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """A workload's time on a CPU at its largest size; ``time`` has a ``*`` where it was flagged."""

    name: str
    time: str
    rate: str
    peak: str
    row: Row


@dataclass(frozen=True, slots=True)
class Answer:
    """``cards`` where there is something to hold against something, ``times`` where there is only a CPU.

    ``hint`` is one line on how to see a GPU, empty where there is one.
    """

    sentence: str
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    times: tuple[Timing, ...] = ()
    hint: str = ""


def answer(results: pd.DataFrame, speedups: pd.DataFrame, crossovers: pd.DataFrame, runs: Sequence[Run]) -> Answer:
    """``results``, ``speedups`` and ``crossovers`` as :func:`.table.results_table`, :func:`.speedup.pair` and
    :func:`.crossover.crossover_table` make them."""
    raise NotImplementedError
