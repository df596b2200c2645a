"""Groups of ranks that run a function together: processes of this machine, or those that torchrun started.

Both have ``run(function, *arguments)``, which returns what ``function(rank, *arguments)`` returns on each rank.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..errors import GpubenchError, RankFailure
from .rank import report_progress, share_progress
from .rendezvous import PATIENCE, Rank, file_store, join_process_group, launcher_store, one_line

PRELOADED = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "gpubench.parallel.team",
    "gpubench.parallel.distributed",
    "gpubench.parallel.model_parallel",
    "gpubench.parallel.collective",
    "pytest",
)
"""Imported by the fork server, so that a worker starts in milliseconds; pytest is the parent's main module."""
GRACE_S = 1.0
"""Seconds to wait for a process to end after another one's error: its death may have caused the error."""


def context() -> Any:
    """Fork server if available, else spawn; not a plain fork, which copies locks that threads hold."""
    methods = multiprocessing.get_all_start_methods()
    chosen = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if chosen.get_start_method() == "forkserver":
        chosen.set_forkserver_preload(list(PRELOADED))
    return chosen


class WorkerGroup:
    """One worker process per device, joined in a process group and kept between cases.

    A group that failed is ``broken``: its processes have ended and it must not be used again. ``deadline_s``: seconds
    without progress of any rank after which a rank counts as hanging.
    """

    def __init__(self, devices: Sequence[str], threads: int, deadline_s: float) -> None:
        self.devices, self.threads, self.deadline_s = tuple(devices), threads, deadline_s
        self.broken = False
        world_size = len(devices)
        start = context()
        self._counts = start.RawArray("q", world_size)
        self._folder = tempfile.mkdtemp(prefix="gpubench-ranks-")
        store = str(Path(self._folder) / "store")
        self._connections: list[Connection] = []
        self.processes: list[Any] = []
        try:
            for number, device in enumerate(devices):
                connection, remote = start.Pipe()
                rank = Rank(number, world_size, device, threads)
                arguments = (remote, rank, store, deadline_s, self._counts)
                process = start.Process(target=_serve, args=arguments, daemon=True, name=f"gpubench rank {number}")
                process.start()
                remote.close()
                self._connections.append(connection)
                self.processes.append(process)
            self._answers()
        except BaseException:
            self.close()
            raise

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what ``function(rank, *arguments)`` returns on each rank.

        Raises a rank's :class:`GpubenchError` as it is, and otherwise :class:`RankFailure`, which names the rank that
        died, hung or raised. The group is broken then, and all its processes are gone.
        """
        try:
            for rank, connection in enumerate(self._connections):
                try:
                    connection.send((function, arguments))
                except OSError:
                    raise self._death(rank) from None
            return self._answers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all workers, stopped ones too, and wait for them."""
        self.broken = True
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.close()
        for process in self.processes:
            process.kill()  # idle workers have nothing to lose, busy ones don't listen
        for process in self.processes:
            process.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> list[Any]:
        """One answer per rank; raises the failure of the rank that caused it."""
        answers: dict[int, Any] = {}
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
                    if isinstance(answers[rank], GpubenchError):
                        raise self._cause(rank, answers[rank])
            if dead := [rank for rank in waiting if rank not in answers and not self.processes[rank].is_alive()]:
                raise self._death(dead[0])
            if ready or list(self._counts) != counts:
                counts, since = list(self._counts), time.monotonic()
            elif time.monotonic() - since > self.deadline_s:
                raise self._hang(waiting)
        return [answers[rank] for rank in range(world_size)]

    def _death(self, rank: int) -> RankFailure:
        process = self.processes[rank]
        process.join(GRACE_S)
        code = process.exitcode
        how = f"exited with {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        return RankFailure(rank, how, status="crashed")

    def _cause(self, rank: int, error: GpubenchError) -> GpubenchError:
        """The failure to report for a rank's error: a lost connection means that another rank died."""
        if not isinstance(error, RankFailure):
            return error
        others = [process.sentinel for i, process in enumerate(self.processes) if i != rank]
        if others and wait(others, timeout=GRACE_S if "onnection" in error.reason else 0.0):
            return self._death(next(i for i, p in enumerate(self.processes) if i != rank and not p.is_alive()))
        return error

    def _hang(self, waiting: Sequence[int]) -> RankFailure:
        """Name the rank that the others wait for: a stopped process, else the one with the least progress."""
        import psutil

        late = f"no progress for {self.deadline_s:g} s"
        for rank in waiting:
            with contextlib.suppress(psutil.Error):
                if psutil.Process(self.processes[rank].pid).status() == psutil.STATUS_STOPPED:
                    return RankFailure(rank, f"{late}: it is stopped", status="timeout")
        counts = {rank: self._counts[rank] for rank in waiting}
        behind = [rank for rank, count in counts.items() if count == min(counts.values())]
        if len(behind) == 1:
            return RankFailure(behind[0], f"{late}: it is behind the others", status="timeout")
        return RankFailure(None, f"{late} on ranks {', '.join(map(str, behind))}", status="timeout")


class TorchrunGroup:
    """The ranks that torchrun started, on one machine or several; this process is one of them.

    Every rank must call :meth:`run` with the same function at the same point.
    """

    def __init__(self, rank: Rank, deadline_s: float) -> None:
        self.broken: RankFailure | None = None
        self._rank, self._deadline_s = rank, deadline_s
        self._store = launcher_store(rank, deadline_s)
        self._joins = 0
        share_progress([0] * rank.world_size, rank.number)
        self._join()

    def _join(self) -> None:
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        self._joins += 1
        join_process_group(self._rank, self._deadline_s, PrefixStore(f"gpubench {self._joins}", self._store))
        patience = timedelta(seconds=PATIENCE * self._deadline_s)
        self._control = dist.new_group(backend="gloo", timeout=patience)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return, on every rank, what ``function(rank, *arguments)`` returns on each rank.

        Raises, on every rank, the first failure: a :class:`GpubenchError` as it is, otherwise :class:`RankFailure`.
        When a rank has ended, all later calls fail too.
        """
        import torch.distributed as dist

        if self.broken:
            raise self.broken
        answers: list[Any] = [None] * self._rank.world_size
        try:
            dist.barrier(group=self._control)
            start = time.monotonic()
            answer: Any
            try:
                answer = function(self._rank, *arguments)
            except Exception as error:
                answer = _sendable(error, self._rank.number)
            dist.all_gather_object(answers, (time.monotonic() - start, answer), group=self._control)
        except Exception as error:
            self.broken = RankFailure(None, f"{type(error).__name__}: {one_line(error)}", status="error")
            raise self.broken from error
        failures = [(seconds, answer) for seconds, answer in answers if isinstance(answer, GpubenchError)]
        if failures:
            self._rejoin()
            raise min(failures, key=lambda failure: failure[0])[1]  # the first failure causes the others
        return [answer for _, answer in answers]

    def _rejoin(self) -> None:
        """Join anew: a rank that timed out in a collective has closed its connections."""
        self.close()
        try:
            self._join()
        except RankFailure as error:
            self.broken = error

    def close(self) -> None:
        """Leave the process group."""
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):  # others may be gone
            dist.destroy_process_group()


def _serve(connection: Connection, rank: Rank, store: str, deadline_s: float, counts: Any) -> None:
    """Join the group, then run each ``(function, arguments)`` that comes, until the other end closes."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    share_progress(counts, rank.number)
    try:
        join_process_group(rank, PATIENCE * deadline_s, file_store(store, rank))
        report_progress()
        _answer(connection, None)
        while True:
            function, arguments = connection.recv()
            try:
                answer = function(rank, *arguments)
            except BaseException as error:
                _answer(connection, _sendable(error, rank.number))
            else:
                _answer(connection, answer)
            report_progress()
    except (EOFError, OSError):
        pass  # the other end is gone
    except BaseException as error:
        _answer(connection, _sendable(error, rank.number))
    finally:
        os._exit(0)  # an orderly shutdown would wait for ranks that may be dead


def _answer(connection: Connection, value: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        connection.send(value)


def _sendable(error: BaseException, rank: int) -> GpubenchError:
    """A rank's error that can be pickled: a GpubenchError as it is, any other as its type and first words."""
    if isinstance(error, GpubenchError):
        return error
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return RankFailure(rank, f"{type(error).__name__}: {one_line(error)}", status="oom" if memory else "error")


def _end_with_parent() -> None:
    """End this process when its parent does, whatever it is doing then.

    The fork server doesn't: it lives as long as one of its workers.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
