"""The machine's effect on all benchmarks of a run alike: clocks, memory, other guests of the host."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from ..statistics import inference
from .evidence import Drift, Evidence, ProcessKey, of_stage
from .samples import CaseKey, Cases, busy_processes

LEAST_SPREAD = 0.003  # lower bound on the spread between processes; the smallest measured in any benchmark
RUN_DRIFT = 0.05  # standard deviation, from run to run, of the change that all benchmarks of a run share
MOST_DRIFT = 3.0  # a shared change of more than this many standard deviations is a change and not drift
LEAST_CASES = 5  # the fewest benchmarks that show drift: with fewer, a change of one can't be distinguished from drift
STEADIER = 4.0
"""A benchmark doesn't follow the machine's speed, for example because it waits, if its processes agree better by this
factor as they are than corrected for drift: by chance in one comparison of a hundred (F test, 4 and 4 degrees)."""


def with_drift(
    evidence: Mapping[CaseKey, Evidence], all_runs: tuple[Cases, Cases], fresh: bool
) -> dict[CaseKey, Evidence]:
    """The same evidence of runs that were measured one after the other, each with its drift: benchmarks that are steady
    have one of their own."""
    sides = [of_stage(side, fresh) for side in all_runs]
    crowded = any(
        2 * len(busy_processes(side)) > len({one.process for seen in side.values() for one in seen}) for side in sides
    )
    fit = {key: item for key, item in evidence.items() if not item.unfit}
    drift = own = _shared_drift(list(fit.values()), crowded)
    steady = {key: item for key, item in fit.items() if _is_steady(replace(item, drift=drift))}
    if len(steady) >= LEAST_CASES:
        drift = _shared_drift([item for key, item in fit.items() if key not in steady], crowded)
        own = _shared_drift(list(steady.values()), crowded)
    return {key: replace(item, drift=own if key in steady else drift) for key, item in evidence.items()}


def hidden_variance(evidence: Evidence) -> float:
    """Variance of the logarithm of a change that the drift adds without showing in the spread of the processes."""
    total = 0.0
    for side in evidence.sides:
        count, runs = len(side), len({one.process[0] for one in side})
        total += evidence.drift.hidden**2 / runs * ((count - runs) / (count - 1) if count > 1 else 1.0)
    return total


def _is_steady(evidence: Evidence) -> bool:
    """Whether the benchmark doesn't follow the machine's speed: dividing by the speed of its process would only add the
    noise of the other benchmarks."""
    if not evidence.drift.speed or sum(map(len, evidence.sides)) < 3:
        return False
    before, after = (inference.pooled_variance(*evidence.logs("median_s", corrected))[0] for corrected in (False, True))
    return max(before, LEAST_SPREAD**2) * STEADIER**2 < after


def _shared_drift(cases: Sequence[Evidence], crowded: bool) -> Drift:
    """The drift of benchmarks that drift alike: for each process, the median over benchmarks of its logarithm minus the
    benchmark's usual one.

    A change that all benchmarks share counts as a change only if it exceeds any drift, otherwise it is subtracted. On a
    ``crowded`` machine, where other programs used the cores during most processes of a side, any drift is possible.
    """
    if len(cases) < LEAST_CASES:
        return Drift(hidden=RUN_DRIFT)
    excess: list[defaultdict[ProcessKey, list[float]]] = [defaultdict(list), defaultdict(list)]
    for item in cases:
        logs = item.logs("median_s")
        usual = sum(map(median, logs)) / 2
        for processes, side, values in zip(excess, item.sides, logs, strict=True):
            for one, value in zip(side, values, strict=True):
                processes[one.process].append(value - usual)
    speeds = [{process: median(values) for process, values in side.items()} for side in excess]
    before, after = (median(side.values()) for side in speeds)
    runs = [len({run for run, _ in side}) for side in speeds]
    limit = MOST_DRIFT * RUN_DRIFT * math.sqrt(1 / runs[0] + 1 / runs[1])
    return Drift(speeds) if crowded or abs(after - before) <= limit else Drift()
