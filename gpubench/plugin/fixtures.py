"""The fixtures: ``gpubench``, those that carry a case's parameters, and the processes of ``gpubench_ranks``."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import UsageError
from .hooks import Plugin

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..parallel.ranks import Ranks


@pytest.fixture
def gpubench_device(request: pytest.FixtureRequest) -> Any:
    """Name of the case's device."""
    return getattr(request, "param", "cpu")


@pytest.fixture
def gpubench_dtype(request: pytest.FixtureRequest) -> Any:
    """Name of the case's dtype."""
    return getattr(request, "param", "float32")


@pytest.fixture
def gpubench_implementation(request: pytest.FixtureRequest) -> Any:
    """Which library does the work."""
    return getattr(request, "param", "torch")


@pytest.fixture
def gpubench_variant(request: pytest.FixtureRequest) -> Any:
    """How a network is run."""
    return getattr(request, "param", "eager")


@pytest.fixture
def gpubench_cache(request: pytest.FixtureRequest) -> Any:
    """Whether the device's last cache is flushed before every round."""
    return getattr(request, "param", "hot")


@pytest.fixture(scope="session")
def gpubench_ranks(pytestconfig: pytest.Config) -> Generator[Ranks, None, None]:
    """Several processes, one a device, kept from case to case: see :class:`gpubench.parallel.ranks.Ranks`."""
    from ..parallel.ranks import Ranks

    ranks = Ranks(Plugin.of(pytestconfig).session.settings.ranks_deadline)
    yield ranks
    ranks.close()


class Measured:
    """The fixture where pytest-benchmark is there. It must be named in the signature, or --benchmark-only skips."""

    @pytest.fixture
    def gpubench(
        self,
        request: pytest.FixtureRequest,
        benchmark: Any,
        gpubench_device: str,
        gpubench_dtype: str,
        gpubench_implementation: str,
        gpubench_variant: str,
        gpubench_cache: str,
    ) -> Gpubench:
        """Check, warm up, time on its device and label one call: see :class:`gpubench.measure.fixture.Gpubench`."""
        from ..measure.fixture import Gpubench

        plugin = Plugin.of(request.config)
        attempt = plugin.attempts.get(request.node.nodeid)
        if attempt is None or attempt.equipment is None:
            raise UsageError("ask for gpubench in the test's signature, not by getfixturevalue()")
        kit = attempt.equipment
        attempt.fixture = Gpubench(
            plugin.session, kit.preset, attempt.case, kit.device, kit.clock, benchmark, kit.replayed
        )
        return attempt.fixture  # type: ignore[no-any-return]


class Unequipped:
    """The fixture where pytest-benchmark is not."""

    @pytest.fixture
    def gpubench(
        self,
        gpubench_device: str,
        gpubench_dtype: str,
        gpubench_implementation: str,
        gpubench_variant: str,
        gpubench_cache: str,
    ) -> None:
        """Skips: there is nothing to time with."""
        pytest.skip("gpubench needs pytest-benchmark, which is disabled, replaced by another plugin or not installed")
