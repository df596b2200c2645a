"""Elementwise work: one pass over memory, in several forms: one that allocates also pays for new memory, on a CPU
mostly page faults. Bytes are the minimum memory traffic: inputs read once, output written once."""

import pytest
import torch

from .libraries import multiply_add, numpy_threads

pytestmark = pytest.mark.gpubench(
    kind="elementwise", implementations=["torch", "numpy"], size="n", writing={"form": ["out", "inplace"]}
)
FULL = [10**n for n in range(3, 9)]
COUNTS = {"smoke": FULL[:2], "quick": [10**3, 10**5, 10**6, 10**7], "full": FULL}
SIZES_AT_A_GLANCE = pytest.mark.gpubench_sweep("n", glance=[10**5, 10**7], **COUNTS)
FORMS = ["allocating", "out", "inplace"]
THREE_FORMS = pytest.mark.gpubench_sweep("form", smoke=FORMS, quick=FORMS[:2], full=FORMS)
TWO_FORMS = pytest.mark.parametrize("form", FORMS[:2])


def result_of(gpubench, form, first):
    """Return the keyword for the array that a call of this form writes into; none where it allocates."""
    if form == "allocating":
        return {}
    return {"out": first if form == "inplace" else gpubench.array(gpubench.empty(first.shape[0]))}


def binary(gpubench, form, name, a, b):
    """Time one form of ``a ? b``: the function of this name in each library."""
    n = a.numel()
    gpubench.declare(items=n, flops=n, nbytes=3 * a.nbytes, threads=numpy_threads(gpubench))
    if form == "inplace" and gpubench.implementation == "torch":
        gpubench(getattr(torch.Tensor, f"{name}_"), a, b)
    else:
        left, right = gpubench.array(a), gpubench.array(b)
        gpubench(getattr(gpubench.xp, name), left, right, **result_of(gpubench, form, left))


@pytest.mark.gpubench(title="Add")
@THREE_FORMS
@SIZES_AT_A_GLANCE
def test_add(gpubench, form, n):
    a, b = gpubench.randn(n), gpubench.randn(n)
    binary(gpubench, form, "add", a, b)


@pytest.mark.gpubench(title="Multiply")
@THREE_FORMS
@pytest.mark.gpubench_sweep("n", **COUNTS | {"quick": []})  # it moves the same bytes as adding
def test_mul(gpubench, form, n):
    a, b = gpubench.randn(n), gpubench.randn(n).sign()  # repeated multiplication by 1 and -1 stays finite
    binary(gpubench, form, "mul" if gpubench.implementation == "torch" else "multiply", a, b)


@pytest.mark.gpubench(title="Multiply-add, NumPy in two passes")
@THREE_FORMS
@pytest.mark.gpubench_sweep("n", **COUNTS | {"quick": [10**5, 10**7]})
def test_multiply_add(gpubench, form, n):
    r, a, b = gpubench.randn(n), gpubench.randn(n), gpubench.randn(n)
    gpubench.declare(items=n, flops=2 * n, nbytes=4 * r.nbytes, threads=numpy_threads(gpubench))
    if gpubench.implementation != "torch":
        inputs = [gpubench.array(tensor) for tensor in (r, a, b)]
        scratch = () if form == "allocating" else (gpubench.array(gpubench.empty(n)),)
        targets = (inputs[0], *scratch) if form == "inplace" else 2 * scratch
        gpubench(multiply_add, gpubench.xp, *inputs, *targets)
    elif form == "inplace":
        gpubench(torch.Tensor.addcmul_, r, a, b)
    else:
        gpubench(torch.addcmul, r, a, b, **result_of(gpubench, form, r))


@pytest.mark.gpubench(title="Exponential")
@TWO_FORMS
@SIZES_AT_A_GLANCE
def test_exp(gpubench, form, n):
    x = gpubench.array(gpubench.randn(n))
    # An exponential counts as one FLOP by convention.
    gpubench.declare(items=n, flops=n, nbytes=2 * x.nbytes, threads=numpy_threads(gpubench))
    gpubench(gpubench.xp.exp, x, **result_of(gpubench, form, x))


@pytest.mark.gpubench(title="Sum")
@pytest.mark.gpubench_sweep("n", **COUNTS)
def test_sum(gpubench, n):
    """Positive numbers: a sum of both signs may be near zero, where no relative error is small."""
    x = gpubench.array(gpubench.randn(n).abs())
    gpubench.declare(items=n, flops=n, nbytes=x.nbytes, threads=numpy_threads(gpubench))
    gpubench(gpubench.xp.sum, x)
