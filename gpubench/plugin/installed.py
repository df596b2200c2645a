"""The entry point of the installed plugin. pytest knows it as ``gpubench``, so that ``-p no:gpubench`` switches it
off."""

from __future__ import annotations

import pytest


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugin, unless ``-p gpubench.plugin`` has loaded it."""
    pluginmanager.import_plugin("gpubench.plugin")
