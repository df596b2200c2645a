"""One measuring process: pytest on benchmark files, as a child that outlives neither us nor a second Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..ledger import Follower

POLL_S = 0.1
PACKAGE = Path(__file__).resolve().parent.parent


def suite() -> Path:
    """The folder of the project's own benchmarks: beside the package in a checkout, inside it once installed."""
    inside = PACKAGE / "benchmarks"
    return inside if inside.is_dir() else PACKAGE.parent / "benchmarks"


def command(paths: Sequence[Path], options: Sequence[str]) -> list[str]:
    """pytest's command line. For the suite's own files, names of cases don't depend on where it is started."""
    own = suite()
    arguments = [sys.executable, "-m", "pytest", "-p", "gpubench.plugin", "-p", "no:cacheprovider"]
    if all(path.is_relative_to(own) for path in paths):
        # A configuration file found by walking up from site-packages would be somebody else's.
        arguments += [f"--rootdir={own.parent}", "-c", os.devnull]
    return [*arguments, "--benchmark-only", "--benchmark-quiet", *options, *map(str, paths)]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: this package must be importable there even if it isn't installed."""
    parent = str(PACKAGE.parent)
    path = base.get("PYTHONPATH", "")
    if parent in sys.path and "site-packages" not in parent and parent not in path.split(os.pathsep):
        path = os.pathsep.join(filter(None, (parent, path)))
    return {**base, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


class Interrupted(Exception):
    """The user asked for an end, and the child has ended."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(arguments: Sequence[str], log: BinaryIO, ledger: Path, tell: Callable[[dict[str, Any]], None]) -> int:
    """Run the child, pass its events on as they come, and return its exit code.

    The child has a process group of its own, so that Ctrl-C reaches only us: we pass on the first, upon which pytest
    finishes and writes what it has; a second one kills. Raises :class:`Interrupted` once it has ended.
    """
    follower = Follower(ledger)
    group = 0 if os.name == "posix" else None
    child = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment(os.environ),
        process_group=group,
    )
    stops = 0

    def stop(_number: int, _frame: object) -> None:
        nonlocal stops
        stops += 1
        _signal(child, signal.SIGINT if stops == 1 else signal.SIGKILL)

    with _on_signals(stop):
        try:
            while child.poll() is None:
                for event in follower.events():
                    tell(event)
                time.sleep(POLL_S)
            for event in follower.events():
                tell(event)
        finally:
            if child.poll() is None:
                _signal(child, signal.SIGKILL)
                child.wait()
    if stops:
        raise Interrupted(child.returncode)
    return child.returncode


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if os.name != "posix":
            child.terminate()
        elif number == signal.SIGKILL:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


@contextlib.contextmanager
def _on_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
