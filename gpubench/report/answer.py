"""The answer: how much faster each device is, as one list of rows, and in a sentence.

A row is a workload in one dtype, in its plainest setting, at the largest size that most of the compared devices have.
The sentence counts these rows; the table of the terminal, the page and the summary, and the first picture show them,
in the same order, under the same names. A ratio between a GPU of one machine and a CPU of another says nothing about
either, so a GPU is compared with the CPU of its own machine, and other machines with the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Generic

from ..runfile.facts import plain_memory_note, threads_available
from ..runfile.flags import ADVICE, CONTENDED, DIFFERENT, POWER_LIMITED
from ..runfile.matching import KINDS
from ..runfile.quality import slow_products
from ..runfile.quantities import counted, listed
from . import words
from .number import LIMITS, State
from .study import Item, Measured, Pair, Source, Study, grouped, in_order, plainest_first, plainness

MOST_ROWS = 15
"""Rows on a screen and in the first picture; files show all."""
_NAMED, _MOST_DEVICES = 3, 3
"""Benchmarks and devices in a sentence."""
_NOISY_SHARE, _FEW_SHARE = 1 / 3, 0.05
_LONGEST_CALL_S = 1.0
"""Seconds of a call that preset quick allows: fewer threads, which leave other programs a core, may exceed it."""
_CPU_BUILD = (
    "No GPU used: this PyTorch build (+cpu) has no CUDA or ROCm support. Have a GPU? "
    "Install a GPU build (pytorch.org/get-started), then run again."
)
_OF_THE_CALL = (DIFFERENT, "altered", "unwaited", "switched")
"""Flags of calls that did something else than was meant, which no repetition mends."""


@dataclass(frozen=True, eq=False)
class AnswerRow(Generic[Item]):
    """A workload in one dtype: a pair or a result for each device. ``leads`` is true for the first dtype of a workload:
    its ``name`` is the workload's; the others are named by their dtype. ``detail`` has the other settings."""

    heading: str
    name: str
    detail: str
    leads: bool
    items: tuple[Item, ...]

    @property
    def label(self) -> str:
        """``ResNet-50, batch=32``; ``bfloat16``."""
        return ", ".join(filter(None, (self.name, self.detail)))

    @property
    def named(self) -> str:
        """The label with the workload's name, as a sentence needs it: ``Product n × n, bfloat16``."""
        return self.label if self.leads else f"{words.name(self.items[0].subject.result)}, {self.label}"

    @property
    def indented(self) -> str:
        """The label, indented where it belongs to the row above."""
        return self.label if self.leads else f"\u2003{self.label}"

    def of(self, source: Source) -> Item | None:
        """Return the pair or the result of this device."""
        return next((item for item in self.items if item.subject.source == source), None)

    def differing(self, item: Item) -> str:
        """`` (n=512)`` of a device that lacks the row's size or setting."""
        if _case(item) == _case(self.items[0]):
            return ""
        return f" ({words.size(item.subject) or words.setting(item.subject.result)})"


def answer_rows(study: Study, items: Sequence[Item]) -> list[AnswerRow[Item]]:
    """Return the rows of these pairs or results, by kind of work: the user's own first, within a kind the workload with
    the most benchmarks; float32 is a workload's first dtype. Each setting of one's own benchmarks has a row."""
    rows: list[AnswerRow[Item]] = []
    for members in in_order(items):
        workloads = grouped(members, lambda item: item.subject.result.workload)
        for _, of_workload in sorted(workloads.items(), key=lambda entry: (-len(entry[1]), entry[0])):
            own = of_workload[0].subject.own
            alike = grouped(of_workload, attrgetter("subject.setting" if own else "subject.dtype")).values()
            chosen = sorted((_of_each_device(study, group) for group in alike), key=lambda group: plainness(group[0]))
            first: Sequence[str] = ()
            for group in chosen:
                subject: Measured = group[0].subject
                heading = subject.kind.heading if subject.kind else words.OWN
                settings: list[str] = words.settings(subject.result, without={"dtype"})
                detail = [word for word in settings if word not in first]
                leads = own or group is chosen[0]
                if leads:
                    name, first = words.name(subject.result), () if own else settings
                    detail = [*[subject.dtype] * (subject.dtype not in ("", "float32")), *settings]
                else:
                    name = subject.dtype or "other"
                rows.append(AnswerRow(heading, name, ", ".join(detail), leads, group))
    return rows


def _of_each_device(study: Study, items: Sequence[Item]) -> tuple[Item, ...]:
    """Return an item for each device: of the plainest setting at the largest size, or if a device lacks that, of its
    own plainest at its largest. The first names the row."""
    by_device = grouped(items, lambda item: item.subject.source)
    firsts = [plainest_first(members)[0] for members in by_device.values()]
    lead = _case(plainest_first(firsts)[0])
    return tuple(sorted(firsts, key=lambda item: (_case(item) != lead, study.names.order(item.subject))))


def _case(item: Measured | Pair) -> tuple[object, object]:
    return item.subject.setting, item.subject.size


def choose_rows(rows: Sequence[AnswerRow[Item]], most: int = MOST_ROWS) -> list[AnswerRow[Item]]:
    """Return so many rows in their order: a row of each of the user's own workloads, of the first workload of each kind
    of work, then of the second of each, and so on; and then the second row of each workload: another dtype, or another
    setting. Of one's own each file is a kind."""
    of_kind: Counter[str] = Counter()
    of_workload: Counter[str] = Counter()
    turns: list[tuple[int, bool, int, int]] = []
    for at, row in enumerate(rows):
        before = of_workload[workload := row.items[0].subject.result.workload]
        of_workload[workload] += 1
        own = row.heading == words.OWN
        of_kind[kind := workload.partition(".")[0] if own else row.heading] += not before
        turns.append((before, not own, 0 if before else of_kind[kind], at))
    return [rows[at] for at in sorted(at for *_, at in sorted(turns)[:most])]


def at_largest(rows: Sequence[AnswerRow[Item]]) -> str:
    """At which sizes a picture or a table shows these rows."""
    return "At its largest size" if len(rows) == 1 else "Each at its largest size"


@dataclass(eq=False)
class Speedups:
    """Devices against one baseline, ``H200`` against ``Xeon, 2 threads``. ``devices`` are the names of the columns,
    ``pairs`` the pairs of all rows; ``alike``: no work moves from a CPU to a GPU, so that nothing is copied."""

    baseline: str
    devices: dict[Source, str]
    rows: list[AnswerRow[Pair]]

    def __post_init__(self) -> None:
        self.pairs = [pair for row in self.rows for pair in row.items]
        self.alike = not any(pair.other.on_accelerator and not pair.base.on_accelerator for pair in self.pairs)

    def of(self, source: Source) -> list[tuple[AnswerRow[Pair], Pair]]:
        """The rows of a device with their pairs."""
        return [(row, pair) for row in self.rows if (pair := row.of(source)) is not None]

    def count(self, source: Source) -> str:
        """``faster in 24 of 26 benchmarks (1.3× to 132×)``."""
        pairs = [pair for _, pair in self.of(source)]
        wins = sorted((pair.ratio for pair in pairs if pair.faster), key=lambda ratio: ratio.value or 0.0)
        many = counted(len(pairs), "benchmark")
        if not wins:
            return f"faster in none of {many}"
        ends = list(dict.fromkeys((wins[0].mark, wins[-1].mark)))
        if wins[0].state in LIMITS and wins[-1].state in LIMITS:
            ends = [f"at least {replace(wins[0], state=State.KNOWN).mark}"]
        return f"faster in {len(wins)} of {many} ({' to '.join(ends)})"


def find_speedups(study: Study, pairs: Sequence[Pair]) -> list[Speedups]:
    """The devices of these pairs against each of their baselines, accelerators first."""
    tables = []
    by_base = grouped(pairs, lambda pair: pair.base.source)
    for members in sorted(by_base.values(), key=lambda members: not members[0].base.on_accelerator):
        if rows := answer_rows(study, members):
            firsts = {pair.other.source: pair for row in rows for pair in row.items}
            devices = {}
            for pair in sorted(firsts.values(), key=lambda pair: study.names.order(pair.other)):
                name = study.names.of(pair.other)
                on_one = f"{study.names.subject(pair)} on {study.names.short(name)}"
                devices[pair.other.source] = on_one if pair.within_device else name
            tables.append(Speedups(study.names.baseline(members), devices, rows))
    return tables


class Answer:
    """The answer of a study: speedups if there is a device to compare, times if there is only a CPU."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.smoke = bool(study.runs) and all(run.preset == "smoke" for run in study.runs)
        self._alone = [row for row in study.measured if not row.library] or study.measured

    @cached_property
    def speedups(self) -> list[Speedups]:
        """Devices against a baseline; none of a smoke run, because its times mean nothing."""
        return [] if self.smoke else find_speedups(self.study, self.study.answered)

    @cached_property
    def times(self) -> list[AnswerRow[Measured]]:
        """The rows if nothing is compared."""
        return [] if self.speedups else answer_rows(self.study, self._alone)

    @cached_property
    def sentence(self) -> str:
        """How much faster each device is, or the rates of the CPU if there is no device to compare."""
        if self.smoke:
            return "Smoke runs are too short to compare devices. Use --preset quick."
        devices = [(speedups, source) for speedups in self.speedups for source in speedups.devices]
        if devices:
            sentences = [_sentence(*device) for device in devices[:_MOST_DEVICES]]
            more = _more_devices([speedups.devices[source] for speedups, source in devices[_MOST_DEVICES:]])
            compared = {row.run_name for pair in self.study.answered for row in (pair.base, pair.other)}
            alone = [name for name in self.study.named_runs if name not in compared]
            more += [f"Not compared, because nothing is alike: {listed(alone)}."] * bool(alone)
            sides = (side for speedups in self.speedups for pair in speedups.pairs for side in pair.sides)
            runs = {side.run_name: side.run for side in sides if not side.on_accelerator}.values()
            counts = {(run.machine.threads or 1, available) for run in runs if (available := threads_available(run))}
            claim = "No fair CPU: it took {} of {} threads, so it may be up to {:.2g} times as fast."
            unfair = (claim.format(used, available, available / used) for used, available in sorted(counts))
            return " ".join([*unfair, *sentences, *more])
        return _cpu_sentence(self.study, self.times, self._alone)

    @cached_property
    def hint(self) -> str:
        """How to see a GPU, for runs on devices with a name that had none."""
        named = any(row.result.device for row in self.study.measured)
        if self.speedups or not named or self.study.names.accelerators:
            return ""
        cpu_build = any((run.machine.torch or "").endswith("+cpu") for run in self.study.runs)
        return _CPU_BUILD if cpu_build else "No GPU used. Have a GPU? gpubench env says why PyTorch can't see it."

    @cached_property
    def left_out(self) -> str:
        """The benchmarks that weren't compared, and how to compare them anyway."""
        left_out, apart = self.study.left_out, list[str]()
        terms = Counter(term for _, differences in left_out for term in differences)
        counts = ", ".join(f"{term} ({count})" for term, count in terms.most_common())
        options = " ".join(f"--allow {term}" for term in terms)
        subject = f"{counted(len(left_out), 'benchmark')} {'has' if len(left_out) == 1 else 'have'}"
        nearest = f"no comparable baseline, the nearest differs in {counts}"
        texts = [f"Not compared: {subject} {nearest}. Use {options} to compare anyway"] * bool(left_out)
        compared = {row.result.workload for row, _ in left_out} | {p.other.result.workload for p in self.study.pairs}
        for workload, rows in grouped(self.study.measured, attrgetter("result.workload")).items():
            runs = grouped(rows, attrgetter("run_name")).values()
            common = set.intersection(*({(row.setting, repr(row.size)) for row in of_run} for of_run in runs))
            apart += [words.name(rows[0].result)] * (len(runs) > 1 and not common and workload not in compared)
        texts += [f"Not compared, because sizes or settings differ between the runs: {listed(apart)}"] * bool(apart)
        return ". ".join(texts)

    @cached_property
    def warnings(self) -> list[Warning]:
        """Warnings to read before the numbers, the most serious first."""
        study, warnings = self.study, []
        if any(run.preset == "smoke" for run in study.runs):
            warnings.append(Warning("Smoke run", ": it checks that the benchmarks work; its times mean nothing"))
        if where := words.simulated(device for run in study.runs for device in run.machine.devices):
            warnings.append(Warning(where, advice="Don't quote them."))
        if self.smoke:
            return warnings
        judged = [row for row in study.measured if row.kind is None or row.kind.summarised] or study.measured
        warnings += [*_warn_of_noise(study, judged), *_warn_of_calls(study, judged)]
        if note := plain_memory_note(row.result for row in study.measured):
            warnings.append(Warning(f"{note[:1].upper()}{note[1:]}", minor=True))
        if study.measured and not any(row.interval for row in study.measured):
            evidence = ": ranges are not confidence intervals (use --processes 3)"
            warnings.append(Warning("Timed in one process", evidence, minor=True))
        return [*warnings, *_warn_of_peaks(study, judged)]


def _more_devices(names: Sequence[str]) -> list[str]:
    return [f"And {len(names)} more: {listed(names)}."] if names else []


def _sentence(speedups: Speedups, source: Source) -> str:
    """``H100 against Xeon: faster in 24 of 26 benchmarks (1.3× to 132×), in 17 also when the data is copied for every
    call. Not faster: Sort, n=10⁶ (1.2× slower).``"""
    rows = speedups.of(source)
    who = f"{speedups.devices[source]} against {speedups.baseline}"
    if len(rows) == 1:
        ((row, pair),) = rows
        over = f" over {words.way(pair)}" * bool(pair.fastest_way)
        copied = f" With inputs and results copied for every call: {pair.copied_ratio}." * bool(pair.copies)
        return f"{who}: {pair.ratio.mark} on {row.named}{over}.{copied}"
    wins = [pair for _, pair in rows if pair.faster]
    copied_wins = sum(pair.copies.faster for pair in wins if pair.copies)
    copies = f", in {copied_wins or 'none'} also when the data is copied for every call"
    slower = [(row.named, pair.ratio) for row, pair in rows if not pair.faster]
    losses = [f"{name} ({ratio.mark})" for name, ratio in slower if ratio.state is not State.UNKNOWN]
    unknown = [name for name, ratio in slower if ratio.state is State.UNKNOWN]
    parts = [f"{who}: {speedups.count(source)}{copies * any(pair.copies for pair in wins)}."]
    lists = {"Not faster": losses, "Unknown": unknown}
    return " ".join([*parts, *(f"{head}: {listed(names, _NAMED, '; ')}." for head, names in lists.items() if names)])


def _cpu_sentence(study: Study, rows: Sequence[AnswerRow[Measured]], alone: Sequence[Measured]) -> str:
    if not alone:
        return "Nothing was measured."
    first = {row.heading: row.items[0] for row in reversed(rows)}
    leads = [first[KINDS[name].heading] for name in ("matmul", "elementwise") if KINDS[name].heading in first]
    if reached := [row for row in leads if not row.quality.doubt and row.throughput]:
        return f"{study.names.of(reached[0])}: {', '.join(map(_reached, reached))}."
    devices = grouped([item for row in rows for item in row.items] or alone, study.names.of)
    sentences = [f"{name}: {_range(members)}." for name, members in [*devices.items()][:_MOST_DEVICES]]
    return " ".join([*sentences, *_more_devices([*devices][_MOST_DEVICES:])])


def _reached(row: Measured) -> str:
    """``356 GFLOP/s in matrix products (n=2048, 93% of peak)``."""
    peak = f"{row.peak_share} of peak" if row.peak_share and row.peak_share.value is not None else ""
    details = ", ".join(filter(None, [words.size(row), peak]))
    work = row.kind.words if row.kind else words.name(row.result)
    return f"{row.starred_speed} in {work}" + (f" ({details})" if details else "")


def _range(rows: Sequence[Measured]) -> str:
    in_time = sorted(rows, key=lambda row: row.time_s)
    (least, name), (most, slowest) = ((row.time, words.name(row.result)) for row in (in_time[0], in_time[-1]))
    if len(rows) == 1:
        return f"{name} takes {least}"
    return f"{least}{f' ({name})' * (name != slowest)} to {most} ({slowest})"


@dataclass(frozen=True, slots=True)
class Warning:
    """A fault of the results: its ``summary``, for a line with several, the ``evidence``, and the ``advice``. A minor
    warning stands below the tables too."""

    summary: str
    evidence: str = ""
    advice: str = ""
    minor: bool = False

    def __str__(self) -> str:
        return f"{self.summary}{self.evidence}. {self.advice}".rstrip()


def _warn_of_noise(study: Study, judged: Sequence[Measured]) -> Iterator[Warning]:
    harmless = {*_OF_THE_CALL, POWER_LIMITED}
    busy = {name: run for name, run in study.named_runs.items() if run.contended}
    whole = {name for name, run in busy.items() if any(flag.name == CONTENDED for flag in run.flags)}
    if busy:
        judged = [row for row in judged if row.run_name in busy]
    able = [row for row in judged if row.busy or row.run_name in whole or not busy]
    noisy = sum(row.quality.noisy and not harmless.issuperset(row.flags) for row in able)
    many = noisy > _NOISY_SHARE * len(judged) and len(judged) > 1  # a single result has a star already
    if not judged or not (busy or many):
        return
    count = f"{noisy} of {counted(len(judged), 'result')} {'is' if noisy == 1 else 'are'} noisy"
    if busy:
        threads = max((run.machine.threads or 1 for run in busy.values() if run.machine.torch), default=1)
        slower_s = max(row.time_s for row in judged) * threads / max(1, threads - 1)
        fewer = f", or leave them a core: --threads {threads - 1}" * (threads > 1 and slower_s < _LONGEST_CALL_S)
        where = f"The machine{f' of {listed(busy, 3)}' * study.several_runs} was busy"
        extent = f"{count} (*) and" if noisy else "no single result is noisy, but all times may be"
        advice = f"Close other programs and run again before you quote them{fewer}."
        yield Warning(where, f": {extent} too long by an unknown amount", advice)
    else:
        more = f"--processes {max(5, 2 * max(run.processes for run in study.runs))}"
        yield Warning(count, " (*) and may be far off", f"Repeat more: {more}, or --preset full.")


def _warn_of_calls(study: Study, judged: Sequence[Measured]) -> Iterator[Warning]:
    """Warn of calls that did something else than was meant, and of slow matrix products of PyTorch on a CPU, on which
    speedups over it depend; of a busy machine they say nothing."""
    for name in _OF_THE_CALL:
        if rows := [row for row in judged if name in row.flags]:
            causes = [flag.seen for flag in rows[0].result.flags if flag.name == name == DIFFERENT]
            evidence = f" ({_examples(rows)}): {next(iter(causes), ADVICE[name].why)}"
            yield Warning(f"{counted(len(rows), 'result')} flagged {name}", evidence, f"To try: {ADVICE[name].remedy}.")
    claims: list[tuple[str, str]] = []
    several = len({run.machine.label for run in study.runs}) > 1
    for run in study.runs:
        peaks = run.ceilings.get("cpu")
        if peaks is not None and not run.flags and not run.slow_threads:
            slow = slow_products(peaks, run.machine.cpu, f"the CPU of {run.machine.label}" if several else "this CPU")
            claims += [(claim, reason) for library, claim, reason in slow if library == "torch"]
    for claim, reason in claims[:1]:
        more = f"; and {counted(len(claims) - 1, 'other dtype')}" * (len(claims) > 1)
        yield Warning(claim, f" ({reason}){more}", "See docs/how-it-measures.md.")


def _examples(rows: Sequence[Measured]) -> str:
    return listed(dict.fromkeys(words.name(row.result) for row in rows), 2)


def _warn_of_peaks(study: Study, judged: Sequence[Measured]) -> Iterator[Warning]:
    """Warn of measured peaks that can't be right, if results would have had a % of them, and of results above a
    peak."""
    rated = sorted((row for row in study.measured if row.rate), key=lambda row: bool(row.library))  # NumPy is no device
    for row, *_ in grouped(rated, lambda row: (row.run_name, row.result.device)).values():
        if cause := row.run.disproved.get(row.result.device):
            where = f"The measured peaks of {study.names.of(row)} are wrong"
            yield Warning(where, f" ({cause}), so no % of peak is shown")
    if above := [row for row in judged if (row.utilisation or 0) > 1 and not row.result.convolution_share]:
        evidence = f" ({_examples(above)}): the peak was measured too low, so % of peak is left out"
        few = len(above) < _FEW_SHARE * len(judged)
        yield Warning(f"{counted(len(above), 'result')} above the measured peak", evidence, minor=few)
