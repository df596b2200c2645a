"""Random inputs from a seed: the same on every device, and never larger than the free memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import math
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..devices import CPU, Device
from ..devices.lazy import np, pytree, torch
from ..errors import TooLarge, Unmeasurable, UsageError
from ..runfile.quantities import text
from ..runfile.writer import text_of

MEMORY_SHARE = 0.8  # Share of the free memory that a case may allocate; the rest is for outputs and workspaces
COMPRESSED = {"torch.sparse_csr": "crow col", "torch.sparse_bsr": "crow col"}
COMPRESSED |= {"torch.sparse_csc": "ccol row", "torch.sparse_bsc": "ccol row"}
"""Compressed layouts, with the names of a tensor's two tensors of indices."""
_LONG = 16  # Numbers in a list that is one leaf: a million leaves would take seconds
_CPU_ALLOCATOR = re.compile(r"DefaultCPUAllocator: .*tried to allocate (\d+) bytes")
_OUT_OF_MEMORY = re.compile("(can't|unable to) allocate|out of memory|ALLOC_FAILED", re.IGNORECASE)


def require_memory(nbytes: float, device: Device) -> None:
    """Raise :class:`TooLarge` unless ``nbytes`` more fit into the device's free memory, without garbage."""
    if (memory := device.memory()) and nbytes > MEMORY_SHARE * memory.free:
        gc.collect()
        memory = device.memory() or memory
        if nbytes > MEMORY_SHARE * memory.free:
            raise TooLarge(f"needs {text(nbytes, 'B')} more on {device}, {text(memory.free, 'B')} are free")


def shortage(error: BaseException) -> str | None:
    """Return an error about missing memory in plain words; None for other errors."""
    kind, words = type(error).__name__, " ".join(text_of(error).split())
    if asked := _CPU_ALLOCATOR.search(words):
        return f"out of memory: one tensor would need {text(int(asked[1]), 'B')}"
    if _OUT_OF_MEMORY.search(words):
        return words
    lacks = isinstance(error, MemoryError) or kind == "OutOfMemoryError"
    return f"{kind}: {words}".removesuffix(": ") if lacks else None


KEPT_BYTES = 1 << 28
"""Most bytes of drawn values that are kept: copying them takes a third of the time of drawing them."""
_kept: dict[Any, torch.Tensor] = {}


class Data:
    """A case's tensors: the n-th has the same values on every device and in every run, and others in another
    ``stream``."""

    def __init__(self, device: Device, dtype: torch.dtype, seed: int, *, stream: int = 0) -> None:
        self.home, self.dtype = device, dtype
        self.seed, self._stream, self._drawn = seed, stream, 0

    @functools.cached_property
    def device(self) -> torch.device:
        """The torch device on which tensors are made."""
        return torch.device(self.home.torch_name)

    def randn(self, *size: Any, dtype: torch.dtype | None = None, **words: Any) -> torch.Tensor:
        """Return standard normal values, drawn in float32 on the CPU whatever the device and dtype. The arguments are
        ``torch.randn``'s: ``requires_grad=``, ``generator=``, and a ``device=`` that must be the benchmark's. Raises
        :class:`~gpubench.errors.UsageError` for others."""
        return self._draw("randn", size, dtype or self.dtype, words)

    def rand(self, *size: Any, dtype: torch.dtype | None = None, **words: Any) -> torch.Tensor:
        """Return uniform values from 0 to below 1; arguments as for :meth:`randn`."""
        return self._draw("rand", size, dtype or self.dtype, words)

    def randint(self, *bounds_and_size: Any, dtype: torch.dtype | None = None, **words: Any) -> torch.Tensor:
        """Return random integers, such as token ids or labels: ``randint(high, size)``, from 0 to below ``high``, or
        ``randint(low, high, size)``. Raises :class:`~gpubench.errors.UsageError` for other arguments."""
        given = list(bounds_and_size)
        named = next((words.pop(name) for name in ("size", "shape") if name in words), None)
        size = given.pop() if named is None and given else named
        bounds = [each for each in (words.pop("low", None), *given, words.pop("high", None)) if each is not None]
        if not isinstance(size, list | tuple) or not 1 <= len(bounds) <= 2:
            example = f"({', '.join(map(str, bounds or [10]))}, ({size or 'n'},))"
            raise UsageError(f"randint needs its shape in brackets: write randint{example}")
        return self._draw("randint", (size,), dtype or torch.int64, words, *(0, *bounds)[-2:])

    def empty(self, *size: Any, dtype: torch.dtype | None = None, **words: Any) -> torch.Tensor:
        """Return memory for an output, filled with NaN (integers: -1), so that an element which is never written fails
        the check; arguments as for :meth:`randn`."""
        dtype = dtype or self.dtype
        shape, gradient, _ = self._terms("empty", size, words)
        require_memory(math.prod(shape) * dtype.itemsize, self.home)
        filling = math.nan if dtype.is_floating_point else -1
        return torch.full(shape, filling, dtype=dtype, device=self.device, requires_grad=gradient)

    def module(self, build: Callable[[], torch.nn.Module], *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Return the network that ``build`` makes: parameters from the seed, in eval mode, on the device, in the
        dtype. Raises :class:`~gpubench.errors.UsageError` for anything but a function that makes a network."""
        if args or kwargs or not callable(build) or isinstance(build, torch.nn.Module):
            kind = build if isinstance(build, type) else type(build)
            name = f"{'nn.' * kind.__module__.startswith('torch.nn')}{kind.__name__}"
            raise UsageError(f"module takes a function that makes the network: write module(lambda: {name}(…))")
        with torch.random.fork_rng(devices=[]), factory_defaults("cpu", torch.float32):
            torch.manual_seed(self.seed)
            network = build()
        if not isinstance(network, torch.nn.Module):
            raise UsageError(f"the function that module calls returns no network, but {type(network).__name__}")
        if self.home != CPU:
            require_memory(sum(t.numel() for t in tensors(network)) * self.dtype.itemsize, self.home)
        return network.eval().to(device=self.device, dtype=self.dtype)

    def _draw(self, name: str, size: Any, dtype: torch.dtype, words: dict[str, Any], *bounds: int) -> torch.Tensor:
        shape, gradient, generator = self._terms(name, size, words)
        drawn_in, count = torch.int64 if bounds else torch.float32, math.prod(shape)
        require_memory(count * dtype.itemsize, self.home)
        if self.home != CPU:
            require_memory(count * drawn_in.itemsize, CPU)
        key = None
        if generator is None:
            self._drawn += 1
            seed = self.seed * 1_000_003 + self._stream * 100_003 + self._drawn
            generator, key = torch.Generator("cpu").manual_seed(seed), (name, bounds, shape, seed)
        drawn = _kept.get(key)
        if drawn is None:
            drawn = getattr(torch, name)(*bounds, shape, generator=generator, device="cpu", dtype=drawn_in)
            if key and (self.device.type, dtype) != ("cpu", drawn_in) and type(drawn) is torch.Tensor:  # else no copy
                _keep(key, drawn)
        return drawn.to(device=self.device, dtype=dtype, copy=key in _kept).requires_grad_(gradient)

    def _terms(self, name: str, size: Any, words: dict[str, Any]) -> tuple[tuple[int, ...], bool, Any]:
        """Return the shape, ``requires_grad`` and the generator. Raises UsageError for other ``words``."""
        device, generator = words.pop("device", None), words.pop("generator", None)
        gradient = words.pop("requires_grad", False)
        shape = size or words.pop("size", words.pop("shape", ()))
        shape = shape if isinstance(shape, list | tuple) else (shape,)
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        if words:
            more = "dtype=, requires_grad= and generator="
            raise UsageError(f"{name} takes a shape, {more}, not {next(iter(words))}=: use torch.{name}")
        if device is not None and torch.device(device) not in (self.device, torch.device(self.device.type)):
            how = f"leave out device={str(device)!r}"
            raise UsageError(f"{how}: {name} makes its values on each device that is measured")
        if generator is not None and generator.device.type != "cpu":
            raise UsageError("leave out generator=, or make it on the CPU: values are the same on each device")
        try:
            return tuple(map(operator.index, shape)), bool(gradient), generator
        except TypeError:
            wrong = f"{name} needs a shape of whole numbers, not {shape!r:.60}"
            raise UsageError(f"{wrong}: round with // or int()") from None


def _keep(key: Any, drawn: torch.Tensor) -> None:
    """Keep values that further devices and dtypes will have, and forget the oldest beyond :data:`KEPT_BYTES`."""
    if not drawn.is_inference() and drawn.nbytes <= KEPT_BYTES:
        _kept[key] = drawn
    while sum(each.nbytes for each in _kept.values()) > KEPT_BYTES:
        del _kept[next(iter(_kept))]


def reference_data(seed: int) -> Data:
    """Return a source of the same values in float64 on the CPU, to compare results with."""
    return Data(CPU, torch.float64, seed)


@contextlib.contextmanager
def factory_defaults(device: torch.device | str, dtype: torch.dtype) -> Iterator[None]:
    """A context in which torch's own factories make tensors on this device and in this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def pinned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in page-locked host memory. Raises :class:`~gpubench.errors.Unmeasurable` if there is none."""
    try:
        pinned = tensor.pin_memory()
        locked = pinned.is_pinned() and pinned.device.type == "cpu"  # not so on a Mac (pytorch#181374)
    except (RuntimeError, NotImplementedError) as error:
        raise Unmeasurable(f"no pinned memory: {' '.join(str(error).split())}") from error
    if not locked:
        raise Unmeasurable("no pinned memory: torch returned ordinary memory")
    return pinned


def leaves(*values: Any) -> list[Any]:
    """Return the leaves of nested containers and dataclasses; one leaf is a long list, tuple or dictionary of numbers,
    and a value that is nested more deeply than Python recurses."""
    try:
        found, opened = list[Any](pytree.tree_leaves(values, is_leaf=_is_long)), set[int]()
    except RecursionError:
        return list(values) if len(values) == 1 else [leaf for value in values for leaf in leaves(value)]
    for leaf in found:  # which grows meanwhile
        if id(leaf) not in opened and (parts := _parts(leaf)) is not None:
            opened.add(id(leaf))
            found += pytree.tree_leaves(parts, is_leaf=_is_long)
    return [leaf for leaf in found if id(leaf) not in opened]


def _parts(value: Any) -> list[Any] | None:
    """Return the parts of a dataclass, a namespace, or a container of a class that torch lacks; else None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, each.name, None) for each in dataclasses.fields(value)]
    if isinstance(value, types.SimpleNamespace):
        return [*vars(value).values()]
    if type(value) in (list, tuple, dict) or not isinstance(value, list | tuple | dict) or _is_long(value):
        return None
    return [*value.values()] if isinstance(value, dict) else [*value]


def _is_long(value: Any) -> bool:
    if not isinstance(value, list | tuple | dict):
        return False
    count, inner = len(value), list(value.values()) if isinstance(value, dict) else value
    kinds = set(map(type, inner))
    if kinds and kinds <= {list, tuple}:
        if len(set(map(len, inner))) > 1:
            return False
        count, kinds = count * len(inner[0]), set().union(*(map(type, each) for each in inner))
    return count >= _LONG and kinds <= {bool, int, float, complex}


def tensor_leaves(*values: Any) -> list[torch.Tensor]:
    """Return all tensors in nested containers as they are, except in modules."""
    return [leaf for leaf in leaves(values) if isinstance(leaf, torch.Tensor)]


def bare_tensors(*values: Any) -> list[torch.Tensor]:
    """Return the dense tensors with the data of all tensors in nested containers, but not in modules, and not in lazy
    layers, which have no size yet."""
    return [part for leaf in tensor_leaves(values) for part in _dense_parts(leaf)]


def _dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensor, or the indices and values of a sparse one, since torch refuses its ``nbytes`` and storage."""
    layout, parts = str(tensor.layout), [tensor]
    with contextlib.suppress(Exception):
        if layout == "torch.sparse_coo":
            parts = [tensor._indices(), tensor._values()]
        elif layout in COMPRESSED:
            names = COMPRESSED[layout].split()
            parts = [tensor.values(), *(getattr(tensor, f"{name}_indices")() for name in names)]
        elif layout == "torch.jagged":
            parts = [tensor.values()]
        for part in parts:
            part.dim(), part.nbytes, part.is_meta or memory_key(part)
        return parts
    return []


def _of_networks(*values: Any) -> list[torch.Tensor]:
    networks = [leaf for leaf in leaves(*values) if isinstance(leaf, torch.nn.Module)]
    return [tensor for network in networks for tensor in (*network.parameters(), *network.buffers())]


def tensors(*values: Any) -> list[torch.Tensor]:
    """Return the dense tensors of :func:`bare_tensors`, and the parameters and buffers of modules."""
    return bare_tensors(values, _of_networks(values))


def is_lazy(*values: Any) -> bool:
    """Whether a network in these values makes its parameters when it is first called, as ``nn.LazyLinear`` does."""
    return any(map(torch.nn.parameter.is_lazy, _of_networks(values)))


def is_array(value: Any) -> bool:
    """Whether the value is an array of a library other than torch."""
    return hasattr(type(value), "__dlpack__") and not isinstance(value, torch.Tensor)


def as_tensor(value: Any) -> torch.Tensor:
    """Return a number or an array of any library as a tensor on the same device."""
    if isinstance(value, np.ndarray):
        return torch.as_tensor(value.copy())  # torch has no reversed views
    return torch.from_dlpack(value) if is_array(value) else torch.as_tensor(value)


def all_as_tensors(*values: Any) -> list[torch.Tensor]:
    """Return all tensors and arrays in nested containers, except in modules, of text and of objects, as dense
    tensors on the same device."""
    held = []
    for leaf in leaves(values):
        with contextlib.suppress(TypeError, ValueError, RuntimeError, BufferError):
            held.append(as_tensor(leaf) if is_array(leaf) else leaf)
    return bare_tensors(held)


def total_bytes(*values: Any) -> int:
    """Return the bytes of all distinct tensors and arrays in nested containers, counted without copying."""
    distinct = {id(leaf): leaf for leaf in leaves(values)}.values()
    return sum(int(part.nbytes) for leaf in distinct for part in ([leaf] if is_array(leaf) else bare_tensors(leaf)))


def dtypes_of(values: Any) -> set[str]:
    """Return the names of the dtypes of all tensors, networks and arrays in nested containers."""
    if "torch" not in sys.modules:  # so there is no tensor
        return set()
    found = leaves(values)
    found += [tensor for leaf in found if isinstance(leaf, torch.nn.Module) for tensor in leaf.parameters()]
    return {str(leaf.dtype).rpartition(".")[2] for leaf in found if isinstance(leaf, torch.Tensor) or is_array(leaf)}


def memory_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for tensors of the same memory and shape."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape


def poison(written: Any, args: Any, kwargs: Mapping[str, Any], *used: Any) -> None:
    """Fill with NaN the tensors that a call writes, unless it reads them too: its arguments, and ``used``."""
    read = {name: value for name, value in kwargs.items() if name != "out"}
    held = {tensor.untyped_storage()._cdata for tensor in tensors(args, read, used)}
    for tensor in tensors(written):
        apart = tensor.untyped_storage()._cdata not in held
        if apart and (tensor.is_floating_point() or tensor.is_complex()):
            with contextlib.suppress(RuntimeError):  # NotImplementedError too: formats of 8 bits and fewer
                tensor.detach().fill_(math.nan)


@functools.cache
def dispatch_mode() -> Any:
    """Return the class of modes that hand each of torch's operations to a function of mode, operation, types, arguments
    and keywords. A class for each function would be a reference cycle. torch's own class makes torch import its
    compiler, which takes two seconds, only to exclude the mode from compilation."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Uncompiled(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self, handle: Any = None) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._handle = handle

        def __torch_dispatch__(self, step: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._handle(self, step, types, args, kwargs or {})

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    return Uncompiled


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """A context in which compiled functions and modules run as they were written: torch's compiler skips for good the
    code that it met under a dispatch mode, so that the call would be timed uncompiled."""
    if "torch._dynamo" in sys.modules:
        with torch.compiler.set_stance("force_eager"):
            yield
        return
    try:
        yield
    finally:
        if dynamo := sys.modules.get("torch._dynamo"):  # the call itself compiles, for the first time in this process
            dynamo.reset()
