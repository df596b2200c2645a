"""Checks of a call: unfinished results, and changed inputs, so that later calls are timed on other data."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import io
import itertools
import operator
import re
import sys
import zlib
from array import array
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..runfile.flags import Flag

_MOST_LOOKED_AT = 100_000
"""Elements of a container, and bytes / 1,000 of an array, that are compared; of larger ones an even sample."""
_LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}
"""Modules whose variables aren't the user's."""
_ENDLESS = (itertools.count, itertools.cycle, itertools.repeat)
_WORKERS = {
    ("concurrent.futures", "Future"): "result()",
    ("multiprocessing.pool", "ApplyResult"): "get()",
    ("multiprocessing.process", "BaseProcess"): "join()",
    ("polars", "LazyFrame"): "collect()",
    ("subprocess", "Popen"): "wait()",
    ("threading", "Thread"): "join()",
    ("torch.distributed", "Work"): "wait()",
    ("torch.futures", "Future"): "wait()",
}
"""Classes, by module and name, of work that goes on or begins elsewhere, with the method that returns its result."""


# Is the work done? ----------------------------------------------------------------------------------------------------


def unfinished(function: Any, result: Any = None) -> str:
    """Return why a call that returned this has not done its work yet, with the way to time it; empty if it has, as far
    as can be seen. Seen are coroutines, generators and other iterators, futures, processes, threads, and what Dask and
    Polars put off, also in containers."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return _AWAITED
    if inspect.isgeneratorfunction(function):
        return f"a generator, {_READ}"
    for leaf in itertools.islice(_inner(result), 10_000):
        if inspect.isawaitable(leaf) or isinstance(leaf, AsyncIterator):
            return _AWAITED
        kind = type(leaf).__name__
        if isinstance(leaf, Iterator) and not isinstance(leaf, io.IOBase):
            return f"{'a generator' if inspect.isgenerator(leaf) else f'an iterator ({kind})'}, {_READ}"
        if method := _waiting_method(leaf):
            return f"a {kind}, which may still be working, or not have begun: time f(x).{method}"
    return ""


def _waiting_method(value: Any) -> str:
    """Return the method that waits for the work of a worker or of Dask's graph; empty for any other value. Classes of
    modules that aren't loaded can't have instances."""
    for (module, name), method in _WORKERS.items():
        worker = getattr(sys.modules.get(module), name, None)
        if isinstance(worker, type) and isinstance(value, worker):  # a test may have put a function in its place
            return method
    graph = getattr(type(value), "__dask_graph__", None)  # of an xarray that is computed it is None
    return "compute()" if graph and value.__dask_graph__() is not None else ""


_AWAITED = "a coroutine, which does its work when it is awaited: time asyncio.run(f(x)), or gpubench time 'await f(x)'"
_READ = "which does its work when it is read: time list(f(x))"


def _inner(value: Any, levels: int = 4) -> Iterator[Any]:
    """The value, and the first values in it where it is a container or a dataclass, also of nested ones."""
    yield value
    held: Any = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
    held = vars(value).values() if dataclasses.is_dataclass(value) and hasattr(value, "__dict__") else held
    for each in list(itertools.islice(held, 100)) if levels else ():
        yield from _inner(each, levels - 1)


def _leaves(value: Any) -> list[Any]:
    """The value, or the values of a list, tuple or dict of at most a hundred."""
    if isinstance(value, Mapping) and len(value) <= 100:
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) and len(value) <= 100 else [value]


# Does it change what it is given? -------------------------------------------------------------------------------------


class Given:
    """What a call is given, as it was when this was made: the arguments, what the function is bound to, and the
    variables that it uses. Tensors are known by torch's count of writes, arrays by a checksum, containers by the
    objects in them, iterators by what is left of them. What is written on purpose isn't looked at: ``out=``, and the
    first argument of a function whose name ends with an underscore, as torch's do."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._read = [*args, *(value for name, value in kwargs.items() if name != "out")]
        self._seen = self._look()

    def changed(self) -> tuple[list[str], bool]:
        """Return the kinds of values that are different now, ``list`` or ``Tensor``, and whether another result may be
        right: tensors or arrays are different, of a network or an object too, or an argument. A cache is neither."""
        now = self._look()
        found = {key: name for key, (name, seen) in self._seen.items() if now.get(key, (name, seen))[1] != seen}
        arguments = {id(leaf) for value in (*self._args, *self._kwargs.values()) for leaf in [value, *_leaves(value)]}
        moved = any(key in arguments or isinstance(self._seen[key][1], int) for key in found)
        return list(dict.fromkeys(filter(None, found.values()))), moved

    def returned(self, result: Any) -> bool:
        """Whether an input is part of the result, as where ``out=`` is one: the number of calls then decides what it
        holds, and after an even number of changes of sign it is what it was."""
        held = {id(leaf) for value in self._read for leaf in _leaves(value) if not isinstance(leaf, int | float | str)}
        return any(id(leaf) in held for leaf in _leaves(result) if leaf is not None)

    def _look(self) -> dict[int, tuple[str, Any]]:
        """By identity the name of a value's kind, empty within an object, and its state."""
        inner = self._function
        while isinstance(inner, functools.partial):
            inner = inner.func
        bound = [each for each in [getattr(inner, "__self__", None)] if not isinstance(each, type | ModuleType | None)]
        values = [*self._read, *_held(self._function)]
        written = _leaves(self._kwargs.get("out"))
        if re.fullmatch(r".*[^_]_", getattr(inner, "__name__", "")):
            written += [*bound, *values][:1]
        found: dict[int, tuple[str, Any]] = {}
        for value in values:
            for leaf in [value, *_leaves(value)]:
                name = "" if any(leaf is each for each in written) else type(leaf).__name__
                found.setdefault(id(leaf), (name, _state(leaf)))
                found |= {id(part): ("", _state(part)) for part in _parts(leaf) if id(part) not in found}
        return found


@contextlib.contextmanager
def kept(function: Any, *values: Any) -> Iterator[None]:
    """A context after which the caches that a call fills are as they were: attributes of the function, of what it is
    bound to and of ``values``, variables of its closure and of the user's modules that it uses, and containers among
    these.

    So a call that only counts leaves no tensor without data for the user's own calls.
    """
    inner = getattr(function, "__func__", function)
    owners = _owners(function, inner, [leaf for value in values for leaf in [value, *_leaves(value)]])
    small = {id(each): each for each in owners if isinstance(each, dict | list | set | deque) and len(each) < 10_000}
    before = [(each, copy.copy(each)) for each in small.values()]
    cells = [(cell, cell.cell_contents) for cell in getattr(inner, "__closure__", None) or () if _is_filled(cell)]
    try:
        yield
    finally:
        for cell, content in cells:
            cell.cell_contents = content
        for each, old in before:
            _put_back(each, old)


def _owners(function: Any, inner: Any, values: Sequence[Any]) -> list[Any]:
    """All that may hold the variables and attributes of a function and of the values that it is given."""
    torch = sys.modules["torch"]
    known = getattr(inner, "__globals__", {})
    named = [known[name] for name in getattr(getattr(inner, "__code__", None), "co_names", ()) if name in known]
    own = str(known.get("__name__")).partition(".")[0] not in _LIBRARIES
    owners: list[Any] = [known] * own
    places = {getattr(each, "__module__", None) or getattr(each, "__name__", "") for each in named}
    for root in [inner, *_held(function), *values]:
        for part in root.modules() if isinstance(root, torch.nn.Module) else [root]:
            held = vars(part) if "__dict__" in dir(part) and not isinstance(part, type | ModuleType) else {}
            owners += [part, held, *held.values()]
            places.add(type(part).__module__)
    ours = [place for place in places if str(place).partition(".")[0] not in _LIBRARIES and place in sys.modules]
    owners += [vars(sys.modules[place]) for place in ours]
    variables = [item for each in owners if isinstance(each, dict) for item in list(each.items())]
    return [*owners, *(value for name, value in variables if not str(name).startswith("__"))]


def _is_filled(cell: Any) -> bool:
    with contextlib.suppress(ValueError):
        return cell.cell_contents is not cell
    return False


def _put_back(container: Any, before: Any) -> None:
    if isinstance(container, dict):
        for name in container.keys() - before.keys():
            if not isinstance(container.get(name), ModuleType):  # an imported one isn't bound again
                container.pop(name, None)
        for name, value in before.items():
            if container.get(name) is not value:
                container[name] = value
    elif len(container) != len(before) or any(map(operator.is_not, container, before)):
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(before)


def altered(changed: Collection[str]) -> list[Flag]:
    """Return the flag of a call that changes what it is given."""
    if not changed:
        return []
    return [Flag("altered", f"the call changes its input ({', '.join(changed)}); later calls get what it left")]


def _held(function: Any) -> list[Any]:
    """What a function uses besides its arguments: what it is bound to, what a partial has, and the variables of its
    closure and module that it names."""
    if isinstance(function, functools.partial):
        return [*function.args, *function.keywords.values(), *_held(function.func)]
    held = [getattr(function, "__self__", None), function if _parts(function) else None]
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    names, known = getattr(code, "co_names", ()), getattr(function, "__globals__", {})
    held += [known[name] for name in names if name in known and not callable(known[name])]
    for cell in cells:
        with contextlib.suppress(ValueError):  # not assigned yet
            held.append(cell.cell_contents)
    return [each for each in held if each is not None and not inspect.ismodule(each)]


def _parts(value: Any) -> list[Any]:
    """The state of a network, or the values that an object holds."""
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, type) or inspect.isroutine(value) or not hasattr(value, "__dict__"):
        return []
    held = [leaf for each in list(vars(value).values()) for leaf in _leaves(each)]  # a thread may add to it meanwhile
    return [*held, *(part for each in held if torch and isinstance(each, torch.nn.Module) for part in _parts(each))]


def _state(value: Any) -> Any:
    """What is equal before and after a call that doesn't change the value; None for what can't be seen."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch and isinstance(value, torch.Tensor):
        seen = hash((0 if value.is_inference() else value._version, _state(value.grad) if value.is_leaf else None))
        dense = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        if dense and value.device.type != "meta" and value.is_contiguous() and value.numel():
            some = value.detach().reshape(-1)[:: max(1, value.numel() // 8)]  # fused optimizers aren't counted
            return hash((seen, str(some.tolist())))
        return seen
    if numpy and isinstance(value, numpy.ndarray):
        step = max(1, value.nbytes // (1000 * _MOST_LOOKED_AT))
        sample = value.reshape(-1)[::step] if value.flags.c_contiguous else value
        return None if value.dtype.hasobject else zlib.crc32(numpy.ascontiguousarray(sample).view("u1"))
    if isinstance(value, bytearray | array | memoryview):
        return zlib.crc32(bytes(value))
    if hasattr(type(value), "iloc"):  # pandas
        some = value.iloc[:: max(1, len(value) // 1000)]
        return hash(str((some.index.tolist(), some.to_numpy().tolist())))
    if isinstance(value, list | deque | dict | set):
        step = max(1, len(value) // _MOST_LOOKED_AT)
        held = (*value, *value.values()) if isinstance(value, dict) else value
        return len(value), zlib.crc32(array("Q", map(id, itertools.islice(held, 0, None, step))))
    return _left(value) if isinstance(value, Iterator) and not isinstance(value, _ENDLESS) else None


def _left(value: Iterator[Any]) -> Any:
    """What shows how much of an iterator is left. Where nothing does, each look differs from the others, as a call that
    is given one reads it."""
    if isinstance(value, io.IOBase):
        with contextlib.suppress(OSError, ValueError):  # closed, a pipe, a text file that is being read
            return value.tell()
        return None
    if inspect.isgenerator(value):
        return value.gi_frame is None
    left = operator.length_hint(value, -1)
    return object() if left < 0 else left == 0
