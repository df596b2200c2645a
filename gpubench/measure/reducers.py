"""Reducers of tensors, arrays and their like, which say how to make a copy of a value again in copied memory."""

from __future__ import annotations

import functools
import types
import weakref
from array import array as Buffer
from collections.abc import Callable
from functools import partial
from typing import Any

from ..devices.lazy import np, torch
from .blocks import Memory, Uncopyable
from .data import COMPRESSED
from .shared import is_importable, is_library


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
    aren't copied, and neither is what they hold."""
    return (Number(make), parts) if fill is None else (Number(make), parts, state, None, None, Number(fill))


def shared_value(value: Any) -> Any:
    """Return how to get a value that the copy shares."""
    return remade(lambda: value)


def _fill_object(value: Any, state: Any) -> None:
    vars(value).update(state)


def plain_object(value: Any) -> Any:
    """Return how to make an object of its attributes, and the items of a dictionary, without a look at its methods."""
    kind, items = type(value), dict(dict.items(value)) if isinstance(value, dict) else {}

    def fill(made: Any, state: Any) -> None:
        dict.update(made, state[0]) if items else None
        vars(made).update(state[1])

    make = partial((dict if isinstance(value, dict) else object).__new__, kind)
    return remade(make, fill=fill, state=(items, dict(vars(value))))


def _array(memory: Memory, array: Any) -> Any:
    kind, dtype = type(array), array.dtype
    if dtype.hasobject:
        return array.__reduce_ex__(2)
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

    return remade(make, Number(block), fill=_fill_object if own else None, state=dict(own))


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
    gradient = tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    hooks, after = (
        getattr(tensor, name, None) if tensor.is_leaf else None
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
    )
    state = gradient, {} if special else dict(vars(tensor)), hooks, after
    filled = gradient is not None or any(state[1:])
    return remade(make, *parts, fill=_fill_tensor if filled else None, state=state)


def _fill_tensor(tensor: Any, state: Any) -> None:
    gradient, attributes, hooks, after = state
    if gradient is not None:
        tensor.grad = gradient
    vars(tensor).update(attributes)
    if hooks is not None:
        tensor._backward_hooks = hooks
    if after is not None:
        tensor._post_accumulate_grad_hooks = after


def _strided(memory: Memory, tensor: Any, kind: Any) -> Any:
    real = tensor.dtype.to_real() if tensor.dtype.is_complex else tensor.dtype
    block = memory.of_storage(tensor.untyped_storage())
    converts = real.is_floating_point and real != torch.float64
    if converts and memory.dtype is not None and "float4" in str(real):
        raise Uncopyable("the call uses float4 numbers, and torch can't convert them")
    memory.view(block, str(real).removeprefix("torch."), real.itemsize, converts)
    requires, graph = tensor.requires_grad, tensor.requires_grad and not tensor.is_leaf
    place = tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride())
    dtype, conjugate, negative = _converted(memory, tensor.dtype), tensor.is_conj(), tensor.is_neg()
    empty = _quantized(tensor) if tensor.is_quantized else partial(torch.empty, 0)

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

    return make, (Number(block),)


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


def _quantized(tensor: Any) -> Any:
    """Return a function of dtype and device that makes an empty tensor with the scales of another one."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        return partial(torch._empty_affine_quantized, (0,), **scale)
    scales = {"scales": tensor.q_per_channel_scales(), "zero_points": tensor.q_per_channel_zero_points()}
    axis = tensor.q_per_channel_axis()
    return partial(torch._empty_per_channel_affine_quantized, tensor.size(), **scales, axis=axis)


def _converted(memory: Memory, dtype: torch.dtype) -> torch.dtype:
    wanted = memory.dtype
    if wanted is None or not (dtype.is_floating_point or dtype.is_complex):
        return dtype
    return wanted.to_complex() if dtype.is_complex else wanted


def _special(memory: Memory, tensor: Any, kind: Any) -> Any:
    """Return how to make a tensor without memory of its own, and of which parts; None if it has some."""
    layout, requires = str(tensor.layout), tensor.requires_grad
    dtype, device = _converted(memory, tensor.dtype), memory.device or tensor.device
    if torch.nn.parameter.is_lazy(tensor):
        terms = {"requires_grad": requires} if issubclass(kind, torch.nn.Parameter) else {}
        return partial(kind, dtype=dtype, device=device, **terms), ()
    if torch._is_functional_tensor(tensor) or any(each.__name__ == "FakeTensor" for each in kind.__mro__):
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
    def make(copied: Any) -> Any:
        memory.alive.append(copied)
        return weakref.ref(copied)

    return shared_value(value) if value() is None else remade(make, value())


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
        (weakref.ref, _weak),
        (weakref.WeakKeyDictionary | weakref.WeakValueDictionary, lambda _, value: (type(value), (dict(value),))),
        (weakref.WeakSet, lambda _, value: (type(value), (list(value),))),
        (types.MappingProxyType, lambda _, value: (types.MappingProxyType, (dict(value),))),
    )
