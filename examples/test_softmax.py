"""Your own benchmark: from how many rows is the GPU faster at a softmax?

    gpubench run examples/test_softmax.py -o out

measures it on the CPU and on the first accelerator, checks every result against float64, and draws the report.
"""

import pytest
import torch


@pytest.mark.gpubench(size="rows", dtypes=["float32", "bfloat16"])
@pytest.mark.gpubench_sweep("rows", smoke=[8], quick=[128, 1024, 8192], full=[128, 1024, 8192, 65536])
def test_softmax(gpubench, rows):
    x = gpubench.randn(rows, 1024)
    gpubench.declare(nbytes=2 * x.nbytes, items=rows, unit="row")
    gpubench(torch.softmax, x, -1)
