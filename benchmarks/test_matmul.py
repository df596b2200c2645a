"""Matrix products: square, batched, and tall times skinny."""

import pytest
import torch

ALL_DTYPES = ["float32", "tf32", "bfloat16", "float16", "float64"]


pytestmark = pytest.mark.gpubench(kind="other_matmul", implementations=["torch", "numpy"])


def into(gpubench, out):
    """Return the keyword for the array that the product is written into; none for a library that can't write into
    one."""
    return {"out": gpubench.array(out)} if gpubench.writes else {}


@pytest.mark.gpubench(kind="matmul", title="Product n × n", dtypes=ALL_DTYPES, size="n")
@pytest.mark.gpubench_sweep(
    "n",
    smoke=[32, 64],
    glance=[256, 2048],
    quick=[64, 256, 1024, 2048],
    full=[32, 64, 128, 256, 512, 1024, 2048, 4096, 8192],
)
def test_square(gpubench, n):
    """(n, n) x (n, n), into existing memory where the library can."""
    a, b, out = gpubench.randn(n, n), gpubench.randn(n, n), gpubench.empty(n, n)
    work = {"flops": 2 * n**3, "nbytes": 3 * a.nbytes}
    multiply = torch.mm if gpubench.implementation == "torch" else gpubench.xp.matmul
    gpubench.declare(**work)
    gpubench(multiply, gpubench.array(a), gpubench.array(b), **into(gpubench, out))


@pytest.mark.gpubench(title="Batched products", dtypes=["float32", "tf32", "bfloat16"], size="batch")
@pytest.mark.gpubench_sweep("batch", smoke=[2], glance=[256], quick=[16, 256], full=[1, 4, 16, 64, 256, 1024])
def test_batched(gpubench, batch):
    """(batch, 128, 64) x (batch, 64, 128): the scores of attention heads."""
    a, b = gpubench.randn(batch, 128, 64), gpubench.randn(batch, 64, 128)
    out = gpubench.empty(batch, 128, 128)
    work = {"flops": 2 * batch * 128 * 64 * 128, "nbytes": a.nbytes + b.nbytes + out.nbytes}
    multiply = torch.bmm if gpubench.implementation == "torch" else gpubench.xp.matmul
    gpubench.declare(**work)
    gpubench(multiply, gpubench.array(a), gpubench.array(b), **into(gpubench, out))


@pytest.mark.gpubench(title="Product tall × skinny", dtypes=["float32", "tf32", "bfloat16"], size="rows")
@pytest.mark.gpubench_sweep(
    "rows", smoke=[256], glance=[10**5], quick=[10**4, 10**5, 10**6], full=[10**3, 10**4, 10**5, 10**6]
)
def test_tall_skinny(gpubench, rows):
    """(rows, 64) x (64, 64): too little arithmetic per byte to keep the arithmetic units busy."""
    a, b, out = gpubench.randn(rows, 64), gpubench.randn(64, 64), gpubench.empty(rows, 64)
    work = {"flops": 2 * rows * 64 * 64, "nbytes": 2 * a.nbytes + b.nbytes}
    multiply = torch.mm if gpubench.implementation == "torch" else gpubench.xp.matmul
    gpubench.declare(**work)
    gpubench(multiply, gpubench.array(a), gpubench.array(b), **into(gpubench, out))
