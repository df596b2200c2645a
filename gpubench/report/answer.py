"""The answer in a sentence, and what a reader has to know before the numbers.

Every sentence and every warning of a report is written here; a warning says what is wrong, where, and what to try.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from ..runfile.kinds import KINDS
from ..runfile.quantities import counted, seconds_text
from ..runfile.utilisation import slow_products
from ..runfile.ways import times_and_ratio
from . import words
from .cards import Card, WorkRow, cards
from .pairs import WORTHWHILE, LeftOut, Pair, Verdict
from .rows import Measured, grouped, too_noisy
from .scaling import ONE_THREAD, SINGLE, parallel_of
from .study import Study
from .sweeps import Crossing, in_turn, kind_named, representatives, slowest_first

MOST_TIMES, MOST_OWN = 10, 40
"""Benchmarks with a row; of the user's own there may be more."""
_NAMED = 3
"""Kinds of work in a sentence."""
_NOISY_SHARE = 1 / 3
LASTS = 0.9
"""A sustained rate below that share of the burst rate is worth a line and a picture."""
_FIRST_CALL, _FIRST_CALL_S = 10.0, 1e-3
"""A first call is worth a line where it takes so many times a later one, and so many seconds."""
_SUFFIXES = {
    Verdict.IF_IT_STAYS: "only if the data stays on the device",
    Verdict.NOT_WORTH_IT: "not worth it",
    Verdict.UNSURE: "unsure",
}
NO_GPU = "No GPU was measured; gpubench env says why."


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
        return f"{self.where}. {self.try_}".strip() if self.try_ else f"{self.where}."

    @property
    def brief(self) -> str:
        """What is wrong, without the evidence: for a line with several."""
        return re.split("[:;]", re.sub(r" \([^)]*\)", "", self.where))[0]


class Answer:
    """What a study answers: cards where there is a device to compare, times where there is only a CPU."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.smoke = bool(study.runs) and all(run.preset == "smoke" for run in study.runs)

    @cached_property
    def cards(self) -> list[Card]:
        """One device against another each; none of a smoke run, whose times mean nothing."""
        return [] if self.smoke else cards(self.study)

    @cached_property
    def times(self) -> list[Measured]:
        """Results that stand for all others, where nothing is compared."""
        return [] if self.cards else _chosen(self._alone)[0]

    @cached_property
    def more(self) -> int:
        """How many of the user's own benchmarks :attr:`times` leaves out."""
        return 0 if self.cards else _chosen(self._alone)[1]

    @cached_property
    def _alone(self) -> list[Measured]:
        return [row for row in self.study.measured if not row.library] or self.study.measured

    @cached_property
    def sentence(self) -> str:
        """How much faster each device is; without any to compare what the CPU reaches."""
        if self.smoke:
            return "Smoke runs are too short to compare devices. Use --preset quick."
        if self.cards:
            first, *others = self.cards[:2]
            told = [
                _card_sentence(first, _NAMED),
                *(_card_sentence(card, 1 if card.alike else _NAMED) for card in others),
            ]
            return " ".join(told) + _missing(self.cards[:2])
        return _cpu_sentence(self.study, self._alone)

    @cached_property
    def hint(self) -> str:
        """How to see a GPU, for runs on known devices that had none."""
        known = [row for row in self.study.measured if row.result.device]
        return "" if self.cards or not known or any(row.on_accelerator for row in known) else _gpu_hint(self.study)

    @cached_property
    def warnings(self) -> list[Warning]:
        """What a reader has to know before the numbers."""
        return warnings(self.study)


def _card_sentence(card: Card, most: int) -> str:
    """``H200 against Xeon, 2 threads: 125× on matrix products, 1.2× on training (not worth it), and 5 more below.``"""
    named = _named(card, most)
    parts = [_part(row, card.alike) for row in named]
    left = len(card.rows) - len(named)
    parts += [f"and {left} more below"] * bool(left)
    who = f"{card.device} against {card.baseline}"
    none = not card.alike and all(row.verdict not in (Verdict.WORTH_IT, Verdict.IF_IT_STAYS) for row in card.rows)
    lead = f"nothing is reliably {WORTHWHILE:g}× faster, " if none else ""
    return f"{who}: {lead}{', '.join(parts)}.{_with_copies(named)}"


def _missing(cards: Sequence[Card]) -> str:
    """What would have to be measured for an answer: larger batches."""
    kinds = list(dict.fromkeys(kind for card in cards for kind in card.unfilled))
    if not kinds:
        return ""
    command = f"gpubench run --preset full -k '{' or '.join(kinds)}'"
    return f" No benchmark of {' or '.join(kinds)} fills the GPU; larger batches: {command}."


def _with_copies(named: Sequence[WorkRow]) -> str:
    copied = [(row, row.typical) for row in named if row.typical and row.typical.copies]
    shown = [f"{words.with_copies(pair)} on {_in_words(row)}" for row, pair in copied]
    return f" With inputs and results copied for every call: {', '.join(shown)}." if shown else ""


def _named(card: Card, most: int) -> list[WorkRow]:
    """The first kinds of work that are known, of unlike ones a single benchmark, and one that argues against the
    device, if there is any. What doesn't fill the GPU leads nowhere."""
    known = [row for row in card.rows if row.typical] or list(card.rows)
    known = [row for row in known if row.fills] or known
    firsts = grouped(known, lambda row: row.kind or row.heading).values()
    known = [rows[0] for rows in firsts]
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
    return f"{row.ratio} on {_in_words(row)}" + (f" ({told})" if told else "")


def _in_words(row: WorkRow) -> str:
    kind = kind_named(row.heading)
    return kind.words if kind else row.heading


# A CPU alone ----------------------------------------------------------------------------------------------------------


def _chosen(rows: Sequence[Measured]) -> tuple[list[Measured], int]:
    """Of more than ten benchmarks of one's own the slowest; else those, and then one of each kind in turn. And how many
    of one's own are left."""
    own = [max(members, key=lambda row: row.time_s) for members in slowest_first(row for row in rows if row.own)]
    if len(own) > MOST_TIMES:
        return own[:MOST_OWN], len(own[MOST_OWN:])
    kinds = representatives(row for row in rows if not row.own)
    return [*own, *in_turn(kinds, MOST_TIMES - len(own))], 0


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
    details = ", ".join(filter(None, [words.size_setting(row.result), peak]))
    what = row.kind.words if row.kind else words.name(row.result)
    return f"{words.throughput(row)} in {what}" + (f" ({details})" if details else "")


def _range(rows: Sequence[Measured]) -> str:
    """The times of benchmarks, from the shortest to the longest."""
    in_order = sorted(rows, key=lambda row: row.time_s)
    (least, name), (most, other) = ((words.time(row), words.name(row.result)) for row in (in_order[0], in_order[-1]))
    if len(rows) == 1:
        return f"{name} takes {least}"
    return f"{len(rows)} benchmarks take {least}{f' ({name})' * (name != other)} to {most} ({other})"


def _threads_pay(rows: Sequence[Measured]) -> str:
    """Where a benchmark ran with one thread and with all of them: what the others bring."""
    jobs: dict[tuple[str, str], dict[str | None, Measured]] = {}
    for row in rows:
        if parallel_of(row).devices == 1 and parallel_of(row).method in (SINGLE, ONE_THREAD):
            jobs.setdefault((row.run_name, row.result.workload), {})[parallel_of(row).method] = row
    gains = [(of[ONE_THREAD].time_s / of[SINGLE].time_s, of[SINGLE]) for of in jobs.values() if len(of) == 2]
    if not gains:
        return ""
    gain, row = max(gains, key=lambda entry: entry[0])
    return f" {row.result.threads} threads against one: {words.times(gain)} on {words.name(row.result)}."


def _gpu_hint(study: Study) -> str:
    builds = [run.machine.torch or "" for run in study.runs]
    if any(build.endswith("+cpu") for build in builds):
        return (
            "No GPU used: this PyTorch build (+cpu) has no CUDA or ROCm support. Have a GPU? "
            "Install a GPU build (pytorch.org/get-started), then run again."
        )
    return "No GPU used. Have a GPU? gpubench env says why PyTorch can't see it."


# Warnings -------------------------------------------------------------------------------------------------------------


def warnings(study: Study) -> list[Warning]:
    """The gravest first."""
    smoke = [run.preset == "smoke" for run in study.runs]
    found = []
    if any(smoke):
        found.append(Warning(Concern.SMOKE, "Smoke run: it checks that the benchmarks work; its times mean nothing"))
    if devices := words.simulated(study.runs):
        where = f"Times of the {words.listed(devices)} come from a model, not from hardware"
        found.append(Warning(Concern.SIMULATED, where, "Don't quote them."))
    if smoke and all(smoke):
        return found
    judged = [row for row in study.measured if row.kind is None or row.kind.summarised] or study.measured
    found += [*_noisy(study, judged), *_slow_library(study), *_one_process(study)]
    return [*found, *_no_peak(study), *_above_peak(judged), *_sustained(study)]


def _noisy(study: Study, judged: Sequence[Measured]) -> list[Warning]:
    noisy = sum(row.noisy for row in judged)
    busy = any(flag.name == "contended" for run in study.runs for flag in run.flags)
    many = noisy > _NOISY_SHARE * len(judged) and len(judged) > 1  # of a single one its star says it
    if not judged or not (busy or many):
        return []
    count = f"{noisy} of {len(judged)} results are noisy (*) and may be far off"
    if not noisy:
        count = "all times may be too long, although no single result is noisy"
    if busy:
        threads = max((run.machine.threads or 1 for run in study.runs), default=1)
        fewer = f"--threads {threads - 1} or " * (threads > 1)  # which leaves them a core
        remedy = f"Close other programs; not yours? Try {fewer}--processes 5."
        return [Warning(Concern.BUSY, f"The machine was busy: {count}", remedy)]
    return [Warning(Concern.NOISY, f"{count[:1].upper()}{count[1:]}", "Repeat more: --processes 5, or --preset full.")]


def _slow_library(study: Study) -> list[Warning]:
    """PyTorch's, as all that is compared with a CPU is compared with it; of a busy machine nothing is claimed."""
    found: list[str] = []
    for run in study.runs:
        peaks = run.ceilings.get("cpu")
        if peaks is not None and not run.flags and not run.slow_threads:
            found += [str(each) for each in slow_products(peaks, run.machine.cpu) if each.library == "torch"]
    more = f"; and {counted(len(found) - 1, 'other dtype')}" if len(found) > 1 else ""
    return [Warning(Concern.SLOW_LIBRARY, f"{found[0]}{more}", "See docs/fair-cpu.md.")] if found else []


def _sustained(study: Study) -> list[Warning]:
    """Devices that get slower when a product runs for seconds on end: a benchmark is over before."""
    slowed = [(row, rates) for row, rates in study.sustained if rates.lasting < LASTS * rates.burst]
    told = [
        f"{study.names.short(row)} {words.sustained(rates)}"
        for row, rates in sorted(slowed, key=lambda each: each[1].lasting / each[1].burst)
    ]
    where = f"Slower when it works for long: {words.listed(told, 3)}"
    return [Warning(Concern.SUSTAINED, where, "The times here are those of short work.")] if told else []


def _one_process(study: Study) -> list[Warning]:
    if not study.measured or any(len(row.times.processes) > 1 for row in study.measured):
        return []
    return [
        Warning(Concern.ONE_PROCESS, "Timed in one process: ranges are not confidence intervals (use --processes 3)")
    ]


def _no_peak(study: Study) -> list[Warning]:
    """Of devices whose measured peaks can't be right: all shares of them are left out."""
    plain_first = sorted(study.measured, key=lambda row: bool(row.library))  # NumPy's on a CPU are the CPU's
    devices: dict[tuple[str, str], Measured] = {}
    for row in plain_first:
        devices.setdefault((row.run_name, row.result.device), row)
    found = []
    for row in devices.values():
        if why := row.run.disproved.get(row.result.device):
            where = f"The measured peaks of {study.names.of(row)} are wrong ({why}), so no % of peak is shown"
            found.append(Warning(Concern.NO_PEAK, where))
    return found


def _above_peak(judged: Sequence[Measured]) -> list[Warning]:
    above = [row for row in judged if (row.utilisation or 0) > 1]
    if not above:
        return []
    names = words.listed(list(dict.fromkeys(words.name(row.result) for row in above)), 2)
    where = f"{counted(len(above), 'result')} above the measured peak ({names}): the peak was measured too low"
    return [Warning(Concern.ABOVE_PEAK, where, "Shares of it aren't shown.")]


def left_out_line(pairs: Sequence[LeftOut]) -> str:
    """What was not compared, and how to compare it anyway; empty where everything was."""
    if not pairs:
        return ""
    terms = dict.fromkeys(term for each in pairs for term in each.differences)
    counts = {term: sum(term in each.differences for each in pairs) for term in terms}
    found = ", ".join(f"{term} ({counts[term]})" for term in sorted(terms, key=lambda term: -counts[term]))
    options = " ".join(f"--allow {term}" for term in terms)
    subject = f"{counted(len(pairs), 'benchmark')} {'has' if len(pairs) == 1 else 'have'}"
    nearest = f"no comparable baseline, the nearest differs in {found}"
    return f"not compared: {subject} {nearest}. Use {options} to compare anyway"


# One's own expressions ------------------------------------------------------------------------------------------------


def findings(study: Study) -> list[str]:
    """What the numbers of a few benchmarks mean, one sentence each: for ``gpubench time`` and notebooks."""
    crossings = [each for each in study.crossings if each.regime == "resident"]
    swept = {id(pair) for found in crossings for pair in found.line.items}
    lines = [_crossing_sentence(study, found) for found in crossings]
    lines += [_pair_sentence(study, pair) for pair in study.pairs if id(pair) not in swept]
    lines += _against_first(study)
    lines += _launch_bound(study)
    lines += _first_calls(study)
    if not any(row.on_accelerator for row in study.measured):
        lines.append(NO_GPU)
    checks = (row.result.check for row in study.measured)
    unchecked = {check.reason for check in checks if check and check.status != "passed" and check.reason}
    lines += [f"Not verified: {reason}." for reason in sorted(unchecked)]
    flags = {flag.name: flag.seen for row in study.measured for flag in row.result.flags}
    return [*lines, *(f"* {name}: {seen}" for name, seen in sorted(flags.items()))]


def _who(row: Measured) -> str:
    return f"{words.name(row.result)}, {words.arithmetic(row)}".rstrip(", ")


def _crossing_sentence(study: Study, found: Crossing) -> str:
    """``a @ b, float32: H200 is faster than the Xeon from n ≈ 72.``"""
    pair, said = found.line.items[-1], words.crossing(found)
    if len(found.line.points) == 1:
        return _pair_sentence(study, pair)
    subject, base = study.names.subject(pair), study.names.of(pair.base)
    if said == Verdict.UNSURE:
        return f"{_who(pair.other)}: {subject} or {base}: too noisy to say from which size on either is faster."
    if said.startswith("not "):
        return f"{_who(pair.other)}: {subject} is not faster than {base} {said.removeprefix('not ')}."
    where = said if said.startswith("only ") else f"at {said}" if said == words.EVERY_SIZE else f"from {said}"
    return f"{_who(pair.other)}: {subject} is faster than {base} {where}."


def _pair_sentence(study: Study, pair: Pair) -> str:
    """``a @ b, float32: H200 is 12× (11× to 13×) as fast as the Xeon.``"""
    subject, base = study.names.subject(pair), study.names.of(pair.base)
    if pair.doubt:
        return f"{_who(pair.other)}: {subject} against {base}: {pair.doubt}."
    base += f" by {words.way(pair)} ({words.like_with_like(pair)})" if pair.like else ""
    return f"{_who(pair.other)}: {subject} is {_faster(pair.speedup, pair.ratio.low, pair.ratio.high)} {base}."


def _faster(ratio: float, low: float, high: float) -> str:
    """``3.1× (2.9× to 3.3×) as fast as``, ``1.4× slower (…) than``."""
    if low <= 1 <= high:
        return f"as fast, within the spread ({words.times_range(low, high)}), as"
    spread = words.times_range(low, high).replace(" slower", "")
    return f"{words.times(ratio)} ({spread}) {'than' if ratio < 1 else 'as fast as'}"


def rivals(study: Study) -> list[list[Measured]]:
    """Different workloads in one setting on one device, which are compared with the first; the largest size last."""
    numbers = {id(row): [v for v in row.result.params.values() if isinstance(v, int | float)] for row in study.measured}
    in_order = sorted(study.measured, key=lambda row: numbers[id(row)])
    groups = grouped(in_order, lambda row: (row.setting, repr(row.size), row.source))
    return [rows for rows in groups.values() if len(rows) > 1]


def _against_first(study: Study) -> list[str]:
    """Of several expressions, each against the first on each device, at the largest size."""
    lines = []
    for groups in grouped(rivals(study), lambda rows: rows[0].source).values():
        base, *others = groups[-1]
        at = ", ".join(filter(None, [study.names.of(base), words.setting(base.result)]))
        for other in others:
            top, bottom, ratio, _ = times_and_ratio(base.times, other.times)
            said = f"is {_faster(top / bottom, ratio.low, ratio.high)}"
            said = "is too noisy to compare with" if too_noisy(ratio.low, ratio.high) else said
            lines.append(f"{at}: {words.name(other.result)} {said} {words.name(base.result)}.")
    return lines


def _first_calls(study: Study) -> list[str]:
    """A line for each device whose first call took much longer than the later ones: that which took longest."""
    lines = []
    for members in grouped(study.measured, lambda row: row.source).values():
        slowest = max(members, key=lambda row: row.result.first_call_s or 0.0)
        first_s, later_s = slowest.result.first_call_s or 0.0, slowest.time_s
        if first_s >= max(_FIRST_CALL * later_s, _FIRST_CALL_S):
            took = f"{seconds_text(first_s)}, {words.times(first_s / later_s)} as long as later calls"
            who = f"{words.benchmark(slowest.result)} on {study.names.of(slowest)}"
            lines.append(f"{who}: the first call took {took}.")
    return lines


def _launch_bound(study: Study) -> list[str]:
    """``a + b, float32: launch-bound on H200 up to n=1024 (the GPU works 1.9 µs of a call's 6.3 µs).``

    Launching takes longer than the work of these sizes: a larger one costs nothing, a faster GPU gains nothing.
    """
    lines = []
    for members in grouped(study.measured, lambda row: (row.result.workload, row.setting, row.source)).values():
        members = sorted(members, key=lambda row: row.time_s)
        bound = [row for row in members if row.launch_bound]
        if bound:
            last = bound[-1]
            end = " at every size" if bound == members else f" up to {words.size_setting(last.result)}"
            busy, whole = seconds_text(last.result.device_s), seconds_text(last.time_s)
            who = f"{_who(last)}: launch-bound on {study.names.of(last)}{end * (len(members) > 1)}"
            lines.append(f"{who} (the GPU works {busy} of a call's {whole}).")
    return lines
