"""Measures a run with as many processes as it needs, so that a failing case neither stops the run nor loses a
result."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import GpubenchError, RunFileError, Unwritten, UsageError, clean
from ..runfile.ledger import LEDGER, Event, Ledger, assemble, missing, read_ledger
from ..runfile.quantities import counted
from ..runfile.reader import check_run
from ..runfile.schema import SCHEMA_VERSION
from ..runfile.writer import Lock, is_own, keep, scratch, without_paths
from . import process

_NOT_FOR_PUBLISHING = "a log of this machine, with paths: publish run.json instead"


class Unable(GpubenchError):
    """Raised if the measuring process ended before any case began: ``code`` is its exit code, ``failure`` pytest's
    reason, and ``status`` timeout if the process hung."""

    def __init__(self, code: int, reason: str, status: str = "crashed", failure: str = "") -> None:
        super().__init__(reason)
        self.code, self.status, self.failure = code, status, failure


def read_run(ledger: Path) -> tuple[Event, list[Event]]:
    """Return the run that a journal describes, and all its events, checked like a results file. Raises RunFileError for
    a journal that can't be resumed, UsageError for one that was begun elsewhere, unless a user at a terminal agrees:
    its files and options are code, and may come from anybody."""
    events = read_ledger(ledger)
    run = next((event for event in events if event["event"] == "run"), None)
    if run is None:
        raise RunFileError(f"{ledger}: file: expected a run of gpubench run")
    words = [*run["options"], *run["paths"]]
    if not run["paths"] or not all(map(os.path.isabs, run["paths"])) or "\0" in "".join(words):
        raise RunFileError(f"{ledger}: run.paths: expected absolute paths")
    if any(event["event"] == "session" for event in events):
        check_run(ledger, assemble(events))
    mine = all(map(is_own, (ledger, ledger.absolute().parent)))
    if (run.get("inode"), run.get("device")) != _place(ledger) or not mine:
        what = f"{ledger}: this run was started elsewhere; resuming executes: pytest {shlex.join(words)}"
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if terminal:
            print(f"gpubench run: {clean(what)}\nRun that? [y/N] ", end="", file=sys.stderr, flush=True)
        if not terminal or sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError(f"{what}; refused: confirmation needs a terminal")
    return run, events


def _place(ledger: Path) -> tuple[int, int]:
    """Return the numbers of the file and of its file system: a copy has others, also on a disk of another machine."""
    facts = ledger.stat()
    return facts.st_ino, facts.st_dev


def planned(paths: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """Return the ``cases`` of a run, and the ``estimated_s`` of its first process. Raises :class:`Unable` if there are
    no cases."""
    with scratch("gpubench-list-") as folder:
        plan = folder / "plan.json"
        arguments = process.pytest_command(paths, [*options, f"--gpubench-plan={plan}"])
        ended = process.run_process(arguments, folder / "log", folder / LEDGER, lambda event: None, 120.0)
        facts: dict[str, Any] = json.loads(plan.read_text(encoding="utf-8")) if plan.exists() else {}
    if not facts.get("cases"):
        raise Unable(ended.code, ended.reason, failure=ended.failure)
    return facts


@dataclass
class Supervisor:
    """A run in progress. ``events`` are the events of its ledger so far, also from before it was resumed."""

    folder: Path
    paths: Sequence[str]
    options: Sequence[str]
    processes: int
    deadline_s: float
    on_event: Callable[[Event], None]
    events: list[Event] = field(default_factory=list)
    interrupted: bool = False
    lock: Lock | None = None
    interpreter: process.Interpreter = field(default_factory=process.Interpreter)
    command: Callable[[Sequence[str], Sequence[str], str], list[str]] = field(
        default_factory=lambda: process.pytest_command
    )

    def __post_init__(self) -> None:
        self.ledger, self.log = self.folder / LEDGER, self.folder / "run.log"
        self._began_as = _place(self.ledger) if self.ledger.is_file() else None

    def begin(self) -> None:
        """Record the run's options and the file's place for :func:`read_run`."""
        self.append()  # without events, so that the file has a place
        self._began_as = inode, device = _place(self.ledger)
        terms: dict[str, Any] = {"processes": self.processes, "options": self.options, "paths": self.paths}
        terms |= {"deadline_s": self.deadline_s, "inode": inode, "device": device, "note": _NOT_FOR_PUBLISHING}
        self.append({"event": "run", "schema_version": SCHEMA_VERSION} | terms)

    def append(self, *events: Event) -> None:
        """Write events of its own into the journal. Raises UsageError if the journal can't be written."""
        with contextlib.closing(Ledger(self.ledger)) as ledger:
            for event in events:
                ledger.add_event(**event)

    def measure(self) -> None:
        """Measure everything that is missing, in each process the benchmarks of one rank first, then of several ranks,
        in one launch. Raises :class:`Unable` if nothing can be measured, UsageError if it must not be."""
        for index in range(self.processes):
            for ranks in (False, True):
                while not self.interrupted and (todo := self._missing(index, ranks)) != []:
                    if not self._measure(index, ranks, todo):
                        break

    def _missing(self, index: int, ranks: bool) -> list[str] | None:
        names, of_ranks = missing(self.events, index), set(self._ranks.get("cases", ()))
        return None if names is None else [name for name in names if (name in of_ranks) == ranks]

    @property
    def _ranks(self) -> Event:
        """The benchmarks of several ranks, and how many ranks these need."""
        return next((event["ranks"] for event in self.events if event.get("ranks")), {})

    def _measure(self, index: int, ranks: bool, todo: Sequence[str] | None) -> bool:
        """Measure with one child; return whether another could measure the rest."""
        options = [
            *self.options,
            f"--gpubench-ledger={self.ledger.absolute()}",
            f"--gpubench-process={index}/{self.processes}",
        ]
        command = self.command(self.paths, options, self.interpreter.python)
        if ranks:
            launcher = [command[0], "-P", "-m", "gpubench.plugin.launcher"]
            how = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={self._ranks['count']}", "--no-python"]
            command = [*launcher, *how, *launcher, *command[4:]]
        ended = process.run_process(command, self.log, self.ledger, self._take, self.deadline_s, self.interpreter)
        lost = ended.unreadable or not self.has_journal()
        if self.lock and self.events and lost:  # turns of a comparison have no folder of theirs
            self._write_again()
        self.interrupted = ended.interrupted
        if self.interrupted:
            return False
        if ended.case:
            self._write_end(index, ended)
        elif ended.code == process.NO_TESTS and todo is not None:
            if index < 2:  # said once, of the second process
                name = todo[0].rpartition("::")[2] + f" and {len(todo) - 1} more" * (len(todo) > 1)
                self._say(f"{name}: another id in each process (a random value, a set or an address in it): not"
                          " measured in every process")  # fmt: skip
            return False
        if self._missing(index, ranks) == todo:  # it had no result, and another try wouldn't either
            left = f"{counted(len(todo), 'benchmark')} not measured: {todo[0]} …" if ended.finished and todo else ""
            why = (left,) if left else (ended.reason, ended.status, ended.failure)
            raise Unable(ended.code, *why)
        if ended.lingering and not ended.case:
            limit = f"no end within {process.FAREWELL_S:g} s of its last benchmark"
            self._say(f"the measuring process was killed: {limit}")
        elif ended.status == "timeout" and not ended.case:
            self._say(ended.reason)
        return True

    def _say(self, text: str) -> None:
        print(clean(f"gpubench: {text}"), file=sys.stderr)

    def has_journal(self) -> bool:
        """Whether the file that the run was begun with, or resumed from, is still there."""
        with contextlib.suppress(OSError):
            return not self.ledger.is_symlink() and _place(self.ledger) == self._began_as
        return False

    def _write_again(self) -> None:
        """Write the journal, which a test has changed or removed, from the events that are here."""
        self._say(f"{self.ledger} was changed or removed while it was measured: written again")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.has_journal():
                self.ledger.unlink()
            keep([self.ledger] if os.path.lexists(self.ledger) else [])
        except (OSError, UsageError) as error:
            raise Unwritten(f"{self.ledger}: can't be written: {getattr(error, 'strerror', error)}") from None
        self.begin()
        self.append(*(event for event in self.events if event["event"] != "run"))

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def _write_end(self, index: int, ended: process.ProcessEnd) -> None:
        """Record how the last case of a dead process ended."""
        begun = next(e for e in reversed(self.events) if e["event"] == "start" and e["fullname"] == ended.case)
        end: Event = {"event": "end", "process": index, "fullname": ended.case, "status": ended.status}
        end |= {"reason": without_paths(ended.reason), "case": begun["case"]}
        self.append(end)
        self._take(end)
