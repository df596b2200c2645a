"""The ``gpubench_ranks`` fixture: several processes, one per device, measure a case together, each round after a
barrier.

Rank 0 makes every decision that depends on a measured time and sends it to all, so that all ranks reach the same
barriers.
"""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch.distributed as dist

from .. import devices
from ..devices import Device, find_device
from ..devices.cpu import cores
from ..errors import Unmeasurable, UsageError
from ..measure import budget, disturbance
from ..measure.budget import Preset
from ..measure.clock import DeviceClock, Share, take_turns, until_clocks_stand
from ..measure.placements import Bound
from ..measure.precision import matmul_precision
from ..measure.work import Declaration
from ..runfile.flags import Flag
from ..runfile.schema import Check
from .team import Rank, TorchrunGroup, WorkerGroup, collective_backend, launched_rank, report_progress

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


class Ranks:
    """Groups of ranks, which stay alive for the next case that needs the same devices and threads."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._groups: dict[tuple[tuple[str, ...], int], WorkerGroup] = {}
        self._launched = launched_rank()
        self._torchrun_group: TorchrunGroup | None = None

    def close(self) -> None:
        """End all workers."""
        for group in self._groups.values():
            group.close()
        if self._torchrun_group:
            self._torchrun_group.close()

    def close_idle(self, device: str) -> None:
        """End the workers on accelerators before another case uses this device: each holds a context on its own."""
        choice = find_device(device).device
        for key, group in [*self._groups.items()]:
            if choice and choice.accelerator and any(name.startswith(f"{choice.kind}:") for name in key[0]):
                group.close()
                del self._groups[key]

    def measure(
        self, gpubench: Gpubench, job: RankJob, count: int, *, all_threads: bool = False, **record: Any
    ) -> None:
        """Measure a job on ``count`` devices of the case's kind, and record it as this case's times, with the declared
        work.

        On a CPU a device is a core: each rank has one thread, unless a single rank has them all (``all_threads``).
        ``record`` is what the report needs to know of the case: ``method``, ``mode``, ``ideal_speedup``.
        """
        declaration = gpubench.take_declaration()
        if declaration != Declaration(work := declaration.work):
            raise UsageError(
                "ranks take flops, nbytes, items and unit from gpubench.declare(…), the rest from their job"
            )
        world_size = 1 if all_threads else count
        names, threads = _devices_and_threads(gpubench, world_size, all_threads)
        home = gpubench.home
        used = [device for name in dict.fromkeys(names) if (device := find_device(name).device)]
        gc.collect()
        for device in used:  # what this process keeps for later, the workers may need
            device.release_memory()
        group = self.group(gpubench, names, threads)
        before = disturbance.look((), family=True)
        times: list[RankTimes] = group.run(measure_rank, job, gpubench.allowance, gpubench.enabled, gpubench.is_busy())
        # A launcher's ranks aren't children of this process: their CPU time would count as other programs'.
        children = isinstance(group, WorkerGroup)
        neighbours = sum(device.other_processes() or 0 for device in used if children and device.accelerator)
        after = replace(disturbance.look((), family=True), neighbours=neighbours)
        flags = list(disturbance.disturbed(before, after)) if children else []
        flags += _flags_of_ranks(times)
        network = self._launched is not None and world_size > _local_world_size(world_size)
        indices = [each.index for each in circle(home, world_size)] if home.indexed else range(world_size)
        interconnect = "network" if network else home.interconnect(indices) if world_size > 1 else None
        gpubench.parallel = {"devices": world_size, "threads": threads, "interconnect": interconnect}
        gpubench.parallel |= record | times[-1].record
        durations = [max(round_s) for round_s in zip(*(rank.durations for rank in times), strict=True)]
        terms = {"devices": tuple(dict.fromkeys(names)), "threads": threads * world_size}
        steps = len(times[-1].record.get("losses", ())) or None
        rest = {"check": times[0].check, "first_call_s": times[0].first_s, "steps": steps}
        flags += group.altered
        gpubench.replay(durations, times[0].iterations, work, flags, **terms, **rest)

    def group(self, gpubench: Gpubench, names: list[str], threads: int) -> WorkerGroup | TorchrunGroup:
        """Return ranks on these devices: torchrun's, if it started this many, else processes of this machine. Raises
        Unmeasurable if there are neither."""
        home, world_size, launched = gpubench.home, len(names), self._launched
        collective_backend(home.kind)
        if launched is not None:
            if world_size == launched.world_size:
                if home.index:
                    raise Unmeasurable(f"torchrun's ranks begin with {home.kind}:0: measured there")
                return self._group_of_torchrun(launched, names, threads)
            if world_size > 1:
                raise Unmeasurable(f"torchrun started {launched.world_size} ranks, this case wants {world_size}")
            if launched.number:
                raise Unmeasurable("measured by rank 0")
        require_devices(world_size, home, gpubench)
        key = (tuple(names), threads)
        if key not in self._groups or self._groups[key].broken:
            self._groups[key] = WorkerGroup(names, threads, self._deadline_s)
        return self._groups[key]

    def _group_of_torchrun(self, launched: Rank, names: list[str], threads: int) -> TorchrunGroup:
        local_rank = int(os.environ.get("LOCAL_RANK", 0))
        name = names[local_rank]
        if find_device(name).device is None:
            raise Unmeasurable(f"local rank {local_rank} has no {name}")
        rank = replace(launched, device=name, threads=threads)
        if self._torchrun_group is None:
            self._torchrun_group = TorchrunGroup(rank, self._deadline_s)
        self._torchrun_group.move(rank)
        return self._torchrun_group


def _local_world_size(world_size: int) -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size))


def _devices_and_threads(gpubench: Gpubench, world_size: int, all_threads: bool) -> tuple[list[str], int]:
    home, threads = gpubench.home, 1
    if home.accelerator:
        threads = max(1, cores() // world_size)
    elif all_threads:
        threads = gpubench.case.threads or cores()
    if not home.indexed:
        return [str(home)] * world_size, threads
    per_machine = min(world_size, _local_world_size(world_size))
    local = [str(each) for each in circle(home, per_machine)]
    return [local[number % per_machine] for number in range(world_size)], threads


def circle(home: Device, count: int) -> list[Device]:
    """Return this many devices of a kind, beginning with the case's; the first follows the last."""
    kind = type(home)
    return [kind((home.index + step) % max(kind.count(), home.index + 1)) for step in range(count)]


def require_devices(count: int, home: Device, gpubench: Gpubench) -> None:
    """Raise :class:`Unmeasurable`, with the numbers, unless this many devices of that kind are present."""
    available = home.count() if home.indexed else cores()
    what = f"{home.kind} devices" if home.indexed else "CPU cores, one a rank"
    if count > available:
        raise gpubench.too_few(f"needs {count} {what}; {available} here")


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


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What one rank measured: ``durations`` are the seconds of each round of ``iterations`` steps. ``first_s``: seconds
    of the first step. ``record``: further fields of the case's record. ``flags``: what disturbed this rank's device."""

    durations: Sequence[float]
    iterations: int
    first_s: float
    check: Check
    record: dict[str, Any] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()


def _flags_of_ranks(times: Sequence[RankTimes]) -> list[Flag]:
    """Return one flag of each name, with what each rank saw on its device."""
    seen: dict[str, list[str]] = {}
    for number, rank in enumerate(times):
        for flag in rank.flags:
            seen.setdefault(flag.name, []).append(f"rank {number}: {flag.seen}")
    return [Flag(name, ", ".join(texts)) for name, texts in seen.items()]


def measure_rank(rank: Rank, job: RankJob, preset: Preset, timed: bool = True, busy: bool = False) -> RankTimes:
    """Check and time a job on this rank; ``timed=False`` runs a single step. Raises OverBudget on every rank if a step
    takes too long, on a ``busy`` machine without blaming it."""
    job = copy.copy(job)  # the caller's lives on, and would hold the memory
    device = find_device(rank.device).device
    used = [device] if device and device.accelerator else []
    with matmul_precision(job.dtype):
        job.start(rank)
        report_progress()
        check = job.check()
        report_progress()
        take = partial(_take_rounds, rank, job, DeviceClock(used))
        (first_s,) = take(1)
        if not timed:
            return RankTimes([first_s], 1, first_s, check, job.record())
        (warm_s,) = take(1)
        step_s = _decide_on_rank_0(rank, lambda: min(first_s, warm_s))
        budget.require(step_s, "seen in warm-up", preset, busy=busy)
        seen = [step_s]

        def warm() -> tuple[float, float]:
            steps = _decide_on_rank_0(rank, lambda: max(1, int(preset.warmup / max(seen[-1], 1e-6))))
            (round_s,) = take(1, steps)
            seen.append(round_s / steps)
            return seen[-1], round_s

        rising = used if preset.warmup else []
        until_clocks_stand(warm, DeviceClock(rising), rising, lambda stand: _decide_on_rank_0(rank, lambda: stand))
        count, iterations = _decide_on_rank_0(rank, lambda: budget.plan(min(seen), preset))
        before = disturbance.look(used)  # the group's first process observes the machine
        durations = take(count, iterations)
        flags = tuple(disturbance.held_down(before, disturbance.look(used)))
        return RankTimes(durations, iterations, first_s, check, job.record(), flags)


def _take_rounds(rank: Rank, job: RankJob, clock: DeviceClock, rounds: int, calls: int = 1) -> list[float]:
    """Return the seconds of rounds of so many steps, each from when all ranks are ready until this device is done."""

    def next_call() -> Bound:
        report_progress()
        job.reset()
        if rank.world_size > 1:
            dist.barrier()
        return job.step, (), {}

    share = Share(next_call, clock, rounds, calls)
    take_turns([share])
    report_progress()
    return share.times


def _decide_on_rank_0(rank: Rank, decide: Callable[[], T]) -> T:
    decision = [decide() if rank.number == 0 else None]
    if rank.world_size > 1:
        dist.broadcast_object_list(decision)
    return decision[0]  # type: ignore[return-value]
