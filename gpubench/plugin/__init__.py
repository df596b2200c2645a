"""The pytest plugin. It loads in every pytest run, so importing it loads nothing but pytest."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    from . import hooks, outcomes, settings

    settings.declare_options(parser)
    pluginmanager.register(hooks, hooks.__name__)
    pluginmanager.register(outcomes, outcomes.__name__)
