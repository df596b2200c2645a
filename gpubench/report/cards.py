"""One device against another, by kind of work: what the answer's sentence and table, and the pictures' titles, say.

A ratio between a GPU of one machine and a CPU of another says nothing about either. So a single GPU is compared with
the CPU of its own machine, and several devices of one kind with the slowest of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..runfile.kinds import Kind
from . import pairs, words
from .pairs import Pair, Verdict
from .render import UNFILLED
from .rows import Doubt, Measured, grouped
from .study import Study
from .sweeps import kind_named, representatives

_WINS = (Verdict.WORTH_IT, Verdict.IF_IT_STAYS)
_DEPENDS = "depends"
_MOST_UNLIKE = 3
"""Rows of a kind whose benchmarks have one each."""


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
    def kind(self) -> Kind | None:
        """Of its benchmarks; None for one's own."""
        return self.pairs[0].other.kind

    @property
    def fills(self) -> bool:
        """Whether the typical pair fills the GPUs."""
        return self.typical is None or self.typical.fills

    @property
    def name(self) -> str:
        """``Matrix products``; with the dtype where that isn't float32."""
        dtype = self.typical.other.dtype if self.typical else ""
        plain = dtype in ("", "float32") or kind_named(self.heading) is None
        return self.heading if plain else f"{self.heading}, {dtype}"

    @property
    def ratio(self) -> str:
        """``132×``, or why it is unknown; with a mark where it doesn't fill a GPU."""
        if self.typical:
            return words.ratio(self.typical) + UNFILLED * (not self.fills)
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
        """Whether no work moves from a CPU to a GPU: nothing is copied, and nobody asks whether moving it is worth it."""
        return not any(pair.other.on_accelerator and not pair.base.on_accelerator for pair in self.pairs)

    @property
    def unfilled(self) -> list[str]:
        """Kinds of unlike work, by name, of which no benchmark tells what the GPUs can do."""
        by_kind = grouped((pair for pair in self.pairs if pair.other.kind), lambda pair: pair.other.kind)
        return [kind.words for kind, of in by_kind.items() if kind and kind.unlike and not any(p.fills for p in of)]

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
            if alike is gpus and study.gpu_pairs:
                return _cards(study, [pair for pair in study.gpu_pairs if not _own_cpu(pair)])
            if len(alike) > 1:
                return _against_slowest(study, alike)
    inside = [pair for pair in study.device_pairs if pair.within_run]
    return _cards(study, pairs.leading(inside or study.device_pairs))


def _alike(rows: Iterable[Measured]) -> list[list[Measured]]:
    """By device; those of one model in one machine are equal but for noise."""
    devices = grouped(rows, lambda row: (row.run_name, row.facts.label or row.result.device))
    return [[row for row in members if row.source == members[0].source] for members in devices.values()]


def _own_cpu(pair: Pair) -> bool:
    """Of a machine with a GPU: a chooser asks about the GPU, and the pictures show it."""
    return pair.within_run and not pair.other.on_accelerator


def _against_slowest(study: Study, devices: Sequence[list[Measured]]) -> list[Card]:
    rows = [row for members in devices for row in members]
    return _cards(study, pairs.against_slowest(rows, {"threads", *study.allow}))


def _cards(study: Study, found: Sequence[Pair]) -> list[Card]:
    made = []
    for members in grouped(found, lambda pair: (pair.other.source, pair.base.source)).values():
        rows = tuple(_work_rows(study, members))
        device = study.names.of(members[0].other)
        if members[0].within_device:
            device = f"{study.names.subject(members[0])} on {device}"
        if rows:
            firsts = {id(of[0]) for of in grouped(rows, lambda row: row.kind or row.heading).values()}
            told = sorted(rows, key=lambda row: (id(row) not in firsts and not row.fills, not row.fills))
            made.append(Card(device, study.names.baseline(members), tuple(members), tuple(told)))
    return made


def _work_rows(study: Study, members: Sequence[Pair]) -> Iterable[WorkRow]:
    for heading, chosen in itertools.chain.from_iterable(itertools.starmap(_rows_of, representatives(members).items())):
        found = [crossing for pair in chosen if (crossing := study.crossing_by_pair.get(id(pair)))]
        row = WorkRow(heading, tuple(chosen), "")
        said = {id(each.line.items[-1]): words.crossing(each) for each in found}
        yield WorkRow(heading, tuple(chosen), _faster_from(said, row))


def _rows_of(heading: str, chosen: Sequence[Pair]) -> Iterable[tuple[str, Sequence[Pair]]]:
    """A row for the kind of work; where its benchmarks are unlike, one for each of the first few: those that fill the
    GPU, and most work first."""
    kind = kind_named(heading)
    if kind is None or not kind.unlike:
        return [(heading, chosen)]
    telling = sorted(chosen, key=lambda pair: (bool(pair.doubt), not pair.fills, -(pair.other.result.work.flops or 0)))
    shown, left = telling[:_MOST_UNLIKE], pairs.known_pairs(telling[_MOST_UNLIKE:])
    if left and left[0].speedup < 1 <= min((pair.speedup for pair in pairs.known_pairs(shown)), default=0.0):
        shown[-1] = left[0]  # where the device loses isn't left out
    return [(_own_heading(pair), [pair]) for pair in shown]


def _own_heading(pair: Pair) -> str:
    """``ResNet-50, batch=128``; ``… vs 1`` where the baseline's batch is another one, and the speedup that per item."""
    case, base = pair.other.result, pair.base.result
    dtype = "" if case.dtype in ("", "float32") else f" {case.dtype}"
    size = words.size_setting(case) + (f" vs {base.params[case.size]}" if pair.batches != 1 and case.size else "")
    return ", ".join(filter(None, [f"{words.name(case)}{dtype}", size]))


def _faster_from(said: dict[int, str], row: WorkRow) -> str:
    """What holds for the typical pair, if nothing else holds for another."""
    typical = said.get(id(row.typical), words.NO_VALUE) if row.typical else words.NO_VALUE
    categories = {each.startswith(("not ", "only ")) for each in said.values()}
    if len(categories) > 1 or (row.agreeing < len(row.pairs) and typical == words.EVERY_SIZE):
        return _DEPENDS
    return typical
