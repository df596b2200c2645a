"""Reducers of tensors, arrays and their like, which say how to make a copy of a value again in copied memory: blocks,
which tensors, arrays and buffers of Python may share. A block is copied once and may be converted; its views are then
made again by their places, so that they share memory as before."""

from __future__ import annotations

import ctypes
import functools
import types
import weakref
from array import array as Buffer
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from ..devices.lazy import np, torch
from .calls import is_importable, is_library
from .data import COMPRESSED


class Uncopyable(Exception):
    """A call that can't be copied; the text is the reason."""


class Block:
    """Memory that tensors, arrays and buffers view: ``convert`` names the dtype of its numbers if these are converted,
    and ``width`` is their size in bytes. ``buffer`` is the ``bytearray`` or ``array.array`` that owns the memory."""

    def __init__(self, nbytes: int, source: Any, address: int, device: Any) -> None:
        self.nbytes, self.device, self.convert, self.width = nbytes, device, "", 1
        self.views, self.uses = set[str](), 0
        self.buffer: Any = None
        self._made: Any = None
        self._source, self._address = source, address

    def copy(self, dtype: Any) -> Any:
        """Return the storage of the copy, made once."""
        if self._made is None:
            self._made = self._copied(dtype, self.nbytes // self.width)
        return self._made

    def _copied(self, dtype: Any, count: int) -> Any:
        if self.buffer is not None:
            self.buffer = self.buffer[:]
            viewed = count and self.uses > 1  # a buffer with views can't be resized
            return torch.frombuffer(self.buffer, dtype=torch.uint8).untyped_storage() if viewed else ()
        if isinstance(self._source, torch.UntypedStorage):
            flat = torch.empty(0, dtype=getattr(torch, self.convert or "uint8"), device=self._source.device)
            flat.set_(self._source, 0, (count,), (1,))
        else:  # an array's
            held: Any = (ctypes.c_char * self.nbytes).from_address(self._address) if count else b""
            array = np.frombuffer(held, np.dtype(self.convert or "uint8"), count)
            flat = torch.from_numpy(array.astype(np.float64 if self.convert else np.uint8))
        target = dtype if self.convert else torch.uint8
        return flat.to(device=self.device, dtype=target, copy=True).untyped_storage()


class Owner(NamedTuple):
    """The ``bytearray`` or ``array.array`` that owns a block."""

    block: Block


class Memory:
    """The blocks of memory of a call, by address, with the dtype and device of their copies (None: their own)."""

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None) -> None:
        self.dtype, self.device = dtype, device
        self.alive: list[Any] = []  # copies of objects that the call refers to weakly
        self._blocks: dict[tuple[str, int, int], Block] = {}  # by device, address and bytes

    def of_storage(self, storage: Any) -> Block:
        """Return the block of a tensor's storage."""
        source = storage.nbytes(), storage, storage.data_ptr(), self.device or storage.device
        return self._block(str(storage.device), storage._cdata, *source)

    def of_array(self, array: Any) -> tuple[Block, int]:
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
        nbytes = high - low if root.size else 0
        return self._block("cpu", id(root), nbytes, root, low, torch.device("cpu")), place - low

    def of_buffer(self, buffer: Any) -> Owner:
        """Return a buffer of Python as the owner of its block."""
        block, _ = self.of_array(np.frombuffer(buffer, np.uint8))
        block.buffer = buffer
        self.view(block, "uint8", 1, converts=False)
        return Owner(block)

    def _block(self, key: str, own: int, nbytes: int, source: Any, start: int, device: Any) -> Block:
        place = key, start if nbytes else own, nbytes
        block = self._blocks.setdefault(place, Block(nbytes, source, start, device))
        block.uses += 1
        return block

    def view(self, block: Block, real: str, width: int, converts: bool) -> None:
        """Note a view of the block as numbers of this dtype. Raises :class:`Uncopyable` if the block is converted and
        viewed in another dtype too."""
        if self.dtype is None:
            return
        block.views.add(real)
        if converts:
            block.convert, block.width = real, width
        if block.convert and len(block.views) > 1:
            raise Uncopyable("the call views the same memory in two dtypes")

    def converted(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the copy of a tensor."""
        if self.dtype is None or not (dtype.is_floating_point or dtype.is_complex):
            return dtype
        return self.dtype.to_complex() if dtype.is_complex else self.dtype

    def has_numbers(self) -> bool:
        """Whether any copy has the dtype to which numbers are converted."""
        return any(each.convert or "float64" in each.views for each in self._blocks.values())

    def total_bytes(self) -> int:
        """Return the bytes of all copies. Raises :class:`Uncopyable` if two blocks overlap."""
        for (device, start, nbytes), (other, after, _) in pairwise(sorted(place for place in self._blocks if place[2])):
            if device == other and start + nbytes > after:
                raise Uncopyable("the call uses an array and a tensor that share a part of their memory")
        width = self.dtype.itemsize if self.dtype else 1
        return sum(
            each.nbytes // each.width * (width if each.convert else each.width) for each in self._blocks.values()
        )


class Number:
    """A value that the copy shares, in the stream of a pickler: also a reducer's function."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> None:
        """Pickle wants reducers to return a function."""


def remade(
    make: Callable[..., Any], *parts: Any, fill: Callable[[Any, Any], Any] | None = None, state: Any = None
) -> Any:
    """Return how to make a value again: of the copies of ``parts``, and filled with the copied ``state``. The functions
    aren't copied, and neither are the values that they hold."""
    return (Number(make), parts) if fill is None else (Number(make), parts, state, None, None, Number(fill))


def shared_value(value: Any) -> Any:
    """Return how to get a value that the copy shares."""
    return remade(lambda: value)


def plain_object(value: Any) -> Any:
    """Return how to make an object of its attributes, and the items of a dictionary, without a look at its methods."""
    base = dict if isinstance(value, dict) else object
    items = dict(dict.items(value)) if base is dict else {}

    def fill(made: Any, state: Any) -> None:
        dict.update(made, state[0]) if items else None
        vars(made).update(state[1])

    return remade(partial(base.__new__, type(value)), fill=fill, state=(items, dict(vars(value))))


def _array(memory: Memory, array: Any) -> Any:
    kind, dtype = type(array), array.dtype
    if dtype.hasobject:
        return array.__reduce_ex__(2)
    parts = {part.base.str[1:] for part, *_ in (dtype.fields or {}).values()}
    if memory.dtype and parts & {"f2", "f4", "c8"}:
        raise Uncopyable("the call uses an array of records, whose numbers aren't converted")
    kind = np.ndarray if issubclass(kind, np.memmap) else kind
    block, place = memory.of_array(array)
    strides, width, number = array.strides, dtype.itemsize, {"f": 8, "c": 16}.get(dtype.kind, 0)
    real = np.dtype(f"{dtype.byteorder}f{width // 2}") if dtype.kind == "c" else dtype
    name = real.name if real.isnative and not real.names else real.str
    memory.view(block, name, real.itemsize, bool(number) and real.itemsize < 8)
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

    return remade(make, block, fill=(lambda made, state: vars(made).update(state)) if own else None, state=dict(own))


def _memoryview(_: Memory, value: Any) -> Any:
    owner = value.obj
    if not (isinstance(owner, bytearray | Buffer) and value.c_contiguous and value.nbytes):
        raise Uncopyable("the call uses a memoryview")
    start, whole = (np.frombuffer(each, np.uint8).__array_interface__["data"][0] for each in (value, owner))
    part, form, shape = slice(start - whole, start - whole + value.nbytes), value.format, value.shape
    return remade(lambda made: memoryview(made).cast("B")[part].cast(form, shape), owner)


def _scalar(memory: Memory, value: Any) -> Any:
    for kind, widest in ((np.floating, np.float64), (np.complexfloating, np.complex128)):
        if memory.dtype is not None and isinstance(value, kind) and value.itemsize < np.dtype(widest).itemsize:
            return widest, (value.item(),)
    return shared_value(value)


def _tensor(memory: Memory, tensor: Any) -> Any:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise Uncopyable("the call is part of a function transform (torch.func)")
    special = _special(memory, tensor, type(tensor))
    make, parts = special or _strided(memory, tensor, type(tensor))
    names = ["grad"] * tensor.requires_grad + ["_backward_hooks", "_post_accumulate_grad_hooks"]
    of_leaf = {name: getattr(tensor, name, None) for name in names} if tensor.is_leaf else {}
    of_leaf = {name: value for name, value in of_leaf.items() if value is not None}
    state = {} if special else dict(vars(tensor)), of_leaf
    return remade(make, *parts, fill=_fill_tensor if any(state) else None, state=state)


def _fill_tensor(tensor: Any, state: Any) -> None:
    vars(tensor).update(state[0])
    for name, value in state[1].items():
        setattr(tensor, name, value)


def _strided(memory: Memory, tensor: Any, kind: Any) -> Any:
    real = tensor.dtype.to_real() if tensor.dtype.is_complex else tensor.dtype
    block = memory.of_storage(tensor.untyped_storage())
    converts = real.is_floating_point and real != torch.float64
    if converts and memory.dtype is not None and "float4" in str(real):
        raise Uncopyable("the call uses float4 numbers, and torch can't convert them")
    memory.view(block, str(real).removeprefix("torch."), real.itemsize, converts)
    requires, graph = tensor.requires_grad, tensor.requires_grad and not tensor.is_leaf
    place = tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride())
    dtype, conjugate, negative = memory.converted(tensor.dtype), tensor.is_conj(), tensor.is_neg()
    empty = partial(torch.empty, 0)
    if tensor.is_quantized and tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        empty = partial(torch._empty_affine_quantized, (0,), **scale)
    elif tensor.is_quantized:
        scales = {"scales": tensor.q_per_channel_scales(), "zero_points": tensor.q_per_channel_zero_points()}
        scales["axis"] = tensor.q_per_channel_axis()
        empty = partial(torch._empty_per_channel_affine_quantized, tensor.size(), **scales)

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

    return make, (block,)


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


def _special(memory: Memory, tensor: Any, kind: Any) -> Any:
    """Return how to make a tensor without memory of its own, and its parts; None if it has some."""
    layout, requires = str(tensor.layout), tensor.requires_grad
    dtype, device = memory.converted(tensor.dtype), memory.device or tensor.device
    if torch.nn.parameter.is_lazy(tensor):
        terms = {"requires_grad": requires} if issubclass(kind, torch.nn.Parameter) else {}
        return partial(kind, dtype=dtype, device=device, **terms), ()
    if any(each.__name__ == "FakeTensor" for each in kind.__mro__):
        return lambda: tensor, ()  # without data, as in the notes of an exported program
    if torch._is_functional_tensor(tensor):
        raise Uncopyable(f"the call uses a tensor without data ({kind.__name__})")
    plain = kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    if not tensor.is_leaf and not (layout == "torch.strided" and plain):
        raise Uncopyable("the call uses a tensor of a graph that was made before it")
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        size, stride, parts = tensor.size(), tensor.stride(), (context, *(getattr(tensor, name) for name in names))
        unflatten = kind.__tensor_unflatten__
        return lambda context, *parts: unflatten(dict(zip(names, parts, strict=True)), context, size, stride), parts
    if hasattr(tensor, "_masked_data"):
        return partial(kind, requires_grad=requires), (tensor._masked_data, tensor._masked_mask)
    if not plain:
        raise Uncopyable(f"the call uses a {kind.__name__}, which can't be copied")
    if layout == "torch.strided" and tensor.device.type == "meta":
        make = partial(torch.empty_strided, tensor.size(), tensor.stride(), device="meta")
        return lambda: torch.Tensor._make_subclass(kind, make(dtype=dtype), requires), ()
    if layout == "torch.strided" and not tensor.is_nested:
        return None
    with torch.no_grad():
        lay_out, *dense = _laid_out(tensor.detach(), layout)
    return lambda *parts: lay_out(*parts).detach().requires_grad_(requires), dense


def _laid_out(tensor: Any, layout: str) -> tuple[Any, ...]:
    """Return how to make a nested or sparse tensor, and its parts: torch's own reducer keeps sparse ones alive."""
    if tensor.is_nested:
        places = tensor._nested_tensor_size(), tensor._nested_tensor_strides()
        return torch._nested_view_from_buffer, tensor.values(), *places, tensor._nested_tensor_storage_offsets()
    terms: dict[str, Any] = {"size": tensor.size(), "check_invariants": False}
    if layout == "torch.sparse_coo":
        make = partial(torch.sparse_coo_tensor, is_coalesced=tensor.is_coalesced(), **terms)
        return make, tensor._indices(), tensor._values()
    if layout not in COMPRESSED:
        raise Uncopyable(f"the call uses a tensor with the layout {layout.removeprefix('torch.')}")
    indices = (getattr(tensor, f"{name}_indices")() for name in COMPRESSED[layout].split())
    return partial(torch.sparse_compressed_tensor, layout=tensor.layout, **terms), *indices, tensor.values()


def _generator(memory: Memory, value: Any) -> Any:
    if value is torch.default_generator:
        return shared_value(value)
    device = memory.device or value.device
    made = torch.Generator(device).manual_seed(value.initial_seed())
    return shared_value(made.set_state(value.get_state()) if device.type == value.device.type else made)


def _device(memory: Memory, value: Any) -> Any:
    moved = memory.device is not None and value.type not in ("cpu", "meta")
    return shared_value(memory.device if moved else value)


def _cache(_: Memory, value: Any) -> Any:
    if not value.cache_info().currsize:
        return remade(functools.lru_cache(**value.cache_parameters()), value.__wrapped__)
    if is_library(getattr(value, "__module__", None) or "") and not is_importable(value.__wrapped__):
        return shared_value(value)
    name = getattr(value, "__name__", "a function")
    raise Uncopyable(f"the call uses results that functools.lru_cache keeps ({name})")


def _network(_: Memory, value: Any) -> Any:
    if isinstance(value, torch.jit.ScriptModule):
        raise Uncopyable("the call uses a scripted module")
    if inner := vars(value).get("_modules", {}).get("_orig_mod"):
        return remade(lambda copied: copied, inner)
    return plain_object(value)


def _weak(memory: Memory, value: Any) -> Any:
    kind, is_reference = type(value), isinstance(value, weakref.ref)
    held = value() if is_reference else list(value) if isinstance(value, weakref.WeakSet) else dict(value)

    def make(copied: Any) -> Any:
        memory.alive.append(copied)
        return weakref.ref(copied) if is_reference else kind(copied)

    return shared_value(value) if held is None else remade(make, held)


@functools.cache
def reducers() -> tuple[tuple[Any, Callable[[Memory, Any], Any]], ...]:
    """Return the types that have reducers of their own, with the reducers: functions of memory and value."""
    return (
        (torch.Tensor, _tensor),
        (np.ndarray, _array),
        (np.generic, _scalar),
        (np.dtype, lambda _, value: shared_value(value)),
        (torch.nn.Module, _network),
        (torch.optim.Optimizer, lambda _, value: plain_object(value)),
        (memoryview, _memoryview),
        (torch.Generator, _generator),
        (torch.device, _device),
        (functools._lru_cache_wrapper, _cache),
        (types.CellType, lambda _, value: (types.CellType, ())),
        (types.MethodType, lambda _, value: (types.MethodType, (value.__func__, value.__self__))),
        (weakref.ref | weakref.WeakSet | weakref.WeakKeyDictionary | weakref.WeakValueDictionary, _weak),
        (types.MappingProxyType, lambda _, value: (types.MappingProxyType, (dict(value),))),
    )
