"""The fixtures, and what a test is measured with: its device's clock, merged into its ``benchmark`` marker."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import Unmeasurable, UsageError
from ..measure.session import Session
from ..runfile.schema import Case
from . import settings
from .hooks import RANKS, Plugin, fixture_names

if TYPE_CHECKING:
    from ..devices import Device
    from ..measure.budget import Preset
    from ..measure.clock import DeviceClock, ReplayTimer
    from ..measure.fixture import Gpubench
    from ..parallel.ranks import Ranks

PLAIN_CALIBRATION = 100
"""A plain benchmark's round lasts so many waits, as in a gpubench test. Within the usual 10 the wait would show."""


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a test is measured with."""

    device: Device
    clock: DeviceClock
    preset: Preset
    replayed: ReplayTimer | None


def equip(item: pytest.Item, case: Case, session: Session) -> Equipment:
    """Merge our benchmark marker into the test's own, since only the closest marker counts in pytest.

    The test's own settings win, except for the timer (any other would not wait) and the least length of a round.
    """
    from ..devices import find_device
    from ..measure.budget import MIN_ROUND, MIN_WAITS
    from ..measure.clock import DeviceClock, ReplayTimer

    choice = find_device(case.device)
    if choice.device is None:  # it was there at collection
        raise Unmeasurable(str(choice.reason))
    own = _marker(item)
    if "timer" in own or settings.benchmark_option(item.config, "--benchmark-timer"):
        text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)
    asked_s = settings.benchmark_option(item.config, "--benchmark-min-time") or 0
    min_s = max(MIN_ROUND, MIN_WAITS * session.wait_s(choice.device), float(own.get("min_time", 0)), float(asked_s))
    clock = DeviceClock([choice.device])
    replayed = ReplayTimer() if RANKS in fixture_names(item) else None
    share = session.share(session.preset.adjusted(own))
    forced = {"max_time": share.max_time, "min_rounds": share.min_rounds, "timer": replayed or clock, "min_time": min_s}
    item.add_marker(pytest.mark.benchmark(**({"disable_gc": True} | own | forced)), append=False)
    return Equipment(choice.device, clock, share, replayed)


def lengthen_rounds(item: pytest.Item) -> None:
    """Give a plain benchmark that uses our timer rounds in which the wait doesn't show."""
    from ..measure.clock import timer

    if str(item.config.getoption("benchmark_timer", "")) != f"{timer.__module__}.{timer.__name__}":
        return
    own = _marker(item)
    if "timer" not in own and not settings.benchmark_option(item.config, "--benchmark-calibration-precision"):
        marker = {"calibration_precision": PLAIN_CALIBRATION} | own
        item.add_marker(pytest.mark.benchmark(**marker), append=False)


def _marker(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("benchmark")
    return dict(marker.kwargs) if marker else {}


@pytest.fixture
def gpubench_device(request: pytest.FixtureRequest) -> Any:
    """Name of the case's device."""
    return getattr(request, "param", "cpu")


@pytest.fixture
def gpubench_dtype(request: pytest.FixtureRequest) -> Any:
    """Name of the case's dtype."""
    return getattr(request, "param", "float32")


@pytest.fixture
def gpubench_implementation(request: pytest.FixtureRequest) -> Any:
    """Which library does the work."""
    return getattr(request, "param", "torch")


@pytest.fixture
def gpubench_variant(request: pytest.FixtureRequest) -> Any:
    """How a network is run."""
    return getattr(request, "param", "eager")


@pytest.fixture
def gpubench_cache(request: pytest.FixtureRequest) -> Any:
    """Whether the device's last cache is flushed before every round."""
    return getattr(request, "param", "hot")


@pytest.fixture(scope="session")
def gpubench_ranks(pytestconfig: pytest.Config) -> Generator[Ranks, None, None]:
    """Several processes, one a device, kept from case to case: see :class:`gpubench.parallel.ranks.Ranks`."""
    from ..parallel.ranks import Ranks

    ranks = Ranks(Plugin.of(pytestconfig).session.settings.ranks_deadline)
    yield ranks
    ranks.close()


class Measured:
    """The fixture where pytest-benchmark is there. It must be named in the signature, or --benchmark-only skips."""

    @pytest.fixture
    def gpubench(
        self,
        request: pytest.FixtureRequest,
        benchmark: Any,
        gpubench_device: str,
        gpubench_dtype: str,
        gpubench_implementation: str,
        gpubench_variant: str,
        gpubench_cache: str,
    ) -> Gpubench:
        """Check, warm up, time on its device and label one call: see :class:`gpubench.measure.fixture.Gpubench`."""
        from ..measure.fixture import Gpubench

        plugin = Plugin.of(request.config)
        attempt = plugin.attempts.get(request.node.nodeid)
        if attempt is None or attempt.equipment is None:
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        kit = attempt.equipment
        attempt.fixture = Gpubench(
            plugin.session, kit.preset, attempt.case, kit.device, kit.clock, benchmark, kit.replayed
        )
        return attempt.fixture  # type: ignore[no-any-return]


class Unequipped:
    """The fixture where pytest-benchmark is not."""

    @pytest.fixture
    def gpubench(
        self,
        gpubench_device: str,
        gpubench_dtype: str,
        gpubench_implementation: str,
        gpubench_variant: str,
        gpubench_cache: str,
    ) -> None:
        """Skips: there is nothing to time with."""
        pytest.skip("gpubench needs pytest-benchmark, which is disabled, replaced by another plugin or not installed")
