"""The fixtures that a test requests. pytest reads them in every session, so this module imports only pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..errors import UsageError
from .settings import PARAMETERS, STATE

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..parallel.ranks import Ranks


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
    """The processes, one per device, that measure a benchmark together: see :class:`gpubench.parallel.ranks.Ranks`."""
    plugin: Any = request.config.pluginmanager.getplugin(STATE)
    return plugin.ranks_of(request.node.nodeid)  # type: ignore[no-any-return]


class Measured:
    """The fixture where pytest-benchmark is available. It must be in the signature, or --benchmark-only skips the
    test."""

    @pytest.fixture
    def gpubench(self, request: pytest.FixtureRequest, benchmark: Any, _gpubench_parameters: None) -> Gpubench:
        """Check, warm up, time and record one call: see :class:`gpubench.measure.fixture.Gpubench`."""
        from .fixtures import equip

        plugin: Any = request.config.pluginmanager.getplugin(STATE)
        if "gpubench" not in request.node.fixturenames:
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        attempt = plugin.attempts[request.node.nodeid]
        attempt.fixture = equip(request.node, attempt.case, plugin.session, benchmark)
        return attempt.fixture  # type: ignore[no-any-return]


class Unequipped:
    """The fixture where pytest-benchmark is missing."""

    @pytest.fixture
    def gpubench(self, _gpubench_parameters: None) -> None:
        """Skip the test: nothing can time it."""
        pytest.skip("gpubench needs pytest-benchmark, which is disabled, replaced by another plugin or not installed")
