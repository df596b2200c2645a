"""Output folders: what an earlier run left in one."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from ..errors import UsageError

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"


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
