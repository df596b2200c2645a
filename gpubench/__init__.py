"""gpubench: how much faster is the GPU than the CPU, in numbers that can be trusted.

Importing this package loads neither torch nor pandas.
"""

from .measure.clock import timer
from .version import __version__

__all__ = ["__version__", "timer"]
