"""The pytest plugin. It is loaded in every pytest run, so importing it imports only pytest."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare gpubench's options."""
    from .settings import declare_options

    declare_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and the fixtures; the rest is loaded when an option or a test asks for it."""
    from . import requested
    from .settings import equipped, is_asked_for, launched, write_no_files

    for line in (
        "gpubench(kind, title, dtypes, implementations, variants, devices, size): what it is, how it is timed",
        "gpubench_sweep(name, *, smoke, glance, quick, full): parametrise by the preset",
        "gpubench_parallel: uses several processes or devices; leave it out with -m 'not gpubench_parallel'",
    ):
        config.addinivalue_line("markers", line)
    if launched() and config.getoption("--gpubench-ledger"):
        write_no_files(config)
    config.pluginmanager.register(requested, requested.__name__)
    config.pluginmanager.register(requested.Measured() if equipped(config) else requested.Unequipped())
    if is_asked_for(config):
        load(config)
    else:
        config.pluginmanager.register(FirstBenchmark())


def load(config: pytest.Config) -> Any:
    """Register the plugin's state with its hooks, and return it."""
    from ..measure.run_settings import Mode
    from . import outcomes
    from .hooks import Plugin
    from .settings import STATE, equipped

    plugin = Plugin(config)
    config.pluginmanager.register(plugin, STATE)
    if equipped(config) and plugin.session.mode is Mode.PLAN:
        config.pluginmanager.register(outcomes.Listed())
    return plugin


class FirstBenchmark:
    """Loads the rest of the plugin at the first benchmark: a suite without any doesn't pay for it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Load the plugin if this test has a fixture or a marker of a benchmark."""
        names = (*metafunc.fixturenames, *(marker.name for marker in metafunc.definition.iter_markers()))
        if any(name.startswith(("benchmark", "gpubench")) for name in names):
            metafunc.config.pluginmanager.unregister(self)
            plugin = load(metafunc.config)
            plugin.pytest_sessionstart()
            plugin.pytest_generate_tests(metafunc)
