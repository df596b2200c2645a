"""A function of JAX, which returns before its work is done: the timed call waits for it itself.

    gpubench run examples/test_jax.py -o out

JAX chooses its own device, so the benchmark is named after the CPU where it computes there.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")


@pytest.mark.gpubench(devices="cpu", size="rows")
@pytest.mark.gpubench_sweep("rows", smoke=[8], quick=[128, 1024])
def test_jax_softmax(gpubench, rows):
    x = jax.device_put(gpubench.numpy(gpubench.randn(rows, 1024)), jax.devices("cpu")[0])
    softmax = jax.jit(lambda x: jax.nn.softmax(x, -1))
    gpubench.declare(check=reference, items=rows, unit="row")
    gpubench(lambda x: softmax(x).block_until_ready(), x)


def reference(x):
    """The same in NumPy, to which the inputs come in float64."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
