"""What a call is: whose a keyword is, whether the work is done when the call returns, and whether it changes what it is
given, so that later calls are timed on other data."""

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
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from ..errors import UsageError
from ..runfile.flags import Flag

_P = ParamSpec("_P")
_R = TypeVar("_R")

_COMMON = frozenset({"flops", "nbytes", "items", "unit", "check"})
"""Keywords that hardly any function has: with one that takes any keyword they are gpubench's."""
_MOST_LOOKED_AT = 100_000
"""Elements of a container, and bytes / 1,000 of an array, that are compared; of larger ones an even sample."""
_LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}
"""Modules whose variables aren't the user's."""
_ENDLESS = (itertools.count, itertools.cycle, itertools.repeat)
_WAITS = {"Future": "result()", "AsyncResult": "get()", "ApplyResult": "get()", "Popen": "wait()", "Work": "wait()"}
_WAITS |= {"BaseProcess": "join()", "Thread": "join()", "LazyFrame": "collect()", "Delayed": "compute()"}
"""What stands for work that goes on, or begins, elsewhere: classes by name, with the method that returns its result."""


def own_keywords(place: int) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a callable that passes keywords on to the function at ``place`` among its arguments: a keyword that both
    could mean is refused.

    Raises :class:`~gpubench.errors.UsageError` where the function, or one that it passes keywords on to, has a
    parameter of that name, or where it takes any keyword and the name isn't one of ``flops``, ``nbytes``, ``items``,
    ``unit`` and ``check``.
    """

    def decorate(outer: Callable[_P, _R]) -> Callable[_P, _R]:
        own = {each.name for each in inspect.signature(outer).parameters.values() if each.kind is each.KEYWORD_ONLY}

        @functools.wraps(outer)
        def call(*args: _P.args, **keywords: _P.kwargs) -> _R:
            if len(args) > place and callable(args[place]):
                _require_unambiguous(args[place], args[place + 1 :], [name for name in keywords if name in own])
            return outer(*args, **keywords)

        return call

    return decorate


def _require_unambiguous(function: Any, others: Sequence[Any], given: Collection[str]) -> None:
    if not given:
        return
    taken, anything = keywords_of(function)
    if anything:
        inner = (each for each in (*_held(function), *_parts_of_wrapper(function), *others) if callable(each))
        taken = {name for each in (function, *inner) for name in keywords_of(each)[0]}
    if both := [name for name in given if name in taken or (anything and name not in _COMMON)]:
        name, shown = both[0], getattr(function, "__name__", type(function).__name__)
        what = f"{shown} has" if name in taken else f"{shown} takes any keyword, so it may have"
        raise UsageError(
            f"{what} an argument {name} too: write functools.partial({shown}, {name}=…) for that one,"
            f" or lambda *args: {shown}(*args) and {name}=… for gpubench's"
        )


def keywords_of(function: Any) -> tuple[Collection[str], bool]:
    """Return the names of a function's parameters, and whether it takes any other keyword. Those of a builtin without a
    signature are read from its docstring, which begins with one."""
    torch = sys.modules.get("torch")
    if torch and isinstance(function, torch.nn.Module):
        function = getattr(function, "_orig_mod", function).forward
    if torch and isinstance(function, torch.jit.ScriptFunction):
        return [each.name for each in function.schema.arguments], False
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        while isinstance(function, functools.partial):
            function = function.func
        name = re.escape(str(getattr(function, "__name__", "")))
        heads = re.findall(rf"^\s*{name}\(([^)]*)\)", inspect.getdoc(function) or "", re.MULTILINE) if name else []
        return set(re.findall(r"\b\w+\b", " ".join(heads))), False
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return named, any(each.kind is each.VAR_KEYWORD for each in parameters)


def _parts_of_wrapper(function: Any) -> list[Any]:
    """What an object holds that passes its keywords on: np.vectorize a function, DataParallel a module."""
    held = list(vars(function).values()) if "__dict__" in dir(function) else ()
    return [leaf for each in held for leaf in _leaves(each)]


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
        kind = type(leaf)
        if isinstance(leaf, Iterator) and not isinstance(leaf, io.IOBase):
            return f"{'a generator' if inspect.isgenerator(leaf) else f'an iterator ({kind.__name__})'}, {_READ}"
        names = [base.__name__ for base in kind.__mro__] + ["Delayed"] * hasattr(leaf, "__dask_graph__")
        if wait := next((_WAITS[name] for name in names if name in _WAITS), ""):
            wait = wait if hasattr(leaf, wait.removesuffix("()")) else "wait()"  # torch's Future has no result()
            return f"a {kind.__name__}, which may still be working, or not have begun: time f(x).{wait}"
    return ""


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
