"""Each private member of pytest-benchmark that gpubench uses does in this release as gpubench assumes."""

from __future__ import annotations

import re
import tomllib
import types
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_benchmark.utils import NameWrapper

from gpubench.plugin import fixtures
from gpubench.plugin.fixtures import PytestRounds, bound_rounds, set_terms, timer_of


class Clock:
    """A timer with calls of a second."""

    def __init__(self, second: float = 1.0) -> None:
        self.now_s, self.second = 0.0, second

    def __call__(self) -> float:
        return self.now_s

    def work(self, *_: object) -> str:
        self.now_s += self.second
        return "result"


def fixture_of(clock: Clock, **terms: object) -> BenchmarkFixture:
    logger = types.SimpleNamespace(debug=lambda *_, **__: None)
    usual = {
        "disable_gc": True, "min_rounds": 5, "min_time": 1e-6, "max_time": 1.0, "precision": None, "confidence": None,
        "warmup": False, "warmup_iterations": 100, "calibration_precision": 10, "add_stats": lambda stats: None,
        "logger": logger, "warner": None, "disabled": False, "cprofile": None, "cprofile_loops": None,
        "cprofile_dump": None,
    }  # fmt: skip
    node = types.SimpleNamespace(name="it", nodeid="it")
    made = BenchmarkFixture(node, timer=NameWrapper(clock), **usual | terms)
    made._precisions = {clock: 1e-9}
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_releases_that_are_allowed_are_those_that_were_tested():
    words = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["dependencies"]
    (needed,) = [each for each in map(Requirement, words) if each.name == "pytest-benchmark"]
    release = Version(metadata.version("pytest-benchmark"))
    assert release in needed.specifier
    assert f"{release.major}.{release.minor + 1}" not in needed.specifier


def test_private_members_are_used_in_one_module_alone():
    home = Path(fixtures.__file__)
    users = {path for path in home.parents[1].rglob("*.py") if re.search(r"benchmark\._[a-z]", path.read_text())}
    assert users == {home}


def test_terms_choose_timer_time_and_rounds(clock):
    benchmark, other = fixture_of(Clock(0.1)), Clock(0.1)
    for max_time, min_rounds, rounds in ((2.0, 3, 20), (0.1, 5, 5)):
        benchmark = fixture_of(clock)
        benchmark._precisions = {other: 1e-9}
        assert timer_of(benchmark) is not other
        set_terms(benchmark, timer=other, max_time=max_time, min_rounds=min_rounds)
        assert timer_of(benchmark) is other
        benchmark(other.work)
        assert benchmark.stats.stats.rounds == rounds
    assert timer_of(object()) is None


def test_rounds_are_lengthened_by_the_timers_precision():
    clock = Clock(1e-6)
    benchmark = fixture_of(clock, max_time=1e-5)
    benchmark._precisions = {clock: 1e-6}
    set_terms(benchmark, calibration_precision=100)
    benchmark(clock.work)
    assert benchmark.stats.iterations == pytest.approx(100, abs=1)


def test_one_call_warms_up(clock):
    benchmark = fixture_of(clock)
    set_terms(benchmark, warmup=1)
    benchmark(clock.work)
    calibration, warm_ups, rounds, last = 2, 1, 5, 1
    assert clock.now_s == calibration + warm_ups + rounds + last


@pytest.mark.parametrize("disabled", [False, True])
def test_rounds_that_were_timed_elsewhere_are_kept(clock, disabled):
    benchmark = fixture_of(clock, disabled=disabled)
    rounds = PytestRounds(benchmark)
    assert (rounds.enabled, rounds.fullname) == (not disabled, "it")
    assert rounds.keep([] if disabled else [3.0, 5.0, 4.0], 2, clock.work, "mine") == "result"
    assert (benchmark.group, clock.now_s) == ("mine", 1.0)
    if disabled:
        assert rounds.stats is None
    else:
        assert (rounds.stats.stats.data, rounds.stats.iterations) == ([1.5, 2.5, 2.0], 2)  # per call
        assert rounds.stats.as_dict(include_data=False)["options"]["timer"] == "device_clock"


def test_a_benchmark_that_grows_slow_has_fewer_rounds(clock, monkeypatch):
    monkeypatch.setattr(fixtures, "monotonic", clock)
    clock.second = 0.01
    benchmark = fixture_of(clock)

    def work() -> None:
        clock.second *= 1.05
        clock.work()

    bound_rounds(benchmark)
    benchmark(work)
    data = benchmark.stats.stats.data
    assert 5 <= len(data) < 100
    assert 4.0 <= sum(data) < 5.0
