"""The pytest plugin. It is loaded in every pytest run, so importing it imports only pytest."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare gpubench's options."""
    from .settings import declare_options

    declare_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, Any, Any]:
    """For ``gpubench run``, undo those options of a project with which it would not be measured."""
    known = early_config.known_args_namespace
    if not (known.gpubench_ledger or known.gpubench_plan):
        return (yield)
    from . import overrides

    overrides.take_back(early_config, parser, args)
    result = yield
    overrides.leave_out_unknown(early_config, parser, args)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Undo them again, before any other plugin acts on its options."""
    from . import overrides

    overrides.parse_finished(config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, the fixtures and the plugin's state."""
    from ..measure.session import Mode
    from . import fixtures, outcomes
    from .hooks import Plugin
    from .settings import equipped

    for line in (
        "gpubench(kind, title, dtypes, implementations, variants, devices, size): what it is, how it is timed",
        "gpubench_sweep(name, *, smoke, glance, quick, full): parametrise by the preset",
        "gpubench_parallel: uses several processes or devices; leave it out with -m 'not gpubench_parallel'",
    ):
        config.addinivalue_line("markers", line)
    plugin = Plugin(config)
    config.pluginmanager.register(plugin, "gpubench")
    config.pluginmanager.register(fixtures, fixtures.__name__)
    if not equipped(config):
        config.pluginmanager.register(fixtures.Unequipped())
        return
    config.pluginmanager.register(fixtures.Measured())
    if plugin.session.mode is Mode.PLAN:
        config.pluginmanager.register(outcomes.Listed())
