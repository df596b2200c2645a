"""Fourier transforms. FLOPs follow the convention of benchFFT of the FFTW project: 5 N log2 N, half for real input."""

import math
from functools import partial

import pytest
import scipy.fft
import torch

pytestmark = pytest.mark.gpubench(
    kind="linear_algebra", full_dtypes=["float64"], implementations=["torch", "numpy"], size="n"
)


def transform(gpubench, name, x, points, factor, out_bytes, batch, unit):
    """Time the function of this name, which is the same in every library. SciPy's, which is measured instead of
    NumPy's, uses all threads for several signals, or for the rows and columns of an image."""
    work = {"flops": batch * factor * points * math.log2(points), "nbytes": x.nbytes + out_bytes, "items": batch}
    function = getattr(scipy.fft if gpubench.implementation == "numpy" else gpubench.xp.fft, name)
    if gpubench.implementation == "numpy":
        function = partial(function, workers=gpubench.case.threads)
    gpubench.declare(unit=unit, **work)
    gpubench(function, gpubench.array(x))


@pytest.mark.gpubench(title="FFT")
@pytest.mark.gpubench_sweep(
    "batch, n",
    smoke=[(2, 64)],
    quick=[(1, 2**20), (1024, 2**10), (1024, 2**14)],
    full=[(1, 2**10), (1, 2**16), (1, 2**20), (1, 2**24), (1024, 2**10), (1024, 2**14)],
)
def test_complex(gpubench, batch, n):
    """Complex signals of n samples: a long one, or many short ones."""
    x = torch.complex(gpubench.randn(batch, n), gpubench.randn(batch, n))
    transform(gpubench, "fft", x, n, 5, x.nbytes, batch, "signal")


@pytest.mark.gpubench(title="FFT of images")
@pytest.mark.gpubench_sweep(
    "batch, n", smoke=[(2, 32)], quick=[(1, 1024)], full=[(1, 256), (1, 1024), (1, 4096), (64, 256), (64, 1024)]
)
def test_rfft2(gpubench, batch, n):
    """Real images of n x n."""
    x = gpubench.randn(batch, n, n)
    out_bytes = batch * n * (n // 2 + 1) * 2 * x.element_size()
    transform(gpubench, "rfft2", x, n * n, 2.5, out_bytes, batch, "image")
