"""What a plain program pays for memory: a process, forked before this one told glibc to keep freed memory, makes a few
calls of a benchmark. The thresholds of glibc can't be undone, so this process can't."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial

from ..devices.cpu import can_keep_memory, keeps_memory
from ..measure.run_settings import Mode
from ..measure.session import Session
from ..runfile.schema import Case

LONGEST_S = 10
"""Seconds after which a benchmark's calls are given up."""


def begin_plain(session: Session, cases: Mapping[str, Case], run: Callable[[str], object]) -> PlainProcess | None:
    """Start the process, before this one's freed memory is kept; None where it would tell nothing. ``run`` measures the
    benchmark of a name, of which ``cases`` are those that are timed."""
    wanted = session.mode is Mode.RUN and session.settings.first and session.settings.judges and "torch" in sys.modules
    on_cpu = any(case.device == "cpu" for case in cases.values())
    if on_cpu and wanted and hasattr(os, "fork") and can_keep_memory() and not keeps_memory():
        return PlainProcess(session, run)
    return None


class PlainProcess:
    """A forked process that forks again for each benchmark, so that none meets what another has left."""

    def __init__(self, session: Session, run: Callable[[str], object]) -> None:
        ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of BLAS threads, which are made anew after a fork
            self._pid = os.fork()
        if not self._pid:
            ours.close()
            _serve(theirs, session, run)
        theirs.close()
        ours.settimeout(2 * LONGEST_S)
        self._socket, self._lines, self._ended = ours, ours.makefile("r"), False

    def seconds(self, name: str, threads: int) -> float | None:
        """Return the median seconds of a call of a benchmark; None once calls have failed or taken too long, as where a
        test file has computed with torch's threads before, which a fork doesn't have."""
        if self._ended:
            return None
        with contextlib.suppress(OSError, ValueError):
            self._socket.sendall(f"{json.dumps([name, threads])}\n".encode())
            answer = json.loads(self._lines.readline())
            if answer:
                return float(answer)
        self.close()
        return None

    def close(self) -> None:
        """End the process."""
        self._ended = True
        self._socket.close()
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(asked: socket.socket, session: Session, run: Callable[[str], object]) -> None:
    """Answer until the parent ends; never return."""
    try:
        for line in asked.makefile("r"):
            name, threads = json.loads(line)
            if not (child := os.fork()):
                _answer(asked, session, partial(run, name), threads)
            if os.waitpid(child, 0)[1]:
                asked.sendall(b"null\n")
    finally:
        os._exit(0)


def _answer(asked: socket.socket, session: Session, run: Callable[[], object], threads: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LONGEST_S)
    try:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this process
        for stream in (1, 2):
            os.dup2(sys.stdout.fileno(), stream)
        session.become_plain(threads)
        run()
        asked.sendall(f"{json.dumps(session.plain_s)}\n".encode())
        os._exit(0)
    finally:
        os._exit(1)
