"""The values that a call reaches: unfinished results, changed inputs, so that later calls are timed on other data, and
the variables of classes and modules, which a copied call shares with the original."""

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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..devices.lazy import np, torch
from ..runfile.flags import Flag

LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}  # Packages that are shared wherever they lie
OURS = {"gpubench", "_pytest", "pytest_benchmark"}  # Packages whose objects, such as fixtures, are shared
_MOST_VALUES, _MOST_ELEMENTS, _MOST_LEVELS = 10_000, 1 << 22, 4
"""Most values of shared variables that are looked at, most elements of tensors and containers that are kept, and levels
of containers."""
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, property, staticmethod, classmethod)  # bound once
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

Place = tuple[Any, ...]  # The way to a value: the number of its root, and the names, keys and indices from there


def _walk(
    roots: Iterable[Any], parts: Callable[[Any], Iterable[tuple[Any, Any]] | None], levels: int
) -> Iterator[tuple[Place, Any]]:
    """Yield the roots and their named parts, breadth first, with their places; parts of a value once."""
    queue, known = deque[tuple[Place, Any]](((number,), root) for number, root in enumerate(roots)), set[int]()
    while queue:
        place, value = queue.popleft()
        yield place, value
        if len(place) <= levels and id(value) not in known:
            known.add(id(value))
            queue.extend(((*place, name), part) for name, part in parts(value) or ())


def unfinished(function: Any, result: Any = None) -> str:
    """Return why a call with this result has not done its work yet, with the way to time it; empty for results without
    coroutines, generators and other iterators, futures, processes, threads, and graphs of Dask and Polars, also in
    containers and dataclasses."""
    with contextlib.suppress(Exception):  # the __getattr__ of a user's class may raise anything
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return _AWAITED
        if inspect.isgeneratorfunction(function):
            return f"a generator, {_READ}"
    for _, leaf in itertools.islice(_walk([result], _inner, 4), 10_000):
        if inspect.isawaitable(leaf) or isinstance(leaf, AsyncIterator):
            return _AWAITED
        kind = type(leaf).__name__
        if isinstance(leaf, Iterator) and not isinstance(leaf, io.IOBase):
            return f"{'a generator' if inspect.isgenerator(leaf) else f'an iterator ({kind})'}, {_READ}"
        workers = ((getattr(sys.modules.get(module), name, None), how) for (module, name), how in _WORKERS.items())
        methods = [how for worker, how in workers if isinstance(worker, type) and isinstance(leaf, worker)]
        if (
            hasattr(type(leaf), "__dask_graph__") and leaf.__dask_graph__() is not None
        ):  # of a computed xarray it is None
            methods.append("compute()")
        if methods:
            return f"a {kind}, which may still be working, or not have begun: time f(x).{methods[0]}"
    return ""


def _inner(value: Any) -> Iterable[tuple[Any, Any]]:
    held: Any = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
    held = vars(value).values() if dataclasses.is_dataclass(value) and hasattr(value, "__dict__") else held
    return enumerate([*itertools.islice(held, 100)])


class Given:
    """The inputs of a call as they were when this was made: the arguments, the object that the function is bound to,
    the variables that it uses, and the values in these, several levels deep, by their places. Tensors are compared by
    torch's count of writes and a sample, arrays by a checksum, containers by the objects in them. Left out are ``out=``
    and the first argument of a function with a name that ends with an underscore, since these are written on purpose.
    """

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
        """Return the kinds of values that are different now, as ``Tensor``. A cache is no change: an empty value may be
        filled once, and the values in an object are compared from the second time on."""
        now, found = self._look(), dict[str, None]()
        for place, (name, state) in now.items():
            before = self._seen.setdefault(place, (name, state))[1]
            cache = before is None or (len(place) > 2 and not isinstance(before, int))
            if place not in self._compared and cache:
                self._seen[place] = name, state
            elif state != before:
                found[name] = None
        self._compared |= now.keys()
        return list(found)

    def _look(self) -> dict[Place, tuple[str, Any]]:
        """Return the names and states of values by place: of networks and parameters, which learn, the sizes alone."""
        hidden, found, sized = set(map(id, self._written)), dict[Place, tuple[str, Any]](), set[Place]()
        roots = [*self._values, *_held(self._function)]
        for place, value in itertools.islice(_walk(roots, _parts, _LEVELS), _MOST_PLACES):
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
    return "torch" in sys.modules and isinstance(value, getattr(torch.nn, kind))


def _quiet(observe: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an observer that sees nothing (None) if a value raises an error, as users' and masked tensors may."""

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
    """Return the object that a function is bound to, the arguments of a partial, and the variables of its closure and
    module that it names."""
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
    return [each for each in held if not (each is None or isinstance(each, ModuleType))]


@_quiet
def _size(value: Any) -> Any:
    """Return the shape of a tensor or the length of a container; None for others, and where it is empty."""
    if isinstance(value, Mapping | list | deque | set):
        return (len(value),) if value else None
    return tuple(value.shape) if value.numel() else None


@_quiet
def _state(value: Any) -> Any:
    """Return a number that differs once the value has changed; None if that can't be seen."""
    if "torch" in sys.modules and isinstance(value, torch.Tensor):
        seen = 0 if value.is_inference() else value._version, _state(value.grad) if value.is_leaf else None
        dense = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        if dense and not value.is_quantized and value.device.type != "meta" and value.is_contiguous() and value.numel():
            some = value.detach().reshape(-1)[:: max(1, value.numel() // 8)]  # fused optimizers aren't counted
            with contextlib.suppress(RuntimeError):  # formats of 4 bits
                return hash((seen, value.shape, str(some.tolist())))
        return hash(seen)
    if "numpy" in sys.modules and isinstance(value, np.ndarray):
        step = max(1, value.nbytes // (1000 * _MOST_LOOKED_AT))
        sample = value.reshape(-1)[::step] if value.flags.c_contiguous else value
        return None if value.dtype.hasobject else zlib.crc32(np.ascontiguousarray(sample).tobytes())
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
    """Return how much of an iterator is left; if nothing shows it, each look differs, since the call reads it."""
    if isinstance(value, io.IOBase):
        with contextlib.suppress(OSError, ValueError):  # closed, a pipe, a text file that is being read
            return value.tell()
    if isinstance(value, io.IOBase | itertools.count | itertools.cycle | itertools.repeat):
        return None
    if inspect.isgenerator(value):
        return value.gi_frame is None
    left = operator.length_hint(value, -1)
    return object() if left < 0 else left == 0


class State:
    """The variables of classes and modules at one moment, with the containers, objects and tensors in them."""

    def __init__(self, owners: Iterable[Any]) -> None:
        self.owners, self._room, self._kept = list(owners), _MOST_ELEMENTS, list[tuple[Any, Any]]()
        deque(itertools.islice(_walk(self.owners, self._keep, _MOST_LEVELS), _MOST_VALUES), maxlen=0)

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
                with contextlib.suppress(NotImplementedError):  # torch compares no 4 bits or complex halves
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


@contextlib.contextmanager
def as_before(state: State) -> Iterator[None]:
    """A context in which shared variables have the values of an earlier state; afterwards they are as they were."""
    now = State(state.owners)
    state.put_back()
    try:
        yield
    finally:
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
    now, keyed = _contents(holder), isinstance(holder, dict)
    put: Any = holder.__setitem__ if keyed else functools.partial(setattr, holder)
    drop: Any = holder.pop if keyed else functools.partial(delattr, holder)
    for name in now.keys() - values.keys():
        if not (isinstance(name, str) and name.startswith("__")) and not isinstance(now[name], _CODE):
            drop(name)
    for name, value in values.items():
        if not isinstance(value, _CODE) and (name not in now or now[name] is not value):
            put(name, value)


def is_library(name: str) -> bool:
    """Whether a module isn't the user's."""
    if name == "__main__" or name.startswith("gpubench.benchmarks"):
        return False
    module, root = sys.modules.get(name), name.partition(".")[0]
    place = "" if module is None else getattr(module, "__file__", None)
    shared = root in LIBRARIES or root in OURS or place is None
    return shared or not {"site-packages", "dist-packages"}.isdisjoint(Path(str(place)).parts)


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
