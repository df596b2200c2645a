"""How many devices to try: the same numbers on every machine, up to what the larger ones have."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from .. import devices
from ..devices import Device, find_device
from ..devices.cpu import cores
from ..errors import Unmeasurable
from ..measure import disturbance
from ..measure.budget import RANKS_S
from ..measure.fixture import Outcome
from ..runfile.schema import Work
from .rank import Job, Measured, measure
from .rendezvous import Place, backend, launched
from .team import Group, World

MOST_RANKS_ON_A_CPU = 8


def device_counts() -> list[int]:
    """2, 4, 8, … up to the most devices of a kind (the cores of a CPU, 8 at most), and that number itself.

    Under torchrun its ranks count, wherever they are.
    """
    most = max(min(cores(), MOST_RANKS_ON_A_CPU), *(kind.count() for kind in devices.kinds().values()))
    place = launched()
    if place is not None:
        most = place.size
    counts = [2]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    return counts if most <= counts[-1] else [*counts, most]


# What a test gets from the ``gpubench_ranks`` fixture: several processes, one a device, to measure a case with.


if TYPE_CHECKING:
    from ..measure.fixture import Gpubench

DEADLINE_S = 60.0


class Team(Protocol):
    """Ranks that run a function together: a :class:`Group` of our own, or torchrun's :class:`World`."""

    def run(self, function: Any, *arguments: Any) -> list[Any]:
        """What it returns on each rank; raises RankFailure."""


class Ranks:
    """Groups of workers, kept for the next case that needs the same devices and threads."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self.deadline_s = deadline_s
        self._groups: dict[tuple[tuple[str, ...], int], Group] = {}
        self._place = launched()
        self._world: World | None = None

    def close(self) -> None:
        """End all workers."""
        for group in self._groups.values():
            group.close()
        if self._world:
            self._world.close()

    def measure(
        self, gpubench: Gpubench, job: Job, count: int, *, all_threads: bool = False, work: Work, **record: Any
    ) -> list[Measured]:
        """Measure a job on ``count`` devices of the case's kind and enter it as this case's times.

        On a CPU a device is a core: each rank has one thread, unless the only rank has them all. ``record`` is
        what the report needs to know of the case: ``method``, ``mode``, ``ideal_speedup``.
        """
        gpubench.plan(RANKS_S)
        home = gpubench.home
        size = 1 if all_threads else count
        threads = (gpubench.case.threads or cores()) if all_threads else 1
        if home.accelerator:
            threads = max(1, cores() // size)
        names = [str(gpubench.home)] * size
        if home.indexed:
            here = min(size, int(os.environ.get("LOCAL_WORLD_SIZE", size)))
            names = [f"{home.kind}:{index % here}" for index in range(size)]
        team = self._team(gpubench, names, threads)
        before = disturbance.look((), family=True)
        found: list[Measured] = team.run(measure, job, gpubench.allowance, gpubench.enabled)
        # Of ranks that a launcher started, only it knows which processes they are.
        known = isinstance(team, Group)
        raised = disturbance.disturbed(before, disturbance.look((), family=True), cores()) if known else ()
        slowest = [max(times) for times in zip(*(one.durations for one in found), strict=True)]
        gpubench.parallel = {
            "devices": size,
            "threads": threads,
            "interconnect": self._interconnect(home, size),
            **record,
            **found[-1].told,
        }
        outcome = Outcome(
            slowest, found[0].iterations, list(dict.fromkeys(names)), threads * size, found[0].check, found[0].first_s,
            flags=tuple(raised),
        )  # fmt: skip
        if "losses" in gpubench.parallel:
            outcome = replace(outcome, steps=len(gpubench.parallel["losses"]))
        gpubench.replay(outcome, work)
        return found

    def _interconnect(self, home: Device, size: int) -> str | None:
        """What joins the ranks' devices; None for one."""
        if self._place is not None and size > int(os.environ.get("LOCAL_WORLD_SIZE", size)):
            return "network"
        return home.interconnect(size) if size > 1 else None

    def _team(self, gpubench: Gpubench, names: list[str], threads: int) -> Team:
        home, size = gpubench.home, len(names)
        backend(home.kind)
        if self._place is not None and size == self._place.size:
            return self._launched_world(names, threads)
        if self._place is not None and size > 1:
            raise Unmeasurable(f"torchrun started {self._place.size} ranks, this case wants {size}")
        if self._place is not None and self._place.rank:
            raise Unmeasurable("measured by rank 0")
        require(size, home, gpubench)
        key = (tuple(names), threads)
        if key not in self._groups or self._groups[key].broken:
            self._groups[key] = Group(names, threads, self.deadline_s)
        return self._groups[key]

    def _launched_world(self, names: list[str], threads: int) -> World:
        if self._world is None:
            assert self._place is not None
            local = int(os.environ.get("LOCAL_RANK", 0))
            own = names[local]
            if find_device(own).device is None:
                raise Unmeasurable(f"local rank {local} has no {own}")
            self._world = World(Place(self._place.rank, self._place.size, own, threads), self.deadline_s)
        return self._world


def require(count: int, home: Device, gpubench: Gpubench) -> None:
    """Raise :class:`Unmeasurable`, with the numbers, unless so many devices of that kind are here."""
    there = home.count() if home.indexed else cores()
    what = f"{home.kind} devices" if home.indexed else "CPU cores, one a rank"
    if count > there:
        raise gpubench.too_few(f"needs {count} {what}; {there} here")
