"""One device against another by kind of work, the answer in a sentence, and what to know before the numbers.

A ratio between a GPU of one machine and a CPU of another says nothing about either. So a single GPU is compared with
the CPU of its own machine, and several devices of one kind with the slowest of them. A warning says what is wrong,
where, and what to try.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from ..runfile.kinds import KINDS, Kind
from ..runfile.quantities import UNFILLED, counted, listed
from ..runfile.utilisation import slow_products
from . import words
from .study import (
    LASTS,
    ONE_THREAD,
    SINGLE,
    WORTHWHILE,
    LeftOut,
    Measured,
    Pair,
    Study,
    Verdict,
    against_slowest,
    grouped,
    in_turn,
    known_pairs,
    leading,
    representatives,
    slowest_first,
)

_MOST_TIMES = 10
"""Benchmarks with a row; the user's own benchmarks may be more."""
_NAMED = 3
"""Kinds of work in a sentence."""
_NOISY_SHARE = 1 / 3
_SUFFIXES = {
    Verdict.IF_IT_STAYS: "only if the data stays on the device",
    Verdict.NOT_WORTH_IT: "not worth it",
    Verdict.UNSURE: "unsure",
}
_WINS = (Verdict.WORTH_IT, Verdict.IF_IT_STAYS)
_MOST_UNLIKE = 3
"""Rows of a kind whose benchmarks have one each."""


# One device against another -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WorkRow:
    """A kind of work on a card: a pair for each of its workloads, in one setting at the largest size that both devices
    have; of a kind whose benchmarks are unlike, a single pair."""

    study: Study
    heading: str
    pairs: tuple[Pair, ...]

    @cached_property
    def known(self) -> list[Pair]:
        """Pairs whose speedup is shown, the smallest first."""
        return known_pairs(self.pairs)

    @property
    def typical(self) -> Pair | None:
        """The measured pair with the median speedup, which represents the kind; the lower of the middle two if their
        number is even."""
        return self.known[(len(self.known) - 1) // 2] if self.known else None

    @property
    def kind(self) -> Kind | None:
        """The kind of its benchmarks; None for the user's own benchmarks."""
        return self.pairs[0].other.kind

    @property
    def in_words(self) -> str:
        """Its name within a sentence."""
        return self.kind.words if self.kind and not self.kind.unlike else self.heading

    @property
    def fills(self) -> bool:
        """Whether the typical pair fills the GPUs."""
        return self.typical is None or self.typical.fills

    @property
    def name(self) -> str:
        """``Matrix products``; with the dtype where that isn't float32."""
        dtype = self.typical.other.dtype if self.typical else ""
        plain = dtype in ("", "float32") or self.in_words == self.heading
        return self.heading if plain else f"{self.heading}, {dtype}"

    @property
    def ratio(self) -> str:
        """``132×``, or why it is unknown; with a mark where it doesn't fill a GPU."""
        return words.ratio(self.typical) + UNFILLED * (not self.fills) if self.typical else self.pairs[0].doubt or ""

    @property
    def ends(self) -> str:
        """The interval of the speedup for one benchmark; the smallest and the largest speedup for several."""
        if not self.typical:
            return words.NO_VALUE
        one = len(self.known) == 1
        low, high = self.typical.values[1:] if one else (self.known[0].speedup, self.known[-1].speedup)
        return words.times_range(low, high)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the typical pair."""
        return self.typical.verdict if self.typical else Verdict.UNSURE

    @property
    def agreeing(self) -> int:
        """How many of the workloads agree with the verdict: that moving is worth it, or that it isn't."""
        wins = self.verdict in _WINS
        return sum((pair.verdict in _WINS) == wins for pair in self.pairs)

    @property
    def worth(self) -> str:
        """``✓ worth it``; ``✓ worth it, 4 of 5`` where not all of its workloads agree."""
        some = f", {self.agreeing} of {len(self.pairs)}" if self.agreeing < len(self.pairs) and self.typical else ""
        return f"{words.MARKS[self.verdict]} {self.verdict}{some}"

    @property
    def faster_from(self) -> str:
        """The size from which the typical pair is faster, or ``depends`` if the pairs disagree."""
        starts = self.study.starts
        typical = starts.get(id(self.typical), words.NO_VALUE)
        categories = {starts[id(pair)].startswith(("not ", "only ")) for pair in self.pairs if id(pair) in starts}
        unlike = self.agreeing < len(self.pairs) and typical == words.EVERY_SIZE
        return "depends" if unlike or len(categories) > 1 else typical


@dataclass(frozen=True, eq=False)
class Card:
    """A device against a baseline, ``H200`` against ``Xeon, 2 threads``."""

    device: str
    baseline: str
    pairs: tuple[Pair, ...]
    rows: tuple[WorkRow, ...]

    @property
    def alike(self) -> bool:
        """Whether no work moves from a CPU to a GPU: nothing is copied, and whether moving pays isn't a question."""
        return not any(pair.other.on_accelerator and not pair.base.on_accelerator for pair in self.pairs)

    @property
    def of_gpus(self) -> bool:
        """Whether two GPUs are compared."""
        return self.alike and self.pairs[0].other.on_accelerator


def _all_cards(study: Study) -> list[Card]:
    """Return the cards of the requested baseline; else of several devices against the slowest; else of a GPU against
    its CPU."""
    if study.gpu_pairs:  # a chooser asks about the GPUs: their own CPUs are in the pictures
        return _cards(study, [pair for pair in study.gpu_pairs if pair.other.on_accelerator or not pair.within_run])
    plain = [row for row in study.measured if not row.library]
    devices = grouped(
        [row for row in plain if row.on_accelerator] or plain,
        lambda row: (row.run_name, row.facts.label or row.result.device),  # equal but for noise
    )
    if study.baseline is None and len(devices) > 1:
        rows = [row for members in devices.values() for row in members if row.source == members[0].source]
        return _cards(study, against_slowest(rows, {"threads", *study.allow}))
    if study.baseline and study.baseline.role == "label":  # other GPUs before CPUs
        return _cards(study, leading(sorted(study.device_pairs, key=lambda p: not p.other.on_accelerator)))
    inside = [pair for pair in study.device_pairs if pair.within_run]
    return _cards(study, leading(inside or study.device_pairs))


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


def _work_rows(study: Study, members: Sequence[Pair]) -> Iterator[WorkRow]:
    for heading, chosen in representatives(members).items():
        unlike = chosen[0].other.kind and chosen[0].other.kind.unlike
        for title, pairs in _telling(chosen) if unlike else [(heading, chosen)]:
            yield WorkRow(study, title, tuple(pairs))


def _telling(chosen: Sequence[Pair]) -> list[tuple[str, list[Pair]]]:
    """Return a row for each of the first few unlike benchmarks. Those that fill the GPU come first, then those with the
    most FLOPs. If the device loses on none of them, the last is replaced by one on which it loses, if there is any."""
    telling = sorted(chosen, key=lambda pair: (bool(pair.doubt), not pair.fills, -(pair.other.result.work.flops or 0)))
    shown, left = telling[:_MOST_UNLIKE], known_pairs(telling[_MOST_UNLIKE:])
    if left and left[0].speedup < 1 <= min((pair.speedup for pair in known_pairs(shown)), default=0.0):
        shown[-1] = left[0]  # where the device loses isn't left out
    return [(_own_heading(pair), [pair]) for pair in shown]


def _own_heading(pair: Pair) -> str:
    """``ResNet-50, batch=128``; ``… vs 1`` where the baseline's batch is another one, and the speedup that per item."""
    case, base = pair.other.result, pair.base.result
    dtype = "" if case.dtype in ("", "float32") else f" {case.dtype}"
    size = words.size(pair.other) + (f" vs {base.params[case.size]}" if pair.batches != 1 and case.size else "")
    return ", ".join(filter(None, [f"{words.name(case)}{dtype}", size]))


# The sentence ---------------------------------------------------------------------------------------------------------


class Concern(Enum):
    """What a warning is about."""

    SMOKE = auto()
    SIMULATED = auto()
    BUSY = auto()
    NOISY = auto()
    ONE_PROCESS = auto()
    NO_PEAK = auto()
    ABOVE_PEAK = auto()
    SLOW_LIBRARY = auto()
    SUSTAINED = auto()


@dataclass(frozen=True, slots=True)
class Warning:
    """``what`` is wrong, ``where`` it was seen, and what to ``try_``."""

    what: Concern
    where: str
    try_: str = ""

    def __str__(self) -> str:
        return f"{self.where}. {self.try_}".rstrip()

    @property
    def brief(self) -> str:
        """What is wrong, without the evidence: for a line with several."""
        return re.split("[:;]", re.sub(r" \((?!modelled|simulated)[^)]*\)", "", self.where))[0]


class Answer:
    """What a study answers: cards where there is a device to compare, times where there is only a CPU."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.smoke = bool(study.runs) and all(run.preset == "smoke" for run in study.runs)

    @cached_property
    def cards(self) -> list[Card]:
        """One device against another each; none of a smoke run, whose times mean nothing."""
        return [] if self.smoke else _all_cards(self.study)

    @cached_property
    def times(self) -> list[Measured]:
        """Results that represent the others, where nothing is compared: the user's own benchmarks, the slowest first,
        and then one of each kind in turn until there are ten."""
        if self.cards:
            return []
        slowest = slowest_first(row for row in self._alone if row.own)
        own = [max(members, key=lambda row: row.time_s) for members in slowest]
        kinds = representatives(row for row in self._alone if not row.own)
        return [*own, *in_turn(kinds, max(0, _MOST_TIMES - len(own)))]

    @cached_property
    def _alone(self) -> list[Measured]:
        return [row for row in self.study.measured if not row.library] or self.study.measured

    @cached_property
    def sentence(self) -> str:
        """How much faster each device is, or what the CPU reaches if there is no device to compare."""
        if self.smoke:
            return "Smoke runs are too short to compare devices. Use --preset quick."
        if self.cards:
            shown = self.cards[:2]
            told = [_card_sentence(card, 1 if i and card.alike else _NAMED) for i, card in enumerate(shown)]
            return " ".join(told) + _missing(shown)
        return _cpu_sentence(self.study, self._alone)

    @cached_property
    def hint(self) -> str:
        """How to see a GPU, for runs on known devices that had none."""
        known = [row for row in self.study.measured if row.result.device]
        if self.cards or not known or any(row.on_accelerator for row in known):
            return ""
        if any((run.machine.torch or "").endswith("+cpu") for run in self.study.runs):
            return (
                "No GPU used: this PyTorch build (+cpu) has no CUDA or ROCm support. Have a GPU? "
                "Install a GPU build (pytorch.org/get-started), then run again."
            )
        return "No GPU used. Have a GPU? gpubench env says why PyTorch can't see it."

    @cached_property
    def warnings(self) -> list[Warning]:
        """What a reader has to know before the numbers, the most serious warning first."""
        return warnings(self.study)


def _card_sentence(card: Card, most: int) -> str:
    """``H200 against Xeon, 2 threads: 125× on matrix products, 1.2× on training (not worth it), and 5 more below.``"""
    named = _named(card, most)
    parts = [_part(row, card.alike) for row in named]
    left = len(card.rows) - len(named)
    parts += [f"and {left} more below"] * bool(left)
    none = not card.alike and all(row.verdict not in _WINS for row in card.rows)
    lead = f"nothing is reliably {WORTHWHILE:g}× faster, " if none else ""
    copied = [(row, row.typical) for row in named if row.typical and row.typical.copies]
    shown = ", ".join(f"{words.with_copies(pair)} on {row.in_words}" for row, pair in copied)
    copies = f" With inputs and results copied for every call: {shown}." if shown else ""
    return f"{card.device} against {card.baseline}: {lead}{', '.join(parts)}.{copies}"


def _missing(cards: Sequence[Card]) -> str:
    """Return a hint to measure larger batches of unlike work, if no result shows what the GPUs can do."""
    kinds = dict.fromkeys(
        kind.words
        for card in cards
        for kind, of in grouped(card.pairs, lambda pair: pair.other.kind).items()
        if kind and kind.unlike and not any(pair.fills for pair in of)
    )
    if not kinds:
        return ""
    command = f"gpubench run --preset full -k '{' or '.join(kinds)}'"
    return f" No benchmark of {' or '.join(kinds)} fills the GPU; larger batches: {command}."


def _named(card: Card, most: int) -> list[WorkRow]:
    """Return the first ``most`` known kinds of work, with a single benchmark for an unlike kind. The last is replaced
    by one that argues against the device, if there is any. Rows that don't fill the GPU are used only if there are no
    others."""
    known = [row for row in card.rows if row.typical] or list(card.rows)
    known = [row for row in known if row.fills] or known
    known = [rows[0] for rows in grouped(known, lambda row: row.kind or row.heading).values()]
    named = known[:most]
    against = [row for row in known if row.verdict in (Verdict.NOT_WORTH_IT, Verdict.IF_IT_STAYS)]
    if not card.alike and against and all(row not in against for row in named):
        named[-1] = against[-1]
    return named


def _part(row: WorkRow, alike: bool) -> str:
    notes = [] if alike else [_SUFFIXES.get(row.verdict, "")]
    if row.typical and row.typical.like:
        notes.append(f"against {words.way(row.typical)}; {words.like_with_like(row.typical)}")
    told = "; ".join(filter(None, notes))
    star = "*" * bool(row.typical and row.typical.noisy)
    return f"{row.ratio}{star} on {row.in_words}" + (f" ({told})" if told else "")


# A CPU alone ----------------------------------------------------------------------------------------------------------


def _cpu_sentence(study: Study, rows: Sequence[Measured]) -> str:
    """What the machine reaches of its measured peaks, and where threads pay."""
    if not rows:
        return "Nothing was measured."
    kinds = representatives(rows)
    leading = [kinds[KINDS[name].heading][0] for name in ("matmul", "elementwise") if KINDS[name].heading in kinds]
    parts = [_reached(row) for row in leading if not row.doubt and row.throughput]
    parts = parts or [_range([row for members in kinds.values() for row in members] or rows)]
    device = study.names.of(rows[0])
    return f"{device}: {', '.join(parts)}.{_threads_pay(rows)}" if device else f"{', '.join(parts)}."


def _reached(row: Measured) -> str:
    """``356 GFLOP/s in matrix products (n=2048, 93% of peak)``."""
    share = words.share_of_peak(row)
    peak = f"{share} of peak" * (share not in ("", words.NO_VALUE))
    details = ", ".join(filter(None, [words.size(row), peak]))
    what = row.kind.words if row.kind else words.name(row.result)
    return f"{words.throughput(row)}{'*' * row.noisy} in {what}" + (f" ({details})" if details else "")


def _range(rows: Sequence[Measured]) -> str:
    """The times of benchmarks, from the shortest to the longest."""
    in_order = sorted(rows, key=lambda row: row.time_s)
    (least, name), (most, other) = ((words.time(row), words.name(row.result)) for row in (in_order[0], in_order[-1]))
    if len(rows) == 1:
        return f"{name} takes {least}"
    return f"{len(rows)} benchmarks take {least}{f' ({name})' * (name != other)} to {most} ({other})"


def _threads_pay(rows: Sequence[Measured]) -> str:
    """Return a sentence on the largest gain from all threads over one thread; empty where no benchmark ran with
    both."""
    jobs: dict[tuple[str, str], dict[str | None, Measured]] = {}
    for row in rows:
        if row.parallel.devices == 1 and row.parallel.method in (SINGLE, ONE_THREAD):
            jobs.setdefault((row.run_name, row.result.workload), {})[row.parallel.method] = row
    gains = [(of[ONE_THREAD].time_s / of[SINGLE].time_s, of[SINGLE]) for of in jobs.values() if len(of) == 2]
    if not gains:
        return ""
    gain, row = max(gains, key=lambda entry: entry[0])
    return f" {row.result.threads} threads against one: {words.times(gain)} on {words.name(row.result)}."


# Warnings -------------------------------------------------------------------------------------------------------------


def warnings(study: Study) -> list[Warning]:
    """Return the warnings, the most serious first."""
    smoke = [run.preset == "smoke" for run in study.runs]
    found = []
    if any(smoke):
        found.append(Warning(Concern.SMOKE, "Smoke run: it checks that the benchmarks work; its times mean nothing"))
    if devices := words.simulated(study.runs):
        where = f"Times of the {listed(devices)} come from a model, not from hardware"
        found.append(Warning(Concern.SIMULATED, where, "Don't quote them."))
    if smoke and all(smoke):
        return found
    judged = [row for row in study.measured if row.kind is None or row.kind.summarised] or study.measured
    found += [*_noisy(study, judged), *_slow_library(study)]
    if study.measured and all(len(row.times.processes) < 2 for row in study.measured):
        where = "Timed in one process: ranges are not confidence intervals (use --processes 3)"
        found.append(Warning(Concern.ONE_PROCESS, where))
    return [*found, *_no_peak(study), *_above_peak(judged), *_sustained(study)]


def _noisy(study: Study, judged: Sequence[Measured]) -> list[Warning]:
    noisy = sum(row.noisy for row in judged)
    busy = any(flag.name == "contended" for run in study.runs for flag in run.flags)
    many = noisy > _NOISY_SHARE * len(judged) and len(judged) > 1  # a single result has a star already
    if not judged or not (busy or many):
        return []
    count = f"{noisy} of {len(judged)} results are noisy (*) and may be far off"
    if sound := list(dict.fromkeys(words.name(row.result) for row in judged if not row.noisy)):
        count += f"; not noisy: {listed(sound, 3)}" * (2 * noisy > len(judged))
    if not noisy:
        count = "all times may be too long, although no single result is noisy"
    if busy:
        threads = max((run.machine.threads or 1 for run in study.runs), default=1)
        fewer = f"--threads {threads - 1} or " * (threads > 1)  # which leaves them a core
        remedy = f"Close other programs. If they aren't yours, try {fewer}--processes 5."
        return [Warning(Concern.BUSY, f"The machine was busy: {count}", remedy)]
    return [Warning(Concern.NOISY, f"{count[:1].upper()}{count[1:]}", "Repeat more: --processes 5, or --preset full.")]


def _slow_library(study: Study) -> list[Warning]:
    """Return a warning if PyTorch's matrix products are slow on a CPU, because speedups over that CPU depend on them.
    There is none for a busy machine."""
    found: list[str] = []
    several = len({run.machine.label for run in study.runs}) > 1
    for run in study.runs:
        peaks = run.ceilings.get("cpu")
        if peaks is not None and not run.flags and not run.slow_threads:
            slow = [str(each) for each in slow_products(peaks, run.machine.cpu) if each.library == "torch"]
            found += [
                each.replace("this CPU", f"the CPU of {run.machine.label}", 1) if several else each for each in slow
            ]
    more = f"; and {counted(len(found) - 1, 'other dtype')}" if len(found) > 1 else ""
    return [Warning(Concern.SLOW_LIBRARY, f"{found[0]}{more}", "See docs/how-it-measures.md.")] if found else []


def _sustained(study: Study) -> list[Warning]:
    """Return a warning about devices that get slower when a product runs for seconds on end, which is longer than a
    benchmark."""
    slowed = [(row, rates) for row, rates in study.sustained if rates.lasting < LASTS * rates.burst]
    told = [
        f"{study.names.short(row)} {words.sustained(rates)}"
        for row, rates in sorted(slowed, key=lambda each: each[1].lasting / each[1].burst)
    ]
    where = f"Slower when it works for long: {listed(told, 3)}"
    return [Warning(Concern.SUSTAINED, where, "The times here are those of short work.")] if told else []


def _no_peak(study: Study) -> list[Warning]:
    """Return a warning for each device whose measured peaks can't be right, if its results would have had a % of
    peak."""
    rated = sorted((row for row in study.measured if row.rate), key=lambda row: bool(row.library))  # NumPy is no device
    firsts = [rows[0] for rows in grouped(rated, lambda row: (row.run_name, row.result.device)).values()]
    wrong = [(row, why) for row in firsts if (why := row.run.disproved.get(row.result.device))]
    told = [f"The measured peaks of {study.names.of(row)} are wrong ({why})" for row, why in wrong]
    return [Warning(Concern.NO_PEAK, f"{each}, so no % of peak is shown") for each in told]


def _above_peak(judged: Sequence[Measured]) -> list[Warning]:
    above = [row for row in judged if (row.utilisation or 0) > 1]
    if not above:
        return []
    names = listed(dict.fromkeys(words.name(row.result) for row in above), 2)
    where = f"{counted(len(above), 'result')} above the measured peak ({names}): the peak was measured too low"
    return [Warning(Concern.ABOVE_PEAK, where, "Shares of it aren't shown.")]


def left_out_line(pairs: Sequence[LeftOut]) -> str:
    """Return what was not compared, and how to compare it anyway; empty if everything was compared."""
    if not pairs:
        return ""
    terms = dict.fromkeys(term for each in pairs for term in each.differences)
    counts = {term: sum(term in each.differences for each in pairs) for term in terms}
    found = ", ".join(f"{term} ({counts[term]})" for term in sorted(terms, key=lambda term: -counts[term]))
    options = " ".join(f"--allow {term}" for term in terms)
    subject = f"{counted(len(pairs), 'benchmark')} {'has' if len(pairs) == 1 else 'have'}"
    nearest = f"no comparable baseline, the nearest differs in {found}"
    return f"not compared: {subject} {nearest}. Use {options} to compare anyway"
