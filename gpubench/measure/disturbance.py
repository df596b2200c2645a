"""Disturbances of a measurement: uneven rounds, other programs on its cores or its GPU, throttled devices; and the
self-check of a process, a small product, up to 50 times slower on all threads than on one if they wait for each other.
"""

from __future__ import annotations

import contextlib
import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import correlation, median, quantiles

from ..devices import Device
from ..devices.cpu import affinity, cgroup_cores, family as relatives
from ..devices.lazy import psutil, torch
from ..runfile.flags import CONTENDED, FEW, NOISY, POWER_LIMITED, TOO_SHORT, Flag
from ..runfile.quality import PLAUSIBLE, most, utilisation
from ..runfile.quantities import seconds_text, text
from ..runfile.schema import CanaryTimes, Ceilings, Work
from .clock import MIN_WAITS, repeat

COLD, DRIFT, DRIFT_Z = 1.3, 1.1, 4.0
"""Rounds are cold when the first tenth took more than 1.3 times as long as the rest; they drift when the first and the
last third differ by more than a tenth and their trend has such a z."""
CLOCK_S, CALLING = 1e-7, 0.1
"""Seconds that it takes to read the clock twice; largest share of a call's time that calling a function may take."""
STOLEN, SHORTEST_WATCH = 0.15, 0.05
"""Largest share of the allowed cores' time that other processes, or the host, may take; and the shortest time, in
seconds, that the kernel's counters of CPU time can judge, which move in steps of 10 ms."""
POWER_LIMIT, SLOWED, SLOWER_CLOCK = "power limit", 0.02, 0.8
"""The reason that is a busy device's usual state, the largest share of the time in which a device may hold its clocks
down, and the share of its earlier clock below which a device is throttled."""
SIZE, CALLS, CANARY_S = 256, 30, 0.05
BUSY_S = 0.1
"""Seconds that a thread keeps a core busy beside others: long compared with a scheduler's 3 to 4 ms."""
WAITS, TAKEN = 1.25, 1 / 3
"""Threads wait for each other if they make a small product take more than 1.25 times as long as one thread does, or
where other programs take more than this share of the cores that the threads need."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Readings of the process and its devices: CPU seconds, clocks in Hz, reasons to throttle."""

    wall_s: float
    own_s: float
    busy_s: float | None
    stolen_s: float | None
    clocks: dict[str, float]
    slowed: tuple[str, ...]
    slowed_s: dict[str, float]
    neighbours: int


def read_counters(devices: Sequence[Device], *, family: bool = False) -> Counters:
    """Read everything that can reveal a disturbance; takes tens of microseconds, more with a GPU. ``family``: the CPU
    time of this machine's other ranks counts as its own."""
    own_s = sum(os.times()[:2])
    for process in relatives() if family else ():
        with contextlib.suppress(psutil.Error):
            own_s += sum(process.cpu_times()[:2])
    busy, stolen = core_seconds()
    clocks, slowed, slowed_s, neighbours = dict[str, float](), list[str](), dict[str, float](), 0
    for device in (each for each in devices if each.accelerator):
        clocks |= {str(device): hertz for hertz in [*(device.clocks() or {}).values()][:1]}
        slowed += [_cause(device, reason) for reason in device.throttle_reasons()]
        slowed_s |= {_cause(device, reason): seconds for reason, seconds in device.throttled_s().items()}
        neighbours += device.other_processes() or 0
    now_s = Device.now()
    return Counters(now_s, own_s, busy, stolen, clocks, tuple(dict.fromkeys(slowed)), slowed_s, neighbours)


@cache
def _cause(device: Device, reason: str) -> str:
    """Return a reason with its device, and with the watts of a power limit where they are known."""
    watts = device.details().get("power_limit_w") if reason == POWER_LIMIT else None
    return f"{device}: {reason}" + (f" of {watts:.0f} W" if watts else "")


def core_seconds() -> tuple[float | None, float | None]:
    """Return the seconds that the cores of this process's affinity were busy, and that the host took from them;
    ``None`` under a control group's quota, which names no cores."""
    allowed, each = set(affinity()), []
    if cgroup_cores() is None:
        with contextlib.suppress(OSError, NotImplementedError):
            each = [times for i, times in enumerate(psutil.cpu_times(percpu=True)) if i in allowed]
    if len(each) < len(allowed):
        return None, None
    busy = sum(times.user + times.system + getattr(times, "nice", 0.0) for times in each)
    return busy, sum(getattr(times, "steal", 0.0) for times in each)


def disturbed(before: Counters, after: Counters) -> Iterator[Flag]:
    """Yield ``contended``, ``throttled`` and ``power-limited`` from the changes between two readings. Other programs
    are judged by their share of all cores that this process may use, not of the cores that its threads need."""
    signs, cores = [], len(affinity())
    whole, others, stolen = "core" if cores == 1 else f"{cores} cores", *_taken(before, after)
    if others / cores > STOLEN:
        signs.append(f"other processes used {min(others / cores, 1):.0%} of the {whole}")
    if stolen / cores > STOLEN:
        signs.append(f"the host took {min(stolen / cores, 1):.0%} of the time of the {whole}")
    if after.neighbours:
        signs.append(f"{after.neighbours} other process{'es' * (after.neighbours > 1)} on the device")
    if signs:
        yield Flag(CONTENDED, ", ".join(signs))
    yield from throttling_flags(before, after)


def _taken(before: Counters, after: Counters) -> tuple[float, float]:
    """Return the numbers of cores that other processes and the host used between two readings; 0 if unknown."""
    others, wall = [0.0, 0.0], after.wall_s - before.wall_s
    if wall >= SHORTEST_WATCH and before.busy_s is not None and after.busy_s is not None:
        others[0] = (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / wall
    if wall >= SHORTEST_WATCH and before.stolen_s is not None and after.stolen_s is not None:
        others[1] = (after.stolen_s - before.stolen_s) / wall
    return others[0], others[1]


def throttling_flags(before: Counters, after: Counters) -> Iterator[Flag]:
    """Yield ``throttled`` and ``power-limited`` from the changes of the devices' clocks between two readings: a clock
    that falls because of the power limit is no further flag."""
    wall, causes = after.wall_s - before.wall_s, [*after.slowed]
    for name, seconds in after.slowed_s.items():
        if wall and (share := (seconds - before.slowed_s.get(name, seconds)) / wall) > SLOWED:
            causes.append(f"{name}, {share:.0%} of the time")
    limited = [cause for cause in causes if f": {POWER_LIMIT}" in cause]
    others = [cause for cause in causes if cause not in limited]
    for name, clock in after.clocks.items():
        known = any(cause.startswith(f"{name}: ") for cause in limited)
        if clock < SLOWER_CLOCK * before.clocks.get(name, 0.0) and not known:
            others.append(f"{name}: {before.clocks[name] / 1e9:.2f} to {clock / 1e9:.2f} GHz")
    for flag, seen in (("throttled", others), (POWER_LIMITED, limited)):
        if seen:
            yield Flag(flag, ", ".join(seen))


def noise_flags(times: Sequence[float]) -> Iterator[Flag]:
    """Yield ``noisy`` if the seconds per call of the rounds, in order of time, spread, begin slowly or drift."""
    count = len(times)
    if count < FEW:
        return
    seen = []
    q1, middle, q3 = quantiles(times, n=4, method="inclusive")
    if q3 - q1 > NOISY * middle:
        seen.append(f"half of the {count} rounds are spread over {(q3 - q1) / middle:.0%} of the median")
    first, third = max(1, count // 10), count // 3
    begin, rest = median(times[:first]), median(times[first:])
    # Few rounds are cold only if the first exceeds all others: one slow round is likely.
    if begin > COLD * rest and (count >= 20 or times[0] > max(times[1:])):
        which = f"the first {first} rounds" if first > 1 else "the first round"
        seen.append(f"{which} took {begin / rest:.2f}× as long as the rest")
    elif third >= 5:
        early, late = median(times[:third]), median(times[-third:])
        if max(early, late) > DRIFT * min(early, late) and abs(_trend(times)) > DRIFT_Z:
            seen.append(f"the last third took {late / early:.2f} times the first")
    if seen:
        yield Flag("noisy", "; ".join(seen))


def _trend(values: Sequence[float]) -> float:
    """Return Spearman's rank correlation with time, times sqrt(n - 1): standard normal for ten or more values in random
    order, above 0 if they rise. Equal values share the mean of their ranks (M. G. Kendall, 1948)."""
    ordered = sorted(values)
    ranks = [bisect_left(ordered, each) + bisect_right(ordered, each) for each in values]
    return correlation(ranks, range(len(values))) * math.sqrt(len(values) - 1)


def too_short_flags(round_s: float, call_s: float, wait_s: float) -> Iterator[Flag]:
    """Yield ``too-short`` if reading the clock or waiting for the device takes more than a few percent of a round, or
    calling a function more than a tenth of a call."""
    if round_s < max(MIN_WAITS * CLOCK_S, MIN_WAITS / 5 * wait_s):
        what = f"a wait takes {seconds_text(wait_s)}" if wait_s else f"reading the clock takes {seconds_text(CLOCK_S)}"
        yield Flag(TOO_SHORT, f"a round lasted {seconds_text(round_s)}, and {what}")
    elif CALLING * call_s < calling_s():
        what = f"calling a function that does nothing takes {seconds_text(calling_s())} of it"
        yield Flag(TOO_SHORT, f"a call took {seconds_text(call_s)}, and {what}")


@cache
def calling_s() -> float:
    """Seconds that the call of an empty function takes in the loop that times all others."""
    nothing: Callable[[], None] = lambda: None  # noqa: E731 - what costs least
    return min(repeat(nothing, Device.now, least=5, most=5, calls=2000)) / 2000


def impossible(
    work: Work, seconds: float, dtype: str, ceilings: Ceilings, floor: bool, convolutions: float, link: bool = False
) -> Iterator[Flag]:
    """Yield ``implausible`` if a call is faster than the device's measured ceilings allow. ``floor``: whether each call
    launches something, and so takes at least the launch floor. ``convolutions``: their share of the FLOPs; fast
    algorithms do fewer multiplications than are counted. ``link``: whether the bytes cross between host and device."""
    use = utilisation(work, seconds, dtype, ceilings, link)
    if use and use.fraction > most(use, dtype, ceilings, convolutions):
        of = use.of + (f" of {text(use.footprint_bytes, 'B')}" if use.footprint_bytes else "")
        yield Flag("implausible", f"{use.fraction:.3g} times the measured peak ({of})")
    elif floor and ceilings.launch_floor_s and seconds < ceilings.launch_floor_s / PLAUSIBLE:
        least = seconds_text(ceilings.launch_floor_s)
        yield Flag("implausible", f"{seconds_text(seconds)}, and the least that launching anything takes is {least}")


def slow_threads(times: CanaryTimes | None) -> Iterator[Flag]:
    """Yield ``contended`` if the canary was slower on several threads than on one."""
    if times and times.all_s > times.one_s:
        single, every = seconds_text(times.one_s), seconds_text(times.all_s)
        yield Flag(CONTENDED, f"a {SIZE}×{SIZE} product took {every} on {times.threads} threads and {single} on one")


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The state of the machine before a process's first benchmark. ``notice`` says why a single thread is to be used
    instead of several, and is empty otherwise."""

    canary: CanaryTimes | None = None
    flags: tuple[Flag, ...] = ()
    notice: str = ""

    @classmethod
    def of(cls, threads: int, option: str) -> SelfCheck:
        """Check the machine with so many threads, which ``option`` insists on. A single thread is to be used if several
        are slower than one twice in a row, or other programs take a third of the cores that the threads need."""
        before, slower = read_counters(()), ""
        for _ in range(2):
            times = canary(threads)
            if not times or (ratio := times.all_s / times.one_s) <= WAITS:
                break
        else:
            times_slower = round(ratio, None if ratio >= 10 else 1)
            slower = f"the cores: with {threads} threads a test took {times_slower} times as long as with 1"
        end_s = before.wall_s + BUSY_S
        while Device.now() < end_s:  # until the counters of CPU time have moved
            pass
        after = read_counters(())
        cores, others = len(affinity()), _taken(before, after)[0]
        if threads > 1 and not slower and others + threads - cores > TAKEN * threads:
            slower = f"{min(others, cores):.1f} of the {cores} cores, so threads may wait for each other"
        notice = f"Other programs use {slower}. Measuring with 1 thread ({option} {threads} to insist)"
        seen = ", ".join(flag.seen for flag in (*slow_threads(times), *disturbed(before, after)))
        return cls(times, (Flag(CONTENDED, seen),) if seen else (), notice if slower else "")


def canary(threads: int) -> CanaryTimes | None:
    """Time a small product on one thread and on all; ``None`` with one thread. The thread count is restored."""
    if threads < 2:
        return None
    a = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    product = partial(torch.mm, a, a, out=torch.empty_like(a))
    medians = []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            product()
            product()
            medians.append(median(repeat(product, Device.now, least=5, most=CALLS, seconds=CANARY_S)))
    finally:
        torch.set_num_threads(threads)
    return CanaryTimes(threads, *medians)
