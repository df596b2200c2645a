"""Dense linear algebra by LAPACK and similar libraries: one large matrix, or a batch of many small ones.

FLOPs are nominal, by the textbook's algorithm: G. H. Golub, C. F. Van Loan, *Matrix Computations*, 4th edition (2013):
Cholesky 4.2, LU 3.2, QR 5.2, least squares 5.3, reduction to bidiagonal form 5.4 and to tridiagonal form 8.3. For SVD
and eigenvectors they are a lower bound, since the iteration depends on the matrix.

The timed calls compute all factors, which are unique up to signs, and return the unique part, which is checked. A
separate check makes sure that the factors multiply to the matrix and are orthogonal.
"""

import math
from functools import partial

import pytest
import torch

from gpubench.errors import WrongAnswer
from gpubench.measure.data import as_tensor
from gpubench.measure.verify import ROUNDOFF

pytestmark = pytest.mark.gpubench(
    kind="linear_algebra", full_dtypes=["float64"], implementations=["torch", "numpy"], size="n"
)
FULL = [*((1, n) for n in (16, 64, 256, 1024, 4096)), (1024, 16), (1024, 64)]
SHAPES = pytest.mark.gpubench_sweep("batch, n", smoke=[(2, 16)], quick=[(1, 512)], full=FULL)
TWO_SHAPES = pytest.mark.gpubench_sweep("batch, n", smoke=[(2, 16)], quick=[(1, 512), (1024, 16)], full=FULL)
BOTH_DTYPES = pytest.mark.gpubench(dtypes=["float32", "float64"])
TALL = 4
"""Rows of a least squares problem per unknown."""


def square(gpubench, batch, n):
    """Return random square matrices; a single one has no batch dimension, as people write it."""
    return gpubench.randn(n, n) if batch == 1 else gpubench.randn(batch, n, n)


def identity(gpubench, n):
    return torch.eye(n, dtype=gpubench.dtype, device=gpubench.device)


def measure(gpubench, function, *tensors, check=True, flops, batch, nbytes=None):
    """Time ``function(linalg, *tensors)``, where ``linalg`` is torch's, NumPy's or another's."""
    linalg, inputs = gpubench.xp.linalg, [*map(gpubench.array, tensors)]
    call = partial(function, linalg)
    call.applies_variant = True
    work = {"flops": batch * flops, "nbytes": nbytes or sum(t.nbytes for t in tensors), "items": batch}
    if check is not True:
        check = partial(check, linalg, inputs[0], gpubench.case.dtype)
    gpubench.declare(check=check, unit="matrix", **work)
    gpubench(call, *inputs)


def in_double(array):
    return as_tensor(array).cpu().double()


def require_equal(what, left, right, dtype):
    """Raise WrongAnswer unless factors of n columns agree within 20 n roundoffs, as of backward stable algorithms."""
    error = float((left - right).abs().max() / right.abs().max())
    allowed = 20 * right.shape[-1] * ROUNDOFF[dtype]
    if not error <= allowed:
        raise WrongAnswer(f"wrong result: {what}: relative error {error:.3g} (tolerance {allowed:.3g})")


PRODUCTS = {
    "qr": lambda q, r: (q @ r, q),
    "svd": lambda u, s, vh: ((u * s[..., None, :]) @ vh, u, vh.mT),
    "eigh": lambda values, vectors: ((vectors * values[..., None, :]) @ vectors.mT, vectors),
}
"""Functions of the factors of each decomposition: their product, and the matrices with orthogonal columns."""


def unique_part(name, linalg, a):
    """Return the part of a decomposition that is unique, of QR up to signs."""
    if name == "qr":
        return abs(linalg.qr(a)[1].diagonal(0, -2, -1))
    return linalg.svd(a, full_matrices=False)[1] if name == "svd" else linalg.eigh(a)[0]


def reference(name, linalg, given, dtype, a):
    """Return the unique part of a matrix in float64. Raises WrongAnswer unless the factors that a library makes of the
    ``given`` matrix have this product, and orthogonal columns."""
    terms = {"full_matrices": False} if name == "svd" else {}
    product, *orthogonal = PRODUCTS[name](*map(in_double, getattr(linalg, name)(given, **terms)))
    a = in_double(a)
    require_equal("product", product, a, dtype)
    for columns in orthogonal:
        ones = torch.eye(columns.shape[-1], dtype=torch.float64)
        require_equal("orthogonality", columns.mT @ columns, ones, dtype)
    return unique_part(name, torch.linalg, a)


def decompose(gpubench, name, a, **work):
    measure(gpubench, partial(unique_part, name), a, check=partial(reference, name), **work)


@pytest.mark.gpubench(title="Linear solve")
@BOTH_DTYPES
@TWO_SHAPES
def test_solve(gpubench, batch, n):
    """One right-hand side, by LU with row exchanges. The matrix is well conditioned, and its rows are out of order, so
    all of them move."""
    a = (square(gpubench, batch, n) / math.sqrt(n) + 3 * identity(gpubench, n)).roll(1, -2)
    b = gpubench.randn(*a.shape[:-1], 1)
    work = {"flops": 2 * n**3 / 3 + 2 * n**2, "batch": batch, "nbytes": a.nbytes + 2 * b.nbytes}
    measure(gpubench, lambda linalg, a, b: linalg.solve(a, b), a, b, **work)


@pytest.mark.gpubench(title="Cholesky")
@SHAPES
def test_cholesky(gpubench, batch, n):
    g = square(gpubench, batch, n)
    a = g @ g.mT / n + identity(gpubench, n)
    measure(gpubench, lambda linalg, a: linalg.cholesky(a), a, flops=n**3 / 3, batch=batch, nbytes=2 * a.nbytes)


@pytest.mark.gpubench(title="QR")
@SHAPES
def test_qr(gpubench, batch, n):
    """Q and R; the diagonal of R is unique up to signs."""
    a = square(gpubench, batch, n)
    decompose(gpubench, "qr", a, flops=8 * n**3 / 3, batch=batch, nbytes=3 * a.nbytes)


@pytest.mark.gpubench(title="SVD")
@TWO_SHAPES
def test_svd(gpubench, batch, n):
    """Singular values and both sets of vectors; the values are unique."""
    a = square(gpubench, batch, n)
    decompose(gpubench, "svd", a, flops=8 * n**3 / 3 + 4 * n**3, batch=batch, nbytes=3 * a.nbytes)


@pytest.mark.gpubench(title="Eigenvectors")
@SHAPES
def test_eigh(gpubench, batch, n):
    """Eigenvalues and eigenvectors of a symmetric matrix; the values are unique."""
    g = square(gpubench, batch, n)
    decompose(gpubench, "eigh", (g + g.mT) / 2, flops=10 * n**3 / 3, batch=batch, nbytes=2 * g.nbytes)


def lstsq(linalg, a, b):
    """Solve by QR on every device; other libraries only have the SVD."""
    return linalg.lstsq(a, b, driver="gels").solution if linalg is torch.linalg else linalg.lstsq(a, b, rcond=None)[0]


@pytest.mark.gpubench(title="Least squares, torch by QR, others by SVD")
@pytest.mark.gpubench_sweep("n", smoke=[16], quick=[256], full=[16, 64, 256, 1024])
def test_lstsq(gpubench, n):
    """A fit of n unknowns to 4 n equations."""
    a, b = gpubench.randn(TALL * n, n), gpubench.randn(TALL * n, 1)
    measure(gpubench, lstsq, a, b, flops=2 * n**2 * (TALL * n - n / 3), batch=1)
