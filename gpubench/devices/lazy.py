"""Packages that take seconds to load: each is imported when something of it is first used."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["np", "psutil", "pytree", "threadpoolctl", "torch"]


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(sys.modules.get(self._name) or importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import numpy as np
    import psutil
    import threadpoolctl
    import torch
    from torch.utils import _pytree as pytree
else:
    names = "numpy", "torch.utils._pytree", "torch", "psutil", "threadpoolctl"
    np, pytree, torch, psutil, threadpoolctl = map(_Lazy, names)
