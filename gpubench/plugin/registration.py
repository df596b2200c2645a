"""The plugin's options, markers and fixtures. Every pytest session loads this module, so it imports only pytest and the
declarations of options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import UsageError
from ..runfile.options import OF_PYTEST, OPTIONS, Option
from . import PARAMETERS, STATE

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..measure.ranks import Ranks
    from ..measure.session import Mode, Settings

_WHOLE = (0, 1)
"""The share of a process that measures all: process 0 of 1."""
_OF_SUPERVISOR = (
    ("plan", "PATH", "don't measure: write each benchmark as JSON, and the estimated time of all"),
    ("ledger", "PATH", "journal of gpubench run: measure what is missing in it"),
    ("match", "EXPR", "measure only benchmarks whose name matches: as -k, and also matmul.square and n=64"),
)
_MARKERS = """gpubench(kind, title, dtypes, implementations, variants, devices, size): what it is, how it is timed
gpubench_sweep(name, *, smoke, glance, quick, full): parametrise by the preset
gpubench_parallel: uses several processes or devices; leave it out with -m 'not gpubench_parallel'"""


def declare_options(parser: pytest.Parser) -> None:
    """Declare all options and their ini keys."""
    group = parser.getgroup("gpubench", "benchmarks on every device")
    for option in (*OPTIONS, *OF_PYTEST):
        kind = "bool" if option.switch else "args" if option.repeatable else "string"
        empty: Any = {"bool": False, "args": [], "string": ""}[kind]
        valued = {"metavar": option.metavar, "action": "append" if option.repeatable else "store"}
        how: dict[str, Any] = {"action": "store_true"} if option.switch else valued
        group.addoption(option.flag, help=option.help.replace("%", "%%"), default=None, **how)
        parser.addini(option.ini, option.help, type=kind, default=empty)  # type: ignore[arg-type]
    for name, metavar, text in _OF_SUPERVISOR:
        group.addoption(f"--gpubench-{name}", metavar=metavar, help=text)
    text = "be process I of N: measure a share of the rounds"
    group.addoption("--gpubench-process", metavar="I/N", type=_share, default=_WHOLE, help=text)


def _share(text: str) -> tuple[int, int]:
    process, processes = map(int, text.split("/"))
    if not 0 <= process < processes:
        raise ValueError(text)  # argparse then refuses the option
    return process, processes


def register(config: pytest.Config) -> None:
    """Register markers, fixtures, and the rest of the plugin: at the first benchmark, unless an option of gpubench is
    given or torchrun started this process."""
    for line in _MARKERS.splitlines():
        config.addinivalue_line("markers", line)
    if launched() and config.getoption("--gpubench-ledger"):  # the session that started these ranks writes the files
        for name in ("json", "save", "autosave", "save_data", "compare", "compare_fail", "histogram"):
            if hasattr(config.option, f"benchmark_{name}"):
                setattr(config.option, f"benchmark_{name}", None)
        config.option.basetemp = config.option.xmlpath = None
    config.pluginmanager.register(sys.modules[__name__], __name__)
    config.pluginmanager.register(_Measured() if _is_equipped(config) else _Unequipped())
    given = (value for name, value in vars(config.option).items() if name.startswith("gpubench_"))
    keys = (config.getini(option.ini) for option in (*OPTIONS, *OF_PYTEST))
    if launched() or any(value not in (None, False, _WHOLE) for value in given) or any(keys):
        from .hooks import Plugin

        Plugin(config)
    else:
        config.pluginmanager.register(_FirstBenchmark())


def launched() -> bool:
    """Return whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _is_equipped(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark is loaded: ``-p no:benchmark`` removes it, pytest-codspeed blocks it."""
    plugins = config.pluginmanager
    loaded = plugins.hasplugin("benchmark") or plugins.hasplugin("pytest_benchmark.plugin")  # the latter by -p
    return loaded and not plugins.is_blocked("pytest-benchmark")


def read_settings(config: pytest.Config) -> Settings:
    """Return all options, checked. Raises :class:`UsageError` for an unknown value, with a list of the known ones."""
    from ..measure.session import Settings

    values = {option.field: _value(config, option) for option in (*OPTIONS, *OF_PYTEST)}
    for name in ("max_time", "min_time"):
        seconds = benchmark_option(config, f"--benchmark-{name.replace('_', '-')}")
        values[name] = None if seconds is None else float(seconds)
    values["min_rounds"] = benchmark_option(config, "--benchmark-min-rounds")
    values["process"], values["processes"] = config.getoption("--gpubench-process")
    return Settings(**values)


def _value(config: pytest.Config, option: Option) -> Any:
    value = config.getoption(option.flag)
    if value is None:
        value = config.getini(option.ini)
    if option.switch:
        return bool(value) != option.default
    if option.repeatable:
        return tuple(map(option.parse, value)) or option.default
    return option.parse(str(value)) if value else option.default


def mode_of(config: pytest.Config) -> Mode:
    """Return the session's mode."""
    from ..measure.session import Mode

    if config.getoption("--gpubench-plan"):
        return Mode.PLAN
    if not _is_equipped(config):
        return Mode.OFF
    return Mode.RUN if config.getoption("--gpubench-ledger") else Mode.IN_PYTEST


def benchmark_option(config: pytest.Config, flag: str) -> Any:
    """Return the value of one of pytest-benchmark's options, or ``None`` if it wasn't given."""
    words = (*config.invocation_params.args, *config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split())
    return config.getoption(flag, None) if any(str(word).split("=")[0] == flag for word in words) else None


class _FirstBenchmark:
    """Loads the rest of the plugin at the first benchmark: a suite without any doesn't pay for it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        names = (*metafunc.fixturenames, *(marker.name for marker in metafunc.definition.iter_markers()))
        if any(name.startswith(("benchmark", "gpubench")) for name in names):
            from .hooks import Plugin

            metafunc.config.pluginmanager.unregister(self)
            plugin = Plugin(metafunc.config)
            plugin.pytest_sessionstart()
            plugin.pytest_generate_tests(metafunc)


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


@pytest.fixture
def gpubench_ranks(request: pytest.FixtureRequest) -> Ranks:
    """The processes, one per device, that measure a benchmark together: see :class:`gpubench.measure.ranks.Ranks`."""
    plugin: Any = request.config.pluginmanager.getplugin(STATE)
    return plugin.ranks_of(request.node.nodeid)  # type: ignore[no-any-return]


class _Measured:
    """The fixture beside pytest-benchmark's, which must be in the signature, or --benchmark-only skips the test."""

    @pytest.fixture
    def gpubench(
        self, request: pytest.FixtureRequest, benchmark: Any, _gpubench_parameters: None
    ) -> Iterator[Gpubench]:
        """Check, warm up, time and record one call: see :class:`gpubench.measure.fixture.Gpubench`."""
        plugin: Any = request.config.pluginmanager.getplugin(STATE)
        if "gpubench" not in request.node.fixturenames:
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        from .fixtures import equip

        attempt = plugin.attempts[request.node.nodeid]
        attempt.fixture = fixture = equip(request.node, attempt.case, plugin.session, benchmark)
        yield fixture
        fixture.require_no_declaration()  # of a fixture that ends


class _Unequipped:
    @pytest.fixture
    def gpubench(self, _gpubench_parameters: None) -> None:
        """Skip the test: nothing can time it."""
        pytest.skip("gpubench needs pytest-benchmark, which is disabled, replaced by another plugin or not installed")
