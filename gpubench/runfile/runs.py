"""Find runs: results files, journals, and folders of them."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import structs

from ..errors import RunFileError, UsageError, clean
from . import ledger
from .ledger import LEDGER, RUN_FILE, read_ledger
from .quality import judged
from .quantities import listed
from .reader import MOST_NAMED, Foreign, Unrelated, beginning, check_run, cleaned, read_file
from .schema import Run
from .writer import Lock

_JOURNAL = ".ledger.jsonl"
_KEPT = re.compile(r"run\.[1-9][0-9]*\.json")


def read(path: str | os.PathLike[str], samples: bool = True) -> Run:
    """Read a results file, without ``samples`` if so. Raises RunFileError for a file that is missing, truncated,
    foreign or inconsistent."""
    return judged(read_file(Path(path), samples))


def read_runs(paths: Iterable[str | Path], samples: bool = True) -> Iterator[Run]:
    """Read results files, journals, and folders of results files at any depth, in the order given.

    Where a run was interrupted, or has no results file, its journal is read, and how far it got is printed on stderr. A
    copy of a file counts once, as does a file beside its journal. Without ``samples`` runs have none: a thousand runs'
    don't fit in memory. Raises UsageError for a path without a run, RunFileError for a file that can't be trusted, and
    if no file has a benchmark.
    """
    known: dict[bytes | Path, Path] = {}
    empty = True
    for path in map(Path, paths):
        for run in _runs_at(path, samples):
            empty = empty and not run.results
            place, shown = run.path.resolve(), run.path if path.is_dir() else path
            if first := known.get(run.digest) or known.get(place):
                print(clean(f"gpubench: {shown} holds the run of {first}: counted once"), file=sys.stderr)
            else:
                known |= {run.digest: shown, place: shown}
                yield run
    if known and empty:
        files = listed(dict.fromkeys(map(str, known.values())), MOST_NAMED)
        raise RunFileError(f"{files}: benchmarks: expected a benchmark, found none")


def _runs_at(path: Path, samples: bool) -> Iterator[Run]:
    if path.is_fifo() and path.absolute().parts[1:2] not in (("dev",), ("proc",)):  # a shell's <(…) is there
        raise UsageError(f"{path}: a named pipe may never be written to: copy it to a file first")
    if os.path.isdir(path):
        yield from _runs_in(path, samples)
    elif os.path.exists(path):
        yield read_journal(path, samples) if path.name.endswith(_JOURNAL) else read(path, samples)
    else:
        hint = f": gpubench run -o {path} makes one" * (not path.suffix)
        raise UsageError(f"{path}: no such file or folder{hint}")


def _runs_in(folder: Path, samples: bool) -> Iterator[Run]:
    """The runs in a folder, without hidden folders (environments, repositories) and the earlier runs that it keeps,
    which would count as more machines or processes. Unreadable files are named on stderr."""
    is_empty, other = True, None
    files = {path: path for path in folder.rglob("*.json")}
    files |= {path.with_name(RUN_FILE): path for path in folder.rglob(LEDGER) if _stands(path)}
    for place, path in sorted(files.items()):
        hidden = any(part.startswith(".") for part in place.relative_to(folder).parts[:-1])
        if hidden or (_KEPT.fullmatch(path.name) and (path.parent / LEDGER).exists()):
            continue
        if not path.is_file() or not os.access(path, os.R_OK):  # a FIFO would be waited for
            print(clean(f"gpubench: {path} is passed over: not a readable file"), file=sys.stderr)
            continue
        try:
            run = read(path, samples) if path == place else read_journal(path, samples)
        except Foreign as error:
            if not isinstance(error, Unrelated):
                print(clean(f"gpubench: passed over: {error}"), file=sys.stderr)
            other = other or path
            continue
        is_empty = False
        yield run
    if is_empty:
        only = f"; only other JSON such as {other.relative_to(folder)}" if other else ""
        expected = "*.json written by gpubench run or pytest --benchmark-json"
        raise UsageError(f"{folder}: no run file in this folder or those in it ({expected}){only}")


def _stands(path: Path) -> bool:
    """Whether a journal stands for a run: by its first and last line a ``gpubench run`` that never ended, or one
    without a results file beside it."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return False
    with path.open("rb") as file:
        begun = file.read(len(ledger.BEGINS)) == ledger.BEGINS
        file.seek(max(0, path.stat().st_size - len(ledger.COMPLETE)))
        return begun and (file.read() != ledger.COMPLETE or not path.with_name(RUN_FILE).exists())


def read_journal(path: Path, samples: bool = True) -> Run:
    """The run of a journal, under the name of the results file that it would become."""
    events = read_ledger(path)
    if not any(event["event"] == "session" for event in events):
        kept = [file.name for file in sorted(path.parent.glob("run.*.json")) if _KEPT.fullmatch(file.name)]
        beside = f"; results of earlier runs beside it: {listed(kept, MOST_NAMED)}" if kept else ""
        raise Foreign(f"{path}: its run was ended before any benchmark began{beside}")
    with beginning(path):
        root = cleaned(ledger.assemble(events))
    processes = next((event["processes"] for event in events if event["event"] == "run"), 1)
    if progress := ledger.reached(events, processes):
        state, resume = "interrupted", f"; gpubench run --resume {path.parent}" if path.name == LEDGER else ""
        try:
            Lock(path.parent).release()
        except UsageError:
            state, resume = "under way", ""
        print(clean(f"gpubench: {path}: {state}{progress}{resume}"), file=sys.stderr)
    name = path.with_name(path.name.removesuffix(_JOURNAL) + ".json")
    run = judged(check_run(path, root, samples))
    return structs.replace(run, path=name, digest=hashlib.sha256(path.read_bytes()).digest())
