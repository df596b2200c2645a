"""Measures a run with as many processes as it takes, so that nothing measured is lost and nothing stops the run."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import GpubenchError
from ..format import counted
from ..runfile.folder import LEDGER
from ..runfile.ledger import Event, Ledger, Lock
from ..runfile.schema import OK
from ..runfile.writer import without_paths
from . import process


class Unable(GpubenchError):
    """The measuring process ended before any case began: ``code`` is its exit code, ``status`` timeout if it hung."""

    def __init__(self, code: int, reason: str, status: str = "crashed") -> None:
        super().__init__(reason)
        self.code, self.status = code, status


@dataclass
class Supervisor:
    """A run under way. ``events`` are those of its ledger so far, of a run that is resumed too."""

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

    def __post_init__(self) -> None:
        self.ledger = self.folder / LEDGER
        self.log = self.folder / "run.log"
        """What the measuring processes print."""

    def measure(self) -> None:
        """Measure all that is missing. Raises :class:`Unable` if nothing can be, UsageError if it must not be."""
        for index in range(self.processes):
            self._measure_share(index)
            if self.interrupted:
                return

    def _measure_share(self, index: int) -> None:
        while (todo := self.missing(index)) is None or todo:
            ended = self._start(index, todo)
            self.interrupted = ended.interrupted
            if self.interrupted:
                return
            if ended.case:
                self._write_end(index, ended)
            if self.missing(index) == todo:  # nothing came of it, and nothing would of another try
                if ended.finished and todo is not None:
                    raise Unable(ended.code, f"{counted(len(todo), 'benchmark')} not measured: {todo[0]} …")
                raise Unable(ended.code, ended.reason, ended.status)
            if ended.status == "timeout" and not ended.case:
                print(f"gpubench run: {ended.reason}", file=sys.stderr)

    def missing(self, index: int) -> list[str] | None:
        """Cases that this process has still to end; ``None`` before they are known.

        The first process takes all; what gave it no number, the others needn't try.
        """
        sessions = [event for event in self.events if event["event"] == "session"]
        if not sessions:
            return None
        ends = [event for event in self.events if event["event"] == "end"]
        cases: list[str] = list(sessions[0]["cases"])
        if index:
            sound = {event["fullname"] for event in ends if event["process"] == 0 and event["status"] == OK}
            cases = [name for name in cases if name in sound]
        done = {event["fullname"] for event in ends if event["process"] == index}
        return [name for name in cases if name not in done]

    def _start(self, index: int, todo: list[str] | None) -> process.ProcessEnd:
        options = [*self.options, f"--gpubench-ledger={self.ledger}", f"--gpubench-process={index}/{self.processes}"]
        with tempfile.TemporaryDirectory(prefix="gpubench-", ignore_cleanup_errors=True) as scratch:
            if todo is not None:
                only = Path(scratch) / "only.json"
                only.write_text(json.dumps(todo), encoding="utf-8")
                options.append(f"--gpubench-only={only}")
            command = process.pytest_command(self.paths, options, self.interpreter.python)
            return process.run_process(command, self.log, self.ledger, self._take, self.deadline_s, self.interpreter)

    def _take(self, event: Event) -> None:
        """Note an event of the child."""
        self.events.append(event)
        self.on_event(event)

    def _write_end(self, index: int, ended: process.ProcessEnd) -> None:
        """Write down for a dead process what it can't: how its last case ended."""
        begun = next(e for e in reversed(self.events) if e["event"] == "start" and e["fullname"] == ended.case)
        end: Event = {"event": "end", "process": index, "fullname": ended.case, "status": ended.status}
        reason = ended.reason if "--gpubench-identify" in self.options else without_paths(ended.reason)
        end |= {"reason": reason, "case": begun["case"]}
        ledger = Ledger(self.ledger)
        ledger.append(**end)
        ledger.close()
        self._take(end)
