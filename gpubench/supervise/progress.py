"""How far a run is: a bar on a terminal, a line now and then where there is none."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..format import counted, seconds_text
from ..runfile.ledger import Event
from ..runfile.schema import OK

START_S = 4.0
"""What a process takes beside its cases: it imports torch, collects, ends. Seen on two cores, preset quick."""
FURTHER = 0.5
"""A case in a further process, of what it took in the first: the rounds are shared, and nothing is checked again."""
EVERY_S = 15.0
"""Seconds between two lines when there is no terminal."""
TRUSTED = 0.1
"""Once so much of what was predicted is done, the pace seen so far is that of the rest."""


def whole_s(first_s: float, processes: int) -> float:
    """Seconds of a run whose first process spends so many on cases and ceilings."""
    return processes * START_S + first_s * (1 + FURTHER * (processes - 1))


class Progress:
    """Is told a ledger's events; ``reasons`` counts why cases gave no number."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.cases = 0
        self.done = 0
        self.estimated_s = 0.0
        self._processes = 1
        self._to_start: set[int] = set()
        self._case_s = 0.0  # predicted, of a case in the first process
        self._left_s = 0.0  # the same, of all that is still to come
        self._passed_s = 0.0  # and of what was measured
        self._began = time.monotonic()
        self._told = self._began
        self._bar: Any = None
        self._task: Any = None

    def expect(self, processes: int, events: Sequence[Event]) -> None:
        """Of how many processes the run will be, and what an earlier one has done of it."""
        self._processes = processes
        for event in events:
            if event["event"] == "session" and not self.cases:
                self._size(event)
            elif event["event"] == "end" and self.cases:
                self._take_off(event)
                self.cases -= 1
        self._to_start -= {event["process"] for event in events if event["event"] == "session"}

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeElapsedColumn

            columns = (
                BarColumn(30),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("collecting", total=None, left="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def tell(self, event: Event) -> None:
        """Show one event."""
        if event["event"] == "session" and not self.cases:
            self._size(event)
            many = f" in {self._processes} processes" if self._processes > 1 else ""
            self._say(f"{counted(len(event['cases']), 'case')}{many}, about {seconds_text(self.estimated_s)}")
        elif event["event"] == "session" and event["process"] in self._to_start:
            self._to_start.remove(event["process"])
            self._left_s -= START_S
            self._passed_s += START_S
        elif event["event"] == "start" and self._bar:
            case = event["case"]
            self._bar.update(self._task, description=f"{case['id']} on {case['device']}")
        elif event["event"] == "end":
            self.done += 1
            if event.get("reason"):
                self.reasons[f"{event['status']}: {event['reason']}"] += 1
            seconds = self._take_off(event)
            if event["status"] == OK:
                self._passed_s += seconds
            self._advance()

    def _size(self, event: Event) -> None:
        first_s = float(event["estimated_s"])
        self.cases = len(event["cases"]) * self._processes
        self.estimated_s = whole_s(first_s, self._processes)
        self._to_start = set(range(1, self._processes))
        self._case_s = first_s / max(1, len(event["cases"]))
        self._left_s = self.estimated_s - START_S  # the first process has started
        self._began = time.monotonic()

    def _take_off(self, end: Event) -> float:
        """What was predicted of a case that has ended in a process, no longer to come."""
        seconds = self._case_s * (FURTHER if end["process"] else 1)
        self._left_s -= seconds
        if end["status"] != OK and end["process"] == 0:  # the other processes won't try it
            self.cases -= self._processes - 1
            self._left_s -= self._case_s * FURTHER * (self._processes - 1)
        return seconds

    def left_s(self) -> float:
        """Seconds still to go: the prediction at first, and soon the prediction at the pace seen so far."""
        if not self._passed_s:
            return max(0.0, self._left_s)
        pace = (time.monotonic() - self._began) / self._passed_s
        trust = min(1.0, self._passed_s / (TRUSTED * (self._passed_s + max(0.0, self._left_s))))
        return max(0.0, self._left_s) * (1 - trust + trust * pace)

    def _advance(self) -> None:
        if self._bar:
            left = f"{seconds_text(round(self.left_s()) or 1)} left"
            self._bar.update(self._task, completed=self.done, total=self.cases, left=left)
        elif time.monotonic() - self._told >= EVERY_S or self.done == self.cases:
            self._told = time.monotonic()
            self._say(
                f"{self.done} of {counted(self.cases, 'measurement')}, about {seconds_text(round(self.left_s()))} left"
            )

    def _say(self, text: str) -> None:
        if not self._bar:
            print(f"gpubench run: {text}", file=sys.stderr, flush=True)
