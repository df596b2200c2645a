"""The ranks that torchrun started: how they connect, measure together, and name the rank that failed."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch
import torch.distributed as dist

from ..devices import find_device
from ..devices.cpu import keep_memory, resolve_vector_math
from ..errors import RankFailure, Unmeasurable
from ..measure.data import shortage
from ..runfile.flags import Flag
from ..runfile.schema import Check

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")
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


def launched_rank() -> Rank | None:
    """Return the rank that torchrun gave this process, with its device still unknown; ``None`` without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "", 1)


def collective_backend(kind: str) -> str:
    """Return torch's collective backend for a kind of device (nccl, gloo, …). Raises Unmeasurable if there is none."""
    try:
        name = str(dist.get_default_backend_for_device(kind))
    except (ValueError, RuntimeError, AttributeError):  # AttributeError: a build without torch.distributed
        raise Unmeasurable(f"this torch has no collective backend for {kind}") from None
    if not dist.is_backend_available(name):
        raise Unmeasurable(f"this torch was built without {name}, which {kind} needs")
    return name


def launcher_store(rank: Rank, deadline_s: float) -> Store:
    """Return the rendezvous store of torchrun's ranks. Raises RankFailure if it can't be reached."""
    from torch.distributed.rendezvous import rendezvous

    with _in_one_line(rank.number):
        found = next(rendezvous("env://", rank.number, rank.world_size, timeout=timedelta(seconds=deadline_s)))
    # Ranks that torchrun has restarted don't read the messages of their predecessors.
    return dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), found[0])


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


class _Answer(msgspec.Struct):
    """The outcome of a benchmark on one rank: its times, or the text and the status of its error. ``turn``: 1 for the
    rank that raised first, 2 for the next."""

    times: RankTimes | None = None
    error: str = ""
    status: str = ""
    turn: int = 0

    def note(self, error: Exception, rank: int) -> None:
        """Describe an error, without addresses of machines."""
        short = shortage(error)
        self.error = f"rank {rank}: {short or f'{type(error).__name__}: {one_line(error)}'}"
        self.status = "oom" if short else "error"
        if isinstance(error, Unmeasurable | RankFailure):
            self.error, self.status = str(error), getattr(error, "status", "skipped")


class Team:
    """All ranks of a launch, on one machine or several. Each rank must call :meth:`run` for the same benchmarks in the
    same order. ``deadline_s``: seconds without an answer after which a rank counts as hanging. ``on_hang`` is called
    with the failure that names the rank; no benchmark can be measured afterwards."""

    def __init__(self, deadline_s: float, on_hang: Callable[[RankFailure], object] = lambda failure: None) -> None:
        launched = launched_rank()
        assert launched, "torchrun started this process"
        self.number, self.world_size = launched.number, launched.world_size
        self._deadline_s, self._on_hang = deadline_s, on_hang
        self._store, self._meetings = launcher_store(launched, deadline_s), 0
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
                answer.note(error, self.number)
                answer.turn = self._store.add(f"errors of {self._meetings}", 1)
                self.close()  # the others' collectives then fail
                patience_s = max(_GRACE_S, self._deadline_s - (time.monotonic() - self._latest))
        self._joined = key
        answers: list[_Answer] = self._exchange(answer, patience_s, _Answer)
        if failed := [each for each in answers if each.error]:
            self.close()
            first = min(failed, key=lambda each: each.turn)
            raise (
                Unmeasurable(first.error) if first.status == "skipped" else RankFailure(None, first.error, first.status)
            )
        return [each.times for each in answers if each.times]

    def _measure(self, rank: Rank, key: tuple[object, ...], work: Callable[[Rank], RankTimes]) -> RankTimes:
        usual = torch.get_num_threads()
        self.note_progress()
        try:
            if key != self._joined:
                store = dist.PrefixStore(f"group {self._meetings}", self._store)
                join_process_group(rank, self._deadline_s, store)
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
