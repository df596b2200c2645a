"""Waiting for a run under test to get somewhere: by what its ledger says, never by the clock."""

import time
from pathlib import Path


def wait_for(ledger: Path, event: str, count: int = 1, seconds: float = 120) -> None:
    """Return when the ledger holds so many of these events; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ledger.exists() and ledger.read_text().count(f'"event": "{event}"') >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{ledger}: no {count} {event!r} within {seconds} s")
