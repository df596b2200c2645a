"""The progress of a run: its devices, each finished benchmark once, and the time left."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..errors import clean
from ..runfile.ledger import Event, inner
from ..runfile.matching import shown_name
from ..runfile.quantities import counted, seconds_text, shorten, text
from ..runfile.schema import KEY, OK

START_S = 4.0
"""Seconds that a process takes besides its cases: it imports torch, collects, ends. Measured on two cores, preset
quick."""
FURTHER = 0.5
"""Time of a case in a further process as a share of that in the first: rounds are shared, results aren't checked
again."""
EVERY_S = 15.0
"""Seconds between two lines while benchmarks are repeated in further processes."""
LONG_S = 10.0
"""Seconds after which a line is printed about a benchmark that is still being measured."""
LONGEST = 120
"""Most characters of a name on the screen."""
TRUSTED = 0.1
"""Once this share of the estimate is done, the rest is assumed to go at the same pace."""


def whole_s(first_s: float, processes: int) -> float:
    """Return the seconds of a whole run whose first process spends ``first_s`` on cases and ceilings."""
    return processes * START_S + first_s * (1 + FURTHER * (processes - 1))


def clock_text(seconds: float) -> str:
    """Return seconds as minutes, ``6:32``, or with hours, ``1:06:32``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def estimate_text(value: float | None) -> str:
    """Return seconds with two digits, since an estimate has no more: ``270 µs``, ``0.7 s``, ``13 s``."""
    if value is not None and value >= 60:
        return seconds_text(value)
    return f"{value:.2g} s" if value and value >= 0.095 else text(value, "s", 2)


class TimeLeft:
    """Estimates the seconds left: first from the estimate alone, soon from the estimate at the pace so far."""

    def __init__(self) -> None:
        self.done, self.processes, self.estimated_s = 0, 1, 0.0
        self._first, self._further = 0, 0  # measurements still to come: of the first process, and of the others
        self._begun = 0  # processes
        self._start_s = START_S  # per process: a suite may import more than torch
        self._case_s = 0.0  # per case in the first process
        self._passed_s, self._took_s = 0.0, 0.0  # estimate of the measured cases, and the time that they took
        self._latest = time.monotonic()

    @property
    def cases(self) -> int:
        """The measurements of the run, one for each benchmark and process."""
        return self.done + self._first + self._further

    def expect(self, processes: int, events: Sequence[Event]) -> None:
        """Set the number of the run's processes, and the ``events`` of an interrupted run that is resumed."""
        self.processes = processes
        for event in events:
            self.note(event)
        self.done, self._passed_s, self._took_s = 0, 0.0, 0.0

    def note(self, event: Event) -> None:
        """Take an event of the journal into account."""
        if event["event"] not in ("session", "end"):
            return
        now = time.monotonic()
        passed_s, self._latest = now - self._latest, now
        if event["event"] == "session":
            # CPU time: the first process may read torch from a disk, others find it in memory.
            self._start_s = max(START_S, float(event.get("start_cpu_s") or 0.0))
            self._begun = max(self._begun, event["process"] + 1)
            if not self.cases:
                self._first = len(event["cases"])
                self._further = self._first * (self.processes - 1)
                self._case_s = float(event.get("estimated_s") or 0.0) / max(1, self._first)
                self.estimated_s = self._left_s + self.processes * self._start_s
            return
        self.done += 1
        self._first -= not event["process"]
        self._further -= bool(event["process"])
        if event["status"] == OK:
            self._passed_s += self._case_s * (FURTHER if event["process"] else 1)
            self._took_s += passed_s
        elif not event["process"]:  # the other processes won't try it
            self._further -= self.processes - 1

    @property
    def _left_s(self) -> float:
        return max(0.0, self._case_s * (self._first + FURTHER * self._further))

    def seconds(self) -> float:
        """Return the seconds that the run still takes."""
        left_s, starts_s = self._left_s, (self.processes - self._begun) * self._start_s
        if not self._passed_s:
            return starts_s + left_s
        pace = self._took_s / self._passed_s
        trust = min(1.0, self._passed_s / (TRUSTED * (self._passed_s + left_s)))
        return starts_s + left_s * math.pow(pace, trust)  # so that one long case at the start doesn't stand for all


class Progress:
    """Prints a run's events on stderr; ``reasons`` holds, for each reason, the benchmarks without a time.

    Of a benchmark that takes long a line is printed while it is being measured, and until :meth:`stop`.
    """

    def __init__(self, command: str = "gpubench run", resume: str = "") -> None:
        """``resume`` is the command that continues the run."""
        self.left = TimeLeft()
        self.reasons: defaultdict[str, list[str]] = defaultdict(list)
        self._command, self._resume, self._deadline_s = command, resume, 0.0
        self._timer: threading.Timer | None = None
        self._benchmarks: dict[str, str] = {}  # by full name: the name that it shares on all devices
        self._waiting: defaultdict[str, set[str]] = defaultdict(set)  # full names that have still to end, by benchmark
        self._ends: defaultdict[str, list[Event]] = defaultdict(list)  # by benchmark
        self._numbered, self._skipped = 0, 0  # benchmarks up to the latest line; those since that were only skipped
        self._ended: set[tuple[int, str]] = set()  # process and full name
        self._opened = False
        self._latest_line = time.monotonic()

    def expect(self, processes: int, events: Sequence[Event], deadline_s: float = 0.0) -> None:
        """Set the number of the run's processes, the ``events`` of an interrupted run that is resumed, and how long a
        benchmark may take."""
        self._deadline_s = deadline_s
        self.left.expect(processes, events)
        for event in events:
            if event["event"] == "session":
                self._collect(event)
            elif not self._ended_before(event) and event["event"] == "end" and not event["process"]:
                self._note_end(event)
        self._skipped = 0

    def note(self, event: Event) -> None:
        """Print one event of the journal."""
        self.watch(event)
        if self._ended_before(event):  # a rerun; the results have the last
            return
        self.left.note(event)
        if event["event"] == "session":
            self._collect(event)
            if not self._opened:  # true if a process continues after another one's crash
                self._opened = True
                for notice in map(str, event.get("notices") or ()):
                    self._say(notice)
                self._say(self._opening(event))
        elif event["event"] == "end":
            if event.get("reason"):
                name = shown_name(self._benchmarks.get(event["fullname"]) or event["fullname"])
                self.reasons[f"{event['status']}: {event['reason']}"].append(name)
            if event["process"]:
                self._show_repeats(event["process"])
            elif line := self._note_end(event):
                self._say(line)

    def watch(self, event: Event) -> None:
        """Print a line later about a benchmark that begins, unless it ends before."""
        if event["event"] in ("start", "end"):
            self.stop()
        if event["event"] == "start" and self._deadline_s > LONG_S:
            name = shown_name(clean(str(inner(event, "case", "id") or event["name"]))).removesuffix("[float32]")
            ways = f"It stops by itself after {self._deadline_s:g} s; Ctrl-C stops it now."
            line = f"{self._command}: still working on {shorten(name, LONGEST)} ({LONG_S:g} s). {ways}"
            self._timer = threading.Timer(LONG_S, print, (line,), {"file": sys.stderr, "flush": True})
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Print nothing about the latest benchmark."""
        if self._timer is not None:
            self._timer.cancel()

    def why_not(self, status: str = "", most: int = 5) -> list[str]:
        """Return the most frequent reasons for missing times, each with the first benchmark that it applies to."""
        known = [(why, list(dict.fromkeys(names))) for why, names in self.reasons.items() if why.startswith(status)]
        known.sort(key=lambda each: -len(each[1]))
        lines = [
            f"{shorten(names[0], LONGEST)}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"
            for why, names in known[:most]
        ]
        return lines + [f"… and {counted(len(known) - most, 'other reason')}"] * (len(known) > most)

    def _ended_before(self, event: Event) -> bool:
        if event["event"] != "end":
            return False
        count = len(self._ended)
        self._ended.add((event["process"], event["fullname"]))
        return len(self._ended) == count

    def _collect(self, session: Event) -> None:
        for fullname in session["cases"] if not self._benchmarks else ():
            benchmark = str(inner(session, "identities", fullname, "id") or fullname)
            self._benchmarks[fullname] = benchmark
            self._waiting[benchmark].add(fullname)

    def _opening(self, session: Event) -> str:
        """Return the first line: devices, number of benchmarks, time, and that the run may be stopped."""
        machine: dict[str, Any] = inner(session, "machine_info", KEY) or {}
        devices = [
            f"{_short_name(device.get('name', '?'))} ({device.get('label') or 'unknown'}"
            + (f", {counted(machine.get('threads') or 1, 'thread')})" if device.get("name") == "cpu" else ")")
            for device in machine.get("devices") or ()
        ]
        many = f" in {self.left.processes} processes" if self.left.processes > 1 else ""
        parts = [f"Devices: {', '.join(devices)}."] if devices else []
        done = f", {self._numbered} of them done" if self._numbered else ""
        seconds = estimate_text(round(self.left.seconds() if done else self.left.estimated_s) or 1)
        parts.append(f"{counted(len(self._benchmarks), 'benchmark')}{many}{done}, about {seconds} on idle cores.")
        return " ".join(parts) + (f" Ctrl-C is safe: {self._resume} continues." if self._resume else "")

    def _note_end(self, end: Event) -> str:
        """Return the line of a benchmark that has ended on all its devices; empty while one is still to come, or if all
        were skipped."""
        benchmark = self._benchmarks.get(end["fullname"], "")
        waiting, ends = self._waiting[benchmark], self._ends[benchmark]
        if end["fullname"] not in waiting:
            return ""
        waiting.remove(end["fullname"])
        ends.append(end)
        if waiting:
            return ""
        first, total = self._numbered + 1, len(self._benchmarks)
        self._numbered += len(ends)
        results = {_column(each): each for each in ends if each["status"] != "skipped"}
        if not results:
            self._skipped += len(ends)
            return ""
        numbers = f"{first}-{self._numbered}" if first < self._numbered else f"{first:>{len(str(total))}}"
        place = f"[{numbers}/{total}{f', {self._skipped} skipped' if self._skipped else ''}]"
        self._skipped = 0
        ordered = sorted(results.items(), key=lambda entry: (entry[0] != "CPU", entry[0]))
        parts = [_cell(name, each) for name, each in ordered]
        name = shorten(shown_name(benchmark), LONGEST)
        return "  ".join([place, name, *parts, f"{clock_text(self.left.seconds())} left"])

    def _show_repeats(self, process: int) -> None:
        if time.monotonic() - self._latest_line >= EVERY_S:
            done = f"{self.left.done} of {counted(self.left.cases, 'measurement')}"
            place = f"process {process + 1} of {self.left.processes}"
            self._say(f"{place}: {done}, {clock_text(self.left.seconds())} left")

    def _say(self, text: str) -> None:
        self._latest_line = time.monotonic()
        print(clean(text), file=sys.stderr, flush=True)


def _short_name(device: str) -> str:
    return "CPU" if device == "cpu" else device


def _column(end: Event) -> str:
    """Return the device of a result, or the library if it isn't torch."""
    record = inner(end, "benchmark", "extra_info", KEY) or inner(end, "case")
    device, library = _short_name(str(inner(record, "device") or "")), str(end.get("library") or "")
    return library if library and device == "CPU" else f"{device} {library}".rstrip()


def _median_s(end: Event) -> float | None:
    return (inner(end, "benchmark", "stats", "median") or None) if end["status"] == OK else None


def _cell(name: str, end: Event) -> str:
    median = _median_s(end)
    what = seconds_text(median) if median else f"{end['status']}: {end.get('reason') or ''}".rstrip(": ")
    return f"{name} {what}".strip()
