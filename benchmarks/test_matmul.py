"""Matrix products: square, batched, and tall times skinny."""

import pytest
import torch

ALL_DTYPES = ["float32", "tf32", "bfloat16", "float16", "float64"]
pytestmark = pytest.mark.gpubench(
    kind="other_matmul", implementations=["torch", "numpy"], dtypes=["float32", "tf32", "bfloat16"]
)


def multiply(gpubench, name, a, b, out, flops):
    """Time a product into existing memory, where the library can write into it."""
    product = getattr(torch, name) if gpubench.implementation == "torch" else gpubench.xp.matmul
    gpubench.declare(flops=flops, nbytes=a.nbytes + b.nbytes + out.nbytes)
    into = {"out": gpubench.array(out)} if gpubench.writes else {}
    gpubench(product, gpubench.array(a), gpubench.array(b), **into)


@pytest.mark.gpubench(kind="matmul", title="Product n × n", dtypes=ALL_DTYPES, size="n")
@pytest.mark.gpubench_sweep(
    "n", smoke=[32, 64], glance=[256, 2048], quick=[64, 256, 1024, 2048], full=[2**n for n in range(5, 14)]
)
def test_square(gpubench, n):
    """(n, n) x (n, n)."""
    multiply(gpubench, "mm", gpubench.randn(n, n), gpubench.randn(n, n), gpubench.empty(n, n), 2 * n**3)


@pytest.mark.gpubench(title="Batched products", size="batch")
@pytest.mark.gpubench_sweep("batch", smoke=[2], glance=[256], quick=[16, 256], full=[1, 4, 16, 64, 256, 1024])
def test_batched(gpubench, batch):
    """(batch, 128, 64) x (batch, 64, 128): the scores of attention heads."""
    a, b, out = gpubench.randn(batch, 128, 64), gpubench.randn(batch, 64, 128), gpubench.empty(batch, 128, 128)
    multiply(gpubench, "bmm", a, b, out, 2 * batch * 128 * 64 * 128)


@pytest.mark.gpubench(title="Product tall × skinny", size="rows")
@pytest.mark.gpubench_sweep(
    "rows", smoke=[256], glance=[10**5], quick=[10**4, 10**5, 10**6], full=[10**3, 10**4, 10**5, 10**6]
)
def test_tall_skinny(gpubench, rows):
    """(rows, 64) x (64, 64): too little arithmetic per byte to keep the arithmetic units busy."""
    a, b, out = gpubench.randn(rows, 64), gpubench.randn(64, 64), gpubench.empty(rows, 64)
    multiply(gpubench, "mm", a, b, out, 2 * rows * 64 * 64)
