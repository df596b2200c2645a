"""Kinds of work: the values that a benchmark's marker may have, in the order of a report, and their names for people.
Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .schema import Case


class Kind(NamedTuple):
    """A kind of work; ``words`` is its name in a sentence. It isn't ``summarised`` where no summary counts its
    benchmarks, because they have their own tables."""

    words: str
    summarised: bool = True

    @property
    def heading(self) -> str:
        """The heading above the benchmarks of this kind."""
        return self.words[:1].upper() + self.words[1:]


KINDS: Mapping[str, Kind] = {
    "matmul": Kind("matrix products"),
    "networks": Kind("networks"),
    "training": Kind("training"),
    "elementwise": Kind("elementwise work"),
    "other_matmul": Kind("other matrix products"),
    "operators": Kind("operators of networks"),
    "linear_algebra": Kind("linear algebra"),
    "irregular": Kind("sorting and irregular access"),
    "science": Kind("science and images"),
    "copies": Kind("copies", summarised=False),
    "distributed": Kind("multi-GPU work", summarised=False),
}  # kinds by the marker's ``kind``


def names_of(case: Case) -> tuple[str, ...]:
    """The names of the benchmark, its kind of work and its variant in a report, which ``-k`` accepts."""
    heading = KINDS[case.kind].heading if case.kind in KINDS else ""
    return tuple(filter(None, (case.title, heading, case.variant)))
