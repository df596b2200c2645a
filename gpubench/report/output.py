"""The output folder: refused early, filled at the end, never left; standard library only."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import UsageError
from ..wholefile import replace

CHARTS = "charts"
MANIFEST = ".written-by-gpubench.json"
_CHART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(svg|png)")


def prepare(folder: Path) -> None:
    """Make the folder if need be, and try it. Raises UsageError where no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}: can't write there: {getattr(error, 'strerror', None) or error}") from None


def save(folder: Path, tables: Mapping[str, str], charts: Mapping[str, bytes]) -> list[Path]:
    """Write everything, and remove the charts that an earlier report left there and this one no longer has.

    Only files named in the manifest of that earlier report are removed: what others put there stays.
    """
    prepare(folder)
    pictures = folder / CHARTS
    if charts or pictures.exists():
        if pictures.is_symlink():
            raise UsageError(f"{pictures}: is a link; charts are written inside {folder} only")
        prepare(pictures)
    stale = _written(pictures) - set(charts)
    for name in stale:
        with suppress(OSError):
            (pictures / name).unlink()
    # a file name may hold bytes that are no text
    files = {folder / name: text.encode(errors="replace") for name, text in tables.items()}
    files |= {pictures / name: content for name, content in charts.items()}
    if charts or stale:
        files[pictures / MANIFEST] = (json.dumps(sorted(charts), indent=1) + "\n").encode()
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


def _written(pictures: Path) -> set[str]:
    try:
        names = json.loads((pictures / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return set()
    entries = names if isinstance(names, list) else []
    return {name for name in entries if isinstance(name, str) and _CHART.fullmatch(name)}
