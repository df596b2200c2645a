"""What the steps of a measurement hand on: see :class:`gpubench.measure.fixture.Gpubench`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..devices import Device
from ..runfile.flags import Flag
from ..runfile.schema import Check, Work
from .disturbance import Moment
from .work import Counted


@dataclass(frozen=True, slots=True)
class Request:
    """What the test passed to the fixture's call. ``work`` is the declared one."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    work: Work
    check: Callable[..., Any] | bool | str
    setup: Callable[[], Any] | None
    devices: Iterable[str]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with the arguments of one call, its work as declared and counted, and the devices it names."""

    request: Request
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    work: Work
    counted: Counted | None
    further: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """The call in its variant, the outcome of its check, and the seconds of the first call (compiling included).

    ``again`` repeats the call with the same arguments; it is ``None`` where each call needs a setup.
    """

    call: Callable[..., Any]
    again: Callable[[], Any] | None
    check: Check
    first_s: float


@dataclass(frozen=True, slots=True)
class Warm:
    """Seconds of a warm call, and of a round of one call with its setup; the machine's state before them."""

    call_s: float
    round_s: float
    before: Moment


@dataclass(frozen=True, slots=True)
class Timed:
    """The last round's result, and what was measured beside the rounds, which pytest-benchmark keeps."""

    result: Any
    latency_s: float | None
    memory_bytes: int | None
    flags: tuple[Flag, ...]
