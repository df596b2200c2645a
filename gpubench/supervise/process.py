"""One measuring process, as its supervisor sees it: a child that is started, watched and never outlives it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..runfile.ledger import Event, Follower, inner

INTERRUPTED, USAGE, NO_TESTS = 2, 4, 5
"""pytest's exit codes: interrupted, wrong options, and nothing collected."""
POLL_S, PATIENCE_S, FAREWELL_S, STACKS_S = 0.05, 2.0, 5.0, 1.0
"""Seconds between two looks at a child; seconds that pytest may take to finish after an interrupt, by which time its
results are on disk; to end after its last benchmark, since a thread of a case, or a hook of pytest, may never end; and
to write the stacks of its threads."""
SILENCE_S = 300.0
"""Seconds that a child may be silent between cases, while it imports torch, measures ceilings or ends. A longer
deadline replaces it."""
LOG_LIMIT, LOG_TAIL = 100 * 1024**2, 1024**2
"""Bytes of a log at which all but its end is cut off, as a test may print without end, and bytes of that end."""
PACKAGE = Path(__file__).resolve().parent.parent
SUPERVISOR, JOURNAL, MODULES = "GPUBENCH_SUPERVISOR", "GPUBENCH_JOURNAL", "GPUBENCH_MODULES"
"""Environment variables: the supervisor's process number (a child with another parent has lost its supervisor), the
path of the journal, and whether the journal names the files of the child's modules."""
DIE_WITH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != {}:
    os.kill(os.getpid(), signal.SIGKILL)
"""
_MARKS = re.compile(r"[.sFExX]*")
"""pytest's marks of tests that have ended, which may begin a line."""


def suite() -> Path:
    """Return the folder of gpubench's own benchmarks: next to the package in a checkout, inside it once installed."""
    inside = PACKAGE / "benchmarks"
    return inside if inside.is_dir() else PACKAGE.parent / "benchmarks"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a child is started: its Python, its working folder (``None``: the supervisor's), the folders that come first
    on its import path, and whether its journal names the files of its modules."""

    python: str = sys.executable
    folder: Path | None = None
    imports: tuple[str, ...] = ()
    records_modules: bool = False


def pytest_command(paths: Sequence[str], options: Sequence[str], python: str = sys.executable) -> list[str]:
    """Return pytest's command line. Names of cases don't depend on the working folder: for gpubench's own suite through
    the options added here, for a project through ``options``, see :func:`.project.project_options`."""
    suite_folder = suite()
    # -P: a folder named gpubench in the working folder is another, and would be imported instead
    arguments = [python, "-P", "-m", "gpubench.supervise.child", "-p", "gpubench.plugin", "-p", "benchmark"]
    if all(Path(path.split("::")[0]).is_relative_to(suite_folder) for path in paths):
        # A configuration file found by walking up from site-packages would belong to another project.
        arguments += [f"--rootdir={suite_folder.parent}", "-c", os.devnull]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this package is imported before pytest
    # Nothing is captured: the last words of a crashing case must reach the log.
    arguments += ["-q", "-s", "--benchmark-only", "--benchmark-quiet", "-o", "addopts=", "-p", "no:cacheprovider"]
    return [*arguments, *options, *paths]


def bound(arguments: Sequence[str]) -> Sequence[str]:
    """Return a command that ends with this process, on Linux, whichever program it is."""
    if sys.platform != "linux":
        return arguments
    code = DIE_WITH.format(os.getpid()) + "os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-ISc", code, *arguments]


def _environment(imports: Sequence[str]) -> dict[str, str]:
    """The child's, in which this package can be imported even if it isn't installed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working folder has been removed: start in another one") from None
    parent, path = str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")
    entries = {os.path.abspath(entry) for entry in sys.path}  # an empty text is the working folder
    needed = parent in entries and "site-packages" not in parent and parent not in path.split(os.pathsep)
    # A project's options for testing aren't for measuring; some are passed on, see project.project_options.
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    kept |= {"PYTHONPATH": os.pathsep.join(filter(None, (*imports, parent * needed, path)))}
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", SUPERVISOR: str(os.getpid())}


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a measuring process ended, and why: ``finished`` if it wrote its last event, ``lingering`` if it was killed
    although all its benchmarks had ended, ``unreadable`` because of its journal. ``case`` is the one that was being
    measured, ``failure`` the reason that pytest gave in the journal."""

    code: int
    finished: bool = False
    lingering: bool = False
    interrupted: bool = False
    unreadable: bool = False
    case: str | None = None
    status: str = "crashed"
    reason: str = ""
    failure: str = ""


def run_process(
    arguments: Sequence[str], log: Path, ledger: Path, on_event: Callable[[Event], None], deadline_s: float,
    interpreter: Interpreter = Interpreter(),
) -> ProcessEnd:  # fmt: skip
    """Run the child, pass its events on as they arrive, and return how it ended.

    The child has its own process group: the first Ctrl-C is passed on, so that pytest finishes, a second one kills. The
    process is ended by a case that takes longer than ``deadline_s``, by silence between cases for longer than that and
    SILENCE_S, by FAREWELL_S without an end after its last benchmark, by the failure of a rank, by a line of its journal
    that can't be read, and by an exception from ``on_event``, which is raised again, or KeyboardInterrupt after an
    interrupt.
    """
    with contextlib.closing(_Log(log)) as output, contextlib.closing(Follower(ledger)) as follower:
        own = arguments[0] == sys.executable  # it asks by itself to end with this process
        child = subprocess.Popen(
            arguments if own else bound(arguments), cwd=interpreter.folder,
            stdin=subprocess.DEVNULL, stdout=output.written, stderr=subprocess.STDOUT,
            env=_environment(interpreter.imports)
            | {JOURNAL: os.path.abspath(ledger), MODULES: "1" * interpreter.records_modules},
            process_group=0,
        )  # fmt: skip
        watch = _Watch(child, output, follower, deadline_s)
        with on_signals(watch.interrupt):
            try:
                alive = True
                while alive:
                    alive = child.poll() is None  # asked before the events are read: the last ones must not be missed
                    for event in takewhile(lambda _: not follower.unreadable, follower.events()):
                        watch.note(event)
                        on_event(event)
                    output.trim()
                    if alive and watch.is_overdue():
                        watch.kill()
                    elif alive:
                        time.sleep(POLL_S)
            except Exception:
                if watch.interrupted:
                    raise KeyboardInterrupt from None
                raise
            finally:
                _signal(child, kill=True)  # the child, and what it may have left behind
                child.wait()
        return watch.end()


class _Log:
    """The output of a child. Its file stays open, because a test may remove or replace it."""

    def __init__(self, path: Path) -> None:
        regular = not os.path.lexists(path) or stat.S_ISREG(path.lstat().st_mode)  # a pipe would be waited for
        self.written = open(path if regular else os.devnull, "ab")  # noqa: SIM115
        self._file = open(self.written.name, "r+b")  # noqa: SIM115

    def close(self) -> None:
        self._file.close()
        self.written.close()

    @property
    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _tail(self, most: int) -> bytes:
        self._file.seek(max(0, self.size - most))
        return self._file.read(most)

    def trim(self) -> None:
        """Cut off everything between the first line and the end of a log that is too large."""
        if self.size > LOG_LIMIT:
            end = self._tail(LOG_TAIL)
            self._file.seek(0)
            head = self._file.readline(1000)
            self._file.seek(0)
            with contextlib.suppress(OSError):  # on a full disk
                self._file.write(head + b"[cut off here: only the end of a long output is kept]\n" + end)
                self._file.truncate()

    def last_line(self, since: int) -> str:
        """Return the last line after this position, or the line in which Python reports a fatal error."""
        new = self.size - since if since <= self.size else self.size  # it may have been cut off meanwhile
        words = map(str.strip, self._tail(min(100_000, new)).decode("utf-8", "replace").splitlines())
        lines = [line for line in words if not _MARKS.fullmatch(line)]
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        return (fatal[:1] or lines[-1:] or [""])[0][:300]


class _Watch:
    """Tracks the cases of a child, and whether it takes too long."""

    def __init__(self, child: subprocess.Popen[bytes], log: _Log, follower: Follower, deadline_s: float) -> None:
        self._child, self._log, self._follower, self._deadline_s = child, log, follower, deadline_s
        self.interrupted, self._patient_until, self._latest_event = False, math.inf, time.monotonic()
        self._case: str | None = None
        self._left: set[str] | None = None
        self._log_start, self._lingering, self._timeout = log.size, False, ""
        self._reports: dict[str, Event] = {}

    def interrupt(self, _number: int, _frame: object) -> None:
        """Handle a signal: ask the child to finish, or kill it if it was asked before."""
        _signal(self._child, kill=self.interrupted)
        self.interrupted, self._patient_until = True, time.monotonic() + PATIENCE_S

    def note(self, event: Event) -> None:
        """Take an event of the child into account."""
        self._latest_event, kind = time.monotonic(), event["event"]
        if kind == "session":
            self._left = set(event["cases"]).difference(inner(event, "ranks", "cases") or ()) or None
        elif kind == "start":
            self._case, self._log_start = event["fullname"], event.get("said") or self._log_start
        elif kind == "end":
            self._case = None
            (self._left or set()).discard(event["fullname"])
        elif kind != "rank" or kind not in self._reports:  # the first rank that failed is the cause
            self._reports[kind] = event

    def is_overdue(self) -> bool:
        """Whether the case, the silence, or the end of an interrupted or finished process has lasted too long, or its
        journal can't be read."""
        now = time.monotonic()
        if self._follower.unreadable or "rank" in self._reports:
            return True
        if "finish" in self._reports or (self._left == set() and not self._case):
            self._lingering = now - self._latest_event > FAREWELL_S
            return self._lingering
        limit_s = self._deadline_s if self._case else max(SILENCE_S, self._deadline_s)
        if now - self._latest_event > limit_s:
            silence = f"the measuring process was idle, no output for {limit_s:g} s: killed"
            self._timeout = f"stopped: not finished after {limit_s:g} s" if self._case else silence
        return bool(self._timeout) or now > self._patient_until

    def kill(self) -> None:
        """End the child; one that hangs writes the stacks of its threads before."""
        if (self._timeout or self._lingering) and self._child.poll() is None:
            self._child.send_signal(signal.SIGUSR2)  # which the child handles so
            time.sleep(STACKS_S)
        _signal(self._child, kill=True)
        self._child.wait()

    def end(self) -> ProcessEnd:
        """Return how the child ended, once it has."""
        finish, failure = self._reports.get("finish"), inner(self._reports.get("failure"), "reason") or ""
        code = inner(finish, "code")
        code = self._child.returncode if code is None else code
        why = "ended the measuring process" if finish else signal_or_code(code)
        status = "timeout" if self._timeout else "error" if finish or self._follower.unreadable else "crashed"
        said = failure or self._log.last_line(self._log_start)
        reason = self._timeout or ": ".join(filter(None, (why, said)))
        if self._follower.unreadable:
            reason = f"its journal can't be read, perhaps because json was changed: {self._follower.unreadable}"
        if rank := self._reports.get("rank"):
            status, reason = rank["status"], rank["reason"]
        ended = bool(finish), self._lingering, self.interrupted, bool(self._follower.unreadable)
        return ProcessEnd(code, *ended, self._case, status, reason, failure)


def signal_or_code(code: int) -> str:
    """Describe how a process ended, by its exit code."""
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"killed by {name}" + (", perhaps because memory ran out" if name == "SIGKILL" else "")
    return f"exited with {code}"


def _signal(child: subprocess.Popen[bytes], *, kill: bool) -> None:
    """Ask pytest to finish, or end the child's whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if kill:
            os.killpg(child.pid, signal.SIGKILL)
        elif child.poll() is None:
            child.send_signal(signal.SIGINT)


@contextlib.contextmanager
def on_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and, unless nohup has started this process, SIGHUP within this context."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    numbers += [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
