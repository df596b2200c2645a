"""A sparse matrix in compressed rows, times a dense one: graphs, meshes, recommendations. It has n rows with 16
elements each, at sorted random columns. FLOPs are those of the stored elements."""

import numpy as np
import pytest
import scipy.sparse
import torch

from .libraries import measure, required

pytestmark = pytest.mark.gpubench(kind="linear_algebra")
PER_ROW = 16


def multiply(offsets, columns, values, dense):
    """Multiply; the matrix is assembled within the call, in microseconds, because its parts are copied."""
    n = dense.shape[0]
    return torch.sparse_csr_tensor(offsets, columns, values, (n, n), check_invariants=False) @ dense


def scipy_multiply(offsets, columns, values, dense):
    n = dense.shape[0]
    return scipy.sparse.csr_array((values, columns, offsets), shape=(n, n)) @ dense


def reference(offsets, columns, values, dense):
    return scipy_multiply(*map(np.asarray, (offsets, columns, values, dense)))


@pytest.mark.gpubench(
    title="Product sparse × dense", full_dtypes=["float64"], implementations=["torch", "numpy"], size="n"
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("width", [1, 64])
@pytest.mark.gpubench_sweep("n", smoke=[256], quick=[10**5], full=[10**3, 10**4, 10**5, 10**6])
def test_csr(gpubench, width, n):
    """Multiply by a vector, as a solver does, or by 64 columns, as a graph network does."""
    stride = n // PER_ROW
    columns = gpubench.randint(stride, (n, PER_ROW)) + stride * torch.arange(PER_ROW, device=gpubench.device)
    offsets = PER_ROW * torch.arange(n + 1, device=gpubench.device)
    values, dense = gpubench.randn(n * PER_ROW), gpubench.randn(n, width)
    matrix = offsets, columns.flatten(), values
    nbytes = sum(part.nbytes for part in matrix) + 2 * dense.nbytes
    work = {"flops": 2 * n * PER_ROW * width, "nbytes": nbytes, "items": n, "unit": "row", "check": reference}
    if gpubench.implementation == "torch":
        with required("sparse product"):
            multiply(*matrix, dense)
    measure(gpubench, multiply, scipy_multiply, *matrix, dense, **work)
