"""The preparation of a test's fixtures, and of pytest-benchmark's."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ..errors import Unmeasurable
from ..measure.session import Session
from ..runfile.flags import Flag
from ..runfile.schema import Case
from .parametrize import declarations
from .settings import benchmark_option

if TYPE_CHECKING:
    from ..measure.budget import Preset
    from ..measure.fixture import Gpubench
    from ..measure.state import State

RANKS = "gpubench_ranks"
"""The fixture of tests whose times are measured by other processes."""
PLAIN_CALIBRATION = 100
"""A round of a plain benchmark lasts this many waits, as in a gpubench test. With the usual 10, the wait would show."""
MOST_TIMES = 4.0
"""How many times ``max_time`` the rounds of a plain benchmark may take."""


@dataclass(slots=True)
class Attempt:
    """A test that is measured: its identity, pytest-benchmark's fixture, and ours or, for a plain benchmark, its
    record."""

    case: Case
    benchmark: Any = None
    fixture: Gpubench | None = None
    plain: Plain | None = None
    state: State | None = None
    """The process's settings before the test's body; ``None`` if the test didn't get that far."""


def equip(item: pytest.Item, case: Case, session: Session, benchmark: Any) -> Gpubench:
    """Return the fixture, which times by the clock of the case's device. Raises :class:`Unmeasurable` if the device has
    disappeared since collection."""
    from ..devices import find_device
    from ..measure.clock import MIN_ROUND, MIN_WAITS
    from ..measure.fixture import Declared, Gpubench

    choice = find_device(case.device)
    if (device := choice.device) is None:  # it was present at collection
        raise Unmeasurable(str(choice.reason))
    share = _share(item, session)
    fixture = Gpubench(session, share, case, device, benchmark, Declared(**declarations(item, session)))
    _set_terms(item, benchmark, fixture.clock, share)
    benchmark._min_time = max(MIN_ROUND, MIN_WAITS * session.rates.wait_s(device), benchmark._min_time)
    benchmark._disable_gc = _marker(item).get("disable_gc", True)
    return fixture


def _share(item: pytest.Item, session: Session) -> Preset:
    return session.preset.adjusted(_marker(item)).split(session.settings.processes)


def _set_terms(item: pytest.Item, benchmark: Any, timer: Callable[[], float], share: Preset) -> None:
    asked = "timer" in _marker(item) or benchmark_option(item.config, "--benchmark-timer")
    if asked and benchmark._timer is not timer:
        text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)
    benchmark._timer, benchmark._max_time, benchmark._min_rounds = timer, share.max_time, share.min_rounds


def lengthen_rounds(item: pytest.Item, benchmark: Any) -> None:
    """Lengthen the rounds of a plain benchmark that uses gpubench's timer, so that the wait doesn't show."""
    from ..measure.clock import timer

    asked = benchmark_option(item.config, "--benchmark-calibration-precision")
    if benchmark._timer is timer and not asked and "calibration_precision" not in _marker(item):
        benchmark._calibration_precision = PLAIN_CALIBRATION


class Plain:
    """A plain benchmark of ``gpubench run``, a case without declarations: its rounds are pytest-benchmark's own, by the
    timer that waits, as many as are this process's share of the preset.

    A warm-up call is added before rounds are calibrated: if the first call compiles, there would be time for only five
    rounds.
    """

    def __init__(self, item: pytest.Item, session: Session, benchmark: Any) -> None:
        from ..devices import in_use
        from ..measure.clock import timer, watch_present_kinds
        from ..measure.disturbance import look

        self._item, self._session, self._benchmark = item, session, benchmark
        _set_terms(item, benchmark, timer, _share(item, session))
        lengthen_rounds(item, benchmark)
        if benchmark_option(item.config, "--benchmark-warmup") is None and "warmup" not in _marker(item):
            benchmark._warmup = 1
        _bound_rounds(benchmark)
        watch_present_kinds()
        devices = in_use() if "torch" in sys.modules else []
        for device in devices:
            device.reset_peak_memory()
        self._allocated = {device: device.allocated_memory() for device in devices}
        self._before = look(devices)
        self._flags: list[Flag] = []
        _watch_calls(benchmark, self._flags)

    def record(self, case: Case) -> Case:
        """Record the benchmark, if it was timed. Its device is that of a parameter or a fixture, else the accelerators
        on which it has allocated memory, else unknown; return the case with it."""
        from ..devices import find_device, in_use
        from ..measure.clock import unwaited
        from ..measure.disturbance import disturbed, look

        if self._benchmark.stats is None:
            return case
        devices = in_use() if "torch" in sys.modules else []
        if not case.device:
            values = self._item.funcargs.values()  # type: ignore[attr-defined]
            fixtures = [each for each in values if (type(each).__module__, type(each).__name__) == ("torch", "device")]
            names = [str(find_device(str(each)).name) for each in fixtures]
            peaks = {device: device.peak_memory() or 0 for device in devices}
            names = names or [str(device) for device in devices if peaks[device] > (self._allocated.get(device) or 0)]
            case = structs.replace(case, device=next(iter(names), ""), devices=tuple(dict.fromkeys(names)))
        flags = [*self._flags, *disturbed(self._before, look(devices))]
        flags += [Flag("unwaited", f"{', '.join(names)} was loaded")] if (names := unwaited()) else []
        self._session.record(self._benchmark, case, devices, flags)
        return case


def _bound_rounds(benchmark: Any) -> None:
    """End the rounds of a plain benchmark after :data:`MOST_TIMES` its ``max_time``: pytest-benchmark takes their
    number from its first calls, and later ones may be slower. Rounds that a test asks for are all made."""
    made, stats_made, run = benchmark._make_runner, benchmark._make_stats, benchmark._raw
    calibrated = benchmark._calibrate_timer
    until, taken = math.inf, list[float]()

    def raw(*given: Any, **named: Any) -> Any:
        benchmark._make_runner, benchmark._make_stats = make_runner, make_stats
        benchmark._calibrate_timer = calibrate
        return run(*given, **named)

    def calibrate(runner: Callable[..., float]) -> tuple[float, int, range]:
        duration, loops, _ = calibrated(runner)
        most = int(loops * benchmark._max_time / duration) if loops > 1 else 1  # the last calls took longer
        fewer = min(loops, max(1, most))
        return duration * fewer / loops, fewer, range(fewer)

    def make_runner(*given: Any) -> Callable[..., Any]:
        take = made(*given)
        return lambda *loops: None if monotonic() > until and len(taken) >= benchmark._min_rounds else take(*loops)

    def make_stats(iterations: int) -> Any:
        nonlocal until, taken
        stats = stats_made(iterations)
        update, until, taken = stats.update, monotonic() + MOST_TIMES * benchmark._max_time, stats.stats.data
        stats.update = lambda seconds: None if seconds is None else update(seconds)
        return stats

    if getattr(benchmark, "_precision", None) is None:
        benchmark._raw = raw


def _watch_calls(benchmark: Any, flags: list[Flag]) -> None:
    """Add flags for a plain benchmark's call that returns before its work is done, or changes what it is given."""
    from ..measure import calls

    def note(function: Any, given: calls.Given | None, result: Any) -> None:
        flags.extend(calls.altered(given.changed()) if given else ())
        if why := calls.unfinished(function, result):
            flags.append(Flag("unwaited", f"the call returns {why}"))

    def raw(function: Any, *args: Any, **kwargs: Any) -> Any:
        given = calls.Given(function, args, kwargs)
        result = run(function, *args, **kwargs)
        note(function, given, result)
        return result

    def pedantic(target: Any, args: Any = (), kwargs: Any = None, setup: Any = None, **terms: Any) -> Any:
        given = None if setup else calls.Given(target, args, kwargs or {})
        result = run_pedantic(target, args=args, kwargs=kwargs, setup=setup, **terms)
        note(target, given, result)
        return result

    run, run_pedantic = benchmark._raw, benchmark._raw_pedantic
    benchmark._raw, benchmark._raw_pedantic = raw, pedantic


def _marker(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("benchmark")
    return dict(marker.kwargs) if marker else {}
