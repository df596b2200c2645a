"""The progress of a run: its devices, a line for each finished benchmark and, in a terminal, a bar."""

from __future__ import annotations

import datetime
import functools
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import clean
from ..runfile.ledger import Event, inner
from ..runfile.matching import shown_name
from ..runfile.quantities import counted, estimate_text, seconds_text, shorten
from ..runfile.schema import KEY, OK

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

START_S, FURTHER = 4.0, 0.5
"""Seconds that a process takes besides its cases: it imports torch, collects, ends (measured on two cores, preset
quick). And the time of a case in a further process as a share of its time in the first: rounds are shared, results
aren't checked again."""
EVERY_S, LONG_S = 15.0, 10.0
"""Seconds between two lines while benchmarks are repeated in further processes; and the seconds after which a line is
printed about a benchmark that is still being measured."""
LONGEST = 120
"""Most characters of a name on the screen."""


def whole_s(first_s: float, processes: int) -> float:
    """Return the seconds of a whole run, with ``first_s`` for cases and ceilings in its first process."""
    return processes * START_S + first_s * (1 + FURTHER * (processes - 1))


class Progress:
    """Prints a run's events on stderr; ``reasons`` holds, for each reason, the benchmarks without a time.

    The bar is drawn at each event, by no thread of its own, which would wake on the cores that are measured.
    """

    _timer = threading.Timer(0.0, print)  # is never started

    def __init__(self, command: str = "gpubench run", resume: str = "") -> None:
        """``resume`` is the command that continues the run."""
        self.reasons: defaultdict[str, list[str]] = defaultdict(list)
        self._command, self._resume, self._deadline_s, self._processes = command, resume, 0.0, 1
        self._cases: Sequence[str] = ()
        self._estimated_s, self._opened, self._latest_line = 0.0, False, time.monotonic()
        self._ended: dict[int, set[str]] = defaultdict(set)  # full names by process

    def expect(self, processes: int, events: Sequence[Event], deadline_s: float = 0.0) -> None:
        """Set the number of the run's processes, the ``events`` of an interrupted run that is resumed, and the seconds
        that a benchmark may take."""
        self._deadline_s, self._processes = deadline_s, processes
        if self._resume:
            _ = self._bar  # its library is imported before anything is measured
        for event in events:
            self._count(event)

    def note(self, event: Event) -> None:
        """Print one event of the journal."""
        self.watch(event)
        counts = self._count(event)
        if event["event"] == "session" and not self._opened:  # a process may continue after another one's crash
            self._opened = True
            for line in (*map(str, event.get("notices") or ()), self._opening(event)):
                self._say(line)
            self._bar.start()
        elif counts:
            name, process = _name(event), event["process"]
            if event.get("reason"):
                self.reasons[f"{event['status']}: {event['reason']}"].append(name)
            if not process and event["status"] != "skipped":
                self._say("  ".join([self._place, shorten(name, LONGEST), _cell(event), self._left_text]))
            elif process and self._bar.disable and time.monotonic() - self._latest_line >= EVERY_S:
                done = f"{len(self._ended[process])} of {len(self._cases)}"
                self._say(f"process {process + 1} of {self._processes}: {done}, {self._left_text}")

    def watch(self, event: Event) -> None:
        """Print a line later about a benchmark that begins, unless it ends before."""
        if event["event"] in ("start", "end"):
            self._timer.cancel()
        if event["event"] == "start" and self._deadline_s > LONG_S:
            ways = f"It stops by itself after {self._deadline_s:g} s; Ctrl-C stops it now."
            line = f"{self._command}: still working on {shorten(_name(event), LONGEST)} ({LONG_S:g} s). {ways}"
            self._timer = threading.Timer(LONG_S, print, (line,), {"file": sys.stderr, "flush": True})
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Remove the bar, and print nothing about the latest benchmark."""
        self._timer.cancel()
        if self._opened:
            self._bar.stop()

    def why_not(self, status: str = "", most: int = 5) -> list[str]:
        """Return the most frequent reasons for missing times, each with the first benchmark that it applies to."""
        reasons = {why: [*dict.fromkeys(names)] for why, names in self.reasons.items() if why.startswith(status)}
        frequent = sorted(reasons, key=lambda why: -len(reasons[why]))
        lines = [
            f"{shorten(first, LONGEST)}{f' and {len(others)} more' * bool(others)}: {why}"
            for why, (first, *others) in ((why, reasons[why]) for why in frequent[:most])
        ]
        return lines + [f"… and {counted(len(reasons) - most, 'other reason')}"] * (len(reasons) > most)

    @functools.cached_property
    def _bar(self) -> Bar:
        """The bar: disabled outside of a terminal that understands control codes, where it estimates the time alone."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        plain = not sys.stderr.isatty() or console.is_dumb_terminal or bool(os.environ.get("NO_COLOR"))
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), "·", TimeRemainingColumn(), "left"
        how: dict[str, Any] = {"transient": True, "speed_estimate_period": 1e9}  # the pace of the whole run
        bar = Progress(*columns, console=console, auto_refresh=False, disable=plain, **how)
        bar.add_task("")
        return bar

    @property
    def _place(self) -> str:
        return f"[{len(self._ended[0]):>{len(str(len(self._cases)))}}/{len(self._cases)}]"

    @property
    def _left_text(self) -> str:
        seconds = self._bar.tasks[0].time_remaining
        return f"{datetime.timedelta(seconds=round(self._estimated_s if seconds is None else seconds))} left"

    def _count(self, event: Event) -> bool:
        """Take the cases of the first session, or a benchmark that has ended in a process. Return whether it has, for
        the first time: it may be tried again."""
        task, further = self._bar.tasks[0], FURTHER * (self._processes - 1)
        if event["event"] == "session" and not self._cases:
            self._cases = event["cases"]
            self._estimated_s = whole_s(float(event.get("estimated_s") or 0.0), self._processes)
            self._bar.update(task.id, total=len(self._cases) * (1 + further))
        if event["event"] != "end" or event["fullname"] in self._ended[event["process"]]:
            return False
        self._ended[event["process"]].add(event["fullname"])
        if event["status"] == OK:
            self._bar.advance(task.id, FURTHER if event["process"] else 1.0)
        elif not event["process"]:  # the other processes won't try it
            task.total = (task.total or 0.0) - 1 - further  # update() would forget the pace
        self._bar.update(task.id, description=self._place, refresh=True)
        return True

    def _opening(self, session: Event) -> str:
        """Return the first line: devices, number of benchmarks, time, and that the run may be stopped."""
        machine: dict[str, Any] = inner(session, "machine_info", KEY) or {}
        devices = [
            f"{_short_name(device.get('name', '?'))} ({device.get('label') or 'unknown'}"
            + f", {counted(machine.get('threads') or 1, 'thread')}" * (device.get("name") == "cpu")
            + ")"
            for device in machine.get("devices") or ()
        ]
        where = f"Devices: {', '.join(devices)}. " if devices else ""
        many = f" in {self._processes} processes" if self._processes > 1 else ""
        done = f", {len(self._ended[0])} of them done" if self._ended[0] else ""
        seconds = estimate_text(round(self._estimated_s * (1 - self._bar.tasks[0].percentage / 100)) or 1)
        ending = f" Ctrl-C is safe: {self._resume} continues." if self._resume else ""
        return f"{where}{counted(len(self._cases), 'benchmark')}{many}{done}, about {seconds} on idle cores.{ending}"

    def _say(self, line: str) -> None:
        self._latest_line = time.monotonic()
        print(clean(line), file=sys.stderr, flush=True)


def _short_name(device: str) -> str:
    return "CPU" if device == "cpu" else device


def _name(event: Event) -> str:
    """Return the name of the benchmark that has begun or ended, without the dtype that is the default."""
    case = inner(event, "benchmark", "extra_info", KEY) or inner(event, "case")
    ident = str(inner(case, "id") or event.get("fullname") or event.get("name"))
    return shown_name(clean(ident)).removesuffix("[float32]")


def _cell(end: Event) -> str:
    """Return the device, the library if it isn't torch, and the time or the reason why there is none."""
    case = inner(end, "benchmark", "extra_info", KEY) or inner(end, "case")
    device, library = _short_name(str(inner(case, "device") or "")), str(end.get("library") or "")
    median_s = inner(end, "benchmark", "stats", "median") if end["status"] == OK else None
    time_or_reason = seconds_text(median_s) if median_s else f"{end['status']}: {end.get('reason') or ''}".rstrip(": ")
    return " ".join(filter(None, (device, library, time_or_reason)))
