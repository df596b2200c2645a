"""What each benchmark of a CPU's results file could gain on a card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..devices.datasheets import Gpu
from ..devices.implementations import implementation_label
from ..report.pairs import least_s
from ..report.rows import grouped
from ..runfile.flags import CONTENDED, judge
from ..runfile.matching import shown_name
from ..runfile.schema import OK, Case, Operators, Result, Run, Work
from ..runfile.ways import HOW, LAYOUT, TUNED, fastest_way, job
from .model import NOTHING_LEARNED, OPERATORS_UNKNOWN, Likely, likely, shortest

MODELLED = "modelled"
"""The status of every estimate."""
MANY_OPERATORS = ("networks", "training", "linear_algebra", "irregular", "science")
"""Kinds of work whose sums don't stand for a single operator with learned factors."""
ANY_WAY = ("eager", "compile", "graph")
"""Variants that count as one benchmark."""
HOWS = {"TF32": "tf32", "autocast": "float16"}
"""How else a GPU computes a network that the CPU ran in float32, and the dtype of its products then."""
STEP = 3.0
"""FLOPs, traffic of activations and reads of parameters of a training step, over those of the forward pass."""
AUTOCAST = 0.6
"""Bytes of what a forward pass keeps under autocast over those in float32: 0.51 of ResNet-50, 0.61 of GPT-2; besides,
it keeps a copy of the parameters, half as large."""
USABLE, FILLED, MOST_DOUBLINGS = 0.9, 1.1, 14
"""Share of a GPU's memory that a program can use; a batch fills a GPU if twice the batch is less than so much faster
for each item."""
LEAST_INTENSITY = 20.0
"""FLOP per byte of a forward pass from which a CPU's time per item is about the same at a larger batch: below it, it
waits for parameters, which a larger batch shares."""
_SOLVERS = "linear_algebra."
"""Decompositions wait for arithmetic and, as each step needs the one before, for launches: memory is no guide."""
_BY_MEMORY = f"{NOTHING_LEARNED}; look at memory bandwidth"


@dataclass(frozen=True)
class Job:
    """A benchmark of a CPU, with the time of the fastest ``way`` that the file has of the same job, which
    :func:`~gpubench.runfile.ways.fastest_way` finds; ``least_s``: what that takes at least, if its time is starred.

    ``copied_bytes`` are those of inputs and outputs; ``obstacle`` is the reason why no GPU can be estimated at all.
    ``how`` is one of HOWS where the GPU is to compute otherwise; ``filled``: at the batch that fills the GPU.
    ``bandwidth`` is that of the CPU's memory, as measured, ``cores`` how many it has. ``memory`` are the bytes that it
    needs whatever the batch, and those that grow with it; 0 where unknown. ``fixed`` is the share of the bytes of each
    kind of operator that doesn't grow with the batch.
    """

    case: Case
    cpu_s: float
    least_s: float
    way: str
    star: str
    dtype: str
    work: Work
    copied_bytes: int | None
    memory: tuple[float, float]
    obstacle: str = ""
    bandwidth: float | None = None
    how: str = ""
    filled: bool = False
    cores: int | None = None
    fixed: Mapping[str, float] = field(default_factory=dict)

    def held_bytes(self, times: int = 1) -> float:
        """The memory that it needs on a GPU at so many times the batch; 0 where unknown."""
        fixed, grown = self.memory
        return fixed + grown * times

    def work_at(self, times: int) -> Work:
        """Its work at so many times the batch. Under autocast half the bytes move."""
        half = 0.5 if self.how == "autocast" else 1.0
        grown = tuple(
            Operators(each.kind, each.count, each.flops * times, each.bytes * half * (share + (1 - share) * times))
            for each in self.work.operators
            for share in (self.fixed.get(each.kind, 0.0),)
        )
        return Work(
            self.work.flops and self.work.flops * times, self.work.bytes and self.work.bytes * half, operators=grown
        )


@dataclass(frozen=True)
class Outlook:
    """A job on a card, times in seconds, ratios as speedups. ``note`` is the reason why something is unknown,
    ``batch`` is ``times`` the measured one, ``rate`` the likely items per second, ``basis`` what the likely time rests
    upon; ``launches``: at the low end of the range they take most of the time."""

    job: Job
    gpu: str
    bound: str = ""
    shortest_s: float | None = None
    at_most: float | None = None
    probably: tuple[float, float] | None = None
    with_copies_at_most: float | None = None
    note: str = ""
    times: int = 1
    batch: int | None = None
    rate: tuple[float, float] | None = None
    basis: str = ""
    launches: bool = False

    @property
    def memory_bytes(self) -> float | None:
        """The memory that it needs at its batch; None where unknown."""
        return self.job.held_bytes(self.times) or None if self.batch or not self.job.filled else None


def jobs_of(run: Run) -> list[Job]:
    """The jobs that the run timed on its CPU: each benchmark once, whatever its libraries and variants; a network in
    float32 in each of HOWS too, at its batch and at the one that fills the GPU."""
    timed = [
        result
        for result in run.results
        if result.status == OK and result.times and run.machine.device(result.device).kind in ("cpu", "")
    ]
    ways = grouped(timed, job)
    rates = {  # the highest beyond the caches, as other programs only lower it
        name: max((each.byte_per_s for each in known.bandwidth if each.level in ("memory", "")), default=None)
        for name, known in run.ceilings.items()
    }
    most = run.processes / 2
    busy = [CONTENDED] * any(flag.name == CONTENDED and len(flag.processes) > most for flag in run.flags)
    groups = grouped(timed, key_of).values()
    jobs = [_job(run, group, ways[job(group[0])], rates.get(group[0].device), busy) for group in groups]
    passes = {each.case.workload.partition(".")[2]: each for each in jobs if each.case.kind == "networks"}
    return [replace(one, cores=run.machine.cpu.cores) for each in jobs for one in _in_each_way(each, passes)]


def _in_each_way(job: Job, passes: Mapping[str, Job]) -> list[Job]:
    """The job, and a network in each of HOWS too; ``passes`` are the run's forward passes by the network's name. A
    convolution alone in TF32, which is PyTorch's default for it."""
    kinds = {each.kind for each in job.work.operators}
    again, alone = job.case.workload.endswith((LAYOUT, TUNED)), kinds == {"convolution"}
    if again or job.dtype != "float32" or not (alone or (kinds & {"product", "convolution"} and len(kinds) > 1)):
        return [job]
    forward = passes.get(job.case.workload.partition(".")[2]) if job.case.kind == "training" else job
    found = [replace(job, how="TF32", dtype=HOWS["TF32"])]
    if not alone:
        (held, grown), copied = job.memory, forward.memory[0] / 2 if forward else 0.0
        found.append(replace(job, how="autocast", dtype=HOWS["autocast"], memory=(held + copied, AUTOCAST * grown)))
    fixed = _fixed_shares(job, forward) if forward and job.memory[1] else None
    if fixed is not None and isinstance(job.case.params.get("batch"), int):
        found += [replace(each, filled=True, fixed=fixed) for each in found]
    return [job, *found]


def _fixed_shares(job: Job, forward: Job) -> dict[str, float] | None:
    """The shares of bytes that don't grow with the batch: of a forward pass its parameters, of a training step what is
    more than STEP times the activations of the forward pass. None where these are unknown."""
    step = job is not forward
    parameters = min(forward.memory[0], forward.work.bytes or 0.0)  # of an embedding few are read
    if not parameters or not forward.memory[1] or (forward.work.items or 0) <= 0:
        return None
    grows = (job.work.items or 0) / (forward.work.items or 1)
    passed, moved = _bytes_of(forward.work), _bytes_of(job.work)
    readers = passed.keys() & {"product", "convolution", "other"}  # an embedding is another
    share = parameters / (sum(passed[kind] for kind in readers) or 1.0)
    passed |= {kind: passed[kind] * max(0.0, 1 - share) for kind in readers}
    return {
        kind: max(0.0, 1 - passed.get(kind, 0.0) * grows * (STEP if step else 1.0) / moved[kind])
        for kind in moved
        if moved[kind]
    }


def _bytes_of(work: Work) -> dict[str, float]:
    return {
        kind: sum(each.bytes for each in found) for kind, found in grouped(work.operators, lambda o: o.kind).items()
    }


def key_of(case: Case) -> tuple[object, ...]:
    """A key that is equal for one benchmark on any device and in any library."""
    variant = "" if case.variant in ("", *ANY_WAY) else case.variant
    params = sorted(f"{name}={value!r}" for name, value in case.params.items())
    return case.workload, case.dtype, variant, case.cache, tuple(params)


def _seconds(result: Result) -> float:
    return result.times.median_s if result.times else math.inf


def _least_s(run: Run, fastest: Result, flags: Sequence[str]) -> float:
    times = fastest.times
    if times is None or not judge(flags).star:
        return _seconds(fastest)
    seen = run.contended and (times.cpu_s is not None or CONTENDED in flags)
    return least_s(times, fastest.threads or 1, bool(run.slow_threads)) if seen else times.min_s


def _job(
    run: Run, group: Sequence[Result], ways: Sequence[Result], bandwidth: float | None, flags: Sequence[str]
) -> Job:
    fastest = fastest_way(min(group, key=_seconds), ways)
    named = min(group, key=lambda each: (each.implementation != "torch", each.variant != "eager"))
    traced = next((each.work for each in (named, *group) if each.work.operators), None)
    works = [each.work for each in group]
    least = Work(
        min((work.flops for work in works if work.flops), default=None),
        min((work.bytes for work in works if work.bytes), default=None),
        named.work.items,
        named.work.unit,
        traced.operators if traced else (),
    )
    copies = next((each.transfer for each in (named, *group) if each.transfer), None)
    copied = copies.in_bytes + copies.out_bytes if copies else None
    library = implementation_label(fastest.implementation) if fastest.implementation not in ("", "torch") else ""
    variant = fastest.variant if fastest.variant != named.variant else ""
    dtype = fastest.dtype if fastest.dtype != named.dtype else ""
    how = [str(fastest.params[name]) for name in HOW if fastest.params.get(name) not in (None, named.params.get(name))]
    other = fastest.workload.removeprefix(named.workload).replace("_", " ").strip()
    way = ", ".join(filter(None, (library, dtype, variant, *how, other)))
    several = (named.parallel and named.parallel.devices > 1) or named.kind in ("copies", "distributed")
    obstacle = "measures copies or several devices" if several else ""
    raised = [*flags, *(flag.name for flag in fastest.flags)]
    known = named.case, _seconds(fastest), _least_s(run, fastest, raised), way, judge(raised).star
    grown = float(named.batch_bytes or 0)
    memory = float(named.memory_bytes or 0) - grown, grown
    return Job(*known, named.compute_dtype, least, copied, memory, obstacle, bandwidth)


def outlook_of(job: Job, card: Gpu) -> Outlook:
    """The outlook of this job on this card, from physics and other cards' timings."""
    times = _batches(job, card)
    if times is None or job.obstacle:
        return Outlook(job, card.name, note=job.obstacle or f"doesn't fit into the memory of the {card.name}")
    if job.dtype == "tf32" and card.value("tf32") is None:
        return Outlook(job, card.name, note=f"no figure of the {card.name} in TF32")
    work, cpu_s = job.work_at(times), job.cpu_s * times
    batch, items = job.case.params.get("batch"), job.work.items
    bound = shortest(work, job.dtype, card)
    at_most = cpu_s / bound.seconds
    if not bound.complete and at_most >= 1:
        return Outlook(job, card.name, note=_missing(job, card))
    link, copies = card.value("link"), None
    if job.copied_bytes is not None and link:
        copies = cpu_s / (bound.seconds + job.copied_bytes * times / link)
    guess = _likely(job, work, card)
    if not job.work.operators and job.case.kind in MANY_OPERATORS:
        guess = OPERATORS_UNKNOWN
    if job.case.kind == "irregular" and all(each.kind != "sort" for each in job.work.operators):
        guess = NOTHING_LEARNED
    found = Outlook(job, card.name, bound.binds, bound.seconds, at_most, with_copies_at_most=copies)
    if isinstance(guess, str):
        return replace(found, note=_BY_MEMORY if guess == NOTHING_LEARNED and _waits_for_memory(job) else guess)
    if job.filled and (job.work.bytes and (job.work.flops or 0.0) < LEAST_INTENSITY * job.work.bytes):
        found = replace(found, at_most=None, note="how long the CPU takes at such a batch is unknown: measure it there")
        cpu_s = 0.0
    rate = (items * times / guess.high_s, items * times / guess.low_s) if items else None
    batch = batch * times if isinstance(batch, int) else None
    if not job.least_s:
        found = replace(found, note="the machine was busy, and its threads waited for each other")
    probably = (job.least_s * times / guess.high_s, cpu_s / guess.low_s) if cpu_s and job.least_s else None
    found = replace(found, times=times, batch=batch, rate=rate)
    return replace(found, probably=probably, basis=guess.basis, launches=guess.launches)


def _likely(job: Job, work: Work, card: Gpu) -> Likely | str:
    """The likely time of so much of a job's work; TF32 is only on where it isn't slower than float32."""
    guess = likely(work, job.dtype, card)
    other = likely(work, "float32", card) if job.how == "TF32" else guess
    if isinstance(guess, str) or isinstance(other, str):
        return guess
    return replace(guess, middle_s=min(guess.middle_s, other.high_s), high_s=min(guess.high_s, other.high_s))


def _waits_for_memory(job: Job) -> bool:
    few = (job.work.flops or 0.0) < LEAST_INTENSITY * (job.work.bytes or 0.0)
    return few and not job.case.workload.startswith(_SOLVERS)


def _batches(job: Job, card: Gpu) -> int | None:
    """How many times the measured batch; None where not even that fits into the GPU's memory, as far as is known."""
    room = USABLE * (card.value("capacity") or math.inf)
    if job.held_bytes() > room:
        return None
    times, per_item = 1, math.inf
    for power in range(MOST_DOUBLINGS * job.filled):
        guess = _likely(job, job.work_at(1 << power), card)
        if isinstance(guess, str) or per_item <= FILLED * guess.high_s / (1 << power):
            break
        if job.held_bytes(1 << power) > room:
            break
        times, per_item = 1 << power, guess.high_s / (1 << power)
    return times


def _missing(job: Job, card: Gpu) -> str:
    if not (job.work.flops or job.work.bytes):
        if shown_name(job.case.workload) != job.case.workload:
            return "its work is unknown: PyTorch counts none"
        if not job.case.implementation:  # a plain suite
            return "its work is unknown: the gpubench fixture, instead of benchmark, counts PyTorch's and takes flops="
        return "its work is unknown: give flops= or nbytes= to the gpubench fixture"
    return f"the table lacks a figure of the {card.name} that it needs"
