"""What each benchmark of a CPU's results file could gain on a card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_fields

from ..devices.implementations import implementation_label
from ..report.rows import grouped
from ..runfile.flags import CONTENDED, judge
from ..runfile.matching import shown_name
from ..runfile.schema import OK, Case, Ceilings, Operators, Result, Run, Work
from ..runfile.ways import HOW, LAYOUT, TUNED, fastest_way, job
from .datasheets import Gpu
from .model import EAGER_S, NOTHING_LEARNED, OPERATORS_UNKNOWN, Likely, likely, shortest

MODELLED = "modelled"
"""The status of every estimate."""
MANY_OPERATORS = ("networks", "training", "linear_algebra", "irregular", "science")
"""Kinds of work whose sums don't stand for a single operator with learned factors."""
ANY_WAY = ("eager", "compile", "graph")
"""Variants that count as one benchmark."""
HOWS = {"TF32": "tf32", "autocast": "float16"}
"""How else a GPU computes a network that the CPU ran in float32, and the dtype of its products then."""
USABLE = 0.9
"""Share of a GPU's memory that a program can use."""
SLOWEST = {"product": 10.0, "elementwise": 30.0, "normalisation": 30.0, "convolution": 100.0}
"""How many times its time at a CPU's measured peaks an operator may take there: ``torch.randn`` takes 20 times as long
as an addition, a depthwise convolution 50 times its arithmetic. Nothing is known of sorts and other kinds."""
PYTHON = "PyTorch does nothing in it: this is work of Python or of another library, which no GPU speeds up"
NOT_TORCH = "at this CPU's peaks its operators take less than a tenth of its time: the rest is Python's, or one is slow"


@dataclass(frozen=True)
class Job:
    """A benchmark of a CPU, with the time of the fastest ``way`` that the file has of the same job, which
    :func:`~gpubench.runfile.ways.fastest_way` finds.

    ``copied_bytes`` are those of inputs and outputs, ``memory_bytes`` the peak on the CPU, 0 if unknown. ``obstacle``
    is the reason why no GPU can be estimated at all, ``doubt`` why the time isn't that of the operators, ``uncounted``
    why the work couldn't be counted. ``how`` is one
    of HOWS if the GPU is to compute otherwise, ``cores`` the CPU's number of cores.
    """

    case: Case
    cpu_s: float
    way: str
    star: str
    dtype: str
    work: Work
    copied_bytes: int | None
    memory_bytes: float
    obstacle: str = ""
    doubt: str = ""
    how: str = ""
    cores: int | None = None
    uncounted: str = ""


@dataclass(frozen=True)
class Outlook:
    """A job on a card, times in seconds, ratios as speedups. ``note`` is the reason why something is unknown,
    ``likely_s`` the range of the GPU's time, ``basis`` the measurements that the range was compared with;
    ``launches``: at the low end of the range launches take most of the time."""

    job: Job
    gpu: str
    bound: str = ""
    shortest_s: float | None = None
    at_most: float | None = None
    likely_s: tuple[float, float] | None = None
    with_copies_at_most: float | None = None
    note: str = ""
    basis: str = ""
    launches: bool = False

    @property
    def probably(self) -> tuple[float, float] | None:
        """The likely speedups, the lowest first."""
        return (self.job.cpu_s / self.likely_s[1], self.job.cpu_s / self.likely_s[0]) if self.likely_s else None

    @property
    def rate(self) -> tuple[float, float] | None:
        """The likely items per second, the lowest first; None if the items are unknown."""
        items = self.job.work.items
        return (items / self.likely_s[1], items / self.likely_s[0]) if items and self.likely_s else None


def jobs_of(run: Run) -> list[Job]:
    """Return the jobs that the run timed on its CPU: each benchmark once, whatever its libraries and variants; a
    network in float32 in each of HOWS too."""
    timed = [
        result
        for result in run.results
        if result.status == OK and result.times and run.machine.device(result.device).kind in ("cpu", "")
    ]
    ways = grouped(timed, job)
    most = run.processes / 2
    busy = [CONTENDED] * any(flag.name == CONTENDED and len(flag.processes) > most for flag in run.flags)
    groups = grouped(timed, key_of).values()
    jobs = [_job(run, group, ways[job(group[0])], busy) for group in groups]
    return [replace(one, cores=run.machine.cpu.cores) for each in jobs for one in _in_each_way(each)]


def _in_each_way(job: Job) -> list[Job]:
    """Return the job, and a network in each of HOWS too. A convolution alone in TF32, which is PyTorch's default for
    it. Under autocast half the bytes move."""
    kinds = {each.kind for each in job.work.operators}
    again, alone = job.case.workload.endswith((LAYOUT, TUNED)), kinds == {"convolution"}
    if again or job.dtype != "float32" or not (alone or (kinds & {"product", "convolution"} and len(kinds) > 1)):
        return [job]
    tf32 = replace(job, how="TF32", dtype=HOWS["TF32"])
    if alone:
        return [job, tf32]
    halves = tuple(Operators(each.kind, each.count, each.flops, each.bytes / 2) for each in job.work.operators)
    work = replace_fields(job.work, bytes=job.work.bytes and job.work.bytes / 2, operators=halves)
    return [job, tf32, replace(job, how="autocast", dtype=HOWS["autocast"], work=work)]


def _unexplained(job: Job, ceilings: Ceilings | None) -> str:
    """Return the reason why the CPU's time isn't that of its operators; empty if the CPU's measured peaks explain the
    time, or are unknown."""
    operators, known = job.work.operators, ceilings or Ceilings()
    bandwidth = max((each.byte_per_s for each in known.bandwidth if each.level in ("memory", "")), default=None)
    rate = known.throughput.get(job.dtype)
    if not (bandwidth and rate and operators and {each.kind for each in operators} <= SLOWEST.keys()):
        return ""
    most_s = sum(SLOWEST[each.kind] * max(each.flops / rate, each.bytes / bandwidth) for each in operators)
    return NOT_TORCH if job.cpu_s > most_s + EAGER_S[1] * sum(each.count for each in operators) else ""


def key_of(case: Case) -> tuple[object, ...]:
    """A key that is equal for one benchmark on any device and in any library."""
    variant = "" if case.variant in ("", *ANY_WAY) else case.variant
    params = sorted(f"{name}={value!r}" for name, value in case.params.items())
    return case.workload, case.dtype, variant, case.cache, tuple(params)


def _seconds(result: Result) -> float:
    return result.times.median_s if result.times else math.inf


def _job(run: Run, group: Sequence[Result], ways: Sequence[Result], flags: Sequence[str]) -> Job:
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
    obstacle = "measures copies, or several devices at once" if several else ""
    raised = [*flags, *(flag.name for flag in fastest.flags)]
    star, memory = judge(raised).star, float(named.memory_bytes or 0)
    made = Job(named.case, _seconds(fastest), way, star, named.compute_dtype, least, copied, memory, obstacle)
    made = replace(made, uncounted=next((each.uncounted for each in group if each.uncounted), ""))
    was_counted = named.memory_bytes is not None and not made.uncounted
    nothing = was_counted and not (least.flops or least.bytes or least.operators)
    return replace(made, doubt=PYTHON if nothing else _unexplained(made, run.ceilings.get(fastest.device)))


def outlook_of(job: Job, card: Gpu) -> Outlook:
    """Return the outlook of this job on this card, from physics and other cards' timings."""
    if job.obstacle or job.doubt:
        return Outlook(job, card.name, note=job.obstacle or job.doubt)
    if job.memory_bytes > USABLE * (card.value("capacity") or math.inf):
        return Outlook(job, card.name, note=f"doesn't fit into the memory of the {card.name}")
    if job.dtype == "tf32" and card.value("tf32") is None:
        return Outlook(job, card.name, note=f"no figure of the {card.name} in TF32")
    bound = shortest(job.work, job.dtype, card)
    at_most = job.cpu_s / bound.seconds
    if not bound.complete and at_most >= 1:
        return Outlook(job, card.name, note=_missing(job, card))
    link, copies = card.value("link"), None
    if job.copied_bytes is not None and link:
        copies = job.cpu_s / (bound.seconds + job.copied_bytes / link)
    guess = _likely(job, card)
    if not job.work.operators and job.case.kind in MANY_OPERATORS:
        guess = OPERATORS_UNKNOWN
    if job.case.kind == "irregular" and all(each.kind != "sort" for each in job.work.operators):
        guess = NOTHING_LEARNED
    found = Outlook(job, card.name, bound.binds, bound.seconds, at_most, with_copies_at_most=copies)
    if isinstance(guess, str):
        return replace(found, note=guess)
    return replace(found, likely_s=(guess.low_s, guess.high_s), basis=guess.basis, launches=guess.launches)


def _likely(job: Job, card: Gpu) -> Likely | str:
    """Return the likely time of a job's work; TF32 is only on where it isn't slower than float32."""
    guess = likely(job.work, job.dtype, card)
    other = likely(job.work, "float32", card) if job.how == "TF32" else guess
    if isinstance(guess, str) or isinstance(other, str):
        return guess
    return replace(guess, middle_s=min(guess.middle_s, other.high_s), high_s=min(guess.high_s, other.high_s))


def _missing(job: Job, card: Gpu) -> str:
    if not (job.work.flops or job.work.bytes):
        reason = f" ({job.uncounted})" * bool(job.uncounted)
        if shown_name(job.case.workload) != job.case.workload:
            return f"gpubench couldn't count the FLOPs of this call{reason}"
        if not job.case.implementation:  # a plain suite
            return "its FLOPs are unknown: use the fixture gpubench instead of benchmark, which counts PyTorch's"
        return (
            f"gpubench couldn't count the FLOPs of this call{reason}: say gpubench.declare(flops=…, nbytes=…) before it"
        )
    return f"the table lacks a figure of the {card.name} that it needs"
