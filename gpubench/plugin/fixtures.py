"""The fixtures of a test, and the options of pytest-benchmark's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ..errors import Unmeasurable, UsageError
from ..measure.session import Session
from ..runfile.flags import Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Measurement, Process
from .parametrize import PARAMETERS, declarations, fixture_names
from .settings import benchmark_option

if TYPE_CHECKING:
    from ..devices import Device
    from ..measure.budget import Preset
    from ..measure.disturbance import Moment
    from ..measure.fixture import Gpubench
    from ..measure.state import State
    from ..parallel.ranks import Ranks

RANKS = "gpubench_ranks"
"""The fixture of tests whose times are measured by other processes."""
PLAIN_CALIBRATION = 100
"""A round of a plain benchmark lasts this many waits, as in a gpubench test. With the usual 10, the wait would show."""


@dataclass(slots=True)
class Attempt:
    """A test that is measured: its identity, and its fixture."""

    case: Case
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


def equip(item: pytest.Item, case: Case, session: Session, benchmark: Any) -> Gpubench:
    """Return the fixture, which times by the clock of the case's device. Raises :class:`Unmeasurable` if the device has
    disappeared since collection."""
    from ..devices import find_device
    from ..measure.budget import MIN_ROUND, MIN_WAITS
    from ..measure.fixture import Declared, Gpubench

    choice = find_device(case.device)
    if (device := choice.device) is None:  # it was present at collection
        raise Unmeasurable(str(choice.reason))
    marker, share = _marker(item), _share(item, session)
    fixture = Gpubench(session, share, case, device, benchmark, Declared(**declarations(item, session)))
    if "timer" in marker or benchmark_option(item.config, "--benchmark-timer"):
        _warn_of_timer(item)
    benchmark._min_time = max(MIN_ROUND, MIN_WAITS * session.wait_s(device), benchmark._min_time)
    benchmark._disable_gc = marker.get("disable_gc", True)
    benchmark._timer, benchmark._max_time, benchmark._min_rounds = fixture.clock, share.max_time, share.min_rounds
    return fixture


def _warn_of_timer(item: pytest.Item) -> None:
    text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
    warnings.warn(pytest.PytestWarning(text), stacklevel=2)


def _share(item: pytest.Item, session: Session) -> Preset:
    """Return this process's share of the preset, with the values of the test's own marker."""
    return session.preset.adjusted(_marker(item)).split(session.settings.processes)


def lengthen_rounds(item: pytest.Item, benchmark: Any) -> None:
    """Lengthen the rounds of a plain benchmark that uses gpubench's timer, so that the wait doesn't show."""
    from ..measure.clock import timer

    asked = benchmark_option(item.config, "--benchmark-calibration-precision")
    if benchmark._timer is timer and not asked and "calibration_precision" not in _marker(item):
        benchmark._calibration_precision = PLAIN_CALIBRATION


def equip_plain(item: pytest.Item, session: Session, benchmark: Any) -> Surroundings:
    """Give a plain benchmark of ``gpubench run`` the timer that waits, and its share of the preset's rounds; return the
    state of devices and machine before it.

    A warm-up call is added before rounds are calibrated: if the first call compiles, there would be time for only five
    rounds.
    """
    from ..devices import in_use
    from ..measure.clock import timer, watch_present_kinds
    from ..measure.disturbance import look

    marker, share = _marker(item), _share(item, session)
    if "timer" in marker:
        _warn_of_timer(item)
    benchmark._timer, benchmark._max_time, benchmark._min_rounds = timer, share.max_time, share.min_rounds
    lengthen_rounds(item, benchmark)
    if benchmark_option(item.config, "--benchmark-warmup") is None and "warmup" not in marker:
        benchmark._warmup = 1
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
        plugin, item = _plugin(request.config), request.node
        if "gpubench" not in fixture_names(item):
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        attempt: Attempt = plugin.attempts[item.nodeid]
        attempt.fixture = equip(item, attempt.case, plugin.session, benchmark)
        return attempt.fixture


class Unequipped:
    """The fixture where pytest-benchmark is missing."""

    @pytest.fixture
    def gpubench(self, _gpubench_parameters: None) -> None:
        """Skip the test: nothing can time it."""
        pytest.skip("gpubench needs pytest-benchmark, which is disabled, replaced by another plugin or not installed")


def _plugin(config: pytest.Config) -> Any:
    return config.pluginmanager.getplugin("gpubench")
