"""Folders: what an earlier run left in one, and the runs in or below one, read from results files and journals."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from ..errors import RunFileError, UsageError
from .ledger import assemble, reached, read_ledger, stands
from .quantities import listed
from .reader import TOO_DEEP, Foreign, check_run, clean, cleaned, read
from .schema import Run
from .writer import Lock

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"
_LONGEST_MANIFEST = 1_000_000
MANIFEST = ".written-by-gpubench.json"
"""Lists the ``files`` that a report wrote, and the ``runs`` that it was made of, all relative to its folder."""
_JOURNAL = ".ledger.jsonl"
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
    return bool(_KEPT.fullmatch(path.name)) and (path.parent / LEDGER).exists()


def read_runs(paths: Iterable[str | Path], samples: bool = True) -> list[Run]:
    """The runs of :func:`runs`, each once though several files may be copies of it."""
    found: dict[bytes, Run] = {}
    for run in runs(paths, samples):
        found.setdefault(identity(run.path), run)
    return list(found.values())


def runs(paths: Iterable[str | Path], samples: bool = True) -> Iterator[Run]:
    """Read results files, journals, and folders of results files at any depth, in the order given.

    A folder that holds only a report stands for the runs that the report was made of. Where a run was interrupted, or
    has no results file, its journal is read, and how far it got is printed on stderr. Raises UsageError for a path
    without a run, RunFileError for a file that can't be trusted.
    """
    for path in map(Path, paths):
        if not os.path.exists(path):
            raise not_there(path)
        if path.is_dir():
            yield from _runs_in(path, samples)
        else:
            yield _journal(path, samples) if path.name.endswith(_JOURNAL) else read(path, samples)


def _runs_in(folder: Path, samples: bool) -> Iterator[Run]:
    """The runs in a folder; other JSON files are left out.

    Hidden folders hold environments and repositories, thousands of files, and no runs; earlier runs that an output
    folder keeps must be named. Unreadable files are named on stderr and skipped.
    """
    found, other = False, None
    files = {path: path for path in folder.rglob("*.json")}
    files |= {path.with_name(RUN_FILE): path for path in folder.rglob(LEDGER) if stands(path, RUN_FILE)}
    for named, path in sorted(files.items()):
        if any(part.startswith(".") for part in named.relative_to(folder).parts[:-1]) or is_kept(path):
            continue
        if not path.is_file() or not os.access(path, os.R_OK):  # a FIFO would be waited for
            print(f"gpubench: {clean(str(path))} is passed over: not a readable file", file=sys.stderr)
            continue
        try:
            run = read(path, samples) if path == named else _journal(path, samples)
        except Foreign as error:
            if "another tool" in str(error):
                print(f"gpubench: passed over: {error}", file=sys.stderr)
            other = other or path
            continue
        found = True
        yield run
    if found:
        return
    if not (reported := [Path(os.path.normpath(folder / name)) for name in listed_in(folder, "runs")]):
        only = f"; only other JSON such as {other.relative_to(folder)}" if other else ""
        expected = "*.json written by gpubench run or pytest --benchmark-json"
        raise UsageError(f"{folder}: no run file in this folder or those in it ({expected}){only}")
    if gone := [source for source in reported if not source.is_file()]:
        raise UsageError(f"{folder}: holds a report; its results file was {gone[0]}, which is not there any more")
    yield from runs(reported, samples)


def _journal(path: Path, samples: bool) -> Run:
    """The run of a journal, under the name of the results file that it would become."""
    events = read_ledger(path)
    try:
        run = check_run(path, cleaned(assemble(events)), samples)
    except (RunFileError, RecursionError) as error:
        why = error if isinstance(error, RunFileError) else TOO_DEEP
        raise RunFileError(f"{clean(str(path))}: {why}") from None
    processes = next((event["processes"] for event in events if event["event"] == "run"), 1)
    if progress := reached(events, processes):
        state, resume = "interrupted", f"; gpubench run --resume {path.parent}" if path.name == LEDGER else ""
        try:
            Lock(path.parent).release()
        except UsageError:
            state, resume = "under way", ""
        print(clean(f"gpubench: {path}: {state}{progress}{resume}"), file=sys.stderr)
    return structs.replace(run, path=path.with_name(path.name.removesuffix(_JOURNAL) + ".json"))


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


def listed_in(folder: Path, key: str) -> list[str]:
    """What the manifest of a report lists under this key; nothing where there is no manifest, or a foreign one."""
    names: Any = ()
    path = folder / MANIFEST
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST_MANIFEST:  # a FIFO would be waited for
            names = json.loads(path.read_text(encoding="utf-8"))[key]
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def identity(path: Path) -> bytes:
    """A key that is equal for copies of a file. A pipe is identified by its name, as it can't be read a second time."""
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else os.fsencode(path)
