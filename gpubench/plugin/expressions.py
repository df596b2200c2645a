"""Expressions are measured without pytest, in turn: by a process that ``gpubench time`` starts, or a notebook's."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import math
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import structs
from pytest_benchmark.stats import Metadata

from ..devices import CPU, register
from ..devices.implementations import TORCH
from ..errors import Unmeasurable, UsageError
from ..measure.clock import Bound, take_turns
from ..measure.copies import CallCopy
from ..measure.data import MEMORY_SHARE
from ..measure.expression import Timing, advising, bound_call, difference_of, on_numpy
from ..measure.fixture import Gpubench
from ..measure.prepare import Declared, require_device
from ..measure.session import Mode, Session, Settings
from ..measure.state import State
from ..runfile.flags import DIFFERENT, Flag
from ..runfile.ledger import missing, recorded
from ..runfile.quantities import seconds_text, text
from ..runfile.schema import KEY, Case
from ..runfile.writer import without_paths
from ..supervise.child import Failures, become_child
from ..supervise.process import JOURNAL, USAGE
from . import PARAMETERS, recorder as outcomes
from .demo import Demo
from .parametrize import Markers, combinations, ident
from .plain_process import begin_plain

register(Demo)
FILE = "test_time.py"
"""The file that names of expressions in a results file begin with, as names of tests do."""
LONGEST_S = 5.0
"""Seconds of a call beyond which a larger size isn't begun."""


class Growth:
    """Work and memory of a call grow as powers of its size, and its time at most as the work."""

    def __init__(self) -> None:
        self._last: list[tuple[float, float, float, float]] = []

    def note(self, size: float, rounds: Any) -> None:
        """Note a size with its rounds."""
        ours: Mapping[str, Any] = rounds.extra_info[KEY]
        work = max(ours["work"].get("flops") or 0.0, ours["work"].get("bytes") or 0.0)
        self._last.append((size, rounds.stats.stats.median, work, ours.get("memory_bytes") or 0))

    def require(self, size: float) -> None:
        """Raise :class:`Unmeasurable` where a call of this size is predicted to take more than :data:`LONGEST_S`, or
        :data:`MEMORY_SHARE` of the free memory."""
        if len(self._last) < 2:
            return
        (small, _, *before), (large, seconds, *now) = self._last[-2:]
        factor, step = size / large, math.log(large / small)
        work, memory = (math.log(max(1.0, b / a)) / step if a > 0 else 1.0 for a, b in zip(before, now, strict=True))
        if (seconds := seconds * factor**work) > LONGEST_S:
            raise Unmeasurable(f"predicted {seconds_text(seconds)} a call")
        if (needed := now[1] * factor**memory) > MEMORY_SHARE * CPU.memory().free:
            raise Unmeasurable(f"predicted to need {text(needed, 'B')}")


class _Expression:
    """An expression at one size on one device, named as pytest names a test; its rounds are kept as pytest-benchmark
    keeps a test's."""

    enabled, disabled, cprofile_stats, has_error = True, False, None, False

    def __init__(self, text: str, sizes: dict[str, Any], kit: Mapping[str, str], skip: str) -> None:
        """``kit`` are the values of :data:`.PARAMETERS`, ``skip`` is the reason why it isn't measured, or empty."""
        self.text, self.sizes, self.skip, size = text, sizes, skip, next(iter(sizes), None)
        case = Case(f"time.{text}", params=sizes, devices=(kit["device"],), size=size, **kit)  # type: ignore[arg-type]
        self.conditions = " ".join(kit[key] for key in ("device", "dtype", "variant", "cache"))
        self.params = {f"gpubench_{key}": kit[key] for key in kit} | sizes
        self.param, self.callspec = ident([*kit.values(), *sizes.values()]), SimpleNamespace(params=self.params)
        self.name, self.group = f"test_{text}[{self.param}]", case.workload
        self.nodeid = self.fullname = f"{FILE}::{self.name}"
        self.extra_info, self.options = dict[str, Any](), {"disable_gc": True, "timer": "device_clock"}
        self.attempt = outcomes.Attempt(case, self)
        self.stats: Any = None
        self.call: Any = None
        self.share: Any = None  # its rounds, once it is prepared
        self.compared: Any = ()

    @property
    def fixture(self) -> Gpubench:
        assert self.attempt.fixture is not None
        return self.attempt.fixture

    def keep(self, durations: Sequence[float], calls: int, call: Callable[[], Any], group: str) -> Any:
        self.group = group
        self.stats = Metadata(self, calls, self.options)  # type: ignore[no-untyped-call]
        for seconds in durations:
            self.stats.update(seconds)
        return call() if calls > 1 else None


class Expressions:
    """The measurement of expressions in one process."""

    def __init__(self, timing: Timing, session: Session) -> None:
        self.timing, self.session = timing, session
        self._unusable = ""  # why this process can't measure any more
        self._growths = defaultdict[str, Growth](Growth)

    def run(self, journal: Path) -> None:
        """Measure the expressions that the journal lacks. Raises UsageError where nothing can be measured."""
        session = self.session
        if session.settings.required:
            session.require_devices()
        every = {each.nodeid: each for text in self.timing.calls for each in self.of(text)}
        cases = {name: each.attempt.case for name, each in every.items()}
        session.collected = [each.attempt.case for each in every.values() if not each.skip]
        session.plain_process = begin_plain(session, cases.values(), lambda name: self._time_plainly(every[name]))
        recorder = outcomes.Recorder(None, session, journal)
        names = missing(recorded(journal), session.settings.process)
        try:
            with session.measuring():
                recorder.begin(cases, [(case, False) for case in session.collected], [])
                session.begin()
                for turn in self._turns([every[name] for name in (every if names is None else names)]):
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

    def of(self, text: str) -> Iterator[_Expression]:
        """Return the expression on all devices, with all dtypes, variants and sizes."""
        timing, library = self.timing, "numpy" if on_numpy(self.timing.calls[text]) else TORCH
        asked: dict[str, Any] = {"dtypes": tuple(timing.dtypes), "variants": tuple(timing.variants)}
        markers = Markers(implementations=(library,), **{key: values for key, values in asked.items() if values})
        found, names = combinations(markers, self.session), [size for size, _ in timing.sizes]
        every = [*itertools.product(*(values for _, values in timing.sizes))]
        if all(reason for reason, _ in found):
            every = every[:1]  # an expression that runs nowhere here is one row, not one for each size
        for (reason, kit), sizes in itertools.product(found, every):
            by_name = dict(zip(names, sizes, strict=True)), dict(zip(PARAMETERS, kit, strict=True))
            yield _Expression(text, *by_name, reason)

    def _turns(self, every: Sequence[_Expression]) -> list[list[_Expression]]:
        """Return randomised blocks of expressions that are timed in turn: by size, device and variant."""
        settings, turns = self.session.settings, defaultdict[str, list[_Expression]](list)
        shuffled = random.Random(f"{settings.seed}/{settings.process}").sample(every, len(every))
        if self.timing.ascending:
            shuffled.sort(key=lambda each: [*each.sizes.values()])
        for each in shuffled:
            turns[f"{each.sizes} {each.conditions}"].append(each)
        return [*turns.values()]

    def _measure(self, turn: Sequence[_Expression], recorder: outcomes.Recorder) -> None:
        """Prepare these calls, time their rounds in turn, and record each."""
        failed = self.session.unmeasured
        for each in turn:
            each.attempt.case = structs.replace(each.attempt.case, threads=self.session.use_threads())
            recorder.start(each, each.attempt.case)
            with self._outcome(each):
                self._prepare(each)
        if ready := [each for each in turn if each.share]:
            self._time(ready)
        for each in turn:  # after all, since results are compared by further calls
            if each.attempt.state and len(turn) == 1:
                each.attempt.state.compare()  # the changes of the rounds are its own
            if stuck := outcomes.end_test(self.session, each.attempt, each, recorder):
                self._unusable = f"{', '.join(stuck)} can't be put back"
            if self.timing.ascending and each.nodeid not in failed:
                self._growths[f"{each.text} {each.conditions}"].note(math.prod(each.sizes.values()), each)
            each.attempt.fixture, each.compared, each.call, each.share = None, (), None, None  # their data
        if any(each.nodeid in failed for each in turn):
            self._unusable = self._unusable or outcomes.ruined() or ""
            outcomes.free_memory()

    def _time(self, ready: Sequence[_Expression]) -> None:
        """Time all rounds in turn or, where a call fails, the rounds of each call alone: the others have a time. Then
        check and record each, and compare the results."""
        try:
            with ready[0].fixture.conditions():
                take_turns([each.share for each in ready])
        except Exception:
            for each in ready:
                each.share.times, each.share.blocks = [], []
                with self._outcome(each), each.fixture.conditions():
                    take_turns([each.share])
        failed, first = self.session.unmeasured, next(iter(self.timing.calls))
        # A first expression that failed may end this process, if it is called once more.
        other = first * any(each.text == first and each.nodeid not in failed for each in ready)
        for each in ready:
            if each.nodeid not in failed:
                with self._outcome(each), each.fixture.conditions():
                    each.fixture.finish(each.call, each.share)
                    if other and (difference := difference_of(each.compared, other)):
                        each.fixture.add_flag(Flag(DIFFERENT, difference))

    @contextlib.contextmanager
    def _outcome(self, each: _Expression) -> Iterator[None]:
        """A context in which an error becomes the expression's outcome."""
        try:
            yield
        except (Exception, SystemExit) as error:
            status, reason = outcomes.outcome_of(error)
            outcomes.keep_reason(self.session, each.attempt, each, status, without_paths(reason))

    def _prepare(self, each: _Expression) -> None:
        if each.skip:
            raise Unmeasurable(each.skip)
        if self.timing.ascending:
            self._growths[f"{each.text} {each.conditions}"].require(math.prod(each.sizes.values()))
        each.attempt.state = State()
        try:
            with advising():
                (function, args, kwargs), compared = self._begin(each)
                with each.fixture.conditions():
                    each.call, share = each.fixture.prepare(function, *args, **kwargs)
        finally:
            each.attempt.state.compare()
        each.compared, each.share = compared, share

    def _begin(self, each: _Expression) -> tuple[Bound, Sequence[CallCopy]]:
        """Make the fixture; return the call with its inputs."""
        session, case, named = self.session, each.attempt.case, bool(self.session.settings.dtypes or self.timing.dtypes)
        device = require_device(case.device)  # it was present when the process began
        preset, declared = session.preset.split(session.settings.processes), Declared(named, own_switches=not named)
        each.options |= {name: getattr(preset, name) for name in ("min_rounds", "max_time", "min_time")}
        each.options |= {"precision": None, "confidence": None, "warmup": False}
        each.attempt.fixture = Gpubench(session, preset, case, device, each, declared)
        return bound_call(self.timing, each.text, each.sizes, each.fixture)

    def _time_plainly(self, each: _Expression) -> None:
        (function, args, kwargs), _ = self._begin(each)
        each.fixture(function, *args, **kwargs)


def main(words: Sequence[str]) -> int:
    """Measure the expressions of a file as the supervisor asks, and return pytest's exit code."""
    *options, file = words
    given = dict(word.removeprefix("--gpubench-").split("=", 1) for word in options)
    asked = json.loads(Path(file).read_text(encoding="utf-8"))
    process, processes = map(int, given["process"].split("/"))
    try:
        with Failures(os.environ.pop(JOURNAL)).noting():
            settings = Settings(**asked["settings"], brief=True, process=process, processes=processes)
            Expressions(Timing(**asked["timing"]), Session(settings, Mode.RUN)).run(Path(given["ledger"]))
    except UsageError:
        return USAGE
    return 0


if __name__ == "__main__":
    become_child()
    code = main(sys.argv[1:])
    gc.freeze()  # Python would collect garbage among all that torch holds
    raise SystemExit(code)
