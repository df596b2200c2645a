"""The fixtures of a test, and its device's clock, which is merged into its ``benchmark`` marker."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ..errors import Unmeasurable, UsageError
from ..measure.session import Session
from ..runfile.flags import Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Measurement, Process
from .settings import benchmark_option

if TYPE_CHECKING:
    from ..devices import Device
    from ..measure.disturbance import Moment
    from ..measure.fixture import Gpubench
    from ..measure.state import State
    from ..parallel.ranks import Ranks

PARAMETERS = {"device": "cpu", "dtype": "float32", "implementation": "torch", "variant": "eager", "cache": "hot"}
"""Parameters of a case, each set by the fixture ``gpubench_NAME``, with the value in a test without that fixture."""
RANKS = "gpubench_ranks"
"""The fixture of tests whose times are measured by other processes."""
PLAIN_CALIBRATION = 100
"""A round of a plain benchmark lasts this many waits, as in a gpubench test. With the usual 10, the wait would show."""


@dataclass(slots=True)
class Attempt:
    """A test that is measured: its identity, the function that makes its fixture from pytest-benchmark's, and that
    fixture."""

    case: Case
    make: Callable[[Any], Gpubench] | None = None
    fixture: Gpubench | None = None
    state: State | None = None
    """The process's settings before the test's body; ``None`` if the test didn't get that far."""
    surroundings: Surroundings | None = None
    """The state of the devices and the machine before a plain benchmark."""
    flags: list[Flag] = field(default_factory=list)
    """What a plain benchmark's call was seen to do."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Accelerators in use, with the bytes that each had allocated, and the machine's state, by which disturbances are
    judged."""

    allocated: dict[Device, int | None]
    moment: Moment


def equip(item: pytest.Item, case: Case, session: Session, **declared: bool) -> Callable[[Any], Gpubench]:
    """Merge gpubench's benchmark marker into the test's own, since pytest considers only the closest marker.

    The test's settings take precedence, except for the timer (any other would not wait) and the shortest round. Raises
    :class:`Unmeasurable` if the device has disappeared since collection. Returns the function that makes the fixture.
    """
    from ..devices import find_device
    from ..measure.budget import MIN_ROUND, MIN_WAITS
    from ..measure.clock import DeviceClock, ReplayTimer
    from ..measure.fixture import Declared, Gpubench

    choice = find_device(case.device)
    if (device := choice.device) is None:  # it was present at collection
        raise Unmeasurable(str(choice.reason))
    marker = _marker(item)
    if "timer" in marker or benchmark_option(item.config, "--benchmark-timer"):
        text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)
    asked_s = float(benchmark_option(item.config, "--benchmark-min-time") or 0)
    min_s = max(MIN_ROUND, MIN_WAITS * session.wait_s(device), float(marker.get("min_time", 0)), asked_s)
    clock = DeviceClock([device])
    replayed = ReplayTimer() if RANKS in fixture_names(item) else None
    share = session.preset.adjusted(marker).split(session.settings.processes)
    forced = {"max_time": share.max_time, "min_rounds": share.min_rounds, "timer": replayed or clock, "min_time": min_s}
    item.add_marker(pytest.mark.benchmark(**({"disable_gc": True} | marker | forced)), append=False)
    return lambda benchmark: Gpubench(session, share, case, device, clock, benchmark, replayed, Declared(**declared))


def lengthen_rounds(item: pytest.Item) -> None:
    """Lengthen the rounds of a plain benchmark that uses gpubench's timer, so that the wait doesn't show."""
    from ..measure.clock import timer

    marker = _marker(item)
    ours = str(item.config.getoption("benchmark_timer", "")) == f"{timer.__module__}.{timer.__name__}"
    if ours and "timer" not in marker:
        item.add_marker(pytest.mark.benchmark(**_long_rounds(item) | marker), append=False)


def _long_rounds(item: pytest.Item) -> dict[str, Any]:
    asked = benchmark_option(item.config, "--benchmark-calibration-precision")
    return {} if asked else {"calibration_precision": PLAIN_CALIBRATION}


def _warm(item: pytest.Item) -> dict[str, Any]:
    """Add a warm-up call before rounds are calibrated: if the first call compiles, there would be time for only five
    rounds."""
    asked = benchmark_option(item.config, "--benchmark-warmup")
    return {"warmup": True, "warmup_iterations": 1} if asked is None else {}


def equip_plain(item: pytest.Item, session: Session) -> Surroundings:
    """Give a plain benchmark of ``gpubench run`` the timer that waits, and its share of the preset's rounds; return the
    state of devices and machine before it."""
    from ..devices import in_use
    from ..measure.clock import timer, watch_present_kinds
    from ..measure.disturbance import look

    marker = _marker(item)
    if "timer" in marker:
        text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)
    share = session.preset.adjusted(marker).split(session.settings.processes)
    forced = {"max_time": share.max_time, "min_rounds": share.min_rounds, "timer": timer}
    item.add_marker(pytest.mark.benchmark(**_long_rounds(item) | _warm(item) | marker | forced), append=False)
    watch_present_kinds()
    devices = in_use() if "torch" in sys.modules else []
    for device in devices:
        device.reset_peak_memory()
    return Surroundings({device: device.allocated_memory() for device in devices}, look(devices))


def watch_calls(benchmark: Any, flags: list[Flag]) -> None:
    """Add flags for a plain benchmark's call that returns before its work is done, or changes what it is given."""
    from ..measure import calls

    def note(function: Any, given: calls.Given | None, result: Any) -> None:
        flags.extend(calls.altered(given.changed()[0]) if given else ())
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


def record_plain(item: pytest.Item, attempt: Attempt, session: Session) -> None:
    """Make a plain benchmark's record. Its device is that of a parameter or a fixture, else the accelerators on which
    it has allocated memory, else unknown."""
    from ..devices import find_device, in_use
    from ..measure import disturbance
    from ..measure.clock import DeviceClock, unwaited

    benchmark: Any = getattr(item, "funcargs", {}).get("benchmark")
    stats: Any = getattr(benchmark, "stats", None)
    if stats is None or attempt.surroundings is None:
        return
    before, case = attempt.surroundings, attempt.case
    devices = in_use() if "torch" in sys.modules else []
    if not case.device:
        names = [str(find_device(name).name) for name in _device_fixtures(item)]
        names = names or [str(device) for device in devices if _has_allocated(device, before.allocated.get(device))]
        case = structs.replace(case, device=next(iter(names), ""), devices=tuple(dict.fromkeys(names)))
    times, wait_s = stats.stats, DeviceClock(devices).wait_s() if devices else 0.0
    flags = [*attempt.flags, *disturbance.disturbed(before.moment, disturbance.look(devices), session.threads)]
    flags += [Flag("unwaited", f"{', '.join(names)} was loaded")] if (names := unwaited()) else []
    if session.judges:
        rounds_s = [seconds * stats.iterations for seconds in times.data]
        threads = 1 if session.light or devices else session.threads
        flags += [
            *disturbance.uneven(times.data, light=session.light),
            *disturbance.short(times.median * stats.iterations, times.median, wait_s),
            *disturbance.waiting(rounds_s, threads, any(flag.name == "contended" for flag in flags), stats.iterations),
        ]
    kept, index = min(times.rounds, SAMPLES_KEPT), session.settings.process
    process = Process(index, times.rounds, times.median, kept, stats.iterations, times.iqr, flags=tuple(flags))
    session.raised.extend((case, flag) for flag in flags)
    attempt.case = case
    measured = Measurement(**structs.asdict(case), wait_s=wait_s, processes=(process,))
    benchmark.extra_info[KEY] = measured.as_dict()


def _device_fixtures(item: pytest.Item) -> list[str]:
    """Names of torch devices among the values of a test's fixtures."""
    values = [value for value in item.funcargs.values() if type(value).__module__ == "torch"]  # type: ignore[attr-defined]
    return list(dict.fromkeys(str(value) for value in values if type(value).__name__ == "device"))


def _has_allocated(device: Device, before: int | None) -> bool:
    return (device.peak_memory() or 0) > (before or 0)


def _marker(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("benchmark")
    return dict(marker.kwargs) if marker else {}


def fixture_names(item: pytest.Item) -> list[str]:
    """Names of the fixtures that a test uses."""
    return list(getattr(item, "fixturenames", ()))


# The fixtures ---------------------------------------------------------------------------------------------------------


def _parameter(name: str, meaning: str) -> Any:
    def value(request: pytest.FixtureRequest) -> Any:
        return getattr(request, "param", PARAMETERS[name])

    value.__doc__ = meaning
    return pytest.fixture(name=f"gpubench_{name}")(value)


gpubench_device = _parameter("device", "Name of the benchmark's device.")
gpubench_dtype = _parameter("dtype", "Name of the benchmark's dtype.")
gpubench_implementation = _parameter("implementation", "Which library does the work.")
gpubench_variant = _parameter("variant", "How a network is run.")
gpubench_cache = _parameter("cache", "Whether the device's last cache is flushed before every round.")


@pytest.fixture
def _gpubench_parameters(
    gpubench_device: str, gpubench_dtype: str, gpubench_implementation: str, gpubench_variant: str, gpubench_cache: str
) -> None:
    """Depends on all five parameters."""


@pytest.fixture(scope="session")
def gpubench_ranks(pytestconfig: pytest.Config) -> Generator[Ranks, None, None]:
    """Worker processes, one per device, that stay alive between cases: see :class:`gpubench.parallel.ranks.Ranks`."""
    from ..parallel.ranks import Ranks

    plugin = _plugin(pytestconfig)
    ranks = plugin.ranks = Ranks(plugin.session.settings.ranks_deadline)
    yield ranks
    plugin.ranks = None
    ranks.close()


class Measured:
    """The fixture where pytest-benchmark is available. It must be in the signature, or --benchmark-only skips the
    test."""

    @pytest.fixture
    def gpubench(self, request: pytest.FixtureRequest, benchmark: Any, _gpubench_parameters: None) -> Gpubench:
        """Check, warm up, time and record one call: see :class:`gpubench.measure.fixture.Gpubench`."""
        attempt: Attempt | None = _plugin(request.config).attempts.get(request.node.nodeid)
        if attempt is None or attempt.make is None:
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        attempt.fixture = attempt.make(benchmark)
        return attempt.fixture


class Unequipped:
    """The fixture where pytest-benchmark is missing."""

    @pytest.fixture
    def gpubench(self, _gpubench_parameters: None) -> None:
        """Skip the test: nothing can time it."""
        pytest.skip("gpubench needs pytest-benchmark, which is disabled, replaced by another plugin or not installed")


def _plugin(config: pytest.Config) -> Any:
    return config.pluginmanager.getplugin("gpubench")
