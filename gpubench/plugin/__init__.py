"""The pytest plugin, which every pytest run loads: importing it imports nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

STATE = "gpubench.session"
"""The name of the plugin's state, a :class:`~gpubench.plugin.hooks.Plugin`, among pytest's plugins."""
PARAMETERS = {"device": "cpu", "dtype": "float32", "implementation": "torch", "variant": "eager", "cache": "hot"}
"""Parameters of a case, each set by the fixture ``gpubench_NAME``, with the value in a test without that fixture."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare gpubench's options."""
    from .settings import declare_options

    declare_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and fixtures; the rest is loaded when an option or a test asks for it."""
    from .registration import register

    register(config)
