"""Whether the work of a call is done, whether it changes its inputs, and that a copied call leaves classes and modules
as they were."""

import array
import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import io
import itertools
import multiprocessing
import random
import sys
import threading
import types
from collections import deque

import numpy as np
import pandas as pd
import pytest
import torch

from gpubench.measure import calls
from gpubench.measure.copies import copy_call


def named(name, *bases, **parts):
    """Return an object of a class with this name."""
    return type(name, bases, parts)()


async def awaited():
    pass


def rows():
    yield 1


BEGUN = "which may still be working, or not have begun: time f(x)"


@pytest.mark.parametrize(
    ("function", "result", "why"),
    [
        (awaited, None, "a coroutine"),
        (rows, None, "a generator"),
        (len, rows(), "a generator"),
        (len, map(len, ()), "an iterator (map)"),
        (len, [1, (each for each in ())], "a generator"),
        (len, {"a": iter([])}, "an iterator"),
        (len, concurrent.futures.Future(), "a Future"),
        (len, [asyncio.Future(loop=asyncio.new_event_loop())], "a coroutine"),
        (len, torch.futures.Future(), f"a Future, {BEGUN}.wait()"),
        (len, [concurrent.futures.Future()] * 200, "a Future"),
        (len, {"a": [types.SimpleNamespace(), (concurrent.futures.Future(),)]}, "a Future"),
        (len, dataclasses.make_dataclass("Outcome", ["value"])(concurrent.futures.Future()), "a Future"),
        (len, [1, torch.ones(2), range(3), {}.keys()], ""),
        (len, None, ""),
        (len, threading.Thread(target=len), f"a Thread, {BEGUN}.join()"),
        (len, named("Reader", threading.Thread), "a Reader"),
        (len, named("Reply", concurrent.futures.Future), "a Reply"),
        (len, multiprocessing.Process(target=len), "a Process"),
        (len, named("Delayed", __dask_graph__=lambda self: {}), "a Delayed, which may still be working"),
        (len, named("DataArray", __dask_graph__=lambda self: None), ""),  # an xarray without a graph
        *((len, named(name), "") for name in ("Thread", "Work", "Future", "Delayed", "Popen", "LazyFrame")),
    ],
)
def test_work_that_only_begins_is_seen(function, result, why):
    assert calls.unfinished(function, result).startswith(why)
    assert bool(calls.unfinished(function, result)) is bool(why)


X, NUMBERS = torch.ones(8), [random.random() for _ in range(1000)]
NETWORK = torch.nn.BatchNorm1d(3)

CACHING = torch.nn.Identity()
CACHING.keys, CACHING.history, CACHING.seen = torch.ones(4), [1], 0


def remember(network, x):
    network.keys, network.seen = torch.cat([network.keys, x]), network.seen + 1
    network.history.append(1)


def marked(x):
    marked.last = marked.last + x


marked.last = torch.ones(3)


class Total:
    value = torch.ones(3)

    @classmethod
    def add(cls, x):
        cls.value = cls.value + x


def step(x):
    (x * 2).sum().backward()


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "changed"),
    [
        (NUMBERS.copy().sort, (), {}, ["list"]),
        (list.sort, (NUMBERS.copy(),), {}, ["list"]),
        (np.ndarray.sort, (np.array(NUMBERS),), {}, ["ndarray"]),
        (deque.rotate, (deque(NUMBERS),), {}, ["deque"]),
        (dict.popitem, ({1: 2, 3: 4},), {}, ["dict"]),
        (sum, (iter(range(9)),), {}, ["range_iterator"]),
        (sum, ((each for each in [1]),), {}, ["generator"]),
        (sum, (map(abs, [1]),), {}, ["map"]),
        (list, (itertools.accumulate([1, 2]),), {}, ["accumulate"]),
        (io.BytesIO(b"abc").read, (), {}, ["BytesIO"]),
        (array.array.append, (array.array("d"), 1.0), {}, ["array"]),
        (pd.DataFrame.pop, (pd.DataFrame({"a": NUMBERS, "b": 1}), "b"), {}, ["DataFrame"]),
        (pd.DataFrame.sort_values, (pd.DataFrame({"a": NUMBERS}), "a"), {}, []),
        (next, (itertools.cycle([1]),), {}, []),
        (lambda x: x.mul_(3), (torch.ones(3),), {}, ["Tensor"]),
        (torch.Tensor.mul_, (torch.ones(3), 3), {}, []),  # its name says that it writes
        (torch.ones(3).mul_, (3,), {}, []),
        (torch.add, (X, X), {"out": torch.empty(8)}, []),
        (NETWORK.train(), (torch.randn(4, 3),), {}, []),
        (remember, (CACHING, torch.ones(4)), {}, ["Tensor", "list"]),
        (marked, (torch.ones(3),), {}, ["Tensor"]),
        (Total.add, (torch.ones(3),), {}, ["Tensor"]),
        (step, (torch.ones(3, requires_grad=True),), {}, ["Tensor"]),
        (torch.add, (X, X), {}, []),
        (sorted, (NUMBERS,), {}, []),
    ],
)
def test_a_call_that_changes_what_it_is_given_is_seen(function, args, kwargs, changed):
    given = calls.Given(function, args, kwargs)
    function(*args, **kwargs)
    assert given.changed() == changed


class Filling(dict):
    """Adds to its holder whenever it is read, as another thread may."""

    def values(self):
        self["owner"].__dict__[f"read{len(vars(self['owner']))}"] = self
        return super().values()


def test_what_grows_while_it_is_looked_at_is_no_error():
    owner = types.SimpleNamespace(kept=Filling())
    owner.kept["owner"] = owner
    given = calls.Given(len, (owner,), {})
    given.changed()
    assert len(vars(owner)) > 2


class Closed(collections.UserDict):
    """A mapping of a file that has been closed."""

    __getattr__ = dict.__getitem__

    def items(self):
        raise ValueError("the file is closed")


def test_a_value_that_raises_is_no_error():
    given = calls.Given(Closed(a=1), (Closed(a=1),), {})
    assert given.changed() == []
    assert calls.unfinished(Closed(a=1), 1) == ""


class Growing:
    def __init__(self):
        self.layers = [types.SimpleNamespace(keys=torch.zeros(0, 4))]
        self.count, self.cache = 0, None

    def step(self, x):
        layer, self.count = self.layers[0], self.count + 1
        layer.keys = torch.cat([layer.keys, x])
        return layer.keys.sum()

    def cached(self, x):
        self.cache = x.exp() if self.cache is None else self.cache
        return self.cache * x


@pytest.mark.parametrize(("call", "changed"), [(Growing.step, ["Tensor"]), (Growing.cached, [])])
def test_a_value_that_an_object_assigns_anew_is_seen_several_levels_deep(call, changed):
    owner = Growing()
    for function, args in ((call, (owner, X.view(2, 4))), (call.__get__(owner), (X.view(2, 4),))):
        given = calls.Given(function, args, {})
        for _ in range(3):
            function(*args)
            seen = given.changed()
        assert seen == changed


@pytest.mark.parametrize("make", [np.random.default_rng, random.Random, lambda: torch.Generator().manual_seed(1)])
def test_drawing_from_a_generator_is_its_use_and_no_change(make):
    generator = make()
    given = calls.Given(lambda: generator, (), {})
    torch.rand(1, generator=generator) if isinstance(generator, torch.Generator) else generator.random()
    assert given.changed() == []


class Learner:
    def __init__(self):
        self.network = torch.nn.Linear(8, 1)
        self.parameters = list(self.network.parameters())
        self.rule = torch.optim.SGD(self.parameters, 0.1)

    def step(self):
        self.rule.zero_grad()
        loss = self.network(X).square().sum()
        loss.backward()
        self.rule.step()
        return loss


def test_parameters_learn_wherever_they_are_held():
    learner = Learner()
    given = calls.Given(learner.step, (), {})
    for _ in range(3):
        learner.step()
        assert given.changed() == []


def test_a_tensor_without_readable_elements_is_no_error():
    x = torch.randn(4)
    tensors = [torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), torch.nested.nested_tensor([x, x[:2]])]
    tensors += [torch.zeros(4, dtype=torch.uint8).view(dtype) for dtype in (torch.float4_e2m1fn_x2, torch.bits8)]
    tensors += [torch.nn.LazyLinear(3).weight, torch.masked.masked_tensor(x, x > 0)]
    given = calls.Given(len, tuple(tensors), {})
    assert given.changed() == []


# Shared variables -----------------------------------------------------------------------------------------------------

ROW = torch.randn(4, generator=torch.Generator().manual_seed(0))
total = None
kept = {}


class Average:
    value = None
    history = []  # noqa: RUF012 - state of the class

    def of_class(self, x):
        Average.value = x if Average.value is None else 0.9 * Average.value + 0.1 * x
        return Average.value

    def list_of_class(self, x):
        type(self).history.append(x.sin())
        return torch.stack(self.history).sum(0)

    def of_module(self, x):
        global total
        total = x if total is None else 0.9 * total + 0.1 * x
        return total

    def dictionary_of_module(self, x):
        kept["x"] = kept.get("x", x) + x
        return kept["x"]

    @classmethod
    def new_attribute(cls, x):
        cls.added = x
        return x + 1

    @staticmethod
    @functools.cache
    def ones(count, dtype):
        return torch.ones(count, dtype=dtype)

    @staticmethod
    @functools.cache
    def results(count):
        return []

    def cached_results(self, x):
        self.results(4).append(x.sin())
        return torch.stack(self.results(4)).sum(0)

    def cached(self, x):
        return x * self.ones(4, x.dtype)


class Other:
    value = None

    def keep(self, x):
        Other.value = keep_elsewhere(x)
        return Other.value

    @torch.no_grad()
    def decorated(self, x):
        return self.keep(x)


def keep_elsewhere(x):
    return held.keep(x)


held = types.ModuleType("held")
exec(
    "value = None\ndef keep(x):\n    global value\n    value = x if value is None else value + x\n    return value",
    vars(held),
)


@pytest.mark.parametrize("name", ["keep", "decorated"])
def test_a_copied_call_leaves_alone_what_its_methods_reach_by_name(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "held", held)
    layer = torch.nn.Module()
    layer.forward = types.MethodType(lambda self, x: getattr(self.other, name)(x), layer)
    layer.other = Other()
    copied = copy_call(layer, (ROW,), {}, dtype=torch.float64)
    assert copied().dtype == torch.float64
    assert (Other.value, held.value) == (None, None)


@pytest.mark.parametrize("installed", [False, True])
def test_methods_of_installed_packages_are_not_read(tmp_path, installed):
    if installed:
        (tmp_path / "far-1.dist-info").mkdir()
    far = {"__name__": "far", "held": held}
    text = "class Far:\n    def keep(self, x): return held.keep(x)"
    exec(compile(text, str(tmp_path / "far" / "far.py"), "exec"), far)
    copied = copy_call(lambda each, x: each.keep(x), (far["Far"](), ROW), {}, dtype=torch.float64)
    assert any(each is vars(held) for each in copied.shared.owners) is not installed


def state():
    attributes = {name: value for name, value in vars(Average).items() if not name.startswith("__")}
    return attributes, list(Average.history), total, dict(kept), Average.ones.cache_info().currsize


@pytest.mark.parametrize(
    "name", [name for name in vars(Average) if name.startswith(("of", "list", "dict", "new", "cach"))]
)
def test_a_copied_call_leaves_no_float64_in_a_class_or_a_module(name):
    call = getattr(Average(), name)
    copied = copy_call(call, (ROW,), {}, dtype=torch.float64)
    first = call(ROW)  # what a class keeps from it must not reach the reference
    between = state()
    found = copied()
    assert found.dtype == torch.float64
    assert torch.allclose(found.float(), first)
    assert str(state()[:4]) == str(between[:4])


def test_a_tensor_of_a_class_that_a_copied_call_writes_is_put_back():
    class Holder:
        buffer = torch.zeros(4)

        def add(self, x):
            self.buffer.add_(x)
            return self.buffer.clone()

    copied = copy_call(Holder().add, (ROW,), {}, dtype=torch.float64)
    assert torch.equal(copied(), ROW)
    assert torch.equal(Holder.buffer, torch.zeros(4))


@pytest.mark.parametrize("place", ["/usr/lib/site-packages", "/home/me"])
def test_a_shared_module_is_as_before_and_keeps_what_it_imported(monkeypatch, place):
    name = "some_package"
    source = """
import torch
cache = {}
nested, bits = torch.nested.nested_tensor([torch.ones(2)]), torch.zeros(4, dtype=torch.uint8).view(torch.bits8)
def average(x):
    import textwrap
    global wrap
    wrap = textwrap
    cache["m"] = x if "m" not in cache else cache["m"] * 0.9 + x * 0.1
    return cache["m"]
"""
    module = types.ModuleType(name)
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, name, module)
    module.__file__ = f"{place}/package.py"
    functions = {}
    exec(f"def imports(x):\n    from {name} import average\n    return average(x)", functions)
    for call in (module.average, lambda x: module.average(x), functions["imports"]):
        copied = copy_call(call, (ROW,), {}, dtype=torch.float64)
        assert copied().dtype == torch.float64
        assert module.cache == {}
    assert module.wrap.__name__ == "textwrap"
