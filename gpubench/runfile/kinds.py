"""Kinds of work: what a benchmark's marker may say that it is, in the order of a report, and the words people read.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schema import Case


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work: ``heading`` stands above its benchmarks, ``words`` in a sentence.

    ``summarised`` is false where no answer counts its benchmarks: they explain others, or have tables of their own.
    """

    heading: str
    words: str
    summarised: bool = True


KINDS: Mapping[str, Kind] = {
    "matmul": Kind("n × n matrix products", "matrix products"),
    "other_matmul": Kind("Other matrix products", "other matrix products"),
    "networks": Kind("Running networks", "networks"),
    "training": Kind("Training networks", "training"),
    "operators": Kind("Operators of networks", "operators"),
    "linear_algebra": Kind("Linear algebra", "linear algebra"),
    "irregular": Kind("Sorting, irregular access", "sorting and irregular access"),
    "science": Kind("Science and images", "science and images"),
    "elementwise": Kind("Elementwise work", "elementwise work"),
    "copies": Kind("Copies", "copies", summarised=False),
    "distributed": Kind("Multi-GPU", "multi-GPU work", summarised=False),
    "details": Kind("Details", "details of other benchmarks", summarised=False),
}
"""By the marker's ``kind``. ``details`` are parts of a step, and settings that nobody would use for the work itself."""
WORK_KINDS = tuple(kind.heading for kind in KINDS.values() if kind.summarised)
"""Headings of the kinds that answers count."""


def kind_of(case: Case) -> str | None:
    """The heading of its kind; its workload where it is of no kind that is known here, as one's own benchmarks are;
    None where no answer counts it."""
    kind = KINDS.get(case.kind)
    if kind is None:
        return case.workload
    return kind.heading if kind.summarised else None


def name_of(case: Case) -> str:
    """What people read of a benchmark within its kind: its title, else its test's name; one's own keeps its
    workload's."""
    if not case.kind:
        return case.title or case.workload
    return case.title or case.workload.rpartition(".")[2].replace("_", " ")


def names_of(case: Case) -> tuple[str, ...]:
    """What a report calls the benchmark and its kind of work, to be typed like any other name."""
    kind = KINDS.get(case.kind)
    return tuple(filter(None, (case.title, kind.heading if kind else "")))
