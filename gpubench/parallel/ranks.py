"""The ``gpubench_ranks`` fixture: several processes, one per device, measure a case together, each round after a
barrier. Rank 0 makes every decision that depends on a measured time, so that all ranks reach the same barriers."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch.distributed as dist

from .. import devices
from ..devices import Device, find_device
from ..devices.cpu import cores
from ..errors import Unmeasurable, UsageError
from ..measure import budget, disturbance
from ..measure.budget import Preset
from ..measure.clock import DeviceClock, settle_clocks
from ..measure.plan import Rounds
from ..measure.precision import matmul_precision
from ..measure.rounds import Bound, Share, take_turns
from ..measure.work import Request
from ..runfile.flags import Flag
from ..runfile.schema import Check
from .team import Rank, RankTimes, Team, collective_backend, launched_rank

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench

T = TypeVar("T")
_MOST_RANKS_ON_A_CPU = 8


def device_counts() -> list[int]:
    """Return the numbers of devices to measure with: 2, 4, 8, … up to the most devices of a kind, and that number
    itself. A CPU's devices are its cores, 8 at most. Under torchrun the most is its world size."""
    most = max(min(cores(), _MOST_RANKS_ON_A_CPU), *(kind.count() for kind in devices.kinds().values()))
    if rank := launched_rank():
        most = rank.world_size
    counts = [2**power for power in range(1, max(2, most.bit_length()))]
    return counts if most <= counts[-1] else [*counts, most]


def circle(home: Device, count: int) -> list[Device]:
    """Return this many devices of a kind, beginning with the case's; the first follows the last."""
    kind = type(home)
    return [kind((home.index + step) % max(kind.count(), home.index + 1)) for step in range(count)]


def require_devices(count: int, home: Device, gpubench: Gpubench) -> None:
    """Raise :class:`Unmeasurable`, with the numbers, unless this many devices of that kind are present."""
    available = home.count() if home.indexed else cores()
    if count > available:
        kind = f"{home.kind} devices" if home.indexed else "CPU cores, one a rank"
        raise gpubench.too_few(f"needs {count} {kind}; {available} here")


class RankJob(Protocol):
    """A case's work: it is sent to the ranks, and each sets up a copy."""

    dtype: str

    def start(self, rank: Rank) -> None:
        """Set up the work on one rank."""

    def step(self) -> Any:
        """The call that is timed."""

    def reset(self) -> None:
        """Run untimed before each round."""
        return

    def check(self) -> Check:
        """Check the result once, before anything else; raises :class:`WrongAnswer`."""

    def record(self) -> dict[str, Any]:
        """Return further fields of the case's record."""
        return {}


class Ranks:
    """The value of the fixture ``gpubench_ranks``: the ranks of this launch, for the benchmark ``name``."""

    def __init__(self, team: Team, name: str) -> None:
        self._team, self._name = team, name

    def measure(
        self, gpubench: Gpubench, job: RankJob, count: int, *, all_threads: bool = False, **record: Any
    ) -> None:
        """Measure a job on ``count`` devices of the case's kind; record its times, with the declared work, as the
        case's.

        On a CPU a device is a core: each rank has one thread, unless a single rank has them all (``all_threads``).
        ``record`` holds further fields for the report: ``method``, ``mode``, ``ideal_speedup``.
        """
        declaration = gpubench.take_declaration()
        if declaration != Request(work=declaration.work):
            takes = "ranks take flops, nbytes, items and unit from gpubench.declare(…), the rest from their job"
            raise UsageError(takes)
        home, world_size = gpubench.home, 1 if all_threads else count
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
        here = int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == int(os.environ.get("WORLD_SIZE", 0))  # one machine
        self._require(world_size, gpubench, here)
        threads = 1 if not all_threads else gpubench.case.threads or cores()
        if home.accelerator:
            threads = max(1, cores() // world_size)
        group = circle(home, min(world_size, local)) if home.indexed else [home]
        names = [str(group[number % len(group)]) for number in range(world_size)]
        rank = Rank(self._team.number, world_size, [*names, ""][min(self._team.number, world_size)], threads)
        before = disturbance.read_counters((), family=True)
        busy = rank.number == 0 and gpubench.is_busy()
        terms: dict[str, Any] = {"preset": gpubench.allowance, "busy": busy, "note_progress": self._team.note_progress}
        times = self._team.run(self._name, rank, names, partial(measure_rank, job=job, **terms))
        used = [device for name in dict.fromkeys(names) if here and (device := find_device(name).device)]
        neighbours = sum(device.other_processes() or 0 for device in used if device.accelerator)
        after = replace(disturbance.read_counters((), family=True), neighbours=neighbours)
        flags = list(disturbance.disturbed(before, after)) if here else []  # elsewhere their CPU time isn't seen
        indices = [each.index for each in circle(home, world_size)] if home.indexed else range(world_size)
        interconnect = home.interconnect(indices) if world_size > 1 else None
        interconnect = "network" if world_size > local else interconnect
        gpubench.parallel = {"devices": world_size, "threads": threads, "interconnect": interconnect}
        gpubench.parallel |= record | times[-1].record
        durations = [max(round_s) for round_s in zip(*(rank.durations for rank in times), strict=True)]
        rounds = Rounds((*flags, *_flags_of_ranks(times)), times[0].check)
        gpubench.replay(
            durations, times[0].iterations, declaration.work, rounds, devices=tuple(dict.fromkeys(names)),
            threads=threads * world_size, first_call_s=times[0].first_s,
            steps=len(times[-1].record.get("losses", ())) or None,
        )  # fmt: skip

    def _require(self, count: int, gpubench: Gpubench, here: bool) -> None:
        """Raise Unmeasurable unless there are devices and ranks for this many, by the same reason on every rank."""
        home, most = gpubench.home, self._team.world_size
        collective_backend(home.kind)
        if here:
            require_devices(count, home, gpubench)
        elif home.index:
            raise Unmeasurable(f"torchrun's ranks begin with {home.kind}:0: measured there")
        if count > most:
            raise Unmeasurable(f"needs {count} ranks, {most} were started: torchrun --nproc-per-node {count} -m pytest")


def _flags_of_ranks(times: Sequence[RankTimes]) -> list[Flag]:
    """Return one flag of each name, with each rank's text."""
    seen: dict[str, list[str]] = {}
    for number, rank in enumerate(times):
        for flag in rank.flags:
            seen.setdefault(flag.name, []).append(f"rank {number}: {flag.seen}")
    return [Flag(name, ", ".join(texts)) for name, texts in seen.items()]


def measure_rank(
    rank: Rank, job: RankJob, preset: Preset, *, busy: bool = False, note_progress: Callable[[], object] = int
) -> RankTimes:
    """Check and time a job on this rank. ``busy``: other programs use the cores, as rank 0 sees them. Raises
    Unmeasurable if the rank's device isn't there, and OverBudget on every rank if a step takes too long for the
    preset."""
    job = copy.copy(job)  # the caller's lives on, and would hold the memory
    if (device := find_device(rank.device).device) is None:
        raise Unmeasurable(f"rank {rank.number} has no {rank.device}")
    used = [device] if device.accelerator else []
    with matmul_precision(job.dtype):
        job.start(rank)
        note_progress()
        check = job.check()
        note_progress()
        take = partial(_take_rounds, rank, job, DeviceClock(used), note_progress)
        first_s, warm_s = *take(1), *take(1)
        step_s, busy = _decide_on_rank_0(rank, lambda: (min(first_s, warm_s), busy))
        budget.require(step_s, "seen in warm-up", preset, busy=busy)
        seen = [step_s]

        def warm() -> tuple[float, float]:
            steps = _decide_on_rank_0(rank, lambda: max(1, int(preset.warmup / max(seen[-1], 1e-6))))
            (round_s,) = take(1, steps)
            seen.append(round_s / steps)
            return seen[-1], round_s

        rising = used if preset.warmup else []
        settle_clocks(warm, DeviceClock(rising), rising, lambda stand: _decide_on_rank_0(rank, lambda: stand))
        count, iterations = _decide_on_rank_0(rank, lambda: budget.plan(min(seen), preset))
        before = disturbance.read_counters(used)  # the fixture observes the machine
        durations = take(count, iterations)
        flags = tuple(disturbance.throttling_flags(before, disturbance.read_counters(used)))
        return RankTimes(durations, iterations, first_s, check, job.record(), flags)


def _take_rounds(
    rank: Rank, job: RankJob, clock: DeviceClock, note_progress: Callable[[], object], rounds: int, calls: int = 1
) -> list[float]:
    """Return the seconds of rounds of so many steps, each from when all ranks are ready until this device is done."""

    def next_call() -> Bound:
        note_progress()
        job.reset()
        if rank.world_size > 1:
            dist.barrier()
        return job.step, (), {}

    share = Share(next_call, clock, rounds, calls)
    take_turns([share])
    note_progress()
    return share.times


def _decide_on_rank_0(rank: Rank, decide: Callable[[], T]) -> T:
    decision = [decide() if rank.number == 0 else None]
    if rank.world_size > 1:
        dist.broadcast_object_list(decision)
    return decision[0]  # type: ignore[return-value]
