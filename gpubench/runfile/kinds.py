"""Kinds of work: what a benchmark's marker may say that it is, in the order of a report, and the words people read.

Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schema import Case


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work: ``words`` in a sentence.

    ``summarised`` is false where no answer counts its benchmarks: they explain others, or have tables of their own.
    ``unlike``: a network is a network of its own, and no median over several means anything.
    """

    words: str
    summarised: bool = True
    unlike: bool = False

    @property
    def heading(self) -> str:
        """What stands above its benchmarks."""
        return self.words[:1].upper() + self.words[1:]


KINDS: Mapping[str, Kind] = {
    "matmul": Kind("matrix products"),
    "networks": Kind("networks", unlike=True),
    "training": Kind("training", unlike=True),
    "other_matmul": Kind("other matrix products"),
    "operators": Kind("operators of networks"),
    "linear_algebra": Kind("linear algebra"),
    "irregular": Kind("sorting and irregular access"),
    "science": Kind("science and images"),
    "elementwise": Kind("elementwise work"),
    "copies": Kind("copies", summarised=False),
    "distributed": Kind("multi-GPU work", summarised=False),
    "details": Kind("details of other benchmarks", summarised=False),
}
"""By the marker's ``kind``. ``details`` are parts of a step, and settings that nobody would use for the work itself."""


def names_of(case: Case) -> tuple[str, ...]:
    """What a report calls the benchmark and its kind of work, to be typed like any other name."""
    kind = KINDS.get(case.kind)
    return tuple(filter(None, (case.title, kind.heading if kind else "")))


@cache
def shipped() -> Mapping[str, tuple[str, str]]:
    """Return the kind and the title of each workload that comes with gpubench, for results files that don't hold them:
    those of earlier versions. ``suite.json`` is made from the markers in ``benchmarks/``."""
    known = json.loads(Path(__file__).with_name("suite.json").read_text(encoding="utf-8"))
    return {workload: (kind, title) for workload, (kind, title) in known.items()}
