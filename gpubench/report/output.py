"""The folder of a report: it is checked early, written at the end, and files that gpubench didn't write are never
replaced."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..runfile.writer import Lock, is_drawn, replace

MANIFEST, _LONGEST_MANIFEST = ".written-by-gpubench.json", 1_000_000
"""A list of the ``files`` that a report wrote, relative to its folder, and the most bytes that are read of one."""
_WAIT_S = 60.0
"""Seconds that a report waits for another one that is being written into the same folder."""
TABLES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html")
"""What every report writes."""
_PICTURES = "charts"
"""Folder for the pictures of a report."""
_PICTURE = re.compile(rf"{_PICTURES}/[A-Za-z0-9][A-Za-z0-9._-]*\.(svg|png)")
"""Names of pictures that a manifest may contain, besides the tables: another program may have written it."""


def prepare_folder(folder: Path) -> None:
    """Make the folder if need be, and try it. Raises UsageError where no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = "it is no folder" if folder.is_file() else getattr(error, "strerror", None) or error
        raise UsageError(f"{folder}: can't write there: {why}") from None


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write the files of a report by their relative paths, each in one step, and remove those that an earlier report
    wrote and this one hasn't. Raises UsageError before anything is written."""
    prepare_folder(folder)
    inner = folder / _PICTURES
    if inner.is_symlink():
        raise UsageError(f"{inner}: is a link; files are written inside {folder} only")
    if inner.exists() or any(name.startswith(f"{_PICTURES}/") for name in files):
        prepare_folder(inner)
    lock = Lock(folder, wait_s=_WAIT_S)
    require_ours(folder, files)
    for name in _ours(folder) - {*files, MANIFEST}:
        (folder / name).unlink(missing_ok=True)
    # first: a report that is killed must not leave files that no later one would replace
    replace(folder / MANIFEST, (json.dumps({"files": sorted(files)}, indent=1) + "\n").encode())
    for name, content in files.items():  # a file name in a text may hold bytes that are none
        replace(folder / name, content.encode(errors="replace") if isinstance(content, str) else content)
    lock.release()
    return [folder / name for name in files]


def require_ours(folder: Path, names: Iterable[str]) -> None:
    """Raise UsageError if one of these files is there and wasn't written by a report."""
    ours = _ours(folder)
    for name in (*names, MANIFEST):
        path = folder / name
        if name not in ours and os.path.lexists(path):
            why = "was not written by gpubench and would be replaced: move it, or choose another -o"
            raise UsageError(f"{path}: {why}")


def _ours(folder: Path) -> set[str]:
    """Return the names of the files in ``folder`` that a report wrote; a link or a folder of that name isn't one of
    them."""
    listed: Any = ()
    path = folder / MANIFEST
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST_MANIFEST:  # a FIFO would be waited for
            listed = json.loads(path.read_text(encoding="utf-8"))["files"]
    listed = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    names = {name for name in listed if name in (*TABLES, "scaling.csv")} | ({MANIFEST} if listed else set())
    names |= {name for name in listed if _PICTURE.fullmatch(name) and is_drawn(folder / name)}
    return {name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()}
