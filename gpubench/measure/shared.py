"""The values that a call reaches: a walk over them, the libraries among them, and the variables of classes and modules,
which a copied call shares with the original."""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..devices.lazy import torch

_MOST_VALUES, _MOST_ELEMENTS, _LEVELS = 10_000, 1 << 22, 4
"""Most values that are looked at, most elements of tensors and containers that are kept, and levels of containers."""
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, property, staticmethod, classmethod)
"""Kinds of values that a program binds once, such as an import: they are no state."""
LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}  # Packages that are shared wherever they lie
OURS = {"gpubench", "_pytest", "pytest_benchmark"}  # Packages whose objects, such as fixtures, are shared

Place = tuple[Any, ...]  # The way to a value: the number of its root, and the names, keys and indices from there


def walk(
    roots: Iterable[Any], parts: Callable[[Any], Iterable[tuple[Any, Any]] | None], levels: int
) -> Iterator[tuple[Place, Any]]:
    """Yield values with their places, breadth first: the roots and their named parts. A value that occurs again is
    yielded without its parts."""
    queue, known = deque[tuple[Place, Any]](((number,), root) for number, root in enumerate(roots)), set[int]()
    while queue:
        place, value = queue.popleft()
        yield place, value
        if len(place) <= levels and id(value) not in known:
            known.add(id(value))
            queue.extend(((*place, name), part) for name, part in parts(value) or ())


class State:
    """The values of the variables of classes and of dictionaries of modules at one moment, with the contents of the
    containers, objects and tensors in them."""

    def __init__(self, owners: Iterable[Any]) -> None:
        self.owners, self._room, self._kept = list(owners), _MOST_ELEMENTS, list[tuple[Any, Any]]()
        deque(itertools.islice(walk(self.owners, self._keep, _LEVELS), _MOST_VALUES), maxlen=0)

    def _keep(self, holder: Any) -> list[tuple[Any, Any]]:
        """Keep the contents of a holder, and return the named values in it that aren't code."""
        if isinstance(holder, functools._lru_cache_wrapper):
            module = sys.modules.get(str(getattr(holder, "__module__", "")))
            is_installed = "site-packages" in str(getattr(module, "__file__", None) or "site-packages")
            self._kept += [] if is_installed else [(holder, None)]
            return []
        if isinstance(holder, torch.Tensor):
            plain = type(holder) in (torch.Tensor, torch.nn.Parameter) and holder.layout is torch.strided
            if plain and not holder.is_meta and holder.numel() <= self._room:
                values = holder.detach().clone()
                self._room -= holder.numel()
                with suppress(NotImplementedError):  # torch compares no nested tensors, 4 bits or complex halves
                    torch.equal(holder.detach(), values)
                    self._kept.append((holder, values))
            return []
        contents = _contents(holder)
        if contents is None or len(contents) > self._room:
            return []
        self._room -= len(contents)
        self._kept.append((holder, contents))
        named: Any = contents.items() if isinstance(contents, dict) else enumerate(contents)
        named = [(name, getattr(part, "__func__", getattr(part, "fget", part))) for name, part in named]  # methods
        return [(name, part) for name, part in named if not isinstance(part, _CODE)]

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
            elif len(holder) != len(values) or any(left is not right for left, right in zip(holder, values)):  # noqa: B905
                holder.clear()
                (holder.update if isinstance(holder, set) else holder.extend)(values)


@contextmanager
def as_before(state: State | None) -> Iterator[None]:
    """A context in which shared variables have the values of an earlier state; afterwards they are as they were."""
    now = state and State(state.owners)
    if state:
        state.put_back()
    try:
        yield
    finally:
        if now:
            now.put_back()


def _contents(holder: Any) -> Any:
    """Return a copy of a holder's names or elements, or None for a value that holds nothing."""
    if isinstance(holder, dict):
        return dict(dict.items(holder))  # as it is, whatever a subclass makes of it
    if isinstance(holder, list | set | deque):
        return type(holder)(holder)
    if isinstance(holder, type) or (hasattr(holder, "__dict__") and not isinstance(holder, _CODE)):
        return {name: value for name, value in vars(holder).items() if not str(name).startswith("__")}
    return None


def _restore_names(holder: Any, values: dict[Any, Any]) -> None:
    is_mapping = isinstance(holder, dict)
    now = dict(dict.items(holder)) if is_mapping else dict(vars(holder))
    put, drop = (
        (holder.__setitem__, holder.pop)
        if is_mapping
        else (functools.partial(setattr, holder), functools.partial(delattr, holder))
    )
    for name in now.keys() - values.keys():
        if not (isinstance(name, str) and name.startswith("__")) and not isinstance(now[name], _CODE):
            drop(name)
    for name, value in values.items():
        if not isinstance(value, _CODE) and (name not in now or now[name] is not value):
            put(name, value)


def is_library(name: str) -> bool:
    """Whether a module isn't the user's."""
    module = sys.modules.get(name)
    return _is_library(name, "" if module is None else getattr(module, "__file__", None))


@functools.cache
def _is_library(name: str, place: str | None) -> bool:
    if name == "__main__" or name.partition(".")[0] in LIBRARIES | OURS:
        return name != "__main__" and not name.startswith("gpubench.benchmarks")
    return place is None or bool({"site-packages", "dist-packages"} & set(Path(place).parts))


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
