"""The folder of a report: checked early, written at the end. It is new, empty, or gpubench's own, and then files
are replaced."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError
from ..runfile.ledger import LEDGER, RUN_FILE
from ..runfile.writer import Lock, is_drawn, replace

MANIFEST = ".written-by-gpubench.json"
"""A file that marks a folder as gpubench's."""
_MARKS = (MANIFEST, RUN_FILE, LEDGER, "run.log")
"""Each folder that gpubench has written has one of these files."""
_WAIT_S = 60.0
"""Seconds that a report waits for another one that is being written into the same folder."""
SCALING = "scaling.csv"
"""A table that a report has only where several devices were used."""
_PICTURES = "charts"
"""Folder for the pictures of a report."""


def prepare_folder(folder: Path) -> None:
    """Make the folder if need be, and try it. Raises UsageError where no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = "it is no folder" if folder.is_file() else getattr(error, "strerror", None) or error
        raise UsageError(f"{folder}: can't write there: {why}") from None


def require_ours(folder: Path) -> None:
    """Raise UsageError for a folder with files, if none shows that gpubench has written there."""
    names = {name for name in os.listdir(folder) if not name.startswith(".")}
    if names and not any(os.path.lexists(folder / mark) for mark in _MARKS):
        foreign = "holds other files and no results of gpubench: choose a new or empty folder with -o"
        raise UsageError(f"{folder}: {foreign}")


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write the files of a report by their relative paths, each in one step, and remove the pictures and tables of an
    earlier report that this one lacks. Raises UsageError before anything is written."""
    prepare_folder(folder)
    inner = folder / _PICTURES
    if inner.is_symlink():
        raise UsageError(f"{inner}: is a link; files are written inside {folder} only")
    lock = Lock(folder, wait_s=_WAIT_S)
    require_ours(folder)
    if inner.exists() or any(name.startswith(f"{_PICTURES}/") for name in files):
        prepare_folder(inner)
        for path in inner.iterdir():
            if f"{_PICTURES}/{path.name}" not in files and is_drawn(path):
                path.unlink()
    if SCALING not in files:
        (folder / SCALING).unlink(missing_ok=True)
    for name, content in {MANIFEST: b"{}\n", **files}.items():  # a file name in a text may hold bytes that are none
        replace(folder / name, content.encode(errors="replace") if isinstance(content, str) else content)
    lock.release()
    return [folder / name for name in files]
