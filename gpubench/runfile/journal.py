"""Read journals: the events of a run that ended, was interrupted, or is under way."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, defstruct

from ..errors import RunFileError, clean
from . import ledger
from .ledger import LONGEST_LINE, Event
from .quantities import listed
from .reader import MOST_NAMED, beginning, convert, decoded, excess
from .schema import OK, SCHEMA_VERSION, Benchmark

_Number, _Count = Annotated[int, Meta(ge=0, le=9999)], Annotated[int, Meta(ge=1, le=9999)]
_Ranks = defstruct("ranks", [("cases", list[str]), ("count", _Count)])
_FIELDS: dict[str, list[Any]] = {
    "run": [("processes", _Count), ("options", list[str]), ("paths", list[str]),
            ("deadline_s", Annotated[float, Meta(gt=0)] | None, None)],
    "session": [("process", _Number), ("cases", list[str]), ("fingerprint", dict), ("machine_info", dict),
                ("gpubench", dict), ("estimated_s", float | None, None), ("ranks", _Ranks | None, None)],
    "start": [("process", _Number), ("fullname", str), ("name", str), ("case", dict)],
    "end": [("process", _Number), ("fullname", str), ("status", str), ("library", str | None, None)],
    "failure": [("reason", str)],
    "rank": [("status", str), ("reason", str)],
    "finish": [("process", _Number)],
    "complete": [],
}  # fmt: skip
_KINDS = {name: defstruct(name, fields, kw_only=True) for name, fields in _FIELDS.items()}
_MEASURED = defstruct("end", [("benchmark", Benchmark)], bases=(_KINDS["end"],), kw_only=True)
EVENTS = frozenset(_KINDS)


def read_ledger(path: str | os.PathLike[str]) -> list[Event]:
    """All usable events of a ledger; lines that can't be used are named on stderr and passed over, so that ``--resume``
    measures their cases again. Raises RunFileError, which names the file, the line and the expectation."""
    path = Path(path)
    events: list[Event] = []
    unusable, size, values = [], 0, 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                size, values = size + len(line), values + line.count(b",")
                with beginning(f"{path}: line {number}"):
                    if too_large := excess(size, values):
                        raise RunFileError(f"expected {too_large}")
                    try:
                        event = event_of(line)
                    except RunFileError as error:
                        if line.startswith(ledger.BEGINS):  # it says what is executed
                            raise
                        unusable.append(f"line {number} is passed over: {error}")
                        continue
                    version = event.get("schema_version", SCHEMA_VERSION) if event else SCHEMA_VERSION
                    if version != SCHEMA_VERSION:
                        found = f"found {version!r:.60}: the gpubench that began the run can finish it"
                        raise RunFileError(f"schema_version: expected {SCHEMA_VERSION}, {found}")
                events += [event] if event else []
    except OSError as error:
        raise RunFileError(f"{path}: file: expected a readable ledger ({error.strerror or error})") from None
    if not any(event["event"] == "session" for event in events) and (unusable or not events):
        why = unusable[0] if unusable else "file: expected a ledger, found neither a run nor a session in it"
        raise RunFileError(f"{path}: {why}")
    if unusable:
        print(clean(f"gpubench: {path}: {listed(unusable, MOST_NAMED, '; ')}"), file=sys.stderr)
    return events


class Follower:
    """Reads a journal that another process is still writing, from its present end or as a ``whole``. It stays open,
    since a benchmark may remove it. ``unreadable`` is the complaint about the first line that can't be read."""

    def __init__(self, path: str | os.PathLike[str], whole: bool = False) -> None:
        self._path, self._file, self.unreadable = Path(path), None, ""
        if self._path.exists():
            self._file = self._path.open("rb")
            self._file.seek(0, os.SEEK_SET if whole else os.SEEK_END)

    def events(self) -> Iterator[Event]:
        """The events added since the last call; a line not yet complete is left for the next."""
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        for line in iter(lambda: self._file.readline(LONGEST_LINE) if self._file else b"", b""):
            if self._file and not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                self._file.seek(-len(line), os.SEEK_CUR)
                return
            try:
                if line.strip() and (event := event_of(line)):  # a line that is empty follows one that was cut off
                    yield event
            except RunFileError as error:
                self.unreadable = self.unreadable or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def recorded(path: str | os.PathLike[str]) -> list[Event]:
    """The events that a journal holds now; none where it isn't there."""
    with closing(Follower(path, whole=True)) as follower:
        return list(follower.events())


def event_of(line: bytes) -> Event | None:
    """The event of a line, or ``None`` for one that is cut off, or of another version. Raises RunFileError, which names
    the test if there is one, for a line that can't be used."""
    if not line.endswith(b"\n"):
        return None
    try:
        event = decoded(line)
    except (ValueError, RecursionError, MemoryError):
        raise RunFileError("expected an event, found no whole JSON") from None
    if not isinstance(event, dict) or not isinstance(kind := event.get("event"), str) or kind not in EVENTS:
        return None
    try:
        convert(event, _MEASURED if kind == "end" and event.get("status") == OK else _KINDS[kind], kind)
    except RunFileError as error:
        name = event.get("fullname")
        raise RunFileError(f"{name[:200]}: {error}" if isinstance(name, str) else str(error)) from None
    return event
