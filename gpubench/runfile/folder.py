"""What an earlier run left in an output folder: a new one keeps it under another name; standard library only."""

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
from .reader import Foreign
from .schema import Run

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"
_KEPT = re.compile(r"run\.[1-9][0-9]*\.json")


class Earlier:
    """The run that was in ``folder``, if any: ``run.json`` and its ledger become ``run.1.json`` and so on.

    What was measured is not ours to throw away. What is said of it waits until the new run measures, since one that
    can't begin puts everything back. Raises UsageError while that run is under way.
    """

    def __init__(self, folder: Path) -> None:
        self._ledger = folder / LEDGER
        self._moved: list[tuple[Path, Path]] = []
        self._said = ""
        finished, measured = self._state()
        there = [path for path in (folder / RUN_FILE, self._ledger) if path.exists()]
        if not measured and folder / RUN_FILE not in there:
            self._ledger.unlink(missing_ok=True)
            return
        for number in itertools.count(1):
            names = [path.with_name(path.name.replace("run.", f"run.{number}.", 1)) for path in there]
            if not any((folder / name.replace("run.", f"run.{number}.", 1)).exists() for name in (RUN_FILE, LEDGER)):
                break
        try:
            for path, kept in zip(there, names, strict=True):
                path.rename(kept)
                self._moved.append((path, kept))
        except OSError as error:
            self._put_back()
            raise UsageError(f"{path}: can't be renamed: {error.strerror or error}") from None
        what = "a finished run" if finished else "an unfinished run"
        self._said = f"{what} was here: it is now {names[0]}" + "".join(f" and {name.name}" for name in names[1:])

    def _state(self) -> tuple[bool, bool]:
        """Whether the run is finished, and whether its ledger holds a result."""
        if not self._ledger.exists():
            return True, False
        Lock(self._ledger).release()
        try:
            seen = {event["event"] for event in read_ledger(self._ledger)}
        except RunFileError:
            return True, False
        return "complete" in seen, "end" in seen

    def announce(self) -> None:
        """Say once what became of it."""
        if self._said:
            print(f"gpubench run: {self._said}", file=sys.stderr)
        self._said = ""

    def restore(self) -> None:
        """Put it back: the run that was to come after it measured nothing, and leaves no ledger."""
        self._ledger.unlink(missing_ok=True)
        self._put_back()

    def _put_back(self) -> None:
        for path, kept in self._moved:
            kept.replace(path)
        self._moved.clear()


def kept(path: Path) -> bool:
    """Whether it is an earlier run that an output folder keeps: together with the latest it would pass for one more
    machine, or for more processes of the same code."""
    folder = path.parent
    return bool(_KEPT.fullmatch(path.name)) and (folder / RUN_FILE).exists() and (folder / LEDGER).exists()


# The run files of a folder, at any depth, and which files are copies of one. Standard library only.


def runs(folder: Path, read: Callable[[Path], Run]) -> Iterator[Run]:
    """In the order of their paths; ``gpubench run -o`` gives each run a folder of its own. Other JSON files are left
    out, unless there is nothing else: then one is named.

    Hidden folders hold environments and repositories, thousands of files, and no runs; earlier runs that an output
    folder keeps must be named. Raises UsageError for a folder without a run file, RunFileError for a file that is one
    and can't be trusted.
    """
    found, other = False, None
    for path in sorted(folder.rglob("*.json")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts[:-1]) or kept(path):
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
