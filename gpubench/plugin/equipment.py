"""What a test is measured with: its identity, and its device's clock, merged into its ``benchmark`` marker."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import Unmeasurable
from ..measure.session import Session
from ..runfile.schema import Case
from . import settings

if TYPE_CHECKING:
    from ..devices import Device
    from ..measure.budget import Preset
    from ..measure.clock import DeviceClock, ReplayTimer

RANKS = "gpubench_ranks"
"""The fixture of tests whose times come from other processes."""
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
    share = session.preset.adjusted(own).split(session.settings.processes)
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


class Attempt:
    """One test that is measured: its identity, what it is measured with, and the fixture that it was given."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.equipment: Equipment | None = None
        self.fixture: Any = None


def fixture_names(item: pytest.Item) -> list[str]:
    """Names of the fixtures that a test uses."""
    return list(getattr(item, "fixturenames", ()))
