"""One measuring process, as its supervisor sees it: a child that is started, watched and never outlives it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..runfile.journal import Follower
from ..runfile.ledger import Event, inner

INTERRUPTED, USAGE, NO_TESTS = 2, 4, 5
"""pytest's exit codes: interrupted, for options that it can't use, and where it has collected nothing."""
POLL_S = 0.05
PATIENCE_S = 2.0
"""Seconds that pytest may take to finish after an interrupt. Its results are on disk by then."""
FAREWELL_S = 5.0
"""Seconds that a child may take to end after its last benchmark: a thread that a case left, or a hook of pytest, may
never end."""
LOG_LIMIT, LOG_TAIL = 100 * 1024**2, 1024**2
"""Bytes of a log at which all but its end is cut off, as a test may print without end, and bytes of that end."""
SILENCE_S = 300.0
"""Seconds that a child may be silent between cases, while it imports torch, measures ceilings or ends. A longer
deadline replaces it."""
PACKAGE = Path(__file__).resolve().parent.parent
STACKS_ASKED: signal.Signals | None = getattr(signal, "SIGUSR2", None)
"""The signal that makes a child write what it is doing; ``None`` on Windows."""
STACKS_S = 1.0
"""Seconds that a child may take to do so."""
SUPERVISOR, JOURNAL = "GPUBENCH_SUPERVISOR", "GPUBENCH_JOURNAL"
"""Environment variables with the supervisor's process number (a child with another parent has lost its supervisor), and
with the path of the journal."""
MODULES = "GPUBENCH_MODULES"
"""Variable that makes a measuring process record the files of its modules."""


def suite() -> Path:
    """Return the folder of gpubench's own benchmarks: next to the package in a checkout, inside it once installed."""
    inside = PACKAGE / "benchmarks"
    return inside if inside.is_dir() else PACKAGE.parent / "benchmarks"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a child is started: its Python, its working folder (``None``: the supervisor's), what comes first on its
    import path, and whether its journal names the files of its modules."""

    python: str = sys.executable
    folder: Path | None = None
    imports: tuple[str, ...] = ()
    records_modules: bool = False


def pytest_command(paths: Sequence[str], options: Sequence[str], python: str = sys.executable) -> list[str]:
    """Return pytest's command line. Names of cases don't depend on the working folder: for gpubench's own suite through
    the options added here, for a project through ``options``, see :func:`.project.project_options`."""
    suite_folder = suite()
    # -P: a folder named gpubench in the working folder is another, and would be imported instead
    arguments = [python, "-P", "-m", "gpubench.supervise.child", "-p", "gpubench.plugin"]
    if all(Path(path.split("::")[0]).is_relative_to(suite_folder) for path in paths):
        # A configuration file found by walking up from site-packages would belong to another project.
        arguments += [f"--rootdir={suite_folder.parent}", "-c", os.devnull]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this package is imported before pytest
    # Nothing is captured: the last words of a crashing case must reach the log.
    arguments += ["-q", "-s", "--benchmark-only", "--benchmark-quiet", "-o", "addopts=", "-p", "no:cacheprovider"]
    return [*arguments, *options, *paths]


def by_torchrun(command: Sequence[str], ranks: int) -> list[str]:
    """Return the command that starts so many processes with the arguments of a measuring process, as ranks of one
    group."""
    launcher = [command[0], "-P", "-m", "gpubench.plugin.launcher"]
    how = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "--no-python"]
    return [*launcher, *how, *launcher, *command[4:]]


def _environment(imports: Sequence[str]) -> dict[str, str]:
    """Return the child's environment, in which this package can be imported even if it isn't installed. Raises
    UsageError if the working folder is gone."""
    parent = str(PACKAGE.parent)
    path = os.environ.get("PYTHONPATH", "")
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working folder has been removed: start in another one") from None
    known = {os.path.abspath(entry) for entry in sys.path}  # the working folder is in it as an empty text
    if parent in known and "site-packages" not in parent and parent not in path.split(os.pathsep):
        path = os.pathsep.join(filter(None, (parent, path)))
    path = os.pathsep.join(filter(None, (*imports, path)))
    changes = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", SUPERVISOR: str(os.getpid())}
    # A project's options for testing aren't for measuring; some are passed on, see project.project_options.
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return kept | changes


DIE_WITH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != {}:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def bound(arguments: Sequence[str]) -> Sequence[str]:
    """Return a command that ends with this process, on Linux, whichever Python runs it, or none."""
    if sys.platform != "linux":
        return arguments
    code = DIE_WITH.format(os.getpid()) + "os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-ISc", code, *arguments]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a measuring process ended, and why: ``finished`` if it wrote its last event, ``lingering`` if it was killed
    although all its benchmarks had ended. ``case`` is the one that was being measured, ``failure`` the reason that
    pytest gave in the journal."""

    code: int
    finished: bool = False
    lingering: bool = False
    interrupted: bool = False
    case: str | None = None
    status: str = "crashed"
    reason: str = ""
    failure: str = ""


def run_process(
    arguments: Sequence[str], log: Path, ledger: Path, on_event: Callable[[Event], None], deadline_s: float,
    interpreter: Interpreter = Interpreter(),
) -> ProcessEnd:  # fmt: skip
    """Run the child, pass its events on as they arrive, and return how it ended.

    The child has its own process group, so Ctrl-C reaches only this process, which passes on the first one, so that
    pytest finishes; a second one kills. The process is ended by a case that takes longer than ``deadline_s``, by
    silence between cases for longer than that and SILENCE_S, by FAREWELL_S without an end after its last benchmark, by
    the failure of a rank, by a line of its journal that can't be read, and by an exception from ``on_event``, which is
    raised again.
    """
    follower = Follower(ledger)
    child = _start(arguments, log, ledger, interpreter)
    watch = _Watch(child, log, deadline_s)
    with contextlib.closing(follower), _on_signals(watch.interrupt):
        try:
            alive = True
            while alive:
                alive = child.poll() is None  # asked before the events are read: the last ones must not be missed
                for event in follower.events():
                    watch.note(event)
                    on_event(event)
                watch.trim_log()
                watch.unreadable = follower.unreadable
                if alive and watch.is_overdue():
                    if watch.timeout or watch.lingering:
                        _ask_for_stacks(child, log)
                    _signal(child, kill=True)
                    child.wait()
                elif alive:
                    time.sleep(POLL_S)
        finally:
            _signal(child, kill=True)  # the child, and what it may have left behind
            child.wait()
    return watch.end()


def _start(arguments: Sequence[str], log: Path, ledger: Path, interpreter: Interpreter) -> subprocess.Popen[bytes]:
    with open(log if _is_regular(log) or not os.path.lexists(log) else os.devnull, "ab") as output:
        own = arguments[0] == sys.executable  # it asks by itself to end with this process
        return subprocess.Popen(
            arguments if own else bound(arguments), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            cwd=interpreter.folder,
            env=_environment(interpreter.imports)
            | {JOURNAL: os.path.abspath(ledger), MODULES: "1" * interpreter.records_modules},
            process_group=0 if os.name == "posix" else None,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )  # fmt: skip


class _Watch:
    """Tracks what a child does, and whether it takes too long."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path, deadline_s: float) -> None:
        self._child, self._log, self._deadline_s = child, log, deadline_s
        self._interrupts, self._interrupted_at, self._latest_event = 0, 0.0, time.monotonic()
        self._case: str | None = None
        self._log_start = _size(log)
        self._finished, self._code = False, None
        self._left: set[str] | None = None
        self._failure = ""
        self._rank: Event | None = None
        self.lingering = False
        self.unreadable = ""
        """Complaint about the first line of the journal that can't be read."""
        self.timeout = ""
        """Why a case, or the silence between two, has lasted too long."""

    def interrupt(self, _number: int, _frame: object) -> None:
        """Handle a signal: ask the child to finish, or kill it if it was asked before."""
        self._interrupts, self._interrupted_at = self._interrupts + 1, time.monotonic()
        _signal(self._child, kill=self._interrupts > 1)

    def note(self, event: Event) -> None:
        """Take an event of the child into account."""
        self._latest_event = time.monotonic()
        if event["event"] == "session":
            self._left = set(event["cases"]).difference(inner(event, "ranks", "cases") or ()) or None
        elif event["event"] == "start":
            self._case, self._log_start = event["fullname"], event.get("said") or self._log_start
        elif event["event"] == "end":
            self._case = None
            (self._left or set()).discard(event["fullname"])
        elif event["event"] == "rank":
            self._rank = self._rank or event
        elif event["event"] == "finish":
            self._finished, self._code = True, event.get("code")
        elif event["event"] == "failure":
            self._failure = event["reason"]

    def trim_log(self) -> None:
        """Cut off all of a log but its first line and its end, once it is too large."""
        if _size(self._log) > LOG_LIMIT and _is_regular(self._log):
            end = _tail(self._log, LOG_TAIL)
            with contextlib.suppress(OSError), self._log.open("r+b") as file:  # its writer appends
                head = file.readline(1000)
                file.seek(0)
                file.write(head + b"[cut off here: only the end of a long output is kept]\n" + end)
                file.truncate()
            self._log_start = 0

    def is_overdue(self) -> bool:
        """Whether the case, the silence, or the end of an interrupted or finished process has lasted too long, or its
        journal can't be read."""
        now = time.monotonic()
        limit_s = self._deadline_s if self._case else max(SILENCE_S, self._deadline_s)
        if self.unreadable or self._rank:
            return True
        if self._finished or (self._left == set() and not self._case):
            self.lingering = now - self._latest_event > FAREWELL_S
            return self.lingering
        if now - self._latest_event > limit_s:
            silent = f"idle, no output for {limit_s:g} s: killed"
            self.timeout = (
                f"stopped: not finished after {limit_s:g} s" if self._case else f"the measuring process was {silent}"
            )
        return bool(self.timeout or (self._interrupts and now - self._interrupted_at > PATIENCE_S))

    def end(self) -> ProcessEnd:
        """Return how the child ended, once it has."""
        code = self._child.returncode if self._code is None else self._code
        status = "timeout" if self.timeout else "error" if self._finished or self.unreadable else "crashed"
        why = "ended the measuring process" if self._finished else signal_or_code(code)
        said = self._failure or _last_line(self._log, self._log_start)
        reason = self.timeout or ": ".join(filter(None, (why, said)))
        if self.unreadable:
            reason = f"its journal can't be read, perhaps because json was changed: {self.unreadable}"
        if self._rank:
            status, reason = self._rank["status"], self._rank["reason"]
        how = self._finished, self.lingering, bool(self._interrupts)
        return ProcessEnd(code, *how, self._case, status, reason, self._failure)


def _ask_for_stacks(child: subprocess.Popen[bytes], log: Path) -> None:
    """Make a child that is about to be killed write the stacks of all its threads; wait a moment for it."""
    if STACKS_ASKED is None or child.poll() is not None:
        return
    before, latest = _size(log), time.monotonic() + STACKS_S
    with contextlib.suppress(OSError):
        child.send_signal(STACKS_ASKED)
    while _size(log) == before and time.monotonic() < latest:
        time.sleep(POLL_S)
    time.sleep(POLL_S)  # for the rest of the stacks


def signal_or_code(code: int) -> str:
    """Describe how a process ended, by its exit code."""
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"killed by {name}" + (", perhaps because memory ran out" if name == "SIGKILL" else "")
    return f"exited with {code}"


_MARKS = re.compile(r"[.sFExX]*")
"""pytest's marks of tests that have ended, which it may have begun a line with."""


def _last_line(log: Path, since: int) -> str:
    """Return the last line of a log after this position, or the line in which Python reports a fatal error."""
    size = _size(log)
    end = _tail(log, min(100_000, size - since if since <= size else size))  # it may have been cut off meanwhile
    lines = [line.strip() for line in end.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if not _MARKS.fullmatch(line)]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal[:1] or lines[-1:] or [""])[0][:300]


def _size(log: Path) -> int:
    with contextlib.suppress(OSError):  # a test may have removed it
        return log.stat().st_size
    return 0


def _is_regular(log: Path) -> bool:
    """Whether a log is a file, not a link, a folder or a pipe, which would be waited for, in its place."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(log.lstat().st_mode)
    return False


def _tail(log: Path, most: int = LOG_TAIL) -> bytes:
    """Return at most so many bytes of the end of a log; none where a test has removed or replaced it."""
    if _is_regular(log):
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(max(0, _size(log) - most))
            return file.read(most)
    return b""


def _signal(child: subprocess.Popen[bytes], *, kill: bool) -> None:
    """Ask pytest to finish, or end the child's whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            child.kill() if kill else child.send_signal(signal.CTRL_BREAK_EVENT)
        elif kill:
            os.killpg(child.pid, signal.SIGKILL)
        elif child.poll() is None:
            child.send_signal(signal.SIGINT)


@contextlib.contextmanager
def _on_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
