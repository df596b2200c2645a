"""Output folders: what an earlier run left in one."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from ..errors import UsageError, clean
from .writer import Lock

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"


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
