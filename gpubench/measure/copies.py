"""Deep copies of whole calls, so that a call can be made untimed on other values and leave the user's objects alone.

``copy.deepcopy`` and cloudpickle don't copy functions with their closures and modules, and copy memory that two tensors
share twice. So this is a pickler with reducers of its own, in which the stream refers to large values by number.
"""

from __future__ import annotations

import contextlib
import copyreg
import dis
import enum
import functools
import io
import pickle
import random
import re
import sys
import types
from array import array as Buffer
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..devices import Device
from ..devices.lazy import np, torch
from ..runfile.quantities import text
from .calls import LIBRARIES, OURS, State, as_before, is_importable, is_library, is_stateless
from .reducers import Block, Memory, Number, Owner, Uncopyable, plain_object, reducers, remade, shared_value

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, list, dict, tuple, set, frozenset})
_ATTRIBUTES = ("__defaults__", "__kwdefaults__", "__qualname__", "__module__", "__doc__")
_MOST_FOLLOWED = 200  # Most functions of shared classes and modules whose code is read
_GLOBAL_STEPS = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"}
_REASONS = {
    name: reason
    for reason, names in {
        "reads a generator": "builtins.generator builtins.async_generator",
        "awaits a coroutine that was made before, which runs once": "builtins.coroutine",
        "uses a lock": "_thread.lock _thread.RLock threading.Condition threading.Semaphore threading.Event",
        "uses a thread": "threading.Thread",
        "uses a process group": "torch._C._distributed_c10d.ProcessGroup torch.distributed.device_mesh.DeviceMesh",
        "uses a scripted function": "torch._C.ScriptFunction torch.jit.ScriptFunction",
        "uses a CUDA graph": "torch.cuda.graphs.CUDAGraph torch._C._CUDAGraph",
    }.items()
    for name in names.split()
}
"""Why objects of these classes, and of classes derived from them, can't be copied."""


@dataclass(frozen=True, slots=True)
class CallCopy:
    """A copied call: ``function(*args, **kwargs)``. ``shared`` are the variables of classes and modules when the copy
    was made; ``alive`` are copies of objects that the call refers to weakly. ``computes``: whether it holds tensors or
    arrays of the dtype that it was converted to."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    alive: list[Any] = field(default_factory=list, repr=False)
    computes: bool = False
    shared: State = field(default_factory=lambda: State(()))

    def __call__(self) -> Any:
        """Make the call with the shared variables of before, in a context of its own, and return the result."""
        with as_before(self.shared):
            return copy_context().run(self.function, *self.args, **self.kwargs)


def copy_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    limit_bytes: int | None = None,
) -> CallCopy:
    """Return a deep copy of a call: the function with its closure and the globals of the user's modules, the object
    that it is bound to, and the arguments. With ``dtype``, ``torch.float64``, tensors and arrays of real and complex
    numbers are converted; with ``device`` tensors are copied there. Raises :class:`Uncopyable` for a call that can't be
    copied, and for copies of tensors and arrays with more than ``limit_bytes``."""
    stream = io.BytesIO()
    pickler = _Pickler(stream, dtype, device)
    try:
        pickler.dump((function, args, dict(kwargs)))
        nbytes = pickler.memory.total_bytes() + stream.tell()
        if limit_bytes is not None and nbytes > limit_bytes:
            raise Uncopyable(f"a copy needs {text(nbytes, 'B')}")
        with torch.no_grad(), restored_random_streams():
            unpickler = pickle.Unpickler(io.BytesIO(stream.getbuffer()))
            unpickler.persistent_load = pickler.copied  # type: ignore[method-assign]
            function, args, named = unpickler.load()
    except Uncopyable:
        raise
    except RecursionError:
        raise Uncopyable("the call uses objects that are nested too deeply") from None
    except Exception as error:
        message = " ".join(str(error).split())[:150]
        raise Uncopyable(f"the call can't be copied ({type(error).__name__}: {message})") from error
    memory = pickler.memory
    return CallCopy(function, args, named, memory.alive, memory.has_numbers(), State(pickler.owners.values()))


@contextlib.contextmanager
def restored_random_streams(devices: Iterable[Device] = ()) -> Iterator[None]:
    """A context after which the random streams of Python, NumPy, torch and the ``devices`` are as they were."""
    states, of_devices = random_streams(), [(device, device.random_state()) for device in devices]
    try:
        yield
    finally:
        for device, state in of_devices:
            device.set_random_state(state)
        set_random_streams(states)


def random_streams() -> tuple[Any, ...]:
    """Return the states of the global random streams of Python, torch's CPU and NumPy."""
    numpy = np.random.get_state(legacy=False) if "numpy" in sys.modules else None
    return random.getstate(), bytes(torch.get_rng_state().tolist()), numpy


def set_random_streams(states: tuple[Any, ...]) -> None:
    """Restore the states that :func:`random_streams` returned."""
    random.setstate(states[0])
    torch.set_rng_state(torch.frombuffer(bytearray(states[1]), dtype=torch.uint8))
    if states[2] is not None:
        np.random.set_state(states[2])


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the names of the globals that code uses, of these and all attributes, and of imported modules."""
    steps = list(dis.get_instructions(code))
    own = frozenset(step.argval for step in steps if step.opname in _GLOBAL_STEPS)
    imported = frozenset(step.argval for step in steps if step.opname == "IMPORT_NAME")
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    named = zip((own, frozenset(code.co_names), imported), *inner, strict=True)
    return tuple(frozenset().union(*each) for each in named)  # type: ignore[return-value]


def _imported(code: types.CodeType, variables: Mapping[str, Any]) -> list[Any]:
    """Return the modules that code imports, also from its own package, if they are loaded."""
    names = _names(code)[2]
    return [sys.modules.get(name) for each in names for name in (each, f"{variables.get('__package__')}.{each}")]


def _named_by(function: types.FunctionType) -> Iterator[Any]:
    """Yield the globals that a function names, the attributes that it names of the user's modules among them, and the
    modules that it imports."""
    own, every, _ = _names(function.__code__)
    yield from _imported(function.__code__, function.__globals__)
    for value in (function.__globals__.get(name) for name in own):
        yield value
        if isinstance(value, types.ModuleType) and _is_users(value):
            yield from (vars(value).get(name) for name in every)


class _Pickler(pickle.Pickler):
    """Writes a call: ``numbered`` are the shared values and the blocks that the stream refers to; ``owners``, by id,
    the shared classes and the dictionaries of the shared modules, which a call may change."""

    def __init__(self, stream: Any, dtype: Any, device: Any) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.memory, self.numbered, self.owners = Memory(dtype, device), list[Any](), dict[int, Any]()
        self._places, self._modules, self._followed = dict[int, int](), dict[int, types.ModuleType](), set[int]()

    def persistent_id(self, value: Any) -> int | None:
        """Return the number of a value that doesn't become bytes."""
        kind = type(value)
        if kind in _ATOMS:
            return None
        if kind is Number:
            value = value.value
        elif isinstance(value, types.ModuleType):
            self._own(value)
            value = self._module(vars(value)) if _is_users(value) else value
        elif isinstance(value, type) or _is_shared(kind, value):
            self._own(value)
        elif not isinstance(value, bytearray | Buffer | Block):
            return None
        place = self._places.setdefault(id(value), len(self.numbered))
        if place == len(self.numbered):
            self.numbered.append(self.memory.of_buffer(value) if isinstance(value, bytearray | Buffer) else value)
        return place

    def copied(self, number: int) -> Any:
        """Return the shared value, or the copied storage or buffer, of this number."""
        value = self.numbered[number]
        block = value.block if isinstance(value, Owner) else value
        if not isinstance(block, Block):
            return value
        storage = block.copy(self.memory.dtype)
        return storage if block is value else block.buffer

    def reducer_override(self, value: Any) -> Any:
        """Return how to make a value again."""
        if reason := _reason(type(value)):
            raise Uncopyable(reason)
        for kinds, reduce in reducers():
            if isinstance(value, kinds):
                return reduce(self.memory, value)
        if isinstance(value, types.FunctionType):
            inner = getattr(value, "_torchdynamo_orig_callable", None)
            return remade(lambda copied: copied, inner) if callable(inner) else self._function(value)
        own = copyreg.dispatch_table.get(type(value))
        try:
            reduced = own(value) if own else value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            raise
        except KeyError:  # by an ``__getattr__`` for the methods that pickle looks for
            return plain_object(value)
        except Exception:
            raise Uncopyable(f"the call uses a {type(value).__name__}, which can't be copied") from None
        return shared_value(value) if isinstance(reduced, str) else reduced

    def _own(self, value: Any) -> None:
        """Note a shared class with its bases, a function or a module, and those that a user's code names in turn."""
        if isinstance(value, type):
            for kind in value.__mro__:
                if id(kind) not in self.owners and not is_stateless(kind):
                    self.owners[id(kind)] = kind
                    for method in vars(kind).values():
                        self._own(getattr(method, "__func__", getattr(method, "fget", getattr(method, "func", method))))
        elif isinstance(value, types.FunctionType) and not is_stateless(value):
            self.owners.setdefault(id(value.__globals__), value.__globals__)
            new = id(value) not in self._followed and len(self._followed) < _MOST_FOLLOWED
            if new and not (_is_installed(value.__code__.co_filename) or is_library(str(value.__module__))):
                self._followed.add(id(value))
                for each in (*_named_by(value), *(part for cell in value.__closure__ or () for part in _content(cell))):
                    self._own(each)
        elif isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in LIBRARIES | OURS:
            self.owners.setdefault(id(vars(value)), vars(value))

    def _function(self, function: types.FunctionType) -> Any:
        """Return how to make a function again, with its closure and, of a user's, the globals that it names."""
        code, variables, named = function.__code__, function.__globals__, []
        if not is_library(str(variables.get("__name__"))):
            named = self._named(code, variables)
            variables = vars(self._module(variables))
        cells, attributes = function.__closure__ or (), {name: getattr(function, name) for name in _ATTRIBUTES}
        state = [*map(_content, cells)], attributes, dict(vars(function)), named
        make = functools.partial(types.FunctionType, code, variables, function.__name__, None)
        return remade(make, cells or None, fill=_fill_function, state=state)

    def _module(self, variables: dict[str, Any]) -> types.ModuleType:
        """Return the copied module, which begins with the values of the original's ``variables``."""
        if id(variables) not in self._modules:
            copied = self._modules[id(variables)] = types.ModuleType(str(variables.get("__name__")))
            vars(copied).update(variables)
        return self._modules[id(variables)]

    def _named(self, code: types.CodeType, variables: dict[str, Any]) -> list[tuple[Number, dict[str, Any]]]:
        """Return the copied dictionaries of modules with the values that code names."""
        own, every, _ = _names(code)
        for module in _imported(code, variables):
            self._own(module)
        found, queue, known = [], [(variables, own)], set()
        while queue:
            variables, names = queue.pop()
            known.add(id(variables))
            values = {name: variables[name] for name in sorted(names) if name in variables and name != "__builtins__"}
            found.append((Number(vars(self._module(variables))), values))
            modules = [value for value in values.values() if isinstance(value, types.ModuleType)]
            queue += [(vars(each), every) for each in modules if _is_users(each) and id(vars(each)) not in known]
        return found


def _fill_function(function: Any, state: Any) -> None:
    contents, attributes, own, named = state
    for cell, content in zip(function.__closure__ or (), contents, strict=True):
        if content:
            cell.cell_contents = content[0]
    for name, value in attributes.items():
        setattr(function, name, value)
    vars(function).update(own)
    for variables, values in named:
        variables.update(values)


def _content(cell: Any) -> tuple[Any, ...]:
    with contextlib.suppress(ValueError):  # the variable of the closure isn't assigned yet
        return (cell.cell_contents,)
    return ()


@functools.cache
def _is_installed(place: str) -> bool:
    """Whether a path lies in a folder that packages are installed into, whatever the folder's name."""
    parent = str(Path(place).parent)
    return any(Path(place).glob("*.dist-info")) or (parent != place and _is_installed(parent))


def _is_users(module: types.ModuleType) -> bool:
    return sys.modules.get(module.__name__) is not module or not is_library(module.__name__)


def _is_shared(kind: type, value: Any) -> bool:
    """Whether a value has no state, is of the fixtures, or an event loop, which is as before once a call has ended."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
    if isinstance(value, types.FunctionType | functools._lru_cache_wrapper):
        return is_importable(value)
    root, of_suite = str(kind.__module__).partition(".")[0], kind.__module__.startswith("gpubench.benchmarks")
    is_fixture = root in OURS and not of_suite
    return is_fixture or root == "typing" or kind in _shared_kinds() or isinstance(value, AbstractEventLoop | enum.Enum)


@functools.cache
def _shared_kinds() -> frozenset[type]:
    """Return the types of values without a state of their own."""
    kinds = {types.CodeType, types.GenericAlias, types.UnionType, type(Ellipsis), type(NotImplemented), re.Pattern}
    kinds |= {torch.dtype, torch.layout, torch.memory_format, type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor)}
    kinds |= {np.ufunc, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, object}
    kinds |= {types.MemberDescriptorType, types.ClassMethodDescriptorType, random.SystemRandom, ContextVar}
    return frozenset(kinds)


def _reason(kind: type) -> str:
    """Return why objects of this class can't be copied; empty if they can."""
    reason = next(filter(None, (_REASONS.get(f"{each.__module__}.{each.__name__}") for each in kind.__mro__)), "")
    if issubclass(kind, io.IOBase) and not issubclass(kind, io.BytesIO | io.StringIO):
        reason = "uses an open file"
    return reason and f"the call {reason}"
