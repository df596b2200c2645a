"""What each benchmark of a CPU's results file could gain on a card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..devices.datasheets import Gpu
from ..devices.implementations import implementation_label
from ..report.rows import grouped, size_parameter
from ..runfile.flags import judge
from ..runfile.matching import shown_name
from ..runfile.schema import OK, Case, Result, Run, Work
from ..runfile.ways import HOW, fastest_way, job
from .model import likely, shortest

MODELLED = "modelled"
"""The status of every estimate."""
MANY_OPERATORS = ("networks", "training", "linear_algebra", "irregular", "science")
"""Kinds of work whose sums don't stand for a single operator with learned factors."""
ANY_WAY = ("eager", "compile", "graph")
"""Variants that count as one benchmark."""


@dataclass(frozen=True)
class Job:
    """A benchmark of a CPU, with the time of the fastest ``way`` that the file has of the same job, which
    :func:`~gpubench.runfile.ways.fastest_way` finds.

    ``size`` is the parameter that varies in its workload; ``copied_bytes`` are those of inputs and outputs;
    ``obstacle`` is the reason why no GPU can be estimated at all.
    """

    case: Case
    size: str | None
    cpu_s: float
    way: str
    star: str
    dtype: str
    work: Work
    copied_bytes: int | None
    obstacle: str = ""

    @property
    def id(self) -> str:
        """The benchmark's name."""
        return self.case.id


@dataclass(frozen=True)
class Outlook:
    """A job on a card, times in seconds, ratios as speedups. ``note`` is the reason why something is unknown."""

    job: Job
    gpu: str
    bound: str
    shortest_s: float | None
    at_most: float | None
    probably: tuple[float, float] | None
    with_copies_at_most: float | None
    note: str = ""


def jobs_of(run: Run) -> list[Job]:
    """The jobs that the run timed on its CPU: each benchmark once, whatever its libraries and variants."""
    timed = [
        result
        for result in run.results
        if result.status == OK and result.times and run.machine.device(result.device).kind in ("cpu", "")
    ]
    groups, ways = grouped(timed, key_of), grouped(timed, job)
    sizes = {name: size_parameter(members) for name, members in grouped(timed, lambda each: each.workload).items()}
    return [_job(group, ways[job(group[0])], sizes[group[0].workload]) for group in groups.values()]


def key_of(case: Case) -> tuple[object, ...]:
    """A key that is equal for one benchmark on any device and in any library."""
    variant = "" if case.variant in ("", *ANY_WAY) else case.variant
    params = sorted(f"{name}={value!r}" for name, value in case.params.items())
    return case.workload, case.dtype, variant, case.cache, tuple(params)


def _seconds(result: Result) -> float:
    return result.times.median_s if result.times else math.inf


def _job(group: Sequence[Result], ways: Sequence[Result], size: str | None) -> Job:
    fastest = fastest_way(min(group, key=_seconds), ways)
    named = min(group, key=lambda each: (each.implementation != "torch", each.variant != "eager"))
    traced = next((each.work for each in (named, *group) if each.work.operators), None)
    works = [each.work for each in group]
    least = Work(
        min((work.flops for work in works if work.flops), default=None),
        min((work.bytes for work in works if work.bytes), default=None),
        operators=traced.operators if traced else (),
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
    known = named.case, size or named.size, _seconds(fastest), way, judge(flag.name for flag in fastest.flags).star
    return Job(*known, named.compute_dtype, least, copied, obstacle)


def outlook_of(job: Job, card: Gpu) -> Outlook:
    """The outlook of this job on this card, from physics and other cards' timings."""
    if job.obstacle:
        return Outlook(job, card.name, "", None, None, None, None, job.obstacle)
    bound = shortest(job.work, job.dtype, card)
    at_most = job.cpu_s / bound.seconds
    if not bound.complete and at_most >= 1:
        return Outlook(job, card.name, "", None, None, None, None, _missing(job, card))
    link, copies = card.value("link"), None
    if job.copied_bytes is not None and link:
        copies = job.cpu_s / (bound.seconds + job.copied_bytes / link)
    guess = likely(job.work, job.dtype, card)
    if not job.work.operators and job.case.kind in MANY_OPERATORS:
        guess = "the file doesn't say what it is made of: measure again"
    probably = None if isinstance(guess, str) else (job.cpu_s / guess.high_s, job.cpu_s / guess.low_s)
    note = guess if isinstance(guess, str) else ""
    return Outlook(job, card.name, bound.binds, bound.seconds, at_most, probably, copies, note)


def _missing(job: Job, card: Gpu) -> str:
    if not (job.work.flops or job.work.bytes):
        if shown_name(job.case.workload) != job.case.workload:
            return "its work is unknown: PyTorch counts none"
        if not job.case.implementation:  # a plain suite
            return "its work is unknown: the gpubench fixture, instead of benchmark, counts PyTorch's and takes flops="
        return "its work is unknown: give flops= or nbytes= to the gpubench fixture"
    return f"the table lacks a figure of the {card.name} that it needs"
