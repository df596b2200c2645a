"""The preparation of a test's fixtures. No other module uses private members of pytest-benchmark's: pyproject.toml
bounds its releases."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ..devices import find_device, in_use
from ..measure import calls, clock, disturbance
from ..measure.budget import MOST_TIMES
from ..measure.session import Session
from ..runfile.flags import Flag
from ..runfile.schema import Case
from .parametrize import declarations
from .settings import benchmark_option

if TYPE_CHECKING:
    from ..measure.budget import Preset
    from ..measure.fixture import Gpubench

RANKS = "gpubench_ranks"
"""The fixture of tests that several processes measure together."""
PLAIN_CALIBRATION = 100
"""A round of a plain benchmark lasts this many waits, as in a gpubench test. With the usual 10, the wait would show."""


def set_terms(benchmark: Any, **terms: Any) -> None:
    """Set how pytest-benchmark's fixture times: its ``timer``, ``max_time``, ``min_rounds``, ``warmup``, …"""
    for name, value in terms.items():
        setattr(benchmark, f"_{name}", value)


def switch_on(config: pytest.Config) -> None:
    """Switch pytest-benchmark on again if a test has switched it off."""
    config._benchmarksession.disabled = False  # type: ignore[attr-defined]


def timer_of(benchmark: Any) -> Any:
    """Return the timer of pytest-benchmark's fixture; None if the fixture is another plugin's."""
    return getattr(benchmark, "_timer", None)


class PytestRounds:
    """Keeps rounds that were timed already in pytest-benchmark's table and file; ``stats`` are their statistics."""

    def __init__(self, benchmark: Any) -> None:
        self._benchmark = benchmark
        self.enabled, self.fullname, self.extra_info = benchmark.enabled, benchmark.fullname, benchmark.extra_info
        self.stats: Any = None

    def keep(self, durations: Sequence[float], calls: int, call: Callable[[], Any], group: str) -> Any:
        """Keep the seconds of rounds of so many calls, in this group unless the test names another. Return the result
        of a further ``call``, which pytest-benchmark profiles if asked."""
        benchmark = self._benchmark
        # pedantic reads the timer at both ends of a round: 0, d0, 0, d1, …
        left = [reading for seconds in reversed(durations) for reading in (seconds, 0.0)]

        def device_clock() -> float:  # pytest-benchmark writes its name into the file
            return left.pop()

        benchmark._timer, benchmark.group = device_clock, benchmark.group or group
        result = benchmark.pedantic(lambda: None if left else call(), rounds=max(1, len(durations)), iterations=calls)
        self.stats = benchmark.stats
        return result


def equip(item: pytest.Item, case: Case, session: Session, benchmark: Any) -> Gpubench:
    """Return the fixture, which times by the clock of the case's device. Raises :class:`Unmeasurable` if the device has
    disappeared since collection."""
    from ..measure.fixture import Gpubench
    from ..measure.prepare import Declared, require_device

    device = require_device(case.device)
    declared = Declared(**declarations(item, session), collects=not _marker(item).get("disable_gc", True))
    preset = session.preset.adjusted(_marker(item)).split(session.settings.processes)
    fixture = Gpubench(session, preset, case, device, PytestRounds(benchmark), declared)
    _time_by(item, benchmark, fixture.clock, preset)
    return fixture


def _marker(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("benchmark")
    return dict(marker.kwargs) if marker else {}


def _time_by(item: pytest.Item, benchmark: Any, timer: Callable[[], float], preset: Preset) -> None:
    asked = "timer" in _marker(item) or benchmark_option(item.config, "--benchmark-timer")
    if asked and timer_of(benchmark) not in (timer, clock.timer):  # which waits too
        text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)
    set_terms(benchmark, timer=timer, max_time=preset.max_time, min_rounds=preset.min_rounds)


def calibrate_plain(item: pytest.Item, benchmark: Any) -> None:
    """Lengthen the rounds of a plain benchmark that uses gpubench's timer."""
    asked = benchmark_option(item.config, "--benchmark-calibration-precision")
    if timer_of(benchmark) is clock.timer and not asked and "calibration_precision" not in _marker(item):
        set_terms(benchmark, calibration_precision=PLAIN_CALIBRATION)


class Plain:
    """A plain benchmark of ``gpubench run``, a case without declarations: its rounds are pytest-benchmark's own, by the
    timer that waits, as many as are this process's share of the preset."""

    def __init__(self, item: pytest.Item, session: Session, benchmark: Any) -> None:
        self._item, self._session, self._benchmark = item, session, benchmark
        preset = session.preset.adjusted(_marker(item)).split(session.settings.processes)
        _time_by(item, benchmark, clock.timer, preset)
        calibrate_plain(item, benchmark)
        if benchmark_option(item.config, "--benchmark-warmup") is None and "warmup" not in _marker(item):
            # The first call may compile, and a calibration by it would leave time for five rounds alone.
            set_terms(benchmark, warmup=1)
        bound_rounds(benchmark)
        clock.watch_present_kinds()
        devices = in_use()
        for device in devices:
            device.reset_peak_memory()
        self._allocated = {device: device.allocated_memory() for device in devices}
        self._before, self._flags = disturbance.read_counters(devices), list[Flag]()
        watch_calls(benchmark, self._flags)

    def record(self, case: Case) -> Case:
        """Record the benchmark, if it was timed, and return the case with its device: of a parameter or a fixture, else
        the accelerators on which it has allocated memory, else unknown."""
        from ..measure.fixture import record
        from ..measure.prepare import Rounds

        if self._benchmark.stats is None:
            return case
        devices = in_use()
        if not case.device:
            values = self._item.funcargs.values()  # type: ignore[attr-defined]
            given = [each for each in values if (type(each).__module__, type(each).__name__) == ("torch", "device")]
            grown = [each for each in devices if (each.peak_memory() or 0) > (self._allocated.get(each) or 0)]
            names = [str(find_device(str(each)).name) for each in given] or [*map(str, grown)]
            case = structs.replace(case, device=next(iter(names), ""), devices=tuple(dict.fromkeys(names)))
        flags = [*self._flags, *disturbance.disturbed(self._before, disturbance.read_counters(devices))]
        if libraries := clock.unwaited():
            flags.append(Flag("unwaited", f"{', '.join(libraries)} was loaded"))
        record(self._session, self._benchmark, case, devices, Rounds(tuple(flags)))
        return case


class _Enough(Exception):
    """The rounds have taken long enough."""


def bound_rounds(benchmark: Any) -> None:
    """End the rounds of a plain benchmark after :data:`.MOST_TIMES` its ``max_time``: pytest-benchmark takes their
    number from its first calls, and later ones may be slower. Rounds that a test asks for are all made."""
    made, calibrated, run, until = benchmark._make_runner, benchmark._calibrate_timer, benchmark._raw, math.inf

    def raw(function: Any, *args: Any, **kwargs: Any) -> Any:
        benchmark._make_runner, benchmark._calibrate_timer = make_runner, calibrate
        with suppress(_Enough):
            return run(function, *args, **kwargs)
        return function(*args, **kwargs)

    def calibrate(runner: Callable[..., float]) -> tuple[float, int, range]:
        duration, loops, _ = calibrated(runner)
        most = int(loops * benchmark._max_time / duration) if loops > 1 else 1  # the last calls took longer
        fewer = min(loops, max(1, most))
        return duration * fewer / loops, fewer, range(fewer)

    def make_runner(*given: Any) -> Callable[..., Any]:
        take = made(*given)

        def bounded(*loops: Any) -> Any:
            nonlocal until
            if benchmark.stats is not None:
                until = min(until, monotonic() + MOST_TIMES * benchmark._max_time)
                if monotonic() > until and len(benchmark.stats.stats.data) >= benchmark._min_rounds:
                    raise _Enough
            return take(*loops)

        return bounded

    if getattr(benchmark, "_precision", None) is None and not benchmark.cprofile:
        benchmark._raw = raw


def watch_calls(benchmark: Any, flags: list[Flag]) -> None:
    """Add flags for a plain benchmark's call that returns before its work is done, or changes its arguments."""

    def watched(run: Callable[..., Any], pedantic: bool) -> Callable[..., Any]:
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            values = (kwargs.get("args", ()), kwargs.get("kwargs") or {}) if pedantic else (args, kwargs)
            given = None if pedantic and kwargs.get("setup") else calls.Given(function, *values)
            result = run(function, *args, **kwargs)
            flags.extend(calls.altered(given.changed()) if given else ())
            if why := calls.unfinished(function, result):
                flags.append(Flag("unwaited", f"the call returns {why}"))
            return result

        return call

    benchmark._raw, benchmark._raw_pedantic = watched(benchmark._raw, False), watched(benchmark._raw_pedantic, True)
