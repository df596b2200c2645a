"""Deep copies of whole calls, so that a call can be made untimed on other values and leave the user's objects alone.

``copy.deepcopy`` returns functions, with their closures and globals, as they are, and raises for many networks.
cloudpickle copies functions, but for a module's variables it makes a dictionary without the module, it takes each code
object apart, and both copy memory shared by two tensors twice. So this is a pickler with reducers of its own, whose
large values never become bytes: the stream refers to them by number.
"""

from __future__ import annotations

import bisect
import contextlib
import copyreg
import ctypes
import dis
import functools
import io
import pickle
import random
import sys
import threading
import types
import weakref
from array import array as Buffer
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..devices import Device
from ..devices.lazy import np, torch
from ..runfile.quantities import text
from .shared import State, as_before

_LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}
"""Packages that are shared wherever they lie."""
_OURS = {"gpubench", "_pytest", "pytest_benchmark"}
"""Packages whose objects, such as fixtures, are shared."""
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, list, dict, tuple, set, frozenset})
_ATTRIBUTES = ("__defaults__", "__kwdefaults__", "__qualname__", "__module__", "__doc__")
_GLOBAL_STEPS = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"}
_REASONS: dict[type, str] = {
    types.GeneratorType: "the call reads a generator",
    types.AsyncGeneratorType: "the call reads a generator",
    types.CoroutineType: "the call awaits a coroutine",
    type(threading.Lock()): "the call uses a lock",
    type(threading.RLock()): "the call uses a lock",
    threading.Condition: "the call uses a lock",
    threading.Semaphore: "the call uses a lock",
    threading.Event: "the call uses a lock",
    threading.Thread: "the call uses a thread",
}


class Uncopyable(Exception):
    """A call that can't be copied; the text is the reason."""


@dataclass(frozen=True, slots=True)
class CallCopy:
    """A copied call: ``function(*args, **kwargs)`` makes it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    _alive: list[Any] = field(default_factory=list, repr=False)
    """Copies of objects that the call refers to weakly."""
    shared: State | None = None
    """Variables of classes and modules as they were when the copy was made."""

    def __call__(self) -> Any:
        """Make the call with the shared variables of before, put them back, and return the result."""
        with as_before(self.shared):
            return self.function(*self.args, **self.kwargs)


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
    that it is bound to, and the arguments.

    With ``dtype``, ``torch.float64``, tensors and arrays of real and complex numbers are converted; with ``device``
    tensors are copied there. Raises :class:`Uncopyable` for a call that can't be copied, and for copies of tensors and
    arrays with more than ``limit_bytes``.
    """
    alive: list[Any] = []
    stream = io.BytesIO()
    pickler = _Pickler(stream, dtype, device, alive)
    try:
        pickler.dump((function, args, dict(kwargs)))
        nbytes = pickler.memory.total_bytes() + stream.tell()
        if limit_bytes is not None and nbytes > limit_bytes:
            raise Uncopyable(f"a copy needs {text(nbytes, 'B')}")
        with torch.no_grad(), restored_random_streams():
            copied = _Unpickler(stream.getbuffer(), pickler.numbered).load()
    except Uncopyable:
        raise
    except RecursionError:
        raise Uncopyable("the call uses objects that are nested too deeply") from None
    except Exception as error:
        message = " ".join(str(error).split())[:150]
        raise Uncopyable(f"the call can't be copied ({type(error).__name__}: {message})") from error
    return CallCopy(copied[0], copied[1], copied[2], alive, State(pickler.owners) if pickler.owners else None)


@contextlib.contextmanager
def restored_random_streams(devices: Iterable[Device] = ()) -> Iterator[None]:
    """A context after which the global random streams of Python, NumPy and torch are as they were; of accelerators,
    those of the ``devices``."""
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
    python, of_torch, numpy = states
    random.setstate(python)
    torch.set_rng_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
    if numpy is not None:
        np.random.set_state(numpy)


# Memory ---------------------------------------------------------------------------------------------------------------


class _Block:
    """Memory that tensors, arrays and buffers view: ``convert`` names the dtype of its numbers if these are converted,
    and ``width`` is their size in bytes. ``buffer`` is the ``bytearray`` or ``array.array`` that owns the memory."""

    def __init__(self, nbytes: int, source: Any, address: int, device: Any) -> None:
        self.nbytes, self.device = nbytes, device
        self.convert, self.width = "", 1
        self.views: set[str] = set()
        self.buffer: Any = None
        self.uses = 0
        self._source, self._address = source, address
        self._made: Any = None

    def copy(self, dtype: Any) -> Any:
        """Return the storage of the copy, made once."""
        if self._made is None:
            count = self.nbytes // self.width
            if self.buffer is not None:
                self.buffer = self.buffer[:]
                viewed = count and self.uses > 1  # a buffer with views can't be resized
                self._made = torch.frombuffer(self.buffer, dtype=torch.uint8).untyped_storage() if viewed else ()
                return self._made
            if isinstance(self._source, torch.UntypedStorage):
                flat = torch.empty(0, dtype=getattr(torch, self.convert or "uint8"), device=self._source.device)
                flat.set_(self._source, 0, (count,), (1,))
            else:  # an array's
                held: Any = (ctypes.c_char * self.nbytes).from_address(self._address) if count else b""
                array = np.frombuffer(held, np.dtype(self.convert or "uint8"), count)
                flat = torch.from_numpy(array.astype(np.float64 if self.convert else np.uint8))
            target = dtype if self.convert else torch.uint8
            self._made = flat.to(device=self.device, dtype=target, copy=True).untyped_storage()
        return self._made


class _Buffer:
    """The ``bytearray`` or ``array.array`` that owns a block."""

    def __init__(self, block: _Block) -> None:
        self._block = block

    def copy(self, dtype: Any) -> Any:
        """Return the copy, which owns the copied block."""
        self._block.copy(dtype)
        return self._block.buffer


class _Memory:
    """The blocks of memory of a call, found by address."""

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None) -> None:
        self.dtype, self.device = dtype, device
        self._blocks: dict[Any, _Block] = {}
        self._starts: dict[str, list[int]] = {}
        self._buffers: dict[int, _Buffer] = {}

    def of_storage(self, storage: Any) -> _Block:
        """Return the block of a tensor's storage."""
        key = str(storage.device)
        device = self.device or storage.device
        return self._block(key, storage.data_ptr(), storage.nbytes(), storage, device, storage._cdata)

    def of_array(self, array: Any) -> tuple[_Block, int]:
        """Return the block of an array, and the array's place in it, in bytes."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        place = array.__array_interface__["data"][0]
        if isinstance(root.base, torch.Tensor):
            storage = root.base.untyped_storage()
            return self.of_storage(storage), place - storage.data_ptr()
        owner = root.base.obj if isinstance(root.base, memoryview) else root.base
        root = np.frombuffer(owner, np.uint8) if isinstance(owner, bytearray | Buffer) else root
        low, high = getattr(np.lib, "array_utils", np).byte_bounds(root)
        high = low if not root.size else high
        return self._block("cpu", low, high - low, root, torch.device("cpu"), id(root)), place - low

    def of_buffer(self, buffer: Any) -> _Buffer:
        """Return a buffer of Python as the owner of its block."""
        if id(buffer) not in self._buffers:
            block, _ = self.of_array(np.frombuffer(buffer, np.uint8))
            block.buffer = buffer
            self.view(block, "uint8", 1, converts=False)
            self._buffers[id(buffer)] = _Buffer(block)
        return self._buffers[id(buffer)]

    def _block(self, key: str, start: int, nbytes: int, source: Any, device: Any, own: int) -> _Block:
        block = self._place(key, start, nbytes, source, device, own)
        block.uses += 1
        return block

    def _place(self, key: str, start: int, nbytes: int, source: Any, device: Any, own: int) -> _Block:
        if not nbytes:
            return self._blocks.setdefault((key, own, 0), _Block(0, source, start, device))
        starts = self._starts.setdefault(key, [])
        place = bisect.bisect_left(starts, start)
        if place < len(starts) and starts[place] == start and self._blocks[key, start].nbytes == nbytes:
            return self._blocks[key, start]
        before = place and starts[place - 1] + self._blocks[key, starts[place - 1]].nbytes > start
        if before or (place < len(starts) and starts[place] < start + nbytes):
            raise Uncopyable("the call uses an array and a tensor that share a part of their memory")
        starts.insert(place, start)
        return self._blocks.setdefault((key, start), _Block(nbytes, source, start, device))

    def view(self, block: _Block, real: str, width: int, converts: bool) -> None:
        """Note that a tensor or array views the block as numbers of this dtype. Raises :class:`Uncopyable` if the block
        is converted and viewed in another dtype too."""
        if self.dtype is None:
            return
        block.views.add(real)
        if converts:
            block.convert, block.width = real, width
        if block.convert and len(block.views) > 1:
            raise Uncopyable("the call views the same memory in two dtypes")

    def total_bytes(self) -> int:
        """Return the bytes of all copies."""
        width = self.dtype.itemsize if self.dtype else 1
        blocks = self._blocks.values()
        return sum(each.nbytes // each.width * width if each.convert else each.nbytes for each in blocks)


# What is made again --------------------------------------------------------------------------------------------------


class _Number:
    """A value that the copy shares, in the stream of a pickler: also a reducer's function."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> None:
        """Pickle wants reducers to return a function."""


def _made(
    make: Callable[..., Any], *parts: Any, fill: Callable[[Any, Any], Any] | None = None, state: Any = None
) -> Any:
    """Return how to make a value again: of the copies of ``parts``, and filled with the copied ``state``. The functions
    aren't copied, and neither is what they hold."""
    return (_Number(make), parts) if fill is None else (_Number(make), parts, state, None, None, _Number(fill))


def _shared(value: Any) -> Any:
    return _made(lambda: value)


def _fill_object(value: Any, state: Any) -> None:
    vars(value).update(state)


def _made_object(value: Any) -> Any:
    """Return how to make an object of its attributes, whatever methods its class has for pickle."""
    kind = type(value)
    return _made(lambda: object.__new__(kind), fill=_fill_object, state=dict(vars(value)))


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


def _fill_tensor(tensor: Any, state: Any) -> None:
    gradient, attributes, hooks, after = state
    if gradient is not None:
        tensor.grad = gradient
    vars(tensor).update(attributes)
    if hooks is not None:
        tensor._backward_hooks = hooks
    if after is not None:
        tensor._post_accumulate_grad_hooks = after


@functools.cache
def _severed() -> Any:
    """Return a function of tensors with a graph that can't be followed."""

    class Severed(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, tensor: Any, _: Any) -> Any:
            context.mark_dirty(tensor)
            return tensor

        @staticmethod
        def backward(context: Any, *_: Any) -> Any:
            raise Uncopyable("the call differentiates a graph that was made before it")

    return Severed.apply


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the names of the globals that code uses, of these and all attributes, and of the modules that it
    imports."""
    steps = list(dis.get_instructions(code))
    own = frozenset(step.argval for step in steps if step.opname in _GLOBAL_STEPS)
    imported = frozenset(step.argval for step in steps if step.opname == "IMPORT_NAME")
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    named = zip((own, frozenset(code.co_names), imported), *inner, strict=True)
    return tuple(frozenset().union(*each) for each in named)  # type: ignore[return-value]


@functools.cache
def is_library(name: str) -> bool:
    """Whether a module isn't the user's."""
    root = name.partition(".")[0]
    module = sys.modules.get(name)
    if root in _LIBRARIES or root in _OURS:
        return name != "__main__" and not name.startswith("gpubench.benchmarks")
    place = getattr(module, "__file__", None)
    if module is None or name == "__main__":
        return False
    return place is None or bool({"site-packages", "dist-packages"} & set(Path(place).parts))


def is_ours(kind: type) -> bool:
    """Whether a type is of the fixtures, whose objects are the same for all calls."""
    root = str(kind.__module__).partition(".")[0]
    return root in _OURS and not kind.__module__.startswith("gpubench.benchmarks")


def _importable(value: Any) -> bool:
    """Whether a function is an attribute of a library module, or of a class there."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    if found is None or not is_library(found.__name__):
        return False
    for name in str(getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found is value


def _is_stateless(value: Any) -> bool:
    """Whether a class or function is of the standard library, torch, NumPy or the fixtures."""
    root = str(value.__module__).partition(".")[0]
    return root in _LIBRARIES | _OURS and value.__module__ != "__main__" and _importable(value)


def _quantized(tensor: Any) -> Any:
    """Return a function of dtype and device that makes an empty tensor with the scales of another one."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        return functools.partial(torch._empty_affine_quantized, (0,), **scale)
    scales = {"scales": tensor.q_per_channel_scales(), "zero_points": tensor.q_per_channel_zero_points()}
    axis = tensor.q_per_channel_axis()
    return functools.partial(torch._empty_per_channel_affine_quantized, tensor.size(), **scales, axis=axis)


class _Pickler(pickle.Pickler):
    """Writes a call: ``numbered`` are the shared values and the blocks that the stream refers to."""

    def __init__(self, stream: Any, dtype: Any, device: Any, alive: list[Any]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.memory, self.numbered = _Memory(dtype, device), [dtype]
        self._alive = alive
        self._places: dict[int, int] = {}
        self._modules: dict[int, types.ModuleType] = {}
        self._owners: dict[int, Any] = {}

    # What is shared ---------------------------------------------------------------------------------------------------

    def persistent_id(self, value: Any) -> int | None:
        """Return the number of a value that doesn't become bytes."""
        kind = type(value)
        if kind in _ATOMS:
            return None
        if kind is _Number:
            return self._number(value.value)
        if isinstance(value, bytearray | Buffer):
            return self._number(self.memory.of_buffer(value))
        if kind is _Block or isinstance(value, type) or self._is_shared(kind, value):
            self._own(value)
            return self._number(value)
        if isinstance(value, types.ModuleType):
            self._own(value)
            return self._number(self._module(value) if self._is_users(value) else value)
        return None

    @property
    def owners(self) -> list[Any]:
        """The shared classes, and the dictionaries of the shared modules, whose variables a call may change."""
        return list(self._owners.values())

    def _own(self, value: Any) -> None:
        """Note a shared class with its bases and the modules of its methods, or the module of a shared function."""
        if isinstance(value, type):
            for kind in value.__mro__:
                if id(kind) not in self._owners and not _is_stateless(kind):
                    self._owners[id(kind)] = kind
                    for method in vars(kind).values():
                        self._own(getattr(method, "__func__", getattr(method, "fget", method)))
        elif isinstance(value, types.FunctionType) and not _is_stateless(value):
            self._owners.setdefault(id(value.__globals__), value.__globals__)
        elif isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in _LIBRARIES | _OURS:
            self._owners.setdefault(id(vars(value)), vars(value))

    def _own_imports(self, names: Iterable[str], variables: dict[str, Any]) -> None:
        """Note the modules that a function imports when it is called, so that the copy gets the originals."""
        package = f"{variables.get('__package__')}."
        for module in (sys.modules.get(each) for name in names for each in (name, package + name)):
            self._own(module)

    def _number(self, value: Any) -> int:
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self.numbered)
            self.numbered.append(value)
        return place

    def _is_shared(self, kind: type, value: Any) -> bool:
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            return owner is None or isinstance(owner, types.ModuleType | type)
        if isinstance(value, types.FunctionType | functools._lru_cache_wrapper):
            return _importable(value)
        if kind in _shared_kinds() or kind is object:
            return True
        return kind.__module__ == "typing" or is_ours(kind)

    @staticmethod
    def _is_users(module: types.ModuleType) -> bool:
        return sys.modules.get(module.__name__) is not module or not is_library(module.__name__)

    # What is copied ---------------------------------------------------------------------------------------------------

    def reducer_override(self, value: Any) -> Any:
        """Return how to make a value again."""
        kind = type(value)
        if reason := _reason(kind):
            raise Uncopyable(reason)
        for types_, reduce in _reducers():
            if isinstance(value, types_):
                return reduce(self, value)
        if callable(inner := getattr(value, "_torchdynamo_orig_callable", None)):
            return _made(lambda copied: copied, inner)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        return self._object(value)

    def _object(self, value: Any) -> Any:
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            reduced = reduce(value) if reduce else value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            raise
        except Exception:
            raise Uncopyable(f"the call uses a {type(value).__name__}, which can't be copied") from None
        return _shared(value) if isinstance(reduced, str) else reduced

    def _function(self, function: types.FunctionType) -> Any:
        code, variables, named = function.__code__, function.__globals__, []
        if not is_library(str(variables.get("__name__"))):
            named = self._named(code, variables)
            variables = self._variables(variables)
        cells = function.__closure__ or ()
        contents = [(cell.cell_contents,) if is_filled(cell) else () for cell in cells]
        attributes = {name: getattr(function, name) for name in _ATTRIBUTES}
        state = contents, attributes, dict(vars(function)), named
        make = functools.partial(types.FunctionType, code, variables, function.__name__, None)
        return _made(make, cells or None, fill=_fill_function, state=state)

    def _variables(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the dictionary of the copied module, which begins with the values of the original."""
        if id(variables) not in self._modules:
            copied = types.ModuleType(str(variables.get("__name__")))
            vars(copied).update(variables)
            self._modules[id(variables)] = copied
        return vars(self._modules[id(variables)])

    def _module(self, module: types.ModuleType) -> types.ModuleType:
        self._variables(vars(module))
        return self._modules[id(vars(module))]

    def _named(self, code: types.CodeType, variables: dict[str, Any]) -> list[tuple[_Number, dict[str, Any]]]:
        """Return the copied dictionaries of modules with the values that code names."""
        own, every, imported = _names(code)
        self._own_imports(imported, variables)
        found, queue, known = [], [(variables, own)], set()
        while queue:
            variables, names = queue.pop()
            known.add(id(variables))
            values = {name: variables[name] for name in sorted(names) if name in variables and name != "__builtins__"}
            found.append((_Number(self._variables(variables)), values))
            modules = [value for value in values.values() if isinstance(value, types.ModuleType)]
            queue += [(vars(each), every) for each in modules if self._is_users(each) and id(vars(each)) not in known]
        return found

    def _cache(self, value: Any) -> Any:
        if value.cache_info().currsize:
            name = getattr(value, "__name__", "a function")
            if is_library(getattr(value, "__module__", None) or "") and not _importable(value.__wrapped__):
                return _shared(value)
            raise Uncopyable(f"the call uses results that functools.lru_cache keeps ({name})")
        return _made(functools.lru_cache(**value.cache_parameters()), value.__wrapped__)

    def _array(self, array: Any) -> Any:
        kind, dtype = type(array), array.dtype
        if dtype.hasobject:
            return array.__reduce_ex__(2)
        kind = np.ndarray if issubclass(kind, np.memmap) else kind
        block, place = self.memory.of_array(array)
        strides, width = array.strides, dtype.itemsize
        number = {"f": 8, "c": 16}.get(dtype.kind, 0)
        real = np.dtype(f"{dtype.byteorder}f{width // 2}") if dtype.kind == "c" else dtype
        name = real.name if real.isnative and not real.names else real.str
        self.memory.view(block, name, real.itemsize, bool(number) and real.itemsize < 8)
        if block.convert:
            if place % width or any(stride % width for stride in strides):
                raise Uncopyable("the call uses an array that isn't aligned")
            place, strides = place // width * number, tuple(stride // width * number for stride in strides)
            dtype = np.dtype(np.float64 if number == 8 else np.complex128)
        own = getattr(array, "__dict__", {}) if kind is not np.ndarray else {}
        shape, writeable = array.shape, array.flags.writeable

        def make(storage: Any) -> Any:
            memory = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,)).numpy()
            made = np.ndarray(shape, dtype, memory, place, strides)
            made = made if kind is np.ndarray else made.view(kind)
            made.flags.writeable = writeable
            return made

        return _made(make, _Number(block), fill=_fill_object if own else None, state=dict(own))

    def _memoryview(self, value: Any) -> Any:
        owner = value.obj
        if not (isinstance(owner, bytearray | Buffer) and value.c_contiguous and value.nbytes):
            raise Uncopyable("the call uses a memoryview")
        start, whole = (np.frombuffer(each, np.uint8).__array_interface__["data"][0] for each in (value, owner))
        part, form, shape = slice(start - whole, start - whole + value.nbytes), value.format, value.shape
        return _made(lambda made: memoryview(made).cast("B")[part].cast(form, shape), owner)

    def _scalar(self, value: Any) -> Any:
        if self.memory.dtype is not None and isinstance(value, np.floating) and value.dtype.itemsize < 8:
            return np.float64, (float(value),)
        if self.memory.dtype is not None and isinstance(value, np.complexfloating) and value.dtype.itemsize < 16:
            return np.complex128, (complex(value),)
        return _shared(value)

    def _tensor(self, tensor: Any) -> Any:
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise Uncopyable("the call is part of a function transform (torch.func)")
        kind = type(tensor)
        special = self._special(tensor, kind)
        make, parts = special or self._strided(tensor, kind)
        gradient = tensor.grad if tensor.is_leaf and tensor.requires_grad else None
        hooks = tensor._backward_hooks if tensor.is_leaf else None
        after = getattr(tensor, "_post_accumulate_grad_hooks", None) if tensor.is_leaf else None
        own = {} if special else dict(vars(tensor))
        filled = gradient is not None or own or hooks or after
        return _made(make, *parts, fill=_fill_tensor if filled else None, state=(gradient, own, hooks, after))

    def _strided(self, tensor: Any, kind: Any) -> Any:
        real = tensor.dtype.to_real() if tensor.dtype.is_complex else tensor.dtype
        block = self.memory.of_storage(tensor.untyped_storage())
        converts = real.is_floating_point and real != torch.float64
        if converts and self.memory.dtype is not None and "float4" in str(real):
            raise Uncopyable("the call uses float4 numbers, and torch can't convert them")
        self.memory.view(block, str(real).removeprefix("torch."), real.itemsize, converts)
        requires, graph = tensor.requires_grad, tensor.requires_grad and not tensor.is_leaf
        place = tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride())
        dtype, conjugate, negative = self._converted(tensor.dtype), tensor.is_conj(), tensor.is_neg()
        empty = _quantized(tensor) if tensor.is_quantized else functools.partial(torch.empty, 0)

        def make(storage: Any) -> Any:
            made = empty(dtype=dtype, device=storage.device).set_(storage, *place)
            torch._C._set_conj(made, conjugate)
            torch._C._set_neg(made, negative)
            if graph:
                with torch.enable_grad():
                    made = _severed()(made, torch.zeros((), requires_grad=True))
            elif requires and kind is torch.Tensor:
                made.requires_grad_()
            return made if kind is torch.Tensor else torch.Tensor._make_subclass(kind, made, requires and not graph)

        return make, (_Number(block),)

    def _converted(self, dtype: torch.dtype) -> torch.dtype:
        wanted = self.memory.dtype
        if wanted is None or not (dtype.is_floating_point or dtype.is_complex):
            return dtype
        return wanted.to_complex() if dtype.is_complex else wanted

    def _special(self, tensor: Any, kind: Any) -> Any:
        """Return how to make a tensor without memory of its own, and of which parts; None if it has some."""
        layout, requires = str(tensor.layout), tensor.requires_grad
        if torch.nn.parameter.is_lazy(tensor):
            terms = {"requires_grad": requires} if issubclass(kind, torch.nn.Parameter) else {}
            device = self.memory.device or tensor.device
            return functools.partial(kind, dtype=self._converted(tensor.dtype), device=device, **terms), ()
        if torch._is_functional_tensor(tensor) or any(each.__name__ == "FakeTensor" for each in kind.__mro__):
            raise Uncopyable(f"the call uses a tensor without data ({kind.__name__})")
        plain = kind.__torch_dispatch__ is _plain_dispatch()
        if not tensor.is_leaf and not (layout == "torch.strided" and plain):
            raise Uncopyable("the call uses a tensor of a graph that was made before it")
        if hasattr(tensor, "__tensor_flatten__"):
            names, context = tensor.__tensor_flatten__()
            size, stride, parts = tensor.size(), tensor.stride(), (context, *(getattr(tensor, name) for name in names))
            inner = lambda context, *parts: dict(zip(names, parts, strict=True))  # noqa: E731
            return lambda *parts: kind.__tensor_unflatten__(inner(*parts), parts[0], size, stride), parts
        if hasattr(tensor, "_masked_data"):
            return functools.partial(kind, requires_grad=requires), (tensor._masked_data, tensor._masked_mask)
        if not plain:
            raise Uncopyable(f"the call uses a {kind.__name__}, which can't be copied")
        if layout == "torch.strided" and tensor.device.type == "meta":
            make = functools.partial(torch.empty_strided, tensor.size(), tensor.stride(), device="meta")
            dtype = self._converted(tensor.dtype)
            return lambda: torch.Tensor._make_subclass(kind, make(dtype=dtype), requires), ()
        if layout == "torch.strided" and not tensor.is_nested:
            return None
        with torch.no_grad():
            make, *parts = self._laid_out(tensor.detach(), layout)
        return lambda *parts: make(*parts).detach().requires_grad_(requires), parts

    def _laid_out(self, tensor: Any, layout: str) -> tuple[Any, ...]:
        """Return how to make a nested or sparse tensor, and its parts: torch's own reducer keeps sparse ones alive."""
        if tensor.is_nested:
            places = tensor._nested_tensor_size(), tensor._nested_tensor_strides()
            return torch._nested_view_from_buffer, tensor.values(), *places, tensor._nested_tensor_storage_offsets()
        size, checks = tensor.size(), {"check_invariants": False}
        if layout == "torch.sparse_coo":
            make = functools.partial(torch.sparse_coo_tensor, size=size, is_coalesced=tensor.is_coalesced(), **checks)
            return make, tensor._indices(), tensor._values()
        if layout.startswith("torch.sparse_"):
            rows = layout in ("torch.sparse_csr", "torch.sparse_bsr")
            outer = tensor.crow_indices() if rows else tensor.ccol_indices()
            inner = tensor.col_indices() if rows else tensor.row_indices()
            make = functools.partial(torch.sparse_compressed_tensor, size=size, layout=tensor.layout, **checks)
            return make, outer, inner, tensor.values()
        raise Uncopyable(f"the call uses a tensor with the layout {layout.removeprefix('torch.')}")

    def _module_of_torch(self, value: Any) -> Any:
        if isinstance(value, torch.jit.ScriptModule):
            raise Uncopyable("the call uses a scripted module")
        if inner := vars(value).get("_modules", {}).get("_orig_mod"):
            return _made(lambda copied: copied, inner)
        return _made_object(value)

    def _generator(self, value: Any) -> Any:
        if value is torch.default_generator:
            return _shared(value)
        device = self.memory.device or value.device
        made = torch.Generator(device).manual_seed(value.initial_seed())
        return _shared(made.set_state(value.get_state()) if device.type == value.device.type else made)

    def _device(self, value: Any) -> Any:
        moved = self.memory.device is not None and value.type not in ("cpu", "meta")
        return _shared(self.memory.device if moved else value)


@functools.cache
def _plain_dispatch() -> Any:
    return torch.Tensor.__torch_dispatch__


def _reason(kind: type) -> str:
    for known in kind.__mro__:
        if known in _REASONS:
            return _REASONS[known]
        where = f"{known.__module__}.{known.__name__}"
        if where in ("torch._C._distributed_c10d.ProcessGroup", "torch.distributed.device_mesh.DeviceMesh"):
            return "the call uses a process group"
        if where in ("torch._C.ScriptFunction", "torch.jit.ScriptFunction"):
            return "the call uses a scripted function"
        if where in ("torch.cuda.graphs.CUDAGraph", "torch._C._CUDAGraph"):
            return "the call uses a CUDA graph"
    if issubclass(kind, io.IOBase) and not issubclass(kind, io.BytesIO | io.StringIO):
        return "the call uses an open file"
    return ""


@functools.cache
def _shared_kinds() -> frozenset[type]:
    """Return the types of values without a state of their own, which are shared."""
    import re

    kinds = {types.CodeType, types.GenericAlias, types.UnionType, type(Ellipsis), type(NotImplemented), re.Pattern}
    kinds |= {torch.dtype, torch.layout, torch.memory_format, type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor)}
    kinds |= {np.ufunc, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType}
    kinds |= {types.MemberDescriptorType, types.ClassMethodDescriptorType, random.SystemRandom}
    return frozenset(kinds)


@functools.cache
def _reducers() -> tuple[tuple[Any, Callable[[_Pickler, Any], Any]], ...]:
    """Return the types that have reducers of their own, with these."""

    def mapping(_: _Pickler, value: Any) -> Any:
        return type(value), (dict(value.items()),)

    def method(_: _Pickler, value: Any) -> Any:
        return types.MethodType, (value.__func__, value.__self__)

    def weak(pickler: _Pickler, value: Any) -> Any:
        held = value()
        if held is None:
            return _shared(value)
        return _made(lambda copied: pickler._alive.append(copied) or weakref.ref(copied), held)

    def members(_: _Pickler, value: Any) -> Any:
        return type(value), (list(value),)

    return (
        (torch.Tensor, _Pickler._tensor),
        (np.ndarray, _Pickler._array),
        (np.generic, _Pickler._scalar),
        (np.dtype, lambda _, value: _shared(value)),
        (torch.nn.Module, _Pickler._module_of_torch),
        (torch.optim.Optimizer, lambda _, value: _made_object(value)),
        (memoryview, _Pickler._memoryview),
        (torch.Generator, _Pickler._generator),
        (torch.device, _Pickler._device),
        (functools._lru_cache_wrapper, _Pickler._cache),
        (types.CellType, lambda _, value: (types.CellType, ())),
        (types.MethodType, method),
        (weakref.ref, weak),
        (weakref.WeakKeyDictionary | weakref.WeakValueDictionary, mapping),
        (weakref.WeakSet, members),
        (types.MappingProxyType, lambda _, value: (types.MappingProxyType, (dict(value),))),
    )


def is_filled(cell: Any) -> bool:
    """Whether a variable of a closure has been assigned."""
    with contextlib.suppress(ValueError):
        return cell.cell_contents is not cell
    return False


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, numbered: list[Any]) -> None:
        super().__init__(io.BytesIO(stream))
        self._numbered = numbered

    def persistent_load(self, number: int) -> Any:
        """Return the shared value, or the copied storage, of this number."""
        value = self._numbered[number]
        return value.copy(self._numbered[0]) if isinstance(value, _Block | _Buffer) else value
