"""The entry point: pytest knows the installed plugin as ``gpubench``, so ``-p no:gpubench`` switches it off."""

from __future__ import annotations

from typing import Any

from gpubench import plugin


def pytest_addoption(pluginmanager: Any) -> None:
    """Register the plugin, unless ``-p gpubench.plugin`` has. Not by ``import_plugin``, whose module pytest rewrites:
    importing this one has imported it, of which pytest warns, and ends where warnings are errors."""
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, "gpubench.plugin")
