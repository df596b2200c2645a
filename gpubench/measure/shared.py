"""The state that a copied call shares with the original: variables of classes and modules, which aren't copied."""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..devices.lazy import torch

_MOST_HOLDERS, _MOST_ELEMENTS, _LEVELS = 5_000, 1 << 22, 3
"""Most containers that are looked at, most elements of tensors and containers that are kept, and levels of containers
within containers."""
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, property, staticmethod, classmethod)
"""Kinds of values that a program binds once, such as an import: they are no state."""

LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}
"""Packages that are shared wherever they lie."""
OURS = {"gpubench", "_pytest", "pytest_benchmark"}
"""Packages whose objects, such as fixtures, are shared."""


class State:
    """The values of the variables of classes and of dictionaries of modules at one moment, with the contents of the
    containers, objects and tensors in them."""

    def __init__(self, owners: Iterable[Any]) -> None:
        self._owners = list(owners)
        self._room = _MOST_ELEMENTS
        self._kept = list(self._look())

    def _look(self) -> Iterator[tuple[Any, Any]]:
        queue = deque((owner, 0) for owner in self._owners)
        known: set[int] = set()
        while queue and len(known) < _MOST_HOLDERS:
            holder, level = queue.popleft()
            if id(holder) in known:
                continue
            known.add(id(holder))
            if isinstance(holder, functools._lru_cache_wrapper):
                if not _is_installed(holder):
                    yield holder, None
                continue
            values = _contents(holder)
            if values is None:
                continue
            size = values.numel() if isinstance(values, torch.Tensor) else len(values)
            if size > self._room:
                continue
            self._room -= size
            yield holder, values.detach().clone() if isinstance(values, torch.Tensor) else values
            if level < _LEVELS and not isinstance(values, torch.Tensor):
                parts = values.values() if isinstance(values, dict) else values
                parts = [getattr(part, "__func__", getattr(part, "fget", part)) for part in parts]  # methods of a class
                queue.extend((part, level + 1) for part in parts if not isinstance(part, _CODE))

    def put_back(self) -> None:
        """Restore the values that have changed."""
        for holder, values in self._kept:
            if isinstance(holder, functools._lru_cache_wrapper):
                holder.cache_clear()  # it fills itself again
            elif isinstance(holder, torch.Tensor):
                if not torch.equal(holder.detach(), values):
                    with torch.no_grad():
                        holder.copy_(values)
            elif isinstance(values, dict):
                _restore_names(holder, values)
            elif len(holder) != len(values) or any(map(_differ, holder, values)):
                holder.clear()
                (holder.update if isinstance(holder, set) else holder.extend)(values)


@contextmanager
def as_before(state: State | None) -> Iterator[None]:
    """A context in which shared variables have the values of an earlier state; afterwards they are as they were."""
    if state is None:
        yield
        return
    now = State(state._owners)
    state.put_back()
    try:
        yield
    finally:
        now.put_back()


def _is_installed(function: Any) -> bool:
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    return "site-packages" in str(getattr(module, "__file__", None) or "site-packages")


def _differ(left: Any, right: Any) -> bool:
    return left is not right


def _contents(holder: Any) -> Any:
    """Return a copy of a holder's names or elements, the tensor itself, or None for a value that holds nothing."""
    if isinstance(holder, torch.Tensor):
        plain = type(holder) in (torch.Tensor, torch.nn.Parameter) and holder.layout is torch.strided
        return holder if plain and not holder.is_meta else None
    if isinstance(holder, dict):
        return dict(dict.items(holder))  # as it is, whatever a subclass makes of it
    if isinstance(holder, list | set | deque):
        return type(holder)(holder)
    if isinstance(holder, type) or (hasattr(holder, "__dict__") and not isinstance(holder, _CODE)):
        return {name: value for name, value in vars(holder).items() if not _is_special(name)}
    return None


def _is_special(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("__")


def _restore_names(holder: Any, values: dict[Any, Any]) -> None:
    mapping = holder if isinstance(holder, dict) else None
    now = dict(dict.items(holder)) if mapping is not None else vars(holder)
    for name in [name for name in now if name not in values and not _is_special(name)]:
        if not isinstance(now[name], _CODE):
            mapping.pop(name, None) if mapping is not None else delattr(holder, name)
    for name, value in values.items():
        if not isinstance(value, _CODE) and (name not in now or now[name] is not value):
            if mapping is not None:
                mapping[name] = value
            else:
                setattr(holder, name, value)


# Which objects a copy shares ------------------------------------------------------------------------------------------


def is_library(name: str) -> bool:
    """Whether a module isn't the user's."""
    module = sys.modules.get(name)
    return _is_library(name, "" if module is None else getattr(module, "__file__", None))


@functools.cache
def _is_library(name: str, place: str | None) -> bool:
    if name.partition(".")[0] in LIBRARIES | OURS:
        return name != "__main__" and not name.startswith("gpubench.benchmarks")
    if name == "__main__":
        return False
    return place is None or bool({"site-packages", "dist-packages"} & set(Path(place).parts))


def is_ours(kind: type) -> bool:
    """Whether a type is of the fixtures, whose objects are the same for all calls."""
    root = str(kind.__module__).partition(".")[0]
    return root in OURS and not kind.__module__.startswith("gpubench.benchmarks")


def is_importable(value: Any) -> bool:
    """Whether a function is an attribute of a library module, or of a class there."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    if found is None or not is_library(found.__name__):
        return False
    for name in str(getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found is value


def is_stateless(value: Any) -> bool:
    """Whether a class or function is of the standard library, torch, NumPy or the fixtures."""
    root = str(value.__module__).partition(".")[0]
    return root in LIBRARIES | OURS and value.__module__ != "__main__" and is_importable(value)
