"""How far a run is: a bar on a terminal, a line now and then where there is none."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..ledger import Event
from ..quantity import seconds_text
from ..schema import OK

EVERY_S = 15.0
"""Seconds between two lines when there is no terminal."""
FURTHER = 0.4
"""What a further process costs, measured: starting, making the data, warming up; the rounds are shared."""


class Progress:
    """Is told a ledger's events; ``reasons`` counts why cases gave no number."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.cases = 0
        self.done = 0
        self.predicted_s = 0.0
        self._processes = 1
        self._before = 0
        self._began = time.monotonic()
        self._told = self._began
        self._bar: Any = None
        self._task: Any = None

    def expect(self, processes: int, events: Sequence[Event]) -> None:
        """Of how many processes the run will be, and what an earlier one has done of it."""
        self._processes = processes
        self._before = sum(event["event"] == "end" for event in events)
        for event in events:
            if event["event"] == "session":
                self._size(event)
                break

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
            self._say(f"{len(event['cases'])} cases{many}, about {seconds_text(self.predicted_s)}")
        elif event["event"] == "start" and self._bar:
            case = event["case"]
            self._bar.update(self._task, description=f"{case['id']} on {case['device']}")
        elif event["event"] == "end":
            self.done += 1
            if event.get("reason"):
                self.reasons[f"{event['status']}: {event['reason']}"] += 1
            if event["status"] != OK and event["process"] == 0:
                self.cases -= self._processes - 1  # the other processes won't try it
            self._advance()

    def _size(self, event: Event) -> None:
        self.cases = len(event["cases"]) * self._processes - self._before
        self.predicted_s = float(event["predicted_s"]) * (1 + FURTHER * (self._processes - 1))
        self._began = time.monotonic()

    def left_s(self) -> float:
        """Seconds still to go: the prediction at first, then more and more what was seen."""
        if not self.cases:
            return 0.0
        share = self.done / self.cases
        elapsed = time.monotonic() - self._began
        predicted = self.predicted_s * (1 - share)
        seen = elapsed / share * (1 - share) if share else predicted
        return (1 - share) * predicted + share * seen

    def _advance(self) -> None:
        if self._bar:
            left = f"{seconds_text(round(self.left_s()) or 1)} left"
            self._bar.update(self._task, completed=self.done, total=self.cases, left=left)
        elif time.monotonic() - self._told >= EVERY_S or self.done == self.cases:
            self._told = time.monotonic()
            self._say(f"{self.done} of {self.cases} measurements, about {seconds_text(round(self.left_s()))} left")

    def _say(self, text: str) -> None:
        if not self._bar:
            print(f"gpubench run: {text}", file=sys.stderr, flush=True)
