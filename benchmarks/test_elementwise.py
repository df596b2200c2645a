"""Elementwise work: one pass over memory, in each form that says who allocates the result.

Bytes are compulsory traffic: inputs read once, output written once. A form that allocates also pays for new memory,
on a CPU mostly page faults; that is why it is a case of its own.
"""

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.gpubench(implementations=["torch", "numpy"], size="n")

COUNTS = {
    "smoke": [1000, 10**4],
    "quick": [10**3, 10**5, 10**6, 10**7],
    "full": [10**3, 10**4, 10**5, 10**6, 10**7, 10**8],
}
SIZES = pytest.mark.gpubench_sweep("n", **COUNTS)
SIZES_AT_A_GLANCE = pytest.mark.gpubench_sweep("n", glance=[10**5, 10**7], **COUNTS)

THREE_FORMS = pytest.mark.parametrize("form", ["allocating", "out", "inplace"])
TWO_FORMS = pytest.mark.parametrize("form", ["allocating", "out"])


def signs(gpubench, n):
    """+1 and -1: multiplying by them for ever stays finite."""
    return gpubench.randn(n).sign()


def binary(gpubench, form, operation, inplace, numpy_operation, a, b):
    """Time one of the forms of ``a ? b``."""
    n = a.numel()
    work = {"items": n, "flops": n, "nbytes": 3 * a.nbytes}
    if gpubench.implementation == "numpy":
        left, right = gpubench.numpy(a), gpubench.numpy(b)
        target = {"allocating": None, "out": gpubench.numpy(gpubench.empty(n)), "inplace": left}[form]
        gpubench(numpy_operation, left, right, out=target, threads=1, **work)
    elif form == "allocating":
        gpubench(operation, a, b, **work)
    elif form == "out":
        gpubench(operation, a, b, out=gpubench.empty(n), **work)
    else:
        gpubench(inplace, a, b, **work)


@THREE_FORMS
@SIZES_AT_A_GLANCE
def test_add(gpubench, form, n):
    a, b = gpubench.randn(n), gpubench.randn(n)
    binary(gpubench, form, torch.add, torch.Tensor.add_, np.add, a, b)


@pytest.mark.gpubench(implementations=["torch"])
@THREE_FORMS
@SIZES
def test_mul(gpubench, form, n):
    a, b = gpubench.randn(n), signs(gpubench, n)
    binary(gpubench, form, torch.mul, torch.Tensor.mul_, np.multiply, a, b)


def numpy_multiply_add(r, a, b, out, scratch):
    """r + a * b as NumPy writes it: two passes, since it has no fused form."""
    return np.add(r, np.multiply(a, b, out=scratch), out=out)


@THREE_FORMS
@SIZES
def test_multiply_add(gpubench, form, n):
    r, a, b = gpubench.randn(n), gpubench.randn(n), gpubench.randn(n)
    work = {"items": n, "flops": 2 * n, "nbytes": 4 * r.nbytes}
    if gpubench.implementation == "numpy":
        left, *factors = (gpubench.numpy(t) for t in (r, a, b))
        scratch = None if form == "allocating" else gpubench.numpy(gpubench.empty(n))
        out = left if form == "inplace" else scratch
        gpubench(numpy_multiply_add, left, *factors, out, scratch, threads=1, **work)
    elif form == "allocating":
        gpubench(torch.addcmul, r, a, b, **work)
    elif form == "out":
        gpubench(torch.addcmul, r, a, b, out=gpubench.empty(n), **work)
    else:
        gpubench(torch.Tensor.addcmul_, r, a, b, **work)


@TWO_FORMS
@SIZES_AT_A_GLANCE
def test_exp(gpubench, form, n):
    x = gpubench.randn(n)
    work = {"items": n, "flops": n, "nbytes": 2 * x.nbytes}  # by custom one FLOP, whatever it takes
    out = gpubench.empty(n) if form == "out" else None
    if gpubench.implementation == "numpy":
        gpubench(np.exp, gpubench.numpy(x), out=None if out is None else gpubench.numpy(out), threads=1, **work)
    else:
        gpubench(torch.exp, x, **({} if out is None else {"out": out}), **work)


@SIZES
def test_sum(gpubench, n):
    """Of positive numbers: a sum of both signs may come out near zero, and then no relative error is small."""
    x = gpubench.randn(n).abs()
    if gpubench.implementation == "numpy":
        gpubench(np.sum, gpubench.numpy(x), items=n, flops=n, nbytes=x.nbytes, threads=1)
    else:
        gpubench(torch.sum, x, items=n, flops=n, nbytes=x.nbytes)
