"""A worker: one rank of a local group, alive between cases, doing what it is sent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import GpubenchError, RankFailure
from . import progress
from .rendezvous import PATIENCE, Place, file_store, join, one_line


def main(connection: Connection, place: Place, store: str, deadline_s: float, counts: Any) -> None:
    """Join the group, then run each ``(function, arguments)`` that comes, until the other end closes."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    progress.tell_into(counts, place.rank)
    try:
        join(place, PATIENCE * deadline_s, file_store(store, place))
        progress.advance()
        _answer(connection, None)
        while True:
            function, arguments = connection.recv()
            try:
                answer = function(place, *arguments)
            except BaseException as error:
                _answer(connection, sendable(error, place.rank))
            else:
                _answer(connection, answer)
            progress.advance()
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
