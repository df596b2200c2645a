"""One device against another, by kind of work: what the answer's sentence and table, and the pictures' titles, say.

A ratio between a GPU of one machine and a CPU of another says nothing about either. So a single GPU is compared with
the CPU of its own machine, and several devices of one kind with the slowest of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from . import pairs, words
from .pairs import Baseline, Pair, Verdict
from .rows import Doubt, Measured, grouped
from .study import Study
from .sweeps import kind_named, representatives

_WINS = (Verdict.WORTH_IT, Verdict.IF_IT_STAYS)
_DEPENDS = "depends"


@dataclass(frozen=True, eq=False)
class WorkRow:
    """A kind of work on a card: a pair for each of its workloads, in one setting at the largest size that both devices
    have. ``faster_from`` is ready to print."""

    heading: str
    pairs: tuple[Pair, ...]
    faster_from: str

    @cached_property
    def known(self) -> list[Pair]:
        """Pairs whose speedup is shown, the smallest first."""
        return pairs.known_pairs(self.pairs)

    @property
    def typical(self) -> Pair | None:
        """A measured pair, the one in the middle, which stands for the kind."""
        return pairs.middle(self.known) if self.known else None

    @property
    def name(self) -> str:
        """``Networks``; with the dtype where that isn't float32."""
        dtype = self.typical.other.dtype if self.typical else ""
        plain = dtype in ("", "float32") or kind_named(self.heading) is None
        return self.heading if plain else f"{self.heading}, {dtype}"

    @property
    def ratio(self) -> str:
        """``132×``, or why it is unknown."""
        if self.typical:
            return words.ratio(self.typical)
        return Doubt.TOO_NOISY

    @property
    def range(self) -> str:
        """The interval of one benchmark; of several the smallest and the largest speedup, and how many they are."""
        if not self.typical:
            return words.NO_VALUE
        if len(self.known) == 1:
            return words.times_range(self.typical.ratio.low, self.typical.ratio.high)
        return f"{words.times_range(self.known[0].speedup, self.known[-1].speedup)} ({len(self.known)})"

    @property
    def verdict(self) -> Verdict:
        """Of the typical pair."""
        return self.typical.verdict if self.typical else Verdict.UNSURE

    @property
    def agreeing(self) -> int:
        """How many of the workloads say the same: that it is worth it, or that it isn't."""
        wins = self.verdict in _WINS
        return sum((pair.verdict in _WINS) == wins for pair in self.pairs)

    @property
    def worth(self) -> str:
        """``✓ worth it``; ``✓ worth it, 4 of 5`` where not all of its workloads agree."""
        some = f", {self.agreeing} of {len(self.pairs)}" if self.agreeing < len(self.pairs) and self.typical else ""
        return f"{words.MARKS[self.verdict]} {self.verdict}{some}"


@dataclass(frozen=True, eq=False)
class Card:
    """A device against a baseline, ``H200`` against ``Xeon, 2 threads``."""

    device: str
    baseline: str
    pairs: tuple[Pair, ...]
    rows: tuple[WorkRow, ...]

    @property
    def alike(self) -> bool:
        """Whether both are GPUs, or both CPUs: nothing has to be copied, and there is no question of moving work."""
        return all(pair.other.on_accelerator == pair.base.on_accelerator for pair in self.pairs)

    @property
    def of_gpus(self) -> bool:
        """Whether two GPUs are compared."""
        return self.alike and self.pairs[0].other.on_accelerator


def cards(study: Study) -> list[Card]:
    """Those of the baseline that was asked for; else of several GPUs, or machines without one, against the slowest;
    else of a GPU against its CPU."""
    gpus = _alike(row for row in study.measured if row.on_accelerator and not row.library)
    cpus = _alike(row for row in study.measured if not row.on_accelerator and not row.library)
    if study.baseline is None:
        for alike in (gpus, [] if gpus else cpus):
            if len(alike) > 1:
                return _against_slowest(study, alike)
    inside = [pair for pair in study.device_pairs if pair.within_run]
    return _cards(study, pairs.leading(inside or study.device_pairs))


def _alike(rows: Iterable[Measured]) -> list[list[Measured]]:
    """By device; those of one model in one machine are equal but for noise."""
    devices = grouped(rows, lambda row: (row.run_name, row.facts.label or row.result.device))
    return [[row for row in members if row.source == members[0].source] for members in devices.values()]


def _against_slowest(study: Study, devices: Sequence[list[Measured]]) -> list[Card]:
    rows = [row for members in devices for row in members]
    allow = {"threads", *study.allow}
    found = pairs.compare(rows, Baseline("source", devices[0][0].source), allow)[0]
    speeds = {s: median(p.speedup for p in of) for s, of in grouped(found, lambda pair: pair.other.source).items()}
    slowest = min(speeds, key=speeds.__getitem__, default=None)
    if slowest and speeds[slowest] < 1:
        found = pairs.compare(rows, Baseline("source", slowest), allow)[0]
    return _cards(study, found)


def _cards(study: Study, found: Sequence[Pair]) -> list[Card]:
    made = []
    for members in grouped(found, lambda pair: (pair.other.source, pair.base.source)).values():
        rows = tuple(_work_rows(study, members))
        device = study.names.of(members[0].other)
        if members[0].within_device:
            device = f"{study.names.subject(members[0])} on {device}"
        if rows:
            made.append(Card(device, study.names.baseline(members), tuple(members), rows))
    return made


def _work_rows(study: Study, members: Sequence[Pair]) -> Iterable[WorkRow]:
    for heading, chosen in representatives(members).items():
        found = [crossing for pair in chosen if (crossing := study.crossing_by_pair.get(id(pair)))]
        row = WorkRow(heading, tuple(chosen), "")
        said = {id(each.line.items[-1]): words.crossing(each) for each in found}
        yield WorkRow(heading, tuple(chosen), _faster_from(said, row))


def _faster_from(said: dict[int, str], row: WorkRow) -> str:
    """What holds for the typical pair, if nothing else holds for another."""
    typical = said.get(id(row.typical), words.NO_VALUE) if row.typical else words.NO_VALUE
    categories = {each.startswith(("not ", "only ")) for each in said.values()}
    if len(categories) > 1 or (row.agreeing < len(row.pairs) and typical == words.EVERY_SIZE):
        return _DEPENDS
    return typical
