"""The pytest plugin. It loads in every pytest run, so importing it loads nothing but pytest."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    from .settings import declare_options

    declare_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    from . import fixtures, outcomes
    from .hooks import Plugin

    for line in (
        "gpubench(kind, title, dtypes, implementations, variants, devices, size): what a test is, and is measured with",
        "gpubench_sweep(name, *, smoke, glance, quick, full): parametrise by the preset",
        "gpubench_parallel: uses several processes or devices; leave it out with -m 'not gpubench_parallel'",
    ):
        config.addinivalue_line("markers", line)
    plugin = Plugin(config)
    config.pluginmanager.register(plugin, "gpubench")
    config.pluginmanager.register(fixtures, fixtures.__name__)
    if plugin.equipped and plugin.session.settings.plan:
        config.pluginmanager.register(outcomes.PlainPlan())
    config.pluginmanager.register(fixtures.Measured() if plugin.equipped else fixtures.Unequipped())
