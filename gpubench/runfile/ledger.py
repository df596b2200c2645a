"""The ledger: an append-only file of JSON lines from which a run file can be made at any moment.

What is in it survives the process that wrote it: each line is on disk before the next thing happens. A line is one
event, an object with the key ``event``:

``run``       by the supervisor, first: ``schema_version``, ``processes``, ``options`` and ``paths`` for pytest
``session``   a measuring process begins: ``process``, ``cases`` (their full names), ``fingerprint``, and what a run
              file says of machine, options and time
``start``     a case begins: ``process``, ``fullname``, ``name``, ``case``
``end``       it has ended: ``process``, ``fullname``, ``status``, and ``benchmark`` (as pytest-benchmark writes it) or
              ``reason``
``finish``    a measuring process has ended by itself: ``process``, ``after``; ``poisoned`` if a device is unusable
``complete``  by the supervisor, last: the run file was written

A crash can leave a last line unfinished. Such a line is ignored; what follows it starts on a line of its own.
Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import RunFileError, UsageError
from .reader import Allowance, clean, shallow
from .schema import OK, SCHEMA_VERSION

EVENTS = frozenset({"run", "session", "start", "end", "finish", "complete"})
LARGEST_LEDGER = 128 * 1024**2
LONGEST_LINE = 8 * 1024**2
MOST_LEDGER_GROUPS = 800_000  # a run of a thousand cases in three processes has 100,000
MOST_PROCESSES = 9999

Event = dict[str, Any]


class Ledger:
    """Appends events; each is on disk before :meth:`append` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self._writer = Path(path), os.getpid()
        try:
            self._file = self.path.open("a+b", buffering=0)
            self._file.seek(0, os.SEEK_END)
            if self._file.tell():
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":  # a writer before us was killed in the middle of a line
                    self._write(b"\n")
        except OSError as error:
            raise UsageError(f"{self.path}: can't be written: {error.strerror or error}") from None

    def append(self, event: str, **facts: Any) -> None:
        """Raises UsageError when the disk won't take it: better to stop than to measure what can't be kept."""
        if os.getpid() != self._writer:
            os._exit(1)  # forked by a case, it would go on as a second pytest and write each result twice
        line = json.dumps({"event": event, **facts}, allow_nan=False) + "\n"
        try:
            self._write(line.encode())
        except OSError as error:
            raise UsageError(f"{self.path}: can't be written: {error.strerror or error}") from None

    def _write(self, content: bytes) -> None:
        while content:
            content = content[self._file.write(content) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; what was written is on disk already."""
        with suppress(OSError):
            self._file.close()


class Lock:
    """Held on a ledger while its run is under way; gone with the process that holds it. Raises UsageError if taken.

    Not the package filelock: many of its versions empty the file that they lock, and a second file for the lock would
    stay behind when a run is killed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - held as long as this object
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on this system
            pass
        except OSError:
            self._file.close()
            raise UsageError(f"{Path(path).parent}: a run is under way there") from None

    def release(self) -> None:
        """Let another run begin."""
        self._file.close()


class Follower:
    """Reads a ledger that another process is still writing."""

    def __init__(self, path: str | os.PathLike[str], *, begin: bool = False) -> None:
        """From where the ledger ends now, or from its ``begin``."""
        self.path = Path(path)
        self._read = self.path.stat().st_size if self.path.exists() and not begin else 0

    def events(self) -> Iterator[Event]:
        """The events added since the last call; a line not yet complete is left for the next."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._read)
            for line in iter(lambda: file.readline(LONGEST_LINE), b""):
                whole = line.endswith(b"\n")
                if not whole and len(line) < LONGEST_LINE:
                    return
                self._read += len(line)
                event = _event(line) if whole else None
                if event is not None:
                    yield event


def read_ledger(path: str | os.PathLike[str]) -> list[Event]:
    """All whole events of a ledger. Raises RunFileError, naming file, line and what was expected."""
    path = Path(path)
    name = clean(str(path))
    events = []
    size, allowance = 0, Allowance(groups=MOST_LEDGER_GROUPS)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                size += len(line)
                if size > LARGEST_LEDGER:
                    raise RunFileError(f"{name}: file: expected at most {LARGEST_LEDGER // 1024**2} MiB")
                if not allowance.covers(line):
                    raise RunFileError(f"{name}: line {number}: expected fewer values than are in it and before it")
                if line.endswith(b"\n") and line.strip() and (event := _event(line)) is not None:
                    events.append(_checked(event, f"{name}: line {number}"))
    except OSError as error:
        raise RunFileError(f"{name}: file: expected a readable ledger ({error.strerror or error})") from None
    if not any(event["event"] in ("run", "session") for event in events):
        raise RunFileError(f"{name}: file: expected a ledger, found neither a run nor a session in it")
    return events


def missing(events: Iterable[Event], process: int) -> list[str] | None:
    """Full names of the cases that this process has still to end; ``None`` before they are known.

    The first process takes all; what gave it no number, the others needn't try.
    """
    cases: list[str] | None = None
    ends: dict[int, dict[str, str]] = {0: {}, process: {}}
    for event in events:
        if event["event"] == "session" and cases is None:
            cases = event["cases"]
        elif event["event"] == "end" and event["process"] in ends:
            ends[event["process"]][event["fullname"]] = event["status"]
    if cases is None:
        return None
    return [name for name in cases if name not in ends[process] and (process == 0 or ends[0].get(name) == OK)]


def _event(line: bytes) -> Event | None:
    """The event of a line, or ``None`` for one that was cut off."""
    try:
        event = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or not shallow(event):
        return None
    return event if event["event"] in EVENTS else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


_NEEDED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "run": {"processes": int, "options": list, "paths": list},
    "session": {"process": int, "cases": list, "fingerprint": dict, "machine_info": dict, "gpubench": dict},
    "start": {"process": int, "fullname": str, "name": str, "case": dict},
    "end": {"process": int, "fullname": str, "status": str},
    "finish": {"process": int},
    "complete": {},
}


def _checked(event: Event, place: str) -> Event:
    for key, kind in _NEEDED[event["event"]].items():
        value = event.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = getattr(kind, "__name__", str(kind))
            raise RunFileError(f"{place}: {event['event']}.{key}: expected {wanted}")
        if isinstance(value, int) and not 0 <= value <= MOST_PROCESSES:
            raise RunFileError(f"{place}: {event['event']}.{key}: expected a number from 0 to {MOST_PROCESSES}")
    if "schema_version" in event and event["schema_version"] != SCHEMA_VERSION:
        raise RunFileError(f"{place}: schema_version: expected {SCHEMA_VERSION}")
    if event["event"] == "end" and event["status"] == "ok" and not isinstance(event.get("benchmark"), dict):
        raise RunFileError(f"{place}: end.benchmark: expected a measured case")
    if any(not isinstance(name, str) for name in event.get("cases", ())):
        raise RunFileError(f"{place}: session.cases: expected names")
    return event
