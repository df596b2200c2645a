"""Ten cases of some milliseconds for verdicts.py; not part of the suite.

``VERDICT_PRODUCTS=12`` makes one of them, the compute-bound ``products``, do 20 % more work than its usual ten
matrix products: a slowdown that is real, in one case of ten.
"""

import os

import pytest
import torch
from torch import nn

PRODUCTS = int(os.environ.get("VERDICT_PRODUCTS", "10"))


def products(a, b, out):
    for _ in range(PRODUCTS):
        torch.mm(a, b, out=out)
    return out


def test_products(gpubench):
    n = 192
    a, b, out = gpubench.randn(n, n), gpubench.randn(n, n), gpubench.empty(n, n)
    gpubench(products, a, b, out, flops=2 * PRODUCTS * n**3)


@pytest.mark.parametrize("n", [32, 384])
def test_product(gpubench, n):
    a, b, out = gpubench.randn(n, n), gpubench.randn(n, n), gpubench.empty(n, n)
    gpubench(torch.mm, a, b, out=out)


def test_batched(gpubench):
    gpubench(torch.bmm, gpubench.randn(16, 64, 64), gpubench.randn(16, 64, 64))


@pytest.mark.parametrize("n", [10**4, 10**6])
def test_add(gpubench, n):
    a, b, out = gpubench.randn(n), gpubench.randn(n), gpubench.empty(n)
    gpubench(torch.add, a, b, out=out)


def test_exp(gpubench):
    gpubench(torch.exp, gpubench.randn(10**5), out=gpubench.empty(10**5))


def test_softmax(gpubench):
    gpubench(torch.softmax, gpubench.randn(256, 512), -1)


def test_convolution(gpubench):
    layer = gpubench.module(lambda: nn.Conv2d(8, 16, 3))
    gpubench(layer, gpubench.randn(4, 8, 32, 32))


def test_mlp(gpubench):
    layers = gpubench.module(lambda: nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
    gpubench(layers, gpubench.randn(64, 256))
