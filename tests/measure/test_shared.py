"""Classes and modules are shared with the copy of a call: their variables are as they were after a copied call."""

import functools
import sys
import types

import pytest
import torch

from gpubench.measure.calls import is_library
from gpubench.measure.copies import copy_call

X = torch.randn(4, generator=torch.Generator().manual_seed(0))
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


def state():
    attributes = {name: value for name, value in vars(Average).items() if not name.startswith("__")}
    return attributes, list(Average.history), total, dict(kept), Average.ones.cache_info().currsize


@pytest.mark.parametrize(
    "name", [name for name in vars(Average) if name.startswith(("of", "list", "dict", "new", "cach"))]
)
def test_a_copied_call_leaves_no_float64_in_a_class_or_a_module(name):
    call = getattr(Average(), name)
    copied = copy_call(call, (X,), {}, dtype=torch.float64)
    first = call(X)  # what a class keeps from it must not reach the reference
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

    copied = copy_call(Holder().add, (X,), {}, dtype=torch.float64)
    assert torch.equal(copied(), X)
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
        copied = copy_call(call, (X,), {}, dtype=torch.float64)
        assert copied().dtype == torch.float64
        assert module.cache == {}
    assert module.wrap.__name__ == "textwrap"


def test_a_module_that_is_loaded_later_is_a_library_then(monkeypatch):
    assert not is_library("late_package")
    module = types.ModuleType("late_package")
    module.__file__ = "/usr/lib/site-packages/late_package.py"
    monkeypatch.setitem(sys.modules, "late_package", module)
    assert is_library("late_package")
