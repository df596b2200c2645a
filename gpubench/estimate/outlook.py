"""The possible gain of each benchmark of a CPU's results file on a card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_fields

from ..cards.datasheets import Gpu
from ..cards.model import EAGER_S, NOTHING_LEARNED, OPERATORS_UNKNOWN, Bound, Likely, likely, shortest
from ..report.rows import grouped
from ..report.why import GAIN
from ..runfile.flags import CONTENDED, DIFFERENT, judge
from ..runfile.matching import is_expression, shown_name
from ..runfile.quality import FORM, LAYOUT, fastest_way, job, library_label
from ..runfile.schema import OK, Case, Ceilings, Operators, Result, Run, Work

MODELLED = "modelled"
"""The status of every estimate."""
MANY_OPERATORS = ("networks", "training", "linear_algebra", "irregular", "science")
"""Kinds of work with sums that don't stand for a single operator with learned factors."""
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
TOO_SMALL = "Too small for these GPUs, which mostly wait for launches"
NOT_TORCH = "at this CPU's peaks its operators take less than a tenth of its time: the rest is Python's, or one is slow"


@dataclass(frozen=True)
class Job:
    """A benchmark of a CPU, with the time of the fastest ``way`` that the file has of the same job, which
    :func:`~gpubench.runfile.quality.fastest_way` finds.

    ``copied_bytes`` are the bytes of inputs and outputs, ``memory_bytes`` the peak on the CPU, 0 if unknown.
    ``obstacle`` is the reason why no GPU can be estimated at all, ``doubt`` why the time isn't the operators',
    ``uncounted`` why the work couldn't be counted. ``how`` is one of HOWS if the GPU is to compute otherwise, ``cores``
    the CPU's number of cores.
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
    """A job on a card. ``note`` is the reason why there is no ``likely`` time, or no ``bound`` either."""

    job: Job
    card: Gpu
    bound: Bound | None = None
    likely: Likely | None = None
    note: str = ""

    @property
    def at_most(self) -> float | None:
        """The largest possible speedup."""
        return self.job.cpu_s / self.bound.seconds if self.bound else None

    @property
    def with_copies_at_most(self) -> float | None:
        """The largest possible speedup if inputs and outputs are copied."""
        link, copied = self.card.value("link"), self.job.copied_bytes
        if self.bound is None or not link or copied is None:
            return None
        return self.job.cpu_s / (self.bound.seconds + copied / link)

    @property
    def probably(self) -> tuple[float, float] | None:
        """The likely speedups, the lowest first."""
        return (self.job.cpu_s / self.likely.high_s, self.job.cpu_s / self.likely.low_s) if self.likely else None

    @property
    def rate(self) -> tuple[float, float] | None:
        """The likely items per second, the lowest first; None if the items are unknown."""
        items = self.job.work.items
        return (items / self.likely.high_s, items / self.likely.low_s) if items and self.likely else None

    @property
    def cause(self) -> str:
        """Why a GPU gains little, as :func:`gpubench.report.why.why` says of a measured one: empty if it gains more, or
        if no figure says why."""
        if not self.likely or not self.probably or not self.at_most:
            return ""
        if self.likely.launches:
            return TOO_SMALL
        if self.probably[0] >= GAIN:
            return ""
        name, rate, usual = self.card.name, self.card.flop_per_s(self.job.dtype), self.card.flop_per_s("float32")
        if self.job.dtype == "float64" and rate and usual and 4 * rate < usual:
            return f"The {name} promises in float64 1/{usual / rate:.0f} of its float32"
        return f"The {name}'s peaks allow no more" * (self.at_most < 2 * GAIN)


def key_of(case: Case) -> tuple[object, ...]:
    """Return a key that is equal for one benchmark on any device and in any library."""
    variant = "" if case.variant in ("", *ANY_WAY) else case.variant
    params = sorted(f"{name}={value!r}" for name, value in case.params.items())
    return case.workload, case.dtype, variant, case.cache, tuple(params)


def jobs_of(run: Run) -> list[Job]:
    """Return the jobs that the run timed on its CPU: each benchmark once, whatever its libraries and variants; a
    network in float32 in each of HOWS too."""
    timed = [
        result
        for result in run.results
        if result.status == OK and result.times and run.machine.device(result.device).kind in ("cpu", "")
    ]
    ways, most = grouped(timed, job), run.processes / 2
    busy = [CONTENDED] * any(flag.name == CONTENDED and len(flag.processes) > most for flag in run.flags)
    jobs = [_job(run, group, ways[job(group[0])], busy) for group in grouped(timed, key_of).values()]
    different = {key_of(each) for each in timed if DIFFERENT in {flag.name for flag in each.flags}}
    return [one for each in _beside(jobs, different) for one in _in_each_way(each)]


def _beside(jobs: Sequence[Job], different: set[tuple[object, ...]]) -> list[Job]:
    """Take a faster expression without PyTorch, of NumPy or pandas, as the CPU's way of the expressions beside it that
    return the same."""
    own = [one for one in jobs if is_expression(one.case.workload) and key_of(one.case) not in different]
    faster = {}
    for one in own:
        others = [each for each in own if not _has_work(each.work) and each.case.params == one.case.params]
        other = min(others, key=lambda each: each.cpu_s, default=one)
        if other.cpu_s < one.cpu_s and _has_work(one.work):
            star = one.star or other.star
            faster[id(one)] = replace(one, cpu_s=other.cpu_s, way=shown_name(other.case.workload), star=star)
    return [faster.get(id(one), one) for one in jobs]


def _in_each_way(job: Job) -> list[Job]:
    """Return the job, and a network in each of HOWS too. A convolution alone in TF32, which is PyTorch's default for
    it. Under autocast half the bytes move."""
    kinds = {each.kind for each in job.work.operators}
    again, alone = job.case.workload.endswith(LAYOUT), kinds == {"convolution"}
    if again or job.dtype != "float32" or not (alone or (kinds & {"product", "convolution"} and len(kinds) > 1)):
        return [job]
    tf32 = replace(job, how="TF32", dtype=HOWS["TF32"])
    if alone:
        return [job, tf32]
    halves = tuple(Operators(each.kind, each.count, each.flops, each.bytes / 2) for each in job.work.operators)
    work = replace_fields(job.work, bytes=job.work.bytes and job.work.bytes / 2, operators=halves)
    return [job, tf32, replace(job, how="autocast", dtype=HOWS["autocast"], work=work)]


def _job(run: Run, group: Sequence[Result], ways: Sequence[Result], flags: Sequence[str]) -> Job:
    fastest = fastest_way(min(group, key=_seconds), ways)
    named = min(group, key=lambda each: (each.implementation != "torch", each.variant != "eager"))
    first = (named, *group)
    works = [each.work for each in group]
    least = Work(
        min((work.flops for work in works if work.flops), default=None),
        min((work.bytes for work in works if work.bytes), default=None),
        named.work.items,
        named.work.unit,
        next((each.work.operators for each in first if each.work.operators), ()),
    )
    copies = next((each.transfer for each in first if each.transfer), None)
    library = library_label(fastest.implementation) * (fastest.implementation != named.implementation)
    form = fastest.params.get(FORM)
    how = [] if form in (None, named.params.get(FORM)) else [str(form)]
    other = fastest.workload.removeprefix(named.workload).replace("_", " ").strip()
    differ = [getattr(fastest, name) for name in ("dtype", "variant") if getattr(fastest, name) != getattr(named, name)]
    several = (named.parallel and named.parallel.devices > 1) or named.kind in ("copies", "distributed")
    uncounted = next((each.uncounted for each in group if each.uncounted), "")
    nothing = named.memory_bytes is not None and not (uncounted or _has_work(least))
    return Job(
        named.case,
        cpu_s=_seconds(fastest),
        way=", ".join(filter(None, (library, *differ, *how, other))),
        star=judge([*flags, *(flag.name for flag in fastest.flags)]).star,
        dtype=named.compute_dtype,
        work=least,
        copied_bytes=copies.in_bytes + copies.out_bytes if copies else None,
        memory_bytes=float(named.memory_bytes or 0),
        obstacle="measures copies, or several devices at once" if several else "",
        doubt=PYTHON if nothing else _doubt(named, least, _seconds(fastest), run.ceilings.get(fastest.device)),
        cores=run.machine.cpu.cores,
        uncounted=uncounted,
    )


def _has_work(work: Work) -> bool:
    return bool(work.flops or work.bytes or work.operators)


def _seconds(result: Result) -> float:
    return result.times.median_s if result.times else math.inf


def _doubt(named: Result, work: Work, cpu_s: float, ceilings: Ceilings | None) -> str:
    """Return the reason why the CPU's time isn't its operators'; empty if the CPU's measured peaks explain the time, or
    are unknown."""
    operators, peaks = work.operators, ceilings or Ceilings()
    bandwidth = max((each.byte_per_s for each in peaks.bandwidth if each.level in ("memory", "")), default=None)
    rate = peaks.throughput.get(named.compute_dtype)
    if not (bandwidth and rate and operators and {each.kind for each in operators} <= SLOWEST.keys()):
        return ""
    most_s = sum(SLOWEST[each.kind] * max(each.flops / rate, each.bytes / bandwidth) for each in operators)
    return NOT_TORCH if cpu_s > most_s + EAGER_S[1] * sum(each.count for each in operators) else ""


def outlook_of(job: Job, card: Gpu) -> Outlook:
    """Return the outlook of this job on this card, from physics and other cards' timings."""
    bound = shortest(job.work, job.dtype, card)
    note = job.obstacle or job.doubt
    if not note and job.memory_bytes > USABLE * (card.value("capacity") or math.inf):
        note = f"doesn't fit into the memory of the {card.name}"
    if not note and job.dtype == "tf32" and card.value("tf32") is None:
        note = f"no figure of the {card.name} in TF32"
    if not note and not bound.complete and job.cpu_s >= bound.seconds:
        note = _missing(job, card)
    if note:
        return Outlook(job, card, note=note)
    guess = _likely(job, card)
    return Outlook(job, card, bound, note=guess) if isinstance(guess, str) else Outlook(job, card, bound, guess)


def _likely(job: Job, card: Gpu) -> Likely | str:
    """Return the likely time of a job's work; TF32 is only on where it isn't slower than float32."""
    if job.case.kind == "irregular" and all(each.kind != "sort" for each in job.work.operators):
        return NOTHING_LEARNED
    if not job.work.operators and job.case.kind in MANY_OPERATORS:
        return OPERATORS_UNKNOWN
    guess = likely(job.work, job.dtype, card)
    other = likely(job.work, "float32", card) if job.how == "TF32" else guess
    if isinstance(guess, str) or isinstance(other, str):
        return guess
    return replace(guess, middle_s=min(guess.middle_s, other.high_s), high_s=min(guess.high_s, other.high_s))


def _missing(job: Job, card: Gpu) -> str:
    if job.work.flops or job.work.bytes:
        untyped = "its data type is unknown, because no input is a tensor: make the inputs in the setup"
        return f"the table lacks a figure of the {card.name} that it needs" if job.dtype else untyped
    if not job.case.implementation:  # a plain suite
        return "its FLOPs are unknown: use the fixture gpubench instead of benchmark, which counts PyTorch's"
    if job.case.implementation != "torch":
        return f"FLOPs of {library_label(job.case.implementation)} aren't counted: write it in PyTorch for an estimate"
    uncounted = f"gpubench couldn't count the FLOPs of this call{f' ({job.uncounted})' * bool(job.uncounted)}"
    own = is_expression(job.case.workload)
    return uncounted + ": say gpubench.declare(flops=…, nbytes=…) before it" * (not own)
