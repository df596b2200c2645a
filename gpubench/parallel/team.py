"""Groups of ranks that run a function together: how they connect, and which rank caused a failure.

They are processes of this machine, or those that torchrun started. Both groups have ``run(function, *arguments)``,
which returns what ``function(rank, *arguments)`` returns on each rank.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from msgspec import structs

from ..devices import find_device
from ..devices.cpu import keep_memory, resolve_vector_math
from ..devices.lazy import psutil
from ..errors import GpubenchError, RankFailure, Unmeasurable
from ..measure.data import shortage
from ..measure.state import State
from ..runfile.flags import Flag
from ..runfile.writer import RANKS_OWNER, mark_scratch

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_PATIENCE = 10
"""Number of deadlines for which a rank waits for others: a parent process watches them, or rank 0 measures alone."""
_ADDRESS = re.compile(r"\[?(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]+:[0-9a-f.]*)\]?(?::\d+)?")
_PRELOADED = ["gpubench.parallel.ranks", "torch.distributed.fsdp", "torch.distributed.pipelining", "pytest"]
"""Modules that the fork server imports, so that a worker starts in milliseconds; pytest is the parent's main module."""
_START_S = 180.0
"""Seconds without progress that a group may take to start, if the deadline isn't longer: torch and NCCL may be loaded
from a slow disk."""
_GRACE_S = 1.0
"""Seconds to wait for a process to end after another one's error, which its death may have caused."""

_progress: tuple[Any, int] = [0], 0


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a process group: its rank, the world size, its device by name and its CPU threads."""

    number: int
    world_size: int
    device: str
    threads: int


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
    """Return the rendezvous store of torchrun's ranks. Raises :class:`RankFailure`, in one line, if it can't be
    reached."""
    from torch.distributed.rendezvous import rendezvous

    with _in_one_line(rank, deadline_s):
        store: Store
        store, _, _ = next(rendezvous("env://", rank.number, rank.world_size, timeout=timedelta(seconds=deadline_s)))
    return store


def join_process_group(rank: Rank, deadline_s: float, store: Store) -> None:
    """Join the process group through a store that all ranks share. Raises RankFailure if the others don't join in
    time."""
    resolve_vector_math()
    keep_memory()
    torch.set_num_threads(rank.threads)
    device, timeout = torch.device(rank.device), timedelta(seconds=deadline_s)
    options: dict[str, Any] = {"rank": rank.number, "world_size": rank.world_size, "timeout": timeout}
    if device.index is not None:
        torch.get_device_module(device.type).set_device(device.index)
        options["device_id"] = device
    with _in_one_line(rank, deadline_s):
        store.set_timeout(timeout)
        dist.init_process_group(collective_backend(device.type), store=store, **options)


@contextlib.contextmanager
def _in_one_line(rank: Rank, deadline_s: float) -> Iterator[None]:
    """A context that turns torch's errors of ranks that don't connect into a :class:`RankFailure` of one line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # dist.DistError is a RuntimeError
        text = one_line(error)
        port = os.environ.get("MASTER_PORT")
        where = f"port {port}" if port else "on this machine"
        remedy = "; in a container try --shm-size=8g, or NCCL_NVLS_ENABLE=0" if "NCCL" in text else ""
        reason = f"the ranks could not meet: {text[:200]}{remedy}"
        if "EADDRINUSE" in text or "address already in use" in text.lower():
            reason = f"the rendezvous port is taken ({where}): choose another by --rdzv-endpoint or --master-port"
        elif "timed out" in text.lower() or "timeout" in text.lower():
            reason = f"the rendezvous of {rank.world_size} ranks was not complete within {deadline_s:g} s ({where})"
        raise RankFailure(rank.number, reason, status="error") from error


def one_line(error: BaseException) -> str:
    """Return an error's text in one line without the addresses of machines: reasons end up in published files."""
    return _ADDRESS.sub("…", " ".join(str(error).split()))[:300]


def launched_rank() -> Rank | None:
    """Return the rank that torchrun gave this process, with its device still unknown; ``None`` without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "", 1)


def share_progress(counts: Any, number: int) -> None:
    """Count the progress of rank ``number`` in ``counts`` from now on: shared memory, one integer per rank."""
    global _progress
    _progress = counts, number


def report_progress() -> None:
    """Count one finished step: a rank that doesn't do so within the deadline counts as hanging."""
    counts, number = _progress
    counts[number] += 1


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a function returned or raised on a rank, what it left changed, and whether that can't be restored."""

    value: Any
    altered: Flag | None = None
    stuck: bool = False


def _watched(
    rank: Rank, function: Callable[..., Any], arguments: Sequence[Any], caught: type[BaseException]
) -> _Answer:
    """Call a function on this rank; an error is returned as its value, and settings are restored."""
    state = State()
    try:
        value = function(rank, *arguments)
    except caught as error:
        value = _sendable(error, rank.number)
    state.compare()
    altered, stuck = state.restore()
    if altered is not None:
        altered = structs.replace(altered, seen=f"rank {rank.number}: {altered.seen}")
    return _Answer(value, altered, bool(stuck))


class WorkerGroup:
    """One worker process per device, joined in a process group that stays alive between cases. A group that failed is
    ``broken``: its processes have ended and it must not be used again. ``deadline_s``: seconds without progress of any
    rank after which a rank counts as hanging. ``altered`` flags the settings that the latest function left changed on
    its ranks."""

    def __init__(self, devices: Sequence[str], threads: int, deadline_s: float) -> None:
        self.broken = False
        self.altered: list[Flag] = []
        self._devices, self._deadline_s = devices, max(deadline_s, _START_S)
        start, world_size = multiprocessing.get_context("forkserver"), len(devices)  # a fork would copy held locks
        start.set_forkserver_preload(_PRELOADED)
        self._counts = start.RawArray("q", world_size)
        self._folder = tempfile.mkdtemp(prefix=f"gpubench-ranks-{os.environ.get(RANKS_OWNER, os.getpid())}-")
        mark_scratch(self._folder)
        self._connections: list[Connection] = []
        self.processes: list[Any] = []
        try:
            for number, device in enumerate(devices):
                connection, remote = start.Pipe()
                rank = Rank(number, world_size, device, threads)
                arguments = remote, rank, f"{self._folder}/store", deadline_s, self._counts
                process = start.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                remote.close()
                self._connections.append(connection)
                self.processes.append(process)
            self._answers()
            self._deadline_s = deadline_s
        except BaseException:
            self.close()
            raise

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what ``function(rank, *arguments)`` returns on each rank. Raises a rank's :class:`GpubenchError`
        unchanged, and otherwise :class:`RankFailure`, which names the rank that died, hung or raised. The group is
        broken then, and all its processes have ended."""
        try:
            for connection in self._connections:
                with contextlib.suppress(OSError):  # a worker has died: there will be no answer
                    connection.send((function, arguments))
            answers = self._answers()
        except BaseException:
            self.close()
            raise
        self.altered = [answer.altered for answer in answers if answer.altered]
        if any(answer.stuck for answer in answers):
            self.close()
        return [answer.value for answer in answers]

    def close(self) -> None:
        """End all workers, including stopped ones, and wait for them."""
        self.broken = True
        for connection in self._connections:
            connection.close()
        for process in self.processes:
            process.kill()  # idle workers have nothing to lose, busy ones don't listen
        for process in self.processes:
            process.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> list[_Answer]:
        """Return one answer per rank; raises the failure of the rank that caused it."""
        answers: dict[int, _Answer] = {}
        world_size = len(self.processes)
        counts, since = list(self._counts), time.monotonic()
        while len(answers) < world_size:
            waiting = [rank for rank in range(world_size) if rank not in answers]
            ranks = {self._connections[rank]: rank for rank in waiting}
            ready = wait([*ranks, *(self.processes[rank].sentinel for rank in waiting)], timeout=0.5)
            for connection, rank in ranks.items():
                if connection in ready:
                    try:
                        answers[rank] = connection.recv()
                    except (EOFError, OSError):
                        raise self._death(rank) from None
                    if isinstance(error := answers[rank].value, GpubenchError):
                        raise self._cause(rank, error)
            if dead := [rank for rank in waiting if rank not in answers and not self.processes[rank].is_alive()]:
                raise self._death(dead[0])
            if ready or list(self._counts) != counts:
                counts, since = list(self._counts), time.monotonic()
            elif time.monotonic() - since > self._deadline_s:
                raise self._hang(waiting)
        return [answers[rank] for rank in range(world_size)]

    def _death(self, rank: int) -> RankFailure:
        process = self.processes[rank]
        process.join(_GRACE_S)
        code = process.exitcode
        how = f"exited with {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        return RankFailure(rank, how, status="crashed")

    def _cause(self, rank: int, error: GpubenchError) -> GpubenchError:
        """Return the failure to report for a rank's error: a lost connection means that another rank died."""
        if not isinstance(error, RankFailure):
            return error
        others = [process.sentinel for i, process in enumerate(self.processes) if i != rank]
        if others and wait(others, timeout=_GRACE_S if "onnection" in error.reason else 0.0):
            return self._death(next(i for i, p in enumerate(self.processes) if i != rank and not p.is_alive()))
        return error

    def _hang(self, waiting: Sequence[int]) -> RankFailure:
        """Return a failure that names the rank for which the others wait: stopped, or with the least progress."""
        late = f"no progress for {self._deadline_s:g} s"
        for rank in waiting:
            with contextlib.suppress(psutil.Error):
                if psutil.Process(self.processes[rank].pid).status() == psutil.STATUS_STOPPED:
                    return RankFailure(rank, f"{late}: it is stopped", status="timeout")
        counts = {rank: self._counts[rank] for rank in waiting}
        behind = [rank for rank, count in counts.items() if count == min(counts.values())]
        if len(behind) == 1:
            return RankFailure(behind[0], f"{late}: it is behind the others", status="timeout")
        by_nccl = dist.get_default_backend_for_device(self._devices[0].partition(":")[0]) == "nccl"
        remedy = "; NCCL_P2P_DISABLE=1 helps where GPUs can't reach one another, NCCL_DEBUG=INFO says more" * by_nccl
        return RankFailure(None, f"{late} on ranks {', '.join(map(str, behind))}{remedy}", status="timeout")


class TorchrunGroup:
    """The ranks that torchrun started, on one machine or several. Each rank must call :meth:`run` at the same point."""

    def __init__(self, rank: Rank, deadline_s: float) -> None:
        self.broken: RankFailure | None = None
        self.altered: list[Flag] = []
        self._rank, self._deadline_s = rank, deadline_s
        self._store = launcher_store(rank, deadline_s)
        self._joins = 0
        share_progress([0] * rank.world_size, rank.number)
        self._join()

    def _join(self) -> None:
        from torch._C._distributed_c10d import PrefixStore

        self._joins += 1
        usual = torch.get_num_threads()
        join_process_group(self._rank, self._deadline_s, PrefixStore(f"gpubench {self._joins}", self._store))
        torch.set_num_threads(usual)
        patience = timedelta(seconds=_PATIENCE * self._deadline_s)
        self._control = dist.new_group(backend="gloo", timeout=patience)

    def move(self, rank: Rank) -> None:
        """Use this rank's device and threads from now on; every rank must move at the same point."""
        if rank != self._rank and not self.broken:
            self.close()
            self._rank = rank
            self._join()

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return, on every rank, what ``function(rank, *arguments)`` returns on each rank. Raises, on every rank, the
        first failure: a :class:`GpubenchError` unchanged, otherwise :class:`RankFailure`. Once a rank has ended, all
        later calls fail too."""
        if self.broken:
            raise self.broken
        gathered: list[Any] = [None] * self._rank.world_size
        try:
            dist.barrier(group=self._control)
            start = time.monotonic()
            usual = torch.get_num_threads()
            torch.set_num_threads(self._rank.threads)  # other tests of this pytest keep their number
            try:
                answer = _watched(self._rank, function, arguments, Exception)
            finally:
                _release_memory(self._rank)
                torch.set_num_threads(usual)
            dist.all_gather_object(gathered, (time.monotonic() - start, answer), group=self._control)
        except Exception as error:
            self.broken = RankFailure(None, f"{type(error).__name__}: {one_line(error)}", status="error")
            raise self.broken from error
        answers: list[tuple[float, _Answer]] = gathered
        self.altered = [answer.altered for _, answer in answers if answer.altered]
        failures = [(s, answer.value) for s, answer in answers if isinstance(answer.value, GpubenchError)]
        if failures:
            self.close()
            try:
                self._join()  # anew: a rank that timed out in a collective has closed its connections
            except RankFailure as error:
                self.broken = error
            raise min(failures, key=lambda failure: failure[0])[1]  # the first failure causes the others
        return [answer.value for _, answer in answers]

    def close(self) -> None:
        """Leave the process group."""
        with contextlib.suppress(RuntimeError):  # others may be gone
            dist.destroy_process_group()


def _serve(connection: Connection, rank: Rank, store: str, deadline_s: float, counts: Any) -> None:
    """Join the group, then run each received ``(function, arguments)`` until the other end closes."""
    from torch._C._distributed_c10d import FileStore

    parent: Any = multiprocessing.parent_process()

    def end_with_parent() -> None:  # whatever this process is doing: the fork server lives as long as any worker
        wait([parent.sentinel])
        shutil.rmtree(os.path.dirname(store), ignore_errors=True)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if loopback := {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}:  # lo0: macOS; keeps others out
        os.environ |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), min(loopback))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    share_progress(counts, rank.number)
    answer = _Answer(None)
    try:
        join_process_group(rank, _PATIENCE * deadline_s, FileStore(store, rank.world_size))
        while True:
            report_progress()
            connection.send(answer)
            function, arguments = connection.recv()
            answer = _watched(rank, function, arguments, BaseException)
            _release_memory(rank)
    except (EOFError, OSError):
        pass  # the other end is gone
    except BaseException as error:
        connection.send(_Answer(_sendable(error, rank.number)))
    finally:
        os._exit(0)  # an orderly shutdown would wait for ranks that may be dead


def _release_memory(rank: Rank) -> None:
    """Release what the last job held on its accelerator: an idle rank needs no memory there."""
    device = find_device(rank.device).device
    if device and device.accelerator:
        gc.collect()
        with contextlib.suppress(RuntimeError):  # a device in a bad state; its case has failed already
            device.release_memory()


def _sendable(error: BaseException, rank: int) -> GpubenchError:
    """Return an error that can be pickled: a GpubenchError unchanged, any other as its type and first words."""
    if isinstance(error, GpubenchError):
        return error
    short = shortage(error)
    return RankFailure(rank, short or f"{type(error).__name__}: {one_line(error)}", status="oom" if short else "error")
