"""Waiting for a run under test to get somewhere: by its ledger, never by the clock."""

import time
from pathlib import Path

import psutil


def wait_for(ledger: Path, event: str, count: int = 1, seconds: float = 120) -> None:
    """Return when the ledger holds so many of these events; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ledger.exists() and ledger.read_text().count(f'"event": "{event}"') >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{ledger}: no {count} {event!r} within {seconds} s")


def survivors(folder: Path, seconds: float = 30) -> list[list[str]]:
    """Command lines of processes that name the folder or work in it and didn't end by themselves in time.

    A process that ends because its owner did does so a moment later, a busy machine's moment being a long one.
    """
    end = time.monotonic() + seconds
    while (left := _of(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _of(folder: Path) -> list[list[str]]:
    return [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline", "cwd", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and str(folder) in " ".join([process.info["cwd"] or "", *(process.info["cmdline"] or [])])
    ]
