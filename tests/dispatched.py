"""Which operations torch runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """Within, ``see`` is told each operation's overload, arguments and result."""

    def __init__(self, see: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], object]) -> None:
        super().__init__()
        self.see = see

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        self.see(operator, args, kwargs or {}, result)
        return result
