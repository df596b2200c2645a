"""Private members of pytest-benchmark's fixture: no other module uses any. ``tests/plugin/test_benchmark_fixture.py``
has a test of each, and pyproject.toml bounds the releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..runfile.flags import Flag

if TYPE_CHECKING:
    from ..measure.budget import Preset
    from ..measure.calls import Given

PLAIN_CALIBRATION = 100
"""A round of a plain benchmark lasts this many waits, as in a gpubench test. With the usual 10, the wait would show."""
MOST_TIMES = 4.0
"""How many times ``max_time`` the rounds of a plain benchmark may take."""


def set_terms(benchmark: Any, timer: Callable[[], float], preset: Preset) -> bool:
    """Set timer, time and fewest rounds of a benchmark; return whether its timer was another one."""
    replaced = benchmark._timer is not timer
    benchmark._timer, benchmark._max_time, benchmark._min_rounds = timer, preset.max_time, preset.min_rounds
    return replaced


def is_pytest_benchmarks(benchmark: Any) -> bool:
    """Return whether a fixture is pytest-benchmark's, and no other plugin's."""
    return hasattr(benchmark, "_timer")


def has_timer(benchmark: Any, timer: Callable[[], float]) -> bool:
    """Return whether a benchmark has this timer."""
    return benchmark._timer is timer  # type: ignore[no-any-return]


def lengthen_rounds(benchmark: Any) -> None:
    """Let a benchmark's rounds take so many readings of its timer that the timer's wait doesn't show."""
    benchmark._calibration_precision = PLAIN_CALIBRATION


def warm_up_once(benchmark: Any) -> None:
    """Add a warm-up call before rounds are calibrated: if the first call compiles, there would be time for only five
    rounds."""
    benchmark._warmup = 1


class PytestRounds:
    """Keeps rounds that were timed already in pytest-benchmark's table and file."""

    def __init__(self, benchmark: Any, timer_name: str = "device_clock") -> None:
        self._benchmark, self._timer_name = benchmark, timer_name
        self.enabled, self.fullname, self.extra_info = benchmark.enabled, benchmark.fullname, benchmark.extra_info

    @property
    def stats(self) -> Any:
        """The statistics of the rounds; None before :meth:`keep`."""
        return self._benchmark.stats

    def keep(self, durations: Sequence[float], calls: int, call: Callable[[], Any], group: str) -> Any:
        """Keep the seconds of rounds of so many calls, in this group unless the test names another. Return the result
        of a further ``call``, which pytest-benchmark profiles where that was asked for.

        ``pedantic`` reads the timer at both ends of a round: its readings are 0, d0, 0, d1, ….
        """
        benchmark, left = self._benchmark, [each for seconds in reversed(durations) for each in (seconds, 0.0)]
        benchmark.group = benchmark.group or group

        def timer() -> float:
            return left.pop()

        def replayed() -> Any:
            return None if left else call()

        timer.__name__ = self._timer_name  # pytest-benchmark writes it into the file
        benchmark._timer = timer
        return benchmark.pedantic(replayed, rounds=max(1, len(durations)), iterations=calls)


def bound_rounds(benchmark: Any) -> None:
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


def watch_calls(benchmark: Any, flags: list[Flag]) -> None:
    """Add flags for a plain benchmark's call that returns before its work is done, or changes its arguments."""
    from ..measure import calls

    def note(function: Any, given: Given | None, result: Any) -> None:
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
