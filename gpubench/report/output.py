"""The output folder: refused early, filled at the end, never left; standard library only."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import UsageError
from ..runfile.writer import replace

CHARTS = "charts"
MANIFEST = ".written-by-gpubench.json"
"""Lists the tables and charts that a report wrote. Earlier versions had it in charts/, and listed only these."""
TABLES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html")
"""Those that every report writes."""
_OURS = re.compile(r"[a-z]+\.(csv|md|html)|charts/[A-Za-z0-9][A-Za-z0-9._-]*\.(svg|png)")


def prepare_folder(folder: Path) -> None:
    """Make the folder if need be, and try it. Raises UsageError where no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = "it is no folder" if folder.is_file() else getattr(error, "strerror", None) or error
        raise UsageError(f"{folder}: can't write there: {why}") from None


def save_report(folder: Path, tables: Mapping[str, str], charts: Mapping[str, bytes]) -> list[Path]:
    """Write everything, and remove what an earlier report left there and this one no longer has.

    Only files named in the manifest of that earlier report are removed or replaced: what others put there stays.
    Raises UsageError before anything is written.
    """
    prepare_folder(folder)
    pictures = folder / CHARTS
    if charts or pictures.exists():
        if pictures.is_symlink():
            raise UsageError(f"{pictures}: is a link; charts are written inside {folder} only")
        prepare_folder(pictures)
    drawn = {f"{CHARTS}/{name}" for name in charts}
    require_ours(folder, [*tables, *drawn])
    for name in _ours(folder) - {*tables, *drawn}:
        with suppress(OSError):
            (folder / name).unlink()
    # first: a report that is killed must not leave files that no later one would replace
    replace(folder / MANIFEST, (json.dumps(sorted({*tables, *drawn}), indent=1) + "\n").encode())
    with suppress(OSError):
        (pictures / MANIFEST).unlink()
    # a file name may hold bytes that are no text
    files = {folder / name: text.encode(errors="replace") for name, text in tables.items()}
    files |= {pictures / name: content for name, content in charts.items()}
    for path, content in files.items():
        replace(path, content)
    return list(files)


def file_names(titles: Iterable[str]) -> list[str]:
    """A file name of plain letters for each title, no two alike even where case doesn't count."""
    names: list[str] = []
    for title in titles:
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", title).strip("-.")[:80] or "chart"
        name, count = stem, 1
        while name.lower() in (taken.lower() for taken in names):
            count += 1
            name = f"{stem}-{count}"
        names.append(name)
    return names


def require_ours(folder: Path, names: Iterable[str]) -> None:
    """Raise UsageError if one of these files is there and wasn't written by a report."""
    ours = _ours(folder)
    for name in names:
        path = folder / name
        if name not in ours and (path.exists() or path.is_symlink()):
            raise UsageError(
                f"{path}: was not written by gpubench and would be replaced: move it, or choose another -o"
            )


def _ours(folder: Path) -> set[str]:
    """The files that a report wrote, relative to its folder. Of earlier versions, which kept no list of tables: all
    tables beside their list of charts, or where none of the four that they always wrote is missing."""
    listed = _names(folder / MANIFEST)
    drawn = {f"{CHARTS}/{name}" for name in _names(folder / CHARTS / MANIFEST)}
    ours = {name for name in listed | drawn if _OURS.fullmatch(name)}
    if drawn or (not listed and all((folder / name).is_file() for name in TABLES)):
        ours |= {*TABLES, "scaling.csv"}
    return ours


def _names(manifest: Path) -> set[str]:
    try:
        names = json.loads(manifest.read_text())
    except (OSError, ValueError, RecursionError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
