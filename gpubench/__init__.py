"""gpubench: how much faster is the GPU than the CPU, in numbers that can be trusted.

Each public name is imported when it is first used: importing this package loads neither torch nor pandas. ``dir`` lists
a name only after that, since some tools (freezegun) read everything that every module lists, in the middle of a test.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .runfile.version import __version__

if TYPE_CHECKING:
    from .commands.notebook import load, load_ipython_extension, time
    from .devices import Device, register
    from .devices.implementations import Implementation, register_implementation
    from .measure.clock import add_wait, timer
    from .measure.fixture import Gpubench
    from .profiling.script import profile
    from .report.results import Results
    from .runfile.runs import read
    from .runfile.schema import Run
    from .runfile.thresholds import threshold


__all__ = [
    "Device", "Gpubench", "Implementation", "Results", "Run", "__version__", "add_wait", "load",
    "load_ipython_extension", "profile", "read", "register", "register_implementation", "threshold", "time",
    "timer",
]  # fmt: skip

_HOMES = {
    "Device": "devices", "Gpubench": "measure.fixture", "Implementation": "devices.implementations",
    "Results": "report.results", "Run": "runfile.schema", "register_implementation": "devices.implementations",
    "add_wait": "measure.clock", "load": "commands.notebook", "load_ipython_extension": "commands.notebook",
    "profile": "profiling.script", "read": "runfile.runs", "register": "devices", "threshold": "runfile.thresholds",
    "time": "commands.notebook",
    "timer": "measure.clock",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
