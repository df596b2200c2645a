"""A function of CuPy on the first GPU; the clock waits for the whole device, and so for CuPy's work too.

    gpubench run examples/test_cupy.py -o out

Not yet tried on a GPU.
"""

import pytest

cupy = pytest.importorskip("cupy")


@pytest.mark.gpubench(devices="accelerator", size="n")
@pytest.mark.gpubench_sweep("n", smoke=[8], quick=[256, 1024])
def test_cupy_product(gpubench, n):
    a, b = (cupy.from_dlpack(gpubench.randn(n, n)) for _ in range(2))
    gpubench.declare(check=lambda a, b: a @ b, flops=2 * n**3)
    gpubench(cupy.matmul, a, b)
