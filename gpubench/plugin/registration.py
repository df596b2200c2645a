"""The plugin's markers and fixtures. Every pytest session loads this module, so it imports only pytest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import UsageError
from ..runfile.options import OF_PYTEST, OPTIONS
from . import PARAMETERS, STATE
from .settings import WHOLE, is_equipped, launched

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..measure.ranks import Ranks

_MARKERS = """gpubench(kind, title, dtypes, implementations, variants, devices, size): what it is, how it is timed
gpubench_sweep(name, *, smoke, glance, quick, full): parametrise by the preset
gpubench_parallel: uses several processes or devices; leave it out with -m 'not gpubench_parallel'"""


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
    config.pluginmanager.register(_Measured() if is_equipped(config) else _Unequipped())
    given = (value for name, value in vars(config.option).items() if name.startswith("gpubench_"))
    keys = (config.getini(option.ini) for option in (*OPTIONS, *OF_PYTEST))
    if launched() or any(value not in (None, False, WHOLE) for value in given) or any(keys):
        from .hooks import Plugin

        Plugin(config)
    else:
        config.pluginmanager.register(_FirstBenchmark())


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
