"""Copies of whole calls: each row is a way in which people hold a call's data."""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import dataclasses
import enum
import functools
import io
import itertools
import random
import statistics
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from gpubench.devices import CPU, kinds
from gpubench.devices.virtual import VirtualDevice
from gpubench.measure.copies import Uncopyable, copy_call, restored_random_streams


@dataclasses.dataclass
class Call:
    """A row: the call, and the objects that the copy must leave alone."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    state: Callable[[], Any] = list


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape or (4, 4), generator=torch.Generator().manual_seed(len(shape) + 1))


class Average:
    def __init__(self) -> None:
        self.value: Any = None
        self.seen: list[torch.dtype] = []

    def update(self, x: torch.Tensor) -> torch.Tensor:
        self.value = x if self.value is None else 0.9 * self.value + 0.1 * x
        self.seen.append(self.value.dtype)
        return self.value


@dataclasses.dataclass(frozen=True)
class Setting:
    scale: torch.Tensor
    names: tuple[str, ...] = ("a",)


class Ring(dict[str, Any]):
    pass


class Kelvin(torch.Tensor):
    pass


def row_recursive_closure() -> Call:
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else down(x * 2, n - 1)

    return Call(down, (x(), 3))


def row_shared_cell() -> Call:
    total = torch.zeros(())

    def add(x: torch.Tensor) -> None:
        nonlocal total
        total = total + x.sum()

    def both(x: torch.Tensor) -> torch.Tensor:
        add(x)
        return total

    return Call(both, (x(),), lambda: total)


def row_buffers() -> Call:
    one, other = bytearray(8), array.array("i", [1, 2])
    views = np.frombuffer(one, np.uint8, 4, 2), torch.frombuffer(other, dtype=torch.int32), memoryview(one)[4:]

    def write(one: Any, other: Any, array: Any, tensor: torch.Tensor, part: Any) -> list[Any]:
        array += 1
        tensor += 2
        part[0] = 9
        return [*one, *other, *array.tolist()]

    return Call(write, (one, other, *views), lambda: [one.hex(), other.tolist()])


def row_hook_of_tensor() -> Call:
    weight, seen = x().requires_grad_(), []
    weight.register_hook(lambda gradient: seen.append(gradient.dtype))
    weight.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.sum()))

    def backward(weight: torch.Tensor) -> Any:
        weight.grad = None
        (weight**2).sum().backward()
        return weight.grad

    return Call(backward, (weight,), lambda: [seen, weight.grad])


def row_old_weight_norm() -> Call:
    network = nn.utils.weight_norm(nn.Linear(4, 4))
    network(x())
    return Call(network, (x(),), lambda: list(network.parameters()))


def row_dictionary_subclass() -> Call:
    ring = Ring(a=x())
    ring["self"] = ring
    return Call(lambda r: r["self"]["self"]["a"].add_(1), (ring,), lambda: ring["a"])


def row_quantized() -> Call:
    scales = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    return Call(lambda a: a.int_repr(), (torch.quantize_per_channel(x(2, 3), *scales, 0, torch.qint8),))


def row_quantized_view() -> Call:
    whole = torch.quantize_per_tensor(x(), 0.1, 0, torch.qint8)

    def write(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        whole.copy_(whole.dequantize() + 1)
        return part.int_repr()

    return Call(write, (whole, whole[1:3]), lambda: whole.dequantize())


class Weight(enum.Enum):
    ONES = torch.ones(4)


SCALE = contextvars.ContextVar("scale", default=1.0)


def row_context() -> Call:
    def scale(x: torch.Tensor) -> torch.Tensor:
        SCALE.set(2 * SCALE.get())
        return x * SCALE.get()

    return Call(scale, (x(),), lambda: SCALE.get())


LOOP = asyncio.new_event_loop()


def row_awaited() -> Call:
    async def double(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x * 2

    return Call(lambda x: LOOP.run_until_complete(double(x)), (x(),))


def row_subclass() -> Call:
    value = x().as_subclass(Kelvin)
    value.unit = "K"
    return Call(lambda v: v.as_subclass(torch.Tensor) * len(v.unit), (value,))


def row_lazy_layer() -> Call:
    torch.manual_seed(0)
    network = nn.LazyLinear(3)
    return Call(lambda n, x: tuple(n(x).shape), (network, x()), lambda: type(network).__name__)


# fmt: off
ROWS: dict[str, Callable[[], Call]] = {
    "enum": lambda: Call(lambda w, x: w.value * x, (Weight.ONES, x())),
    "bound_method": lambda: Call((one := Average()).update, (x(),), lambda: [one.value, one.seen]),
    "same_tensor_twice": lambda: Call(lambda a, b: a.mul_(2).sum() + b.sum(), (one := x(), one), lambda: one),
    "view_as_real": lambda: Call(
        lambda c, r: (c.mul_(2), r.sum())[1],
        (one := torch.randn(4, dtype=torch.complex64), torch.view_as_real(one)), lambda: one),
    "conjugate": lambda: Call(lambda c, n: c * n, (torch.randn(4, dtype=torch.complex64).conj(), x(4))),
    "array_of_tensor": lambda: Call(lambda t, a: (t.mul_(3), a.sum())[1], (one := x(6), one[2:].numpy()), lambda: one),
    "tensor_of_array": lambda: Call(
        lambda a, t: (a.fill(7), t * 1)[1],
        (one := np.arange(6, dtype=np.float32), torch.from_numpy(one)), lambda: one),
    "reversed_array": lambda: Call(
        lambda a, b: a[0] + b[:, 1].sum(),
        ((one := np.arange(12, dtype=np.float32).reshape(3, 4))[::-1], one), lambda: one),
    "growing_buffer": lambda: Call(
        lambda a, b, c: (a.append(2), b.append(3.0), c.append(4), sum(a) + sum(b) + sum(c))[3],
        (bytearray(b"1"), array.array("d", [1.0]), bytearray())),
    "masked_array": lambda: Call(
        lambda a: (a * 2).sum(), (one := np.ma.masked_less(np.arange(6, dtype=np.float32), 2),), lambda: one.data),
    "big_endian_array": lambda: Call(lambda a: a.sum(), (np.arange(6, dtype=">f4"),)),
    "lambda_in_network": lambda: Call(
        lambda n, x: n.act(n(x)), (net := nn.Linear(4, 4), setattr(net, "act", lambda x: x.sin()) or x())),
    "weight_norm": lambda: Call(
        net := nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (x(),), lambda: list(net.parameters())),
    "lstm": lambda: Call(lambda n, x: n(x)[0], (nn.LSTM(4, 4), x())),
    "compiled_network": lambda: Call(torch.compile(nn.Linear(4, 4), backend="eager"), (x(),)),
    "compiled_function": lambda: Call(torch.compile(lambda x: x.sin() * 2, backend="eager"), (x(),)),
    "graph_without_backward": lambda: Call(lambda w: w.detach() * 2, (x().requires_grad_() * 3,)),
    "frozen_parameters": lambda: Call(
        lambda n, x: n(x).requires_grad, (nn.Linear(4, 4).requires_grad_(False), x())),
    "dataclass": lambda: Call(
        lambda s: s.scale.add_(1) * len(s.names), (one := Setting(x()),), lambda: one.scale),
    "keyed_by_tensor": lambda: Call(lambda t, known: known[t] * t, (one := x(), {one: torch.ones(4)})),
    "weak_reference": lambda: Call(
        lambda n, x: n()(x), (weakref.ref(net := nn.Linear(4, 4)), x()), lambda: list(net.parameters())),
    "weak_dictionary": lambda: Call(
        lambda o, k: k[o].mul_(2),
        (one := Average(), known := weakref.WeakKeyDictionary({one: x()})), lambda: known[one]),
    "iterator": lambda: Call(lambda b: next(b) * 2, (one := iter([x(), x()]),), lambda: one.__length_hint__()),
    "torch_generator": lambda: Call(
        lambda g: torch.randint(9, (3,), generator=g),
        (stream := torch.Generator().manual_seed(3),), lambda: stream.get_state()),
    "numpy_generator": lambda: Call(
        lambda g: g.integers(9, size=3), (stream := np.random.default_rng(3),), lambda: stream.bit_generator.state),
    "sparse": lambda: Call(lambda s, x: s @ x, (x().relu().to_sparse(), x())),
    "sparse_rows": lambda: Call(lambda s, x: s @ x, (x().relu().to_sparse_csr(), x())),
    "nested": lambda: Call(
        lambda n: torch.cat([each * 2 for each in n.unbind()]), (torch.nested.nested_tensor([x(2), x(3)]),)),
    "jagged": lambda: Call(
        lambda n: (n * 2).values(), (torch.nested.nested_tensor([x(2, 4), x(3, 4)], layout=torch.jagged),)),
    "masked": lambda: Call(lambda m: (m * 2).get_data(), (torch.masked.masked_tensor(x(), x() > 0),)),
    "overlapping": lambda: Call(lambda e, s: e + s, (x(1).expand(4), x(8).as_strided((4,), (2,), 1))),
}
# fmt: on
ROWS |= {name[4:]: make for name, make in globals().items() if name.startswith("row_")}


def snapshot(values: Any) -> list[Any]:
    """The dtypes, counters and values of all tensors and arrays, and all other values."""
    seen = []
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            seen.append((leaf.dtype, leaf._version, leaf.requires_grad, leaf.detach().tolist()))
        else:
            seen.append((leaf.dtype, leaf.tolist()) if isinstance(leaf, np.ndarray) else repr(leaf))
    return seen


def streams() -> list[Any]:
    return [random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()]


@pytest.mark.parametrize("dtype", [torch.float64, None], ids=["float64", "same"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_copied_call_returns_the_same_and_leaves_the_original_alone(row, dtype):
    call = row()
    before, drawn = snapshot(call.state()), streams()
    copied = copy_call(call.function, call.args, {}, dtype=dtype)
    twin = copy_call(call.function, call.args, {}, dtype=dtype)
    with restored_random_streams(), torch.compiler.set_stance("force_eager"):
        got = pytree.tree_map_only(torch.Tensor, torch.clone, copied())
        copied()
    assert (snapshot(call.state()), streams()) == (before, drawn)
    with restored_random_streams():
        assert_close(got, twin(), 0)  # the first copy's second call changed no other copy
        wanted = call.function(*call.args)
    assert_close(got, wanted, 1e-5)
    floats = [leaf for leaf in pytree.tree_leaves(got) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    assert all(leaf.dtype == (dtype or torch.float32) for leaf in floats)


def assert_close(left: Any, right: Any, tolerance: float) -> None:
    pairs = list(zip(pytree.tree_leaves(left), pytree.tree_leaves(right), strict=True))
    assert pairs
    for one, other in pairs:
        one, other = (np.asarray(each.detach() if isinstance(each, torch.Tensor) else each) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def _generator() -> Any:
    yield 1


def _partly_shared() -> Any:
    array = np.arange(6, dtype=np.float32)
    return torch.from_numpy(array[:4]), array


def _deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@functools.lru_cache
def _cached(n: int) -> torch.Tensor:
    return torch.ones(n)


REFUSED = {
    "generator": (_generator, "the call reads a generator"),
    "in an iterator": (lambda: zip(_generator(), [1], strict=False), "the call reads a generator"),
    "file": (lambda: io.TextIOWrapper(io.BytesIO()), "the call uses an open file"),
    "lock": (threading.Lock, "the call uses a lock"),
    "event": (threading.Event, "the call uses a lock"),
    "array of a part": (_partly_shared, "the call uses an array and a tensor that share a part of their memory"),
    "depth": (_deep, "the call uses objects that are nested too deeply"),
    "cache": (lambda: _cached(2) is None or _cached, "the call uses results that functools.lru_cache keeps"),
    "layout": (lambda: torch.ones(3, 3).to_mkldnn(), "the call uses a tensor with the layout _mkldnn"),
    "scripted": (lambda: torch.jit.trace(lambda x: x + 1, torch.ones(2)), "the call uses a scripted function"),
    "buffer": (lambda: (one := bytearray(8), np.frombuffer(one, np.float32)), "the call views the same memory in two"),
    "memoryview": (lambda: memoryview(b"12"), "the call uses a memoryview"),
    "float4": (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "the call uses float4 numbers"),
    "two dtypes": (lambda: (one := x(4), one.view(torch.int32)), "the call views the same memory in two dtypes"),
}


def test_only_the_filled_caches_of_libraries_are_shared():
    def inner(value: Any) -> Any:
        return value

    inner.__module__, inner.__qualname__ = "statistics", "hidden"
    theirs, own = functools.lru_cache(inner), functools.lru_cache(statistics.mean)
    theirs((1, 2)), own((1, 2))
    assert copy_call(lambda f: f, (theirs,), {})() is theirs
    with pytest.raises(Uncopyable, match="lru_cache keeps"):
        copy_call(lambda f: f, (own,), {})


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_uncopyable_call_says_why(make, reason):
    with pytest.raises(Uncopyable, match=f"^{reason}"):
        copy_call(lambda value: value, (make(),), {}, dtype=torch.float64)


def test_a_backward_pass_into_an_earlier_graph_says_why():
    weight = x().requires_grad_()
    copied = copy_call(lambda y: y.sum().backward(retain_graph=True), (weight * 2,), {})
    with pytest.raises(Uncopyable, match="a graph that was made before it"):
        copied()
    assert weight.grad is None


def test_bytes_are_summed_before_they_are_copied():
    one = torch.ones(1000)
    with pytest.raises(Uncopyable, match=r"^a copy needs 8\.\d+ kB$"):
        copy_call(torch.add, (one, one[::2]), {}, dtype=torch.float64, limit_bytes=8000)
    assert copy_call(torch.add, (one, one), {}, dtype=torch.float64, limit_bytes=9000)().dtype == torch.float64


def test_a_view_in_integers_is_copied_where_nothing_is_converted():
    one = torch.ones(2)
    copied = copy_call(lambda x, bits: (x.zero_(), bits)[1], (one, one.view(torch.int32)), {})
    assert (copied().tolist(), one.tolist()) == ([0, 0], [1, 1])


def test_a_copied_optimizer_holds_the_copied_parameters():
    network = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    other, made = copy_call(lambda n, o: (n, o), (network, optimizer), {}, dtype=torch.float64)()
    assert made.param_groups[0]["params"][0] is other.weight is not network.weight
    assert made.state[other.weight]["exp_avg"].dtype == other.weight.grad.dtype == torch.float64


def test_a_copy_keeps_what_is_shared():
    copied = copy_call(lambda *values: values, (torch.add, nn.Linear, torch.float32, np.exp, io), {})
    assert all(map(lambda a, b: a is b, copied(), copied.args))
    assert copied.args == (torch.add, nn.Linear, torch.float32, np.exp, io)


def test_random_streams_are_restored_after_an_error():
    before = streams()
    with contextlib.suppress(ZeroDivisionError), restored_random_streams():
        raise ZeroDivisionError(random.random(), np.random.rand(), torch.rand(1), next(itertools.count()))
    assert streams() == before


def test_random_streams_of_every_kind_of_device_are_as_before(monkeypatch):
    streams, modules = {"xpu": "before", "mps": "before"}, {}
    for kind, place in (("xpu", (1,)), ("mps", ())):
        draw = types.SimpleNamespace(
            get_rng_state=lambda *at, kind=kind, place=place: streams[kind] if at == place else None,
            set_rng_state=lambda state, *at, kind=kind: streams.update({kind: state}),
        )
        modules[kind] = draw
    known = torch.get_device_module  # it keeps its answers
    monkeypatch.setattr(torch, "get_device_module", lambda kind=None: modules.get(kind) or known(kind))
    with restored_random_streams((CPU, kinds()["xpu"](1), kinds()["mps"](0), VirtualDevice(0))):
        streams |= {"xpu": "drawn", "mps": "drawn"}
    assert streams == {"xpu": "before", "mps": "before"}
