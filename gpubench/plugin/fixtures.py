"""The preparation of a test's fixtures, and of pytest-benchmark's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ..errors import Unmeasurable
from ..measure.session import Session
from ..runfile.flags import Flag
from ..runfile.schema import Case
from .benchmark_fixture import (
    PytestRounds,
    bound_rounds,
    has_timer,
    lengthen_rounds,
    set_terms,
    warm_up_once,
    watch_calls,
)
from .parametrize import declarations
from .settings import benchmark_option

if TYPE_CHECKING:
    from ..measure.budget import Preset
    from ..measure.fixture import Gpubench
    from ..measure.state import State

RANKS = "gpubench_ranks"
"""The fixture of tests whose times are measured by other processes."""


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
    from ..measure.fixture import Gpubench
    from ..measure.plan import Declared

    choice = find_device(case.device)
    if (device := choice.device) is None:  # it was present at collection
        raise Unmeasurable(str(choice.reason))
    preset = _preset_of(item, session)
    declared = Declared(**declarations(item, session), collects=not _marker(item).get("disable_gc", True))
    fixture = Gpubench(session, preset, case, device, PytestRounds(benchmark), declared)
    _set_terms(item, benchmark, fixture.clock, preset)
    return fixture


def _preset_of(item: pytest.Item, session: Session) -> Preset:
    return session.preset.adjusted(_marker(item)).split(session.settings.processes)


def _set_terms(item: pytest.Item, benchmark: Any, timer: Callable[[], float], preset: Preset) -> None:
    asked = "timer" in _marker(item) or benchmark_option(item.config, "--benchmark-timer")
    if set_terms(benchmark, timer, preset) and asked:
        text = f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"
        warnings.warn(pytest.PytestWarning(text), stacklevel=2)


def calibrate_plain(item: pytest.Item, benchmark: Any) -> None:
    """Lengthen the rounds of a plain benchmark that uses gpubench's timer."""
    from ..measure.clock import timer

    asked = benchmark_option(item.config, "--benchmark-calibration-precision")
    if has_timer(benchmark, timer) and not asked and "calibration_precision" not in _marker(item):
        lengthen_rounds(benchmark)


class Plain:
    """A plain benchmark of ``gpubench run``, a case without declarations: its rounds are pytest-benchmark's own, by the
    timer that waits, as many as are this process's share of the preset.
    """

    def __init__(self, item: pytest.Item, session: Session, benchmark: Any) -> None:
        from ..devices import in_use
        from ..measure.clock import timer, watch_present_kinds
        from ..measure.disturbance import read_counters

        self._item, self._session, self._benchmark = item, session, benchmark
        _set_terms(item, benchmark, timer, _preset_of(item, session))
        calibrate_plain(item, benchmark)
        if benchmark_option(item.config, "--benchmark-warmup") is None and "warmup" not in _marker(item):
            warm_up_once(benchmark)
        bound_rounds(benchmark)
        watch_present_kinds()
        devices = in_use() if "torch" in sys.modules else []
        for device in devices:
            device.reset_peak_memory()
        self._allocated = {device: device.allocated_memory() for device in devices}
        self._before = read_counters(devices)
        self._flags: list[Flag] = []
        watch_calls(benchmark, self._flags)

    def record(self, case: Case) -> Case:
        """Record the benchmark, if it was timed. Its device is that of a parameter or a fixture, else the accelerators
        on which it has allocated memory, else unknown; return the case with it."""
        from ..devices import find_device, in_use
        from ..measure.clock import unwaited
        from ..measure.disturbance import disturbed, read_counters
        from ..measure.plan import Rounds
        from ..measure.record import record

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
        flags = [*self._flags, *disturbed(self._before, read_counters(devices))]
        flags += [Flag("unwaited", f"{', '.join(names)} was loaded")] if (names := unwaited()) else []
        record(self._session, self._benchmark, case, devices, Rounds(tuple(flags)))
        return case


def _marker(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("benchmark")
    return dict(marker.kwargs) if marker else {}
