"""The ``gpubench_ranks`` fixture: several processes, one a device, that measure a case together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import devices
from ..devices import Device, find_device
from ..devices.cpu import cores
from ..errors import Unmeasurable
from ..measure import disturbance
from ..measure.budget import RANKS_S, Estimate
from ..runfile.schema import Work
from .rank import RankJob, RankTimes, measure_rank
from .rendezvous import Rank, collective_backend, launched_rank
from .team import TorchrunGroup, WorkerGroup

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench

MOST_RANKS_ON_A_CPU = 8
RANKS_DEADLINE_S = 60.0
"""Default of ``--gpubench-ranks-deadline``."""


def device_counts() -> list[int]:
    """The numbers of devices to measure with: 2, 4, 8, … up to the most of a kind, and that number itself.

    Of a CPU, devices are its cores, 8 at most. Under torchrun the most is its world size.
    """
    most = max(min(cores(), MOST_RANKS_ON_A_CPU), *(kind.count() for kind in devices.kinds().values()))
    rank = launched_rank()
    if rank is not None:
        most = rank.world_size
    counts = [2]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    return counts if most <= counts[-1] else [*counts, most]


class Ranks:
    """Groups of ranks, kept for the next case that needs the same devices and threads."""

    def __init__(self, deadline_s: float = RANKS_DEADLINE_S) -> None:
        self.deadline_s = deadline_s
        self._groups: dict[tuple[tuple[str, ...], int], WorkerGroup] = {}
        self._launched = launched_rank()
        self._torchrun_group: TorchrunGroup | None = None

    def close(self) -> None:
        """End all workers."""
        for group in self._groups.values():
            group.close()
        if self._torchrun_group:
            self._torchrun_group.close()

    def measure(
        self, gpubench: Gpubench, job: RankJob, count: int, *, all_threads: bool = False, work: Work, **record: Any
    ) -> list[RankTimes]:
        """Measure a job on ``count`` devices of the case's kind and enter it as this case's times.

        On a CPU a device is a core: each rank has one thread, unless the only rank has them all. ``record`` is
        what the report needs to know of the case: ``method``, ``mode``, ``ideal_speedup``.
        """
        gpubench.accept(Estimate(None, RANKS_S))
        world_size = 1 if all_threads else count
        names, threads = _devices_and_threads(gpubench, world_size, all_threads)
        group = self.group(gpubench, names, threads)
        before = disturbance.look((), family=True)
        times: list[RankTimes] = group.run(measure_rank, job, gpubench.allowance, gpubench.enabled)
        # Ranks of a launcher are no children of this process: their CPU time would count as that of others.
        children = isinstance(group, WorkerGroup)
        flags = disturbance.disturbed(before, disturbance.look((), family=True), cores()) if children else ()
        gpubench.parallel = {
            "devices": world_size,
            "threads": threads,
            "interconnect": self._interconnect(gpubench.home, world_size),
            **record,
            **times[-1].record,
        }
        durations = [max(round_s) for round_s in zip(*(rank.durations for rank in times), strict=True)]
        used = {"devices": tuple(dict.fromkeys(names)), "threads": threads * world_size}
        rest = {"check": times[0].check, "first_call_s": times[0].first_s}
        rest["steps"] = len(losses) if (losses := gpubench.parallel.get("losses")) is not None else None
        gpubench.replay(durations, times[0].iterations, work, flags, **used, **rest)
        return times

    def group(self, gpubench: Gpubench, names: list[str], threads: int) -> WorkerGroup | TorchrunGroup:
        """Ranks on these devices: torchrun's where it started so many, else processes of this machine.

        Raises :class:`Unmeasurable` where neither can be.
        """
        home, world_size, launched = gpubench.home, len(names), self._launched
        collective_backend(home.kind)
        if launched is not None:
            if world_size == launched.world_size:
                return self._group_of_torchrun(launched, names, threads)
            if world_size > 1:
                raise Unmeasurable(f"torchrun started {launched.world_size} ranks, this case wants {world_size}")
            if launched.number:
                raise Unmeasurable("measured by rank 0")
        require_devices(world_size, home, gpubench)
        key = (tuple(names), threads)
        if key not in self._groups or self._groups[key].broken:
            self._groups[key] = WorkerGroup(names, threads, self.deadline_s)
        return self._groups[key]

    def _group_of_torchrun(self, launched: Rank, names: list[str], threads: int) -> TorchrunGroup:
        if self._torchrun_group is None:
            local_rank = int(os.environ.get("LOCAL_RANK", 0))
            name = names[local_rank]
            if find_device(name).device is None:
                raise Unmeasurable(f"local rank {local_rank} has no {name}")
            rank = Rank(launched.number, launched.world_size, name, threads)
            self._torchrun_group = TorchrunGroup(rank, self.deadline_s)
        return self._torchrun_group

    def _interconnect(self, home: Device, world_size: int) -> str | None:
        """What joins the ranks' devices; ``None`` for one."""
        if self._launched is not None and world_size > _local_world_size(world_size):
            return "network"
        return home.interconnect(world_size) if world_size > 1 else None


def _local_world_size(world_size: int) -> int:
    """Ranks on this machine, as torchrun says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size))


def _devices_and_threads(gpubench: Gpubench, world_size: int, all_threads: bool) -> tuple[list[str], int]:
    """The device of each rank, by name, and the CPU threads that each has."""
    home = gpubench.home
    if home.accelerator:
        threads = max(1, cores() // world_size)
    else:
        threads = (gpubench.case.threads or cores()) if all_threads else 1
    if not home.indexed:
        return [str(home)] * world_size, threads
    per_machine = min(world_size, _local_world_size(world_size))
    return [f"{home.kind}:{number % per_machine}" for number in range(world_size)], threads


def require_devices(count: int, home: Device, gpubench: Gpubench) -> None:
    """Raise :class:`Unmeasurable`, with the numbers, unless so many devices of that kind are here."""
    available = home.count() if home.indexed else cores()
    what = f"{home.kind} devices" if home.indexed else "CPU cores, one a rank"
    if count > available:
        raise gpubench.too_few(f"needs {count} {what}; {available} here")
