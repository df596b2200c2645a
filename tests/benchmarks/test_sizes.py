"""Sizes of memory-bound benchmarks: from the cache of a GPU a rate is no rate of its memory."""

import importlib
import inspect

import pytest
import torch

from benchmarks import test_attention

BEYOND = 4 * 50e6
"""Bytes: four times the last cache of an H100."""
BOUND_BY_OTHERS = {"test_sort", "test_sort_values", "test_unique"}
"""Sorts pass over their keys several times, and their passes wait for each other."""


class Shapes:
    """A fixture whose tensors have no data; a call is only noted."""

    implementation, device, dtype, first = "torch", torch.device("meta"), torch.float32, False

    def __init__(self):
        self.host, self.nbytes = self, None

    def randn(self, *shape):
        return torch.empty(shape, device="meta")

    def randint(self, high, shape):
        return torch.empty(shape, dtype=torch.int64, device="meta")

    def array(self, tensor):
        return tensor

    def declare(self, nbytes=None, **_):
        self.nbytes = nbytes
        return self

    def __call__(self, *_, **__):
        pass


def largest_bytes(test):
    (name,), sweeps = zip(
        *((m.args[0:1], m.kwargs) for m in test.pytestmark if m.name == "gpubench_sweep"), strict=True
    )
    assert len(name) == 1
    made = []
    for value in sweeps[0]["quick"]:
        shapes = Shapes()
        test(shapes, **{name[0]: value})
        made.append(shapes.nbytes)
    return max(made)


def memory_bound():
    for module in ("reductions", "irregular"):
        tests = inspect.getmembers(importlib.import_module(f"benchmarks.test_{module}"), inspect.isfunction)
        yield from (pytest.param(test, id=name) for name, test in tests if name.startswith("test_"))


@pytest.mark.parametrize("test", [each for each in memory_bound() if each.id not in BOUND_BY_OTHERS])
def test_quick_has_a_size_beyond_the_cache_of_a_gpu(test):
    assert largest_bytes(test) >= BEYOND


def test_quick_has_the_fastest_kernel_of_attention_on_hopper():
    (kernels,) = (m.kwargs["quick"] for m in test_attention.test_causal.pytestmark if m.args == ("backend",))
    assert "cudnn" in kernels
