"""gpubench: how much faster is the GPU than the CPU, in numbers that can be trusted.

Each public name is imported when it is first used: importing this package loads neither torch nor pandas.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .devices import Device, register
    from .measure.clock import timer
    from .measure.fixture import Gpubench
    from .runfile.reader import read
    from .runfile.schema import Run

__all__ = ["Device", "Gpubench", "Run", "__version__", "read", "register", "timer"]

_HOMES = {
    "Device": "devices", "Gpubench": "measure.fixture", "Run": "runfile.schema", "read": "runfile.reader",
    "register": "devices", "timer": "measure.clock",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
