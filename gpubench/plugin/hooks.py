"""The pytest plugin: options, fixtures and hooks. It loads in every pytest run, so it imports torch only for a test
that asks for it, and never touches a device while pytest is being configured."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import Unmeasurable, UsageError
from ..measure.session import Session
from ..runfile.schema import Case
from . import settings
from .outcomes import CASE, GPUBENCH, MEASURING, RECORDER, SESSION
from .parametrize import AMBIGUOUS_NAMES, plain_case_of

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..parallel.ranks import Ranks

RANKS = "gpubench_ranks"
"""The fixture of a case whose durations come from other processes, through a timer that replays them."""


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "gpubench(dtypes, implementations, variants, devices, size): on which terms a gpubench test is measured",
        "gpubench_sweep(name, *, smoke, quick, full): parametrise by the preset",
        "parallel: uses several processes or devices; leave it out with -m 'not parallel'",
    ):
        config.addinivalue_line("markers", line)
    if settings.secondary():
        config.option.benchmark_json = None  # torchrun's rank 0 writes for all
    try:
        config.stash[SESSION] = Session(settings.read_settings(config))
    except UsageError as error:
        raise pytest.UsageError(f"gpubench: {error}") from None
    config.pluginmanager.register(Measured() if _equipped(config) else Unequipped())


def _equipped(config: pytest.Config) -> bool:
    """Whether pytest-benchmark is there and in charge: ``-p no:benchmark`` takes it out, pytest-codspeed blocks it."""
    plugins = config.pluginmanager
    return plugins.hasplugin("benchmark") and not plugins.is_blocked("pytest-benchmark")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse unknown and missing devices before anything is collected. Only then, and if named, is torch imported."""
    own = session.config.stash[SESSION]
    try:
        if own.settings.required:
            own.require_devices()
        if set(own.settings.devices) - {"auto", "all", "cpu"}:
            _ = own.choices
    except UsageError as error:
        raise pytest.UsageError(f"gpubench: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"gpubench", "gpubench_device", "gpubench_variant"} <= set(metafunc.fixturenames):
        from .parametrize import parametrize

        try:
            parametrize(metafunc, metafunc.config.stash[SESSION])
        except UsageError as error:
            raise pytest.UsageError(f"gpubench: {error}") from None


def _fixture_names(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell files of the same name apart. For the supervisor: only the cases it names, in this process's own order."""
    files = Counter(path.name for path in {item.path for item in items})
    config.stash[AMBIGUOUS_NAMES] = {name for name, count in files.items() if count > 1}
    if settings.launched():  # by torchrun: what one process measures would be measured by all at once
        config.hook.pytest_deselected(items=[item for item in items if RANKS not in _fixture_names(item)])
        items[:] = [item for item in items if RANKS in _fixture_names(item)]
    from .recorder import ORDER, SOURCES

    config.stash[SOURCES] = {item.path for item in items if "benchmark" in _fixture_names(item)}
    if only := config.getoption("--gpubench-only"):
        names = set(json.loads(Path(only).read_text(encoding="utf-8")))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = [item for item in items if item.nodeid in names]
    config.stash[ORDER] = {item.nodeid: place for place, item in enumerate(items)}
    asked = config.stash[SESSION].settings
    if config.getoption("--gpubench-process"):
        random.Random(f"{asked.seed}/{asked.process}").shuffle(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    if session.testsfailed or AMBIGUOUS_NAMES not in config.stash:
        return  # a file that can't be imported, or a -k that pytest refused: it won't run any
    supervised = bool(config.getoption("--gpubench-ledger"))  # then plain benchmarks are cases too
    wanted = "benchmark" if supervised else "gpubench"
    ours = [item for item in session.items if wanted in _fixture_names(item)]
    if not ours or config.option.collectonly or config.getoption("--gpubench-plan"):
        if ours:
            config.stash[MEASURING] = True
        return
    config.stash[MEASURING] = True
    config.stash[SESSION].collected = _cases(ours)
    path = _ledger_path(config)
    if path and _equipped(config) and not _disabled(config):
        from .recorder import Recorder

        try:
            config.stash[RECORDER] = Recorder(config, config.stash[SESSION], path)
            config.stash[RECORDER].begin(session.items)
        except UsageError as error:
            raise pytest.UsageError(f"gpubench: {error}") from None


def _cases(items: list[pytest.Item]) -> list[Case]:
    """Those of gpubench tests that will run: for what they need, ceilings are measured."""
    from .parametrize import case_of

    own = [item for item in items if "gpubench" in _fixture_names(item) and item.get_closest_marker("skip") is None]
    return [case_of(item) for item in own]


def _ledger_path(config: pytest.Config) -> Path | None:
    """Where the supervisor says, or beside the run file."""
    if given := config.getoption("--gpubench-ledger"):
        return Path(given)
    run_file = config.getoption("benchmark_json", None)
    return Path(run_file).with_suffix(".ledger.jsonl") if run_file else None


def _disabled(config: pytest.Config) -> bool:
    """Whether pytest-benchmark won't time anything: then it writes no file, and neither do we."""
    workers = config.getoption("dist", "no") != "no" or hasattr(config, "workerinput")
    off = config.getoption("benchmark_disable", False) and not config.getoption("benchmark_enable", False)
    return bool(workers or off or config.getoption("benchmark_skip", False))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Before pytest-benchmark makes its fixture: know the case, and give it the clock of its device.

    A fixture that asks for too much memory makes the case a skip, as the test itself would.
    """
    if "gpubench" not in _fixture_names(item):
        if "benchmark" in _fixture_names(item) and _equipped(item.config):
            _tighten(item)
            if recorder := item.config.stash.get(RECORDER, None):
                item.stash[CASE] = plain_case_of(item)
                recorder.start(item, item.stash[CASE])
        return (yield)
    from msgspec import structs

    from .parametrize import case_of

    session = item.config.stash[SESSION]
    if not session.settings.plan:
        _ = session.before, session.canary
    item.stash[CASE] = structs.replace(case_of(item), threads=session.threads)
    session.begun[item.nodeid] = item.stash[CASE]
    if recorder := item.config.stash.get(RECORDER, None):
        recorder.start(item, item.stash[CASE])
    if item.get_closest_marker("skip") is None and _equipped(item.config):
        _equip(item, session)
    try:
        return (yield)
    except Unmeasurable as error:
        pytest.skip(str(error))


def _equip(item: pytest.Item, session: Session) -> None:
    """Merge our benchmark marker into the test's own: only the closest marker counts in pytest.

    The test's own settings win, but for the timer (any other would not wait) and for the least length of a round.
    """
    from ..devices import find_device
    from ..measure.budget import MIN_ROUND, MIN_WAITS
    from ..measure.clock import DeviceClock, ReplayTimer

    choice = find_device(item.stash[CASE].device)
    if choice.device is None:  # it was there at collection
        raise Unmeasurable(str(choice.reason))
    marker = item.get_closest_marker("benchmark")
    own = dict(marker.kwargs) if marker else {}
    if "timer" in own or settings.benchmark_option(item.config, "--benchmark-timer"):
        warnings.warn(
            pytest.PytestWarning(f"{item.nodeid}: another timer was asked for, gpubench uses the one that waits"),
            stacklevel=2,
        )
    least = max(MIN_ROUND, MIN_WAITS * session.wait_s(choice.device), float(own.get("min_time", 0)))
    least = max(least, float(settings.benchmark_option(item.config, "--benchmark-min-time") or 0))
    clock = DeviceClock([choice.device])
    replayed = ReplayTimer() if RANKS in _fixture_names(item) else None
    whole = session.preset.adjusted(own)
    part = session.share(whole)
    ours = {"max_time": part.max_time, "min_rounds": part.min_rounds, "timer": replayed or clock, "min_time": least}
    item.add_marker(pytest.mark.benchmark(**({"disable_gc": True} | own | ours)), append=False)
    item.stash[_EQUIPMENT] = (choice.device, clock, part, replayed)


def _tighten(item: pytest.Item) -> None:
    """Give a plain benchmark that uses our timer rounds of 100 waits, as ours have: 10 would show the wait."""
    from ..measure.clock import timer

    if str(item.config.getoption("benchmark_timer", "")) != f"{timer.__module__}.{timer.__name__}":
        return
    marker = item.get_closest_marker("benchmark")
    own = dict(marker.kwargs) if marker else {}
    if "timer" not in own and not settings.benchmark_option(item.config, "--benchmark-calibration-precision"):
        item.add_marker(pytest.mark.benchmark(**({"calibration_precision": 100} | own)), append=False)


_EQUIPMENT = pytest.StashKey[tuple[Any, Any, Any, Any]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A case that doesn't fit this machine is a skip, with its numbers as the reason."""
    try:
        return (yield)
    except Unmeasurable as error:
        pytest.skip(str(error))


# Fixtures --------------------------------------------------------------------------------------------------------


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

    ranks = Ranks(pytestconfig.stash[SESSION].settings.ranks_deadline)
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

        item, session = request.node, request.config.stash[SESSION]
        if _EQUIPMENT not in item.stash:
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        device, clock, preset, replayed = item.stash[_EQUIPMENT]
        gpubench = Gpubench(session, preset, item.stash[CASE], device, clock, benchmark, replayed)
        item.stash[GPUBENCH] = gpubench
        return gpubench


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
