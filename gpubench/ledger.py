"""An append-only file of JSON lines: what a measuring process has done, readable while it runs and after it died.

Standard library only. One line is one event, a dictionary with the key ``event``:

``session``   before the first case: ``cases`` (how many), ``predicted_s``
``start``     a case begins: ``fullname``, ``id``, ``device``
``end``       it has ended: ``fullname``, ``status``, ``reason``, ``median_s``, ``elapsed_s``
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Ledger:
    """Appends events; each is on disk before :meth:`append` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path.open("a", encoding="utf-8")

    def append(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, **facts}, allow_nan=False)
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Follower:
    """Reads a ledger that another process is still writing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._read = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """The events added since the last call; a line not yet complete is left for the next."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return
        complete = text[: text.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            event = json.loads(line)
            if isinstance(event, dict):
                yield event
