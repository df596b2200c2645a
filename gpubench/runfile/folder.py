"""Output folders: what an earlier run left in one, and the run files in or below one."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import RunFileError, UsageError
from .ledger import Lock, read_ledger
from .reader import Foreign, clean
from .schema import Run

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"
_KEPT = re.compile(r"run\.[1-9][0-9]*\.json")


class Earlier:
    """The run that was in ``folder``, if any: ``run.json`` and its ledger become ``run.1.json`` and so on.

    A finished run is never lost. The notice about it waits until the new run measures, since a run that can't begin
    puts everything back. Raises UsageError while the earlier run is under way.
    """

    def __init__(self, folder: Path) -> None:
        self._ledger = folder / LEDGER
        self._moved: list[tuple[Path, Path]] = []
        self._notice = ""
        events = self._events()
        present = [path for path in (folder / RUN_FILE, self._ledger) if path.exists()]
        if folder / RUN_FILE not in present and "end" not in events:  # it measured nothing
            self._ledger.unlink(missing_ok=True)
            return
        numbers = (str(number) for number in itertools.count(1))
        number = next(
            n for n in numbers if not any(_numbered(folder / name, n).exists() for name in (RUN_FILE, LEDGER))
        )
        for path in present:
            try:
                self._moved.append((path, path.rename(_numbered(path, number))))
            except OSError as error:
                self._put_back()
                raise UsageError(f"{path}: can't be renamed: {error.strerror or error}") from None
        state = "a finished run" if "complete" in events or self._ledger not in present else "an unfinished run"
        first, *others = (kept for _, kept in self._moved)
        self._notice = f"{state} was here: it is now {first}" + "".join(f" and {other.name}" for other in others)

    def _events(self) -> set[str]:
        """Kinds of events in its ledger; of one that can't be read, those of a finished run."""
        if not self._ledger.exists():
            return set()
        Lock(self._ledger).release()
        try:
            return {event["event"] for event in read_ledger(self._ledger)}
        except RunFileError:
            return {"complete"}

    def announce(self) -> None:
        """Say once where it is now."""
        if self._notice:
            print(f"gpubench run: {self._notice}", file=sys.stderr)
        self._notice = ""

    def restore(self) -> None:
        """Put it back: the new run measured nothing, and leaves no ledger."""
        self._ledger.unlink(missing_ok=True)
        self._put_back()

    def _put_back(self) -> None:
        for path, kept in self._moved:
            kept.replace(path)
        self._moved.clear()


def _numbered(path: Path, number: str) -> Path:
    return path.with_name(path.name.replace("run.", f"run.{number}.", 1))


def kept(path: Path) -> bool:
    """Whether it is an earlier run that an output folder keeps: together with the latest it would pass for one more
    machine, or for more processes of the same code."""
    folder = path.parent
    return bool(_KEPT.fullmatch(path.name)) and (folder / RUN_FILE).exists() and (folder / LEDGER).exists()


def runs(folder: Path, read: Callable[[Path], Run]) -> Iterator[Run]:
    """The run files of a folder, at any depth, in the order of their paths; other JSON files are left out.

    Hidden folders hold environments and repositories, thousands of files, and no runs; earlier runs that an output
    folder keeps must be named. What is no readable file is named on stderr and passed over. Raises UsageError for a
    folder without a run file, RunFileError for a file that is one and can't be trusted.
    """
    found, other = False, None
    for path in sorted(folder.rglob("*.json")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts[:-1]) or kept(path):
            continue
        if not path.is_file() or not os.access(path, os.R_OK):  # a FIFO would be waited for
            print(f"gpubench: {clean(str(path))} is passed over: not a readable file", file=sys.stderr)
            continue
        try:
            run = read(path)
        except Foreign:
            other = other or path
            continue
        found = True
        yield run
    if not found:
        only = f"; only other JSON such as {other.relative_to(folder)}" if other else ""
        raise UsageError(
            f"{folder}: no run file in this folder or those in it (*.json written by gpubench run or pytest"
            f" --benchmark-json){only}"
        )


def identity(path: Path) -> bytes:
    """The same for copies of a file. A pipe is known by its name: it can't be read a second time."""
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else os.fsencode(path)
