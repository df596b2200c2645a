"""The ranks that torchrun started, one per device: they connect, measure a benchmark together, each round after a
barrier, and name the rank that failed. Rank 0 makes every decision that depends on a measured time, so that all ranks
reach the same barriers."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import torch
import torch.distributed as dist

from ..devices import Device, find_device, kinds
from ..devices.cpu import cores, keep_memory, resolve_vector_math
from ..errors import RankFailure, Unmeasurable, UsageError
from ..runfile.flags import Flag
from ..runfile.schema import Check
from . import budget, disturbance
from .clock import Bound, DeviceClock, Share, settle_clocks, take_turns
from .data import shortage
from .precision import matmul_precision
from .prepare import Rounds
from .work import Request

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from .fixture import Gpubench

T = TypeVar("T")
_MOST_RANKS_ON_A_CPU = 8
_PATIENCE = 10
"""Number of deadlines for which a rank that takes no part in a benchmark waits for the others."""
_GRACE_S = 2.0
"""Seconds to wait for the other ranks' answers after a collective has timed out."""
_ADDRESS = re.compile(r"\[?(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]+:[0-9a-f.]*)\]?(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a process group: its rank, the world size, its device by name and its CPU threads."""

    number: int
    world_size: int
    device: str
    threads: int


@dataclass(frozen=True, slots=True)
class RankTimes:
    """The measurement of one rank: ``durations`` are the seconds of each round of ``iterations`` steps. ``first_s``:
    seconds of the first step. ``record``: further fields of the case's record. ``flags``: disturbances of this rank's
    device."""

    durations: Sequence[float]
    iterations: int
    first_s: float
    check: Check
    record: dict[str, Any] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()


class RankJob(Protocol):
    """A case's work; each rank sets up a copy."""

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


def device_counts() -> list[int]:
    """Return the numbers of devices to measure with: 2, 4, 8, … up to the most devices of a kind, and that number
    itself. A CPU's devices are its cores, 8 at most. Under torchrun the most is its world size."""
    most = max(min(cores(), _MOST_RANKS_ON_A_CPU), *(kind.count() for kind in kinds().values()))
    if "TORCHELASTIC_RUN_ID" in os.environ:
        most = int(os.environ["WORLD_SIZE"])
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
        declaration, team = gpubench.take_declaration(), self._team
        if declaration != Request(work=declaration.work):
            raise UsageError(
                "ranks take flops, nbytes, items and unit from gpubench.declare(…), the rest from their job"
            )
        home, world_size = gpubench.home, 1 if all_threads else count
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
        here = int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == int(os.environ.get("WORLD_SIZE", 0))  # one machine
        self._require(world_size, gpubench, here)
        threads = 1 if not all_threads else gpubench.case.threads or cores()
        if home.accelerator:
            threads = max(1, cores() // world_size)
        group = circle(home, min(world_size, local)) if home.indexed else [home]
        names = [str(group[number % len(group)]) for number in range(world_size)]
        rank = Rank(team.number, world_size, [*names, ""][min(team.number, world_size)], threads)
        before = disturbance.read_counters((), family=True)
        busy = rank.number == 0 and gpubench.is_busy()
        terms: dict[str, Any] = {"preset": gpubench.allowance, "busy": busy, "note_progress": team.note_progress}
        times = team.run(self._name, rank, names, partial(measure_rank, job=job, **terms))
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
    rank: Rank, job: RankJob, preset: budget.Preset, *, busy: bool = False, note_progress: Callable[[], object] = int
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


def collective_backend(kind: str) -> str:
    """Return torch's collective backend for a kind of device (nccl, gloo, …). Raises Unmeasurable if there is none."""
    try:
        name = str(dist.get_default_backend_for_device(kind))
    except (ValueError, RuntimeError, AttributeError):  # AttributeError: a build without torch.distributed
        raise Unmeasurable(f"this torch has no collective backend for {kind}") from None
    if not dist.is_backend_available(name):
        raise Unmeasurable(f"this torch was built without {name}, which {kind} needs")
    return name


@contextlib.contextmanager
def _in_one_line(rank: int) -> Iterator[None]:
    """A context that turns torch's errors of ranks that don't connect into a :class:`RankFailure` of one line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # dist.DistError is a RuntimeError
        text = one_line(error)
        remedy = "; in a container try --shm-size=8g, or NCCL_NVLS_ENABLE=0" if "NCCL" in text else ""
        raise RankFailure(rank, f"the ranks could not meet: {text}{remedy}", status="error") from error


def one_line(error: BaseException) -> str:
    """Return an error's text in one line without the addresses of machines: reasons end up in published files."""
    return _ADDRESS.sub("…", " ".join(str(error).split()))[:300]


def launcher_store(rank: int, world_size: int, deadline: timedelta) -> Store:
    """Return the rendezvous store of torchrun's ranks. Raises RankFailure if it can't be reached."""
    from torch.distributed.rendezvous import rendezvous

    with _in_one_line(rank):
        store, *_ = next(rendezvous("env://", rank, world_size, timeout=deadline))
    # Ranks that torchrun has restarted don't read the messages of their predecessors.
    return dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)


def join_process_group(rank: Rank, deadline_s: float, store: Store) -> None:
    """Join the process group through a store of all ranks. Raises RankFailure if the others don't join in time."""
    resolve_vector_math()
    keep_memory()
    torch.set_num_threads(rank.threads)
    device, timeout = torch.device(rank.device), timedelta(seconds=deadline_s)
    options: dict[str, Any] = {"rank": rank.number, "world_size": rank.world_size, "timeout": timeout}
    if device.index is not None:
        torch.get_device_module(device.type).set_device(device.index)
        options["device_id"] = device
    with _in_one_line(rank.number):
        store.set_timeout(timeout)
        dist.init_process_group(collective_backend(device.type), store=store, **options)


class _Answer(msgspec.Struct):
    """The outcome of a benchmark on one rank: its times, or the text and the status of its error. ``turn``: 1 for the
    rank that raised first, 2 for the next."""

    times: RankTimes | None = None
    error: str = ""
    status: str = ""
    turn: int = 0

    @classmethod
    def of(cls, error: Exception, rank: int, turn: int) -> _Answer:
        """Describe an error, without addresses of machines."""
        if isinstance(error, Unmeasurable | RankFailure):
            return cls(None, str(error), getattr(error, "status", "skipped"), turn)
        short = shortage(error)
        text = short or f"{type(error).__name__}: {one_line(error)}"
        return cls(None, f"rank {rank}: {text}", "oom" if short else "error", turn)


class Team:
    """All ranks of a launch, on one machine or several. Each rank must call :meth:`run` for the same benchmarks in the
    same order. ``deadline_s``: seconds without an answer after which a rank counts as hanging. ``on_hang`` is called
    with the failure that names the rank; no benchmark can be measured afterwards."""

    def __init__(self, deadline_s: float, on_hang: Callable[[RankFailure], object] = lambda failure: None) -> None:
        self.number, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._deadline_s, self._on_hang, self._meetings = deadline_s, on_hang, 0
        self._store = launcher_store(self.number, self.world_size, timedelta(seconds=deadline_s))
        self._joined: tuple[object, ...] = ()
        self._failure: RankFailure | None = None
        self.note_progress()

    def note_progress(self) -> None:
        """Note that this rank isn't hanging."""
        self._latest = time.monotonic()

    def agree(self, value: T) -> T:
        """Return the value that rank 0 gives. Raises RankFailure if a rank doesn't come."""
        agreed: T = self._exchange(value, _PATIENCE * self._deadline_s, Any)[0]
        return agreed

    def run(self, name: str, rank: Rank, others: Sequence[str], work: Callable[[Rank], RankTimes]) -> list[RankTimes]:
        """Measure the benchmark ``name`` on the first ``rank.world_size`` ranks, on the devices ``others``; return, on
        every rank, the times of each of them. Raises, on every rank, RankFailure for the error that came first, or
        Unmeasurable if it was one."""
        if self._failure:
            raise self._failure
        if (asked := self.agree(name)) != name:
            self._end(RankFailure(self.number, f"is at {name}, rank 0 at {asked}", "error"))
        key, answer, patience_s = (*others, rank.threads), _Answer(), _PATIENCE * self._deadline_s
        if key != self._joined:
            self.close()
        if rank.number < rank.world_size:
            patience_s = self._deadline_s
            try:
                answer.times = self._measure(rank, key, work)
            except Exception as error:
                answer = _Answer.of(error, self.number, self._store.add(f"errors of {self._meetings}", 1))
                self.close()  # the others' collectives then fail
                patience_s = max(_GRACE_S, self._deadline_s - (time.monotonic() - self._latest))
        self._joined = key
        answers: list[_Answer] = self._exchange(answer, patience_s, _Answer)
        if failed := [each for each in answers if each.error]:
            self.close()
            first = min(failed, key=lambda each: each.turn)
            skipped = first.status == "skipped"
            raise Unmeasurable(first.error) if skipped else RankFailure(None, first.error, first.status)
        return [each.times for each in answers if each.times]

    def _measure(self, rank: Rank, key: tuple[object, ...], work: Callable[[Rank], RankTimes]) -> RankTimes:
        usual = torch.get_num_threads()
        self.note_progress()
        try:
            if key != self._joined:
                join_process_group(rank, self._deadline_s, dist.PrefixStore(f"group {self._meetings}", self._store))
            torch.set_num_threads(rank.threads)
            return work(rank)
        finally:
            if torch.get_num_threads() == rank.threads:  # else the job has changed them, which is flagged
                torch.set_num_threads(usual)
            release_memory(rank)

    def _exchange(self, value: Any, patience_s: float, kind: Any) -> list[Any]:
        """Return every rank's value, of this type."""
        self._meetings += 1
        message: Any = msgspec.msgpack.encode(value)
        self._store.set(f"{self._meetings}/{self.number}", message)
        until, values = time.monotonic() + patience_s, []
        for number in range(self.world_size):
            key, left_s = f"{self._meetings}/{number}", max(0.1, until - time.monotonic())
            try:
                self._store.wait([key], timedelta(seconds=left_s))
            except RuntimeError:  # of the store: the time is over, or the launcher has gone
                self._end(RankFailure(number, f"no progress for {self._deadline_s:g} s", "timeout"))
            values.append(msgspec.msgpack.decode(bytes(self._store.get(key)), type=kind))
        return values

    def _end(self, failure: RankFailure) -> None:
        self._failure = failure
        self._on_hang(failure)
        raise failure

    def close(self) -> None:
        """Leave the process group, so that its connections close."""
        self._joined = ()
        if dist.is_initialized():
            with contextlib.suppress(RuntimeError):  # others may be gone
                dist.destroy_process_group()


def release_memory(rank: Rank) -> None:
    """Release the memory of the last job on its accelerator: an idle rank needs none there."""
    device = find_device(rank.device).device
    if device and device.accelerator:
        gc.collect()
        with contextlib.suppress(RuntimeError):  # a device in a bad state; its case has failed already
            device.release_memory()
