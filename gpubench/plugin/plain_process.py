"""The cost of memory in a plain program: a process, forked before this one told glibc to keep freed memory, makes a few
calls of a benchmark. The thresholds of glibc can't be undone, so this process can't."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import NoReturn

from ..devices.cpu import can_keep_memory, keeps_memory
from ..measure.session import Mode, Session
from ..runfile.schema import Case

LONGEST_S = 10
"""Seconds after which a benchmark's calls are given up."""


def begin_plain(session: Session, cases: Iterable[Case], run: Callable[[str], object]) -> PlainProcess | None:
    """Start the process, before this one's freed memory is kept; None where it would tell nothing. ``run`` measures the
    benchmark of a name; ``cases`` are all timed ones."""
    settings = session.settings
    wanted = session.mode is Mode.RUN and settings.first and settings.flags_rounds and "torch" in sys.modules
    wanted = wanted and any(case.device == "cpu" for case in cases)
    return PlainProcess(session, run) if wanted and can_keep_memory() and not keeps_memory() else None


class PlainProcess:
    """A forked process that forks again for each benchmark, so that none meets another's leftovers."""

    def __init__(self, session: Session, run: Callable[[str], object]) -> None:
        self._socket, theirs = socket.socketpair()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of BLAS threads, which are made anew after a fork
            self._pid = os.fork()
        if not self._pid:
            self._socket.close()
            _serve(theirs, session, run)
        theirs.close()
        self._socket.settimeout(2 * LONGEST_S)

    def seconds(self, name: str, threads: int) -> float | None:
        """Return the median seconds of a call of a benchmark; None once calls have failed or taken too long, as where a
        test file has computed with torch's threads before, which a fork doesn't have."""
        with contextlib.suppress(OSError, ValueError):  # of a closed socket
            self._socket.sendall(f"{json.dumps([name, threads])}\n".encode())
            if answer := json.loads(self._socket.recv(100)):
                return float(answer)
        self.close()
        return None

    def close(self) -> None:
        """End the process."""
        if self._socket.fileno() >= 0:  # else its number may be another process's by now
            self._socket.close()
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(asked: socket.socket, session: Session, run: Callable[[str], object]) -> NoReturn:
    """Answer until the parent ends."""
    try:
        for line in asked.makefile("r"):
            if not (child := os.fork()):
                _answer(asked, session, run, *json.loads(line))
            if os.waitpid(child, 0)[1]:
                asked.sendall(b"null")
    finally:
        os._exit(0)


def _answer(asked: socket.socket, session: Session, run: Callable[[str], object], name: str, threads: int) -> NoReturn:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LONGEST_S)
    try:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this process
        for stream in (1, 2):
            os.dup2(sys.stdout.fileno(), stream)
        session.become_plain(threads)
        run(name)
        asked.sendall(json.dumps(session.plain_s).encode())
        os._exit(0)
    finally:
        os._exit(1)
