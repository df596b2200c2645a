"""The script that most people compare a CPU and a GPU with: result = result + a * b, a thousand times.

Two tensors of 100 x 1000 x 1000 float32. Published as 178.3 s on a laptop CPU and 4.02 s on a GTX 1060, with no wait
for the GPU. One step is measured here; the report derives the total of 1,000 from it, and says so.
"""

import pytest
import torch

pytestmark = [
    pytest.mark.gpubench(kind="elementwise", size="n", dtypes=["float32"]),
    pytest.mark.gpubench_sweep("n", smoke=[10**5], quick=[10**8], full=[10**8]),
]

STEPS = 1000


def as_written(result, a, b):
    """Two new tensors a step."""
    return result + a * b


def preallocated(result, a, b, product, out):
    """The same two operations, into memory that is there."""
    return torch.add(result, torch.mul(a, b, out=product), out=out)


@pytest.mark.gpubench(title="Classic script, r + a·b")
@pytest.mark.parametrize("form", ["as written", "preallocated"])
def test_step(gpubench, form, n):
    shape = (n // 10**6, 1000, 1000) if n >= 10**6 else (n,)
    a, b = gpubench.randn(*shape), gpubench.randn(*shape)
    result = a * b
    work = {"items": n, "flops": 2 * n, "nbytes": 4 * a.nbytes, "steps": STEPS}
    if form == "as written":
        gpubench(as_written, result, a, b, **work)
    else:
        gpubench(preallocated, result, a, b, gpubench.empty(*shape), gpubench.empty(*shape), **work)
