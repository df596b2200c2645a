"""Expressions are measured without pytest, in turn with each other: by the process that ``gpubench time`` starts, or in
a notebook's own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from pytest_benchmark.stats import Metadata

from ..devices import find_device, register
from ..devices.implementations import TORCH
from ..errors import Unmeasurable, UsageError
from ..estimate.demo import Demo
from ..measure.budget import Preset
from ..measure.clock import take_turns
from ..measure.expression import Prepared, Timing, advising, difference_of, on_numpy
from ..measure.fixture import Declared, Gpubench
from ..measure.session import Mode, Session, Settings
from ..measure.state import State
from ..runfile.flags import DIFFERENT, Flag
from ..runfile.journal import recorded
from ..runfile.ledger import missing
from ..runfile.naming import LONGEST_TEXT
from ..runfile.quantities import shorten
from ..runfile.schema import Case
from ..runfile.writer import without_paths
from ..supervise.child import Failures, become_child
from ..supervise.process import JOURNAL, USAGE
from . import outcomes
from .fixtures import Attempt
from .parametrize import Markers, combinations, ident
from .plain_process import begin_plain
from .recorder import Recorder
from .settings import PARAMETERS

register(Demo)
FILE = "test_time.py"
"""The file that names of expressions in a results file begin with, as those of tests do."""


@dataclass(frozen=True, slots=True)
class Item:
    """An expression at one size on one device, with the names that pytest would give its test."""

    text: str
    sizes: Mapping[str, Any]
    case: Case
    callspec: Any
    skip: str

    @property
    def name(self) -> str:
        """The test's name."""
        return shorten(f"test_{self.text}[{self.callspec.id}]", LONGEST_TEXT)

    @property
    def nodeid(self) -> str:
        """The test's full name."""
        return f"{FILE}::{self.name}"

    @property
    def place(self) -> str:
        """What expressions share that are timed in turn: size, device, dtype, variant and cache."""
        return f"{self.sizes} {self.case.device} {self.case.dtype} {self.case.variant} {self.case.cache}"


class Rounds:
    """Keeps an expression's rounds as pytest-benchmark writes a test's into its file."""

    enabled, disabled, cprofile_stats, has_error = True, False, None, False

    def __init__(self, item: Item, preset: Preset) -> None:
        self.name, self.fullname, self.group = item.name, item.nodeid, item.case.workload
        self.param, self.params = item.callspec.id, item.callspec.params
        self.extra_info: dict[str, Any] = {}
        self.stats: Any = None
        terms = {"min_rounds": preset.min_rounds, "max_time": preset.max_time, "min_time": preset.min_time}
        unused = {"precision": None, "confidence": None, "warmup": False}
        self._options = {"disable_gc": True, "timer": "device_clock"} | terms | unused

    def keep(self, durations: Sequence[float], calls: int, call: Any, group: str) -> Any:
        """Keep the seconds of rounds of so many calls, and return the result of a further call where there are
        several."""
        self.group, self.stats = group, Metadata(self, calls, self._options)
        for seconds in durations:
            self.stats.update(seconds)
        return call() if calls > 1 else None


@dataclass(slots=True)
class Turn:
    """An expression's part in a turn: its call and rounds are there once it is prepared."""

    item: Item
    attempt: Attempt
    call: Any = None
    share: Any = None
    difference: str = ""
    """How its result differs from the first expression's."""


class Expressions:
    """The measurement of expressions in one process."""

    def __init__(self, timing: Timing, session: Session) -> None:
        self.timing, self.session = timing, session
        self._unusable = ""  # why this process can't measure any more

    def run(self, journal: Path) -> None:
        """Measure what the journal lacks. Raises UsageError where nothing can be measured."""
        session = self.session
        if session.settings.required:
            session.require_devices()
        items = {item.nodeid: item for name in self.timing.calls for item in self._items(name)}
        timed = [(item.case, False) for item in items.values() if not item.skip]
        session.collected = [case for case, _ in timed]
        plain = {name: item.case for name, item in items.items() if not item.skip}
        session.plain_process = begin_plain(session, plain, lambda name: self._time_plainly(items[name]))
        recorder, names = Recorder(None, session, journal), missing(recorded(journal), session.settings.process)
        try:
            with session.measuring():
                recorder.begin({name: item.case for name, item in items.items()}, timed, [])
                _ = session.before, session.self_check
                for turn in self._turns([items[name] for name in (items if names is None else names)]):
                    if not self._unusable or session.mode is not Mode.RUN:  # else another process measures it
                        self._measure(turn, recorder)
            recorder.finish(0)
        except KeyboardInterrupt:
            recorder.finish(2)
            raise
        finally:
            recorder.ledger.close()
            if session.plain_process:
                session.plain_process.close()

    def _items(self, name: str) -> Iterator[Item]:
        """Return an expression's items for all devices, dtypes, variants and sizes."""
        timing, library = self.timing, "numpy" if on_numpy(self.timing.calls[name]) else TORCH
        asked = {"dtypes": tuple(timing.dtypes), "variants": tuple(timing.variants)}
        markers = Markers(implementations=(library,), **{key: values for key, values in asked.items() if values})
        found, names = combinations(markers, self.session), [size for size, _ in timing.sizes]
        every = [*itertools.product(*(values for _, values in timing.sizes))]
        if all(reason for reason, _ in found):
            every = every[:1]  # what runs nowhere here is one row, not one for each size
        for (reason, values), numbers in itertools.product(found, every):
            sizes, kit = dict(zip(names, numbers, strict=True)), dict(zip(PARAMETERS, values, strict=True))
            params = {f"gpubench_{key}": value for key, value in kit.items()} | sizes
            callspec = SimpleNamespace(id=ident((*values, *numbers)), params=params)
            case = Case(f"time.{name}", params=sizes, devices=(kit["device"],), size=next(iter(names), None), **kit)
            yield Item(name, sizes, case, callspec, reason)

    def _turns(self, items: Sequence[Item]) -> list[list[Item]]:
        """Return randomised blocks of expressions that are timed in turn."""
        settings, turns = self.session.settings, dict[str, list[Item]]()
        for item in random.Random(f"{settings.seed}/{settings.process}").sample(items, len(items)):
            turns.setdefault(item.place, []).append(item)
        return [*turns.values()]

    def _measure(self, items: Sequence[Item], recorder: Recorder) -> None:
        """Prepare these calls, time their rounds in turn, and record each."""
        turns = [Turn(item, Attempt(structs.replace(item.case, threads=self.session.threads))) for item in items]
        for turn in turns:
            recorder.start(turn.item, turn.attempt.case)
            with self._outcome(turn):
                self._prepare(turn)
        if ready := [turn for turn in turns if turn.share]:
            self._take_rounds(ready)
        for turn in turns:
            self._finish(turn, alone=len(turns) == 1)
            recorder.end(turn.item, turn.attempt)
        if any(turn.item.nodeid in self.session.unmeasured for turn in turns):
            self._unusable = self._unusable or outcomes.ruined() or ""
            outcomes.free_memory()

    @contextlib.contextmanager
    def _outcome(self, turn: Turn) -> Iterator[None]:
        """A context in which an error becomes the expression's outcome."""
        try:
            yield
        except (Exception, SystemExit) as error:
            status, reason = outcomes.outcome_of(error)
            outcomes.keep_reason(self.session, turn.attempt, turn.item, status, without_paths(reason))

    def _prepare(self, turn: Turn) -> None:
        if turn.item.skip:
            raise Unmeasurable(turn.item.skip)
        turn.attempt.state = State()
        try:
            with advising():
                fixture, prepared = self._begin(turn.item, turn.attempt)
                with fixture.conditions():
                    turn.call, share = fixture.prepare(prepared.function, *prepared.args, **prepared.kwargs)
        finally:
            turn.attempt.state.compare()
        before = State()  # the other expression may change settings too
        turn.difference, turn.share = difference_of(prepared.compared, next(iter(self.timing.calls))), share
        before.compare()
        before.restore()

    def _begin(self, item: Item, attempt: Attempt) -> tuple[Gpubench, Prepared]:
        """Return the fixture, and the call with its inputs."""
        session, named = self.session, bool(self.session.settings.dtypes or self.timing.dtypes)
        if (device := find_device(item.case.device).device) is None:  # it was present when the process began
            raise Unmeasurable(f"{item.case.device} has disappeared")
        preset = session.preset.split(session.settings.processes)
        attempt.benchmark = rounds = Rounds(item, preset)
        declared = Declared(dtype=named, own_switches=not named)
        attempt.fixture = Gpubench(session, preset, attempt.case, device, rounds, declared)
        return attempt.fixture, self.timing.call(item.text, item.sizes, attempt.fixture)

    def _time_plainly(self, item: Item) -> None:
        fixture, prepared = self._begin(item, Attempt(item.case))
        fixture(prepared.function, *prepared.args, **prepared.kwargs)

    def _take_rounds(self, turns: Sequence[Turn]) -> None:
        """Time all rounds in turn or, where a call fails, those of each call alone: the others have a time."""
        shares = [turn.share for turn in turns]
        try:
            with _conditions(turns[0]):
                take_turns(shares, turns[0].attempt.fixture.halfway)
        except Exception:
            for turn in turns:
                turn.share.times, turn.share.blocks = [], []
                with self._outcome(turn), _conditions(turn):
                    take_turns([turn.share])

    def _finish(self, turn: Turn, *, alone: bool) -> None:
        """Check and record a call whose rounds were taken, and restore the settings that its expression changed."""
        attempt = turn.attempt
        if turn.share and turn.item.nodeid not in self.session.unmeasured:
            with self._outcome(turn), _conditions(turn):
                attempt.fixture.finish(turn.call, turn.share)
                if turn.difference:
                    attempt.fixture.add_flag(Flag(DIFFERENT, turn.difference))
        if alone and attempt.state:
            attempt.state.compare()
        if stuck := outcomes.restore(self.session, attempt, turn.item):
            self._unusable = f"{', '.join(stuck)} can't be put back"
        if attempt.fixture:
            attempt.fixture.library.close()
        turn.call = turn.share = None


def _conditions(turn: Turn) -> contextlib.AbstractContextManager[None]:
    assert turn.attempt.fixture is not None
    return turn.attempt.fixture.conditions()


def measure(timing: Timing, settings: Settings, mode: Mode, journal: Path) -> Session:
    """Measure expressions in this process, and return its state. Raises UsageError where nothing can be measured."""
    session = Session(settings, mode)
    Expressions(timing, session).run(journal)
    return session


def main(words: Sequence[str]) -> int:
    """Measure as the supervisor asks, and return pytest's exit code."""
    *options, file = words
    given = dict(word.removeprefix("--gpubench-").split("=", 1) for word in options)
    asked = json.loads(Path(file).read_text(encoding="utf-8"))
    process, processes = map(int, given["process"].split("/"))
    try:
        with Failures(os.environ.pop(JOURNAL)).noting():
            settings = Settings(**asked["settings"], brief=True, process=process, processes=processes)
            measure(Timing(**asked["timing"]), settings, Mode.RUN, Path(given["ledger"]))
    except (pytest.UsageError, UsageError):
        return USAGE
    return 0


if __name__ == "__main__":
    become_child()
    raise SystemExit(main(sys.argv[1:]))
