"""The script with which most people compare a CPU and a GPU: result = result + a * b, a thousand times, on tensors of
100 x 1000 x 1000 float32. Published as 178.3 s on a laptop CPU and 4.02 s on a GTX 1060, without waiting for the GPU.
One step is measured here; the report derives the total of 1,000 steps from it, and states that."""

import pytest
import torch

from gpubench.errors import Unmeasurable

from .libraries import multiply_add, numpy_threads

pytestmark = [
    pytest.mark.gpubench(kind="elementwise", size="n", dtypes=["float32"], implementations=["torch", "numpy"]),
    pytest.mark.gpubench(variants=["eager", "compile"], writing={"form": ["preallocated"]}),
    pytest.mark.gpubench_sweep("n", smoke=[10**5], quick=[10**8], full=[10**8]),
]
STEPS = 1000
FORMS = {"as written": 0, "preallocated": 2, "one pass": 1}  # and the number of arrays that each writes into


def as_written(result, a, b):
    """Allocate two new arrays per step, of which a compiler removes one."""
    return result + a * b


@pytest.mark.gpubench(title="Classic script, r + a·b")
@pytest.mark.gpubench_sweep("form", smoke=[*FORMS], quick=["as written", "one pass"], full=[*FORMS])
def test_step(gpubench, form, n):
    shape = (n // 10**6, 1000, 1000) if n >= 10**6 else (n,)
    a, b = gpubench.randn(*shape), gpubench.randn(*shape)
    arrays = [gpubench.array(each) for each in (a * b, a, b)]
    if gpubench.implementation == "numpy" and form == "one pass":
        raise Unmeasurable("NumPy has no fused multiplication and addition")
    room = [gpubench.array(gpubench.empty(*shape)) for _ in range(FORMS[form])]
    gpubench.declare(items=n, flops=2 * n, nbytes=4 * a.nbytes, steps=STEPS, threads=numpy_threads(gpubench))
    if form == "as written":
        gpubench(as_written, *arrays)
    elif form == "one pass":
        gpubench(torch.addcmul, *arrays, out=room[0])
    else:
        gpubench(multiply_add, gpubench.xp, *arrays, *room)
