"""The run files of a folder, at any depth, and which files are copies of one. Standard library only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from .earlier import kept
from .errors import UsageError
from .records import Run
from .runfile import Foreign


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
