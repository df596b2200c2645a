"""Output folders: what an earlier run left in one, and the run files in or below one."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import UsageError
from .quantities import listed
from .reader import Foreign, clean
from .schema import Run
from .writer import Lock

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"
_MOST_NAMED = 4
_KEPT = re.compile(r"run\.[1-9][0-9]*\.json")


class Earlier:
    """The run that was in ``folder``, if any: ``run.json`` and its ledger become ``run.1.json`` and so on. Raises
    UsageError while another run is under way; ``lock`` keeps others out."""

    def __init__(self, folder: Path) -> None:
        self.lock = Lock(folder)
        self._ledger = folder / LEDGER
        self._moved = keep([path for path in (folder / RUN_FILE, self._ledger) if os.path.lexists(path)])

    def announce(self) -> None:
        """Print where the earlier run is now."""
        if self._moved:
            places = " and ".join(str(kept) for _, kept in self._moved)
            print(clean(f"gpubench run: an earlier run was here: it is now {places}"), file=sys.stderr)

    def restore(self) -> None:
        """Put the earlier run back and release the lock: the new run measured nothing, and leaves no ledger."""
        self._ledger.unlink(missing_ok=True)
        for path, kept in self._moved:
            kept.replace(path)
        self.lock.release()


def keep(paths: list[Path]) -> list[tuple[Path, Path]]:
    """Rename files to the first number that is free for all: ``run.json`` to ``run.1.json``. Returns the old names and
    the new. Raises UsageError."""
    for number in itertools.count(1):
        moves = [(path, path.with_name(f".{number}.".join(path.name.split(".", 1)))) for path in paths]
        if not any(os.path.lexists(new) for _, new in moves):
            break
    for old, new in moves:
        try:
            old.rename(new)
        except OSError as error:
            raise UsageError(f"{old}: can't be renamed: {error.strerror or error}") from None
    return moves


def is_kept(path: Path) -> bool:
    """Whether the file is an earlier run that an output folder keeps: read together with the latest, it would count as
    one more machine, or as more processes of the same code."""
    folder = path.parent
    return bool(_KEPT.fullmatch(path.name)) and (folder / RUN_FILE).exists() and (folder / LEDGER).exists()


def runs(folder: Path, read: Callable[[Path], Run]) -> Iterator[Run]:
    """The run files of a folder, at any depth, in the order of their paths; other JSON files are left out.

    Hidden folders hold environments and repositories, thousands of files, and no runs; earlier runs that an output
    folder keeps must be named. Unreadable files are named on stderr and skipped. Raises UsageError for a folder without
    a run file, RunFileError for a file that is one and can't be trusted.
    """
    found, other = False, None
    for path in sorted(folder.rglob("*.json")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts[:-1]) or is_kept(path):
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
        expected = "*.json written by gpubench run or pytest --benchmark-json"
        raise UsageError(f"{folder}: no run file in this folder or those in it ({expected}){only}")


def not_there(path: Path) -> UsageError:
    """The error for a path that doesn't exist, which lists the results files in the nearest folder that does."""
    folder = path.parent
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    files = (each for each in (*folder.glob("*.json"), *folder.glob(f"*/{RUN_FILE}")) if each.is_file())
    known = sorted(each for each in files if not each.name.startswith(".") and not is_kept(each))
    names = listed((clean(str(each)) for each in known), _MOST_NAMED) or "no results file"
    where = "this folder" if folder == Path() else clean(str(folder))
    return UsageError(f"{clean(str(path))}: no such file or folder; in {where}: {names}")


def identity(path: Path) -> bytes:
    """A key that is equal for copies of a file. A pipe is identified by its name, as it can't be read a second time."""
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else os.fsencode(path)
