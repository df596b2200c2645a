"""What a reader has to know before the numbers: what is wrong, where it was seen, and what to try."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ..runfile.quantities import counted, listed
from ..runfile.utilisation import slow_products
from . import words
from .study import LeftOut, Measured, Study, grouped

_NOISY_SHARE = 1 / 3


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
    return [*found, *_no_peak(study), *_above_peak(judged)]


def _noisy(study: Study, judged: Sequence[Measured]) -> list[Warning]:
    noisy = sum(row.quality.noisy for row in judged)
    busy = any(flag.name == "contended" for run in study.runs for flag in run.flags)
    many = noisy > _NOISY_SHARE * len(judged) and len(judged) > 1  # a single result has a star already
    if not judged or not (busy or many):
        return []
    count = f"{noisy} of {len(judged)} results are noisy (*) and may be far off"
    if sound := list(dict.fromkeys(words.name(row.result) for row in judged if not row.quality.noisy)):
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
