"""Judge a run: noise that no process alone could see, peaks that can't be true, and other programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from .flags import CONTENDED, FEW, IMPLAUSIBLE, NOISY, NOISY_FLAG
from .quantities import text
from .schema import Bandwidth, Ceilings, Raised, Result, Run, Times
from .utilisation import Utilisation, most, utilisation

APART = 1.25  # slowest over fastest process: on a quiet machine nine of ten cases stay below
FEWEST_ABOVE, MANY_ABOVE = 3, 0.1
"""The peaks of a device are disproved if at least this many results, and this share of all, exceed them."""
CONTRADICTED, FIXED_COST_S = 2.0, 1e-4
"""A small footprint can reach the rate of a large one: peaks are disproved if a smaller footprint's is this factor
below. Passes so short that the fixed cost of a call matters are left out."""


def judged(run: Run) -> Run:
    """The run with conclusions from all results: flags of processes that lie apart, peaks that results raise or
    disprove, and whether other programs were seen at any time."""
    if run.plain:
        return run
    results = tuple(map(_with_noise, run.results))
    peaks = raise_peaks(results, run.ceilings)
    why = disproved(results, peaks)
    ceilings = {name: known for name, known in peaks.items() if name not in why}
    contended = any(flag.name == CONTENDED for flag in chain(run.flags, *(result.flags for result in results)))
    return replace(run, results=results, ceilings=ceilings, disproved=why, contended=contended)


def _with_noise(result: Result) -> Result:
    times = result.times
    if times is None or any(flag.name == NOISY_FLAG for flag in result.flags) or not (seen := apart(times)):
        return result
    raised = Raised(NOISY_FLAG, seen, tuple(process.index for process in times.processes))
    return replace(result, flags=(*result.flags, raised))


def apart(times: Times) -> str | None:
    """Why a case is ``noisy`` in a way that no process alone could see; None if it isn't."""
    medians = sorted(process.median_s for process in times.processes)
    rounds = [process.rounds for process in times.processes]
    spread = times.iqr_s / times.median_s
    if medians[-1] > APART * medians[0]:
        return f"the slowest process took {medians[-1] / medians[0]:.3g} times the fastest"
    if len(rounds) > 1 and max(rounds) < FEW <= sum(rounds) and spread > NOISY:
        return f"half of all {sum(rounds)} rounds are spread over {spread:.0%} of the median"
    return None


def _uses(results: Iterable[Result], peaks: Mapping[str, Ceilings]) -> Iterator[tuple[Result, Ceilings, Utilisation]]:
    """The results with a time on a single device with known peaks, each with the present peaks."""
    for result in results:
        known = peaks.get(result.device)
        if known and result.times and not result.parallel:
            use = utilisation(result.work, result.times.median_s, result.compute_dtype, known)
            yield from [(result, known, use)] if use else []


def disproved(results: Iterable[Result], peaks: Mapping[str, Ceilings]) -> dict[str, str]:
    """Why measured peaks can't be the peaks of a device, by its name: many results exceed them, or its bandwidths
    contradict each other."""
    why: dict[str, str] = {}
    above: dict[str, list[bool]] = {name: [] for name in peaks}
    for result, known, use in _uses(results, peaks):
        if len(set(result.devices)) < 2:
            limit = most(use, result.compute_dtype, known, result.convolution_share or 0.0)
            above[result.device].append(use.fraction > limit)
    for name, exceed in above.items():
        if sum(exceed) >= max(FEWEST_ABOVE, MANY_ABOVE * len(exceed)):
            why[name] = f"{sum(exceed)} of {len(exceed)} results exceed them"
        elif contradiction := _contradiction(peaks[name]):
            slow, fast = (f"{text(e.byte_per_s, 'B/s')} with {text(e.footprint_bytes, 'B')}" for e in contradiction)
            why[name] = f"they contradict each other: {slow}, {fast}"
    return why


def _contradiction(peaks: Ceilings) -> tuple[Bandwidth, Bandwidth] | None:
    """A smaller and a larger footprint that contradict each other, each with its best pattern, or None."""
    entries = sorted(peaks.bandwidth, key=lambda entry: entry.byte_per_s)
    usable = (entry for entry in entries if entry.footprint_bytes >= FIXED_COST_S * entry.byte_per_s)
    best = {entry.footprint_bytes: entry for entry in usable}
    for small in map(best.__getitem__, sorted(best)):
        larger = (entry for size, entry in sorted(best.items()) if size >= small.footprint_bytes)
        fastest = max(larger, key=lambda entry: entry.byte_per_s)
        if fastest.byte_per_s > CONTRADICTED * small.byte_per_s:
            return small, fastest
    return None


def raise_peaks(results: Iterable[Result], measured: Mapping[str, Ceilings]) -> dict[str, Ceilings]:
    """The peaks, of CPUs raised to the rates of verified results: such a result shows that a peak was measured too low.
    Convolutions raise none, as fast algorithms do fewer operations than are counted; nor do results that can't be
    true."""
    peaks = dict(measured)
    for result, known, use in _uses(results, peaks):
        passed = result.check is not None and result.check.status == "passed"
        doubted = any(flag.name == IMPLAUSIBLE for flag in result.flags) or bool(result.convolution_share)
        if known.ways and passed and not doubted and 1 < use.fraction <= most(use, result.compute_dtype, known):
            peaks[result.device] = _raised(known, result, use)
    return peaks


def _raised(known: Ceilings, result: Result, use: Utilisation) -> Ceilings:
    work, dtype, seconds = result.work, result.compute_dtype, result.times.median_s if result.times else 0.0
    if use.bound == "throughput" and work.flops:
        rate = work.flops / seconds
        ways = {**known.ways.get(dtype, {}), f"{result.implementation}: {result.id}": rate}
        return replace(known, throughput={**known.throughput, dtype: rate}, ways={**known.ways, dtype: ways})
    nbytes = work.bytes or 0.0
    smaller = [entry for entry in known.bandwidth if entry.footprint_bytes <= nbytes]
    level = max(smaller or known.bandwidth, key=lambda entry: entry.footprint_bytes).level
    return replace(known, bandwidth=(*known.bandwidth, Bandwidth(result.id, nbytes, nbytes / seconds, level)))
