"""A worker: one rank of a local group, alive between cases, doing what it is sent."""

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
from .rank import advance, tell_into
from .rendezvous import PATIENCE, Place, file_store, join, launcher_store, one_line


def run_worker(connection: Connection, place: Place, store: str, deadline_s: float, counts: Any) -> None:
    """Join the group, then run each ``(function, arguments)`` that comes, until the other end closes."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    tell_into(counts, place.rank)
    try:
        join(place, PATIENCE * deadline_s, file_store(store, place))
        advance()
        _answer(connection, None)
        while True:
            function, arguments = connection.recv()
            try:
                answer = function(place, *arguments)
            except BaseException as error:
                _answer(connection, sendable(error, place.rank))
            else:
                _answer(connection, answer)
            advance()
    except (EOFError, OSError):
        pass  # the other end is gone
    except BaseException as error:
        _answer(connection, sendable(error, place.rank))
    finally:
        os._exit(0)  # no orderly farewell to ranks that may be dead


def _answer(connection: Connection, value: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        connection.send(value)


def sendable(error: BaseException, rank: int) -> GpubenchError:
    """What a rank raised: our own errors as they are; any other by its type and first words."""
    if isinstance(error, GpubenchError):
        return error
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return RankFailure(rank, f"{type(error).__name__}: {one_line(error)}", status="oom" if memory else "error")


def _end_with_parent() -> None:
    """End when the process that asked for us does, whatever we are doing then.

    Our fork server doesn't see to it: it lives as long as one of its workers.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# The ranks that torchrun started, on one machine or several; this process is one of them.


class World:
    """Runs a function on all ranks, each of which calls :meth:`run` with the same one at the same point."""

    def __init__(self, place: Place, deadline_s: float) -> None:
        self.broken: RankFailure | None = None
        self._place, self._deadline_s = place, deadline_s
        self._store = launcher_store(place, deadline_s)
        self._meetings = 0
        tell_into([0] * place.size, place.rank)
        self._meet()

    def _meet(self) -> None:
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        self._meetings += 1
        join(self._place, self._deadline_s, PrefixStore(f"gpubench {self._meetings}", self._store))
        patience = timedelta(seconds=PATIENCE * self._deadline_s)
        self._control = dist.new_group(backend="gloo", timeout=patience)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(place, *arguments)`` returns on each rank, on every rank.

        Raises, on every rank, what the first to fail raised; :class:`RankFailure` if it isn't one of our errors. A rank
        that is gone ends the world: cases after it fail too.
        """
        import torch.distributed as dist

        if self.broken:
            raise self.broken
        answers: list[Any] = [None] * self._place.size
        try:
            dist.barrier(group=self._control)
            start = time.monotonic()
            answer: Any
            try:
                answer = function(self._place, *arguments)
            except Exception as error:
                answer = sendable(error, self._place.rank)
            dist.all_gather_object(answers, (time.monotonic() - start, answer), group=self._control)
        except Exception as error:
            self.broken = RankFailure(None, f"{type(error).__name__}: {one_line(error)}", status="error")
            raise self.broken from error
        failures = [(seconds, answer) for seconds, answer in answers if isinstance(answer, GpubenchError)]
        if failures:
            self._meet_again()
            raise min(failures, key=lambda failure: failure[0])[1]  # others fail for want of the first
        return [answer for _, answer in answers]

    def _meet_again(self) -> None:
        """A rank that waited in vain for another one's part has closed its connections."""
        self.close()
        try:
            self._meet()
        except RankFailure as error:
            self.broken = error

    def close(self) -> None:
        """Leave the process group."""
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):  # others may be gone
            dist.destroy_process_group()


# A group of workers on this machine, one a device: started once, used for many cases, ended when one fails.


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
"""After a rank complained, how long to look for one that died: its death is why the others complain."""


def context() -> Any:
    """Fork server where there is one, else spawn; never a plain fork, which copies locks that threads hold."""
    methods = multiprocessing.get_all_start_methods()
    chosen = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if chosen.get_start_method() == "forkserver":
        chosen.set_forkserver_preload(list(PRELOADED))
    return chosen


class WorkerGroup:
    """``size`` workers that have met. Not to be used again once it is ``broken``."""

    def __init__(self, devices: Sequence[str], threads: int, deadline_s: float) -> None:
        self.devices, self.threads, self.deadline_s = tuple(devices), threads, deadline_s
        self.broken = False
        size = len(devices)
        start = context()
        self._counts = start.RawArray("q", size)
        self._folder = tempfile.mkdtemp(prefix="gpubench-ranks-")
        store = str(Path(self._folder) / "store")
        self._connections: list[Connection] = []
        self.processes: list[Any] = []
        try:
            for rank, device in enumerate(devices):
                ours, theirs = start.Pipe()
                place = Place(rank, size, device, threads)
                arguments = (theirs, place, store, deadline_s, self._counts)
                process = start.Process(target=run_worker, args=arguments, daemon=True, name=f"gpubench rank {rank}")
                process.start()
                theirs.close()
                self._connections.append(ours)
                self.processes.append(process)
            self._answers()
        except BaseException:
            self.close()
            raise

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(place, *arguments)`` returns on each rank.

        Raises what a rank raised, if it is one of our errors; else :class:`RankFailure`, which names the rank that
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
            process.kill()  # idle ones have nothing to lose, others can't be asked
        for process in self.processes:
            process.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> list[Any]:
        """One from each rank, or the failure of the rank that is to blame."""
        answers: dict[int, Any] = {}
        size = len(self.processes)
        seen, since = list(self._counts), time.monotonic()
        while len(answers) < size:
            waiting = [rank for rank in range(size) if rank not in answers]
            by_object = {self._connections[rank]: rank for rank in waiting}
            ready = wait([*by_object, *(self.processes[rank].sentinel for rank in waiting)], timeout=0.5)
            for connection, rank in by_object.items():
                if connection in ready:
                    try:
                        answers[rank] = connection.recv()
                    except (EOFError, OSError):
                        raise self._death(rank) from None
                    if isinstance(answers[rank], GpubenchError):
                        raise self._blame(rank, answers[rank])
            if dead := [rank for rank in waiting if rank not in answers and not self.processes[rank].is_alive()]:
                raise self._death(dead[0])
            if ready or list(self._counts) != seen:
                seen, since = list(self._counts), time.monotonic()
            elif time.monotonic() - since > self.deadline_s:
                raise self._hang(waiting)
        return [answers[rank] for rank in range(size)]

    def _death(self, rank: int) -> RankFailure:
        process = self.processes[rank]
        process.join(GRACE_S)
        code = process.exitcode
        how = f"exited with {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        return RankFailure(rank, how, status="crashed")

    def _blame(self, rank: int, error: GpubenchError) -> GpubenchError:
        """A rank complains of the connection when another died: then that one is to blame."""
        if not isinstance(error, RankFailure):
            return error
        others = [process.sentinel for i, process in enumerate(self.processes) if i != rank]
        if others and wait(others, timeout=GRACE_S if "onnection" in error.reason else 0.0):
            return self._death(next(i for i, p in enumerate(self.processes) if i != rank and not p.is_alive()))
        return error

    def _hang(self, waiting: Sequence[int]) -> RankFailure:
        """Who keeps the others waiting: a stopped process, else whoever has done least."""
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
