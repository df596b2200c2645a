"""A group of workers on this machine, one a device: started once, used for many cases, ended when one fails."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..errors import GpubenchError, RankFailure
from . import worker
from .rendezvous import Place

PRELOADED = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "gpubench.parallel.worker",
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


class Group:
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
                process = start.Process(target=worker.main, args=arguments, daemon=True, name=f"gpubench rank {rank}")
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
