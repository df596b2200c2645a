"""Checks of a call: unfinished results, and changed inputs, so that later calls are timed on other data."""

from __future__ import annotations

import contextlib
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
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..runfile.flags import Flag
from .shared import LIBRARIES, Place, walk

_MOST_LOOKED_AT = 100_000
"""Elements of a container, and bytes / 1,000 of an array, that are compared; of larger ones an even sample."""
_LEVELS, _MOST_PLACES = 5, 20_000  # How deep, and at how many places, a call's inputs are looked at
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
_AWAITED = "a coroutine, which does its work when it is awaited: time asyncio.run(f(x)), or gpubench time 'await f(x)'"
_READ = "which does its work when it is read: time list(f(x))"


def unfinished(function: Any, result: Any = None) -> str:
    """Return why a call that returned this has not done its work yet, with the way to time it; empty if it has, as far
    as can be seen. Seen are coroutines, generators and other iterators, futures, processes, threads, and the graphs of
    Dask and Polars, also in containers and dataclasses."""
    with contextlib.suppress(Exception):  # the __getattr__ of a user's class may raise anything
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return _AWAITED
        if inspect.isgeneratorfunction(function):
            return f"a generator, {_READ}"
    for _, leaf in itertools.islice(walk([result], _inner, 4), 10_000):
        if inspect.isawaitable(leaf) or isinstance(leaf, AsyncIterator):
            return _AWAITED
        kind = type(leaf).__name__
        if isinstance(leaf, Iterator) and not isinstance(leaf, io.IOBase):
            return f"{'a generator' if inspect.isgenerator(leaf) else f'an iterator ({kind})'}, {_READ}"
        if method := _waiting_method(leaf):
            return f"a {kind}, which may still be working, or not have begun: time f(x).{method}"
    return ""


def _inner(value: Any) -> list[tuple[Any, Any]]:
    """Return the first values in a container or a dataclass."""
    held: Any = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
    held = vars(value).values() if dataclasses.is_dataclass(value) and hasattr(value, "__dict__") else held
    return list(enumerate(itertools.islice(held, 100)))


def _waiting_method(value: Any) -> str:
    """Return the method that waits for the work of a worker or of Dask's graph; empty for any other value. Classes of
    modules that aren't loaded can't have instances."""
    for (module, name), method in _WORKERS.items():
        worker = getattr(sys.modules.get(module), name, None)
        if isinstance(worker, type) and isinstance(value, worker):  # a test may have put a function in its place
            return method
    graph = getattr(type(value), "__dask_graph__", None)  # of an xarray that is computed it is None
    return "compute()" if graph and value.__dask_graph__() is not None else ""


class Given:
    """What a call is given, as it was when this was made: the arguments, what the function is bound to, the variables
    that it uses, and what these hold, several levels deep. Values are known by their place: argument, attribute, key,
    index. Tensors are compared by torch's count of writes and a sample, arrays by a checksum, containers by the objects
    in them, iterators by what is left of them. What is written on purpose isn't looked at: ``out=``, and the first
    argument of a function whose name ends with an underscore, as torch's do."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._values = [*args, *(value for name, value in kwargs.items() if name != "out")]
        out, inner = kwargs.get("out"), function
        while isinstance(inner, functools.partial):
            inner = inner.func
        bound, self._function = attribute(inner, "__self__"), function
        self._written = list(out) if isinstance(out, list | tuple) else [out]
        if re.fullmatch(r".*[^_]_", str(attribute(inner, "__name__"))):
            bound = None if isinstance(bound, ModuleType | type) else bound
            self._written += [each for each in (bound, *self._values, *_held(function)) if each is not None][:1]
        self._seen, self._compared = self._look(), set[Place]()

    def changed(self) -> list[str]:
        """Return the kinds of values that are different now, ``list`` or ``Tensor``. A cache is no change: an empty
        value may be filled once, and the values in an object are compared from the second time on."""
        now, found = self._look(), {}
        for place, (name, state) in now.items():
            before = self._seen.setdefault(place, (name, state))[1]
            cache = before is None or (len(place) > 2 and not isinstance(before, int))
            if place not in self._compared and cache:
                self._seen[place] = name, state
            elif state != before:
                found[place] = name
        self._compared |= now.keys()
        return list(dict.fromkeys(found.values()))

    def _look(self) -> dict[Place, tuple[str, Any]]:
        """Return by place the name of a value's kind, and its state: of networks and parameters, which change as they
        learn, the sizes alone, which show a cache that grows with each call."""
        hidden, found, sized = set(map(id, self._written)), dict[Place, tuple[str, Any]](), set[Place]()
        roots = [*self._values, *_held(self._function)]
        for place, value in itertools.islice(walk(roots, _parts, _LEVELS), _MOST_PLACES):
            is_sized = id(value) in hidden or place[:-1] in sized or _is_of_nn(value, "Parameter")
            if is_sized or _is_of_nn(value, "Module"):
                sized.add(place)
            found[place] = type(value).__name__, _size(value) if is_sized else _state(value)
        return found


def altered(changed: Collection[str]) -> list[Flag]:
    """Return the flag of a call that changes its inputs."""
    text = f"the call changes its input ({', '.join(changed)}); later calls get what it left"
    return [Flag("altered", text)] if changed else []


def _is_of_nn(value: Any, kind: str) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch.nn, kind))


def _quiet(observe: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an observer that sees nothing (None) where a value raises an error: a user's, which may raise anything,
    quantised, nested and masked tensors, and values that change meanwhile."""

    def observed(value: Any) -> Any:
        with contextlib.suppress(Exception):
            return observe(value)
        return None

    return observed


@_quiet
def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return the names and values of a network, a container or an object of the user's class."""
    if _is_of_nn(value, "Module"):
        held = ((name, key, each) for name, part in value.named_modules() for key, each in list(vars(part).items()))
        own = [(f"{name}.{key}", each) for name, key, each in held if not key.startswith("_")]
        return [*value.named_parameters(), *value.named_buffers(), *own]
    if isinstance(value, Mapping | list | tuple | deque):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return list(items) if len(value) <= 100 else []
    root = type(value).__module__.partition(".")[0]
    if isinstance(value, type | ModuleType) or inspect.isroutine(value) or root in LIBRARIES - {"types", "argparse"}:
        return []
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    return [*list(getattr(value, "__dict__", {}).items()), *((name, getattr(value, name)) for name in slots)]


def attribute(value: Any, name: str) -> Any:
    """Return an attribute; None where there is none, or its class raises an error of its own."""
    with contextlib.suppress(Exception):
        return getattr(value, name, None)
    return None


def _held(function: Any) -> list[Any]:
    """Return the values that a function uses besides its arguments: the object that it is bound to, the arguments of a
    partial, and the variables of its closure and module that it names."""
    if isinstance(function, functools.partial):
        return [*function.args, *function.keywords.values(), *_held(function.func)]
    bound = attribute(function, "__self__")
    held = [bound, function]
    for owner in (function, bound):  # a function, or a class, of the user's
        if inspect.isfunction(owner) or isinstance(owner, type):
            held += [value for value in vars(owner).values() if not callable(value)]
    known = attribute(function, "__globals__")
    named = [known.get(name) for name in function.__code__.co_names] if inspect.isfunction(function) else []
    held += [value for value in named if not callable(value)]
    for cell in attribute(function, "__closure__") or ():
        with contextlib.suppress(ValueError):  # not assigned yet
            held.append(cell.cell_contents)
    return [each for each in held if each is not None and not inspect.ismodule(each)]


@_quiet
def _size(value: Any) -> Any:
    """Return the shape of a tensor or the length of a container; None for others, and where it is empty."""
    if isinstance(value, Mapping | list | deque | set):
        return (len(value),) if value else None
    return tuple(value.shape) if value.numel() else None


@_quiet
def _state(value: Any) -> Any:
    """Return a value that is equal before and after a call that changes nothing; None for a value that can't be
    seen."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch and isinstance(value, torch.Tensor):
        seen = 0 if value.is_inference() else value._version, _state(value.grad) if value.is_leaf else None
        dense = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        if dense and not value.is_quantized and value.device.type != "meta" and value.is_contiguous() and value.numel():
            some = value.detach().reshape(-1)[:: max(1, value.numel() // 8)]  # fused optimizers aren't counted
            with contextlib.suppress(RuntimeError):  # formats of 4 bits
                return hash((seen, value.shape, str(some.tolist())))
        return hash(seen)
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
    return _left(value) if isinstance(value, Iterator) else None


def _left(value: Iterator[Any]) -> Any:
    """Return how much of an iterator is left. Where nothing shows it, each look differs from the others, because a call
    reads the iterator that it is given."""
    if isinstance(value, io.IOBase):
        with contextlib.suppress(OSError, ValueError):  # closed, a pipe, a text file that is being read
            return value.tell()
    if isinstance(value, io.IOBase | itertools.count | itertools.cycle | itertools.repeat):
        return None
    if inspect.isgenerator(value):
        return value.gi_frame is None
    left = operator.length_hint(value, -1)
    return object() if left < 0 else left == 0
