"""Typical NumPy code: clustering, neighbours, simulation, grids and images, in NumPy and in torch, as expressions on
whole arrays. Both compute the same values, which tests/benchmarks/test_science.py checks."""

import math
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
import scipy.ndimage
import torch
import torch.nn.functional as F

from gpubench.errors import WrongAnswer

from .libraries import measure, numpy_threads

pytestmark = pytest.mark.gpubench(kind="science", implementations=["torch", "numpy"], size="n")
CLUSTERS, DIMENSIONS = 64, 32


def kmeans_step(points, centres):
    """Assign each point to its nearest centre, and move each centre to the mean of its points."""
    nearest = ((centres * centres).sum(1) - 2 * points @ centres.T).argmin(1)
    sums = torch.zeros_like(centres).index_add_(0, nearest, points)
    counts = torch.zeros_like(centres[:, 0]).index_add_(0, nearest, torch.ones_like(points[:, 0]))
    return sums / counts[:, None]


def numpy_kmeans_step(points, centres):
    nearest = ((centres * centres).sum(1) - 2 * points @ centres.T).argmin(1)
    sums = np.zeros_like(centres)
    np.add.at(sums, nearest, points)
    return sums / np.bincount(nearest, minlength=len(centres)).astype(points.dtype)[:, None]


@pytest.mark.gpubench(title="k-means step")
@pytest.mark.gpubench_sweep("n", smoke=[2000], quick=[10**5], full=[10**3, 10**4, 10**5, 10**6])
def test_kmeans(gpubench, n):
    """A step of k-means: n points of 32 numbers, 64 centres, far apart, so that every assignment is clear. FLOPs are
    those of the product, as PyTorch counts them."""
    centres, labels = gpubench.randn(CLUSTERS, DIMENSIONS), gpubench.randint(CLUSTERS, (n,))
    points = centres[labels] + gpubench.randn(n, DIMENSIONS) / 10
    work = {"flops": 2 * n * CLUSTERS * DIMENSIONS, "nbytes": points.nbytes + 2 * centres.nbytes}
    measure(gpubench, kmeans_step, numpy_kmeans_step, points, centres, threads=None, items=n, unit="point", **work)


QUERIES, NEIGHBOURS = 100, 10


def nearest(base, queries):
    """Return squared distances of the nearest neighbours, by |q|² + |b|² - 2 q·b; with indices, in both libraries."""
    distances = (queries * queries).sum(1)[:, None] + (base * base).sum(1) - 2 * queries @ base.T
    return distances.topk(NEIGHBOURS, largest=False).values


def numpy_nearest(base, queries):
    distances = (queries * queries).sum(1)[:, None] + (base * base).sum(1) - 2 * queries @ base.T
    found = np.argpartition(distances, NEIGHBOURS)[:, :NEIGHBOURS]
    return np.sort(np.take_along_axis(distances, found, 1))


@pytest.mark.gpubench(title="Nearest neighbours")
@pytest.mark.gpubench_sweep("n", smoke=[1000], quick=[50_000], full=[10**3, 10**4, 50_000, 10**6])
def test_nearest_neighbours(gpubench, n):
    """The ten nearest of n points, for each of 100 queries. FLOPs are those of the product."""
    base, queries = gpubench.randn(n, 2 * DIMENSIONS), gpubench.randn(QUERIES, 2 * DIMENSIONS)
    work = {"flops": 4 * n * QUERIES * DIMENSIONS, "nbytes": base.nbytes + queries.nbytes}
    measure(gpubench, nearest, numpy_nearest, base, queries, threads=None, items=QUERIES, unit="query", **work)


PRICE, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 100.0, 0.05, 0.2, 1.0
DRIFT, SPREAD = (RATE - VOLATILITY**2 / 2) * YEARS, VOLATILITY * math.sqrt(YEARS)
PAYOFF_DEVIATION = 15.0
"""Standard deviation of the discounted payoff, rounded up."""


def exact_price():
    """Return the price of a European call, by Black and Scholes (1973)."""
    d1 = (math.log(PRICE / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / SPREAD
    normal = NormalDist().cdf
    return PRICE * normal(d1) - STRIKE * math.exp(-RATE * YEARS) * normal(d1 - SPREAD)


def simulated_price(n, **kind):
    """Return the mean payoff of n simulated paths, discounted."""
    final = PRICE * torch.exp(DRIFT + SPREAD * torch.randn(n, **kind))
    return math.exp(-RATE * YEARS) * (final - STRIKE).clamp(min=0).mean()


def numpy_simulated_price(n, generator, dtype):
    final = PRICE * np.exp(DRIFT + SPREAD * generator.standard_normal(n, dtype=dtype))
    return math.exp(-RATE * YEARS) * np.maximum(final - STRIKE, 0).mean()


def require_price(price, n):
    """Raise WrongAnswer if the price is off by more than six standard errors."""
    if not abs(price - exact_price()) <= 6 * PAYOFF_DEVIATION / math.sqrt(n):
        raise WrongAnswer(f"wrong result: a price of {price:.4g} from {n} paths, exactly {exact_price():.4g}")


@pytest.mark.gpubench(title="Option price", variants=["eager", "compile"])
@pytest.mark.gpubench_sweep("n", smoke=[10**4], quick=[10**6, 10**7], full=[10**4, 10**5, 10**6, 10**7, 10**8])
def test_option_price(gpubench, n):
    """A call option by Monte Carlo: n random numbers, an exponential and a mean."""
    function, kind = simulated_price, {"dtype": gpubench.dtype, "device": gpubench.device}
    if gpubench.implementation == "numpy":
        dtype = np.float32 if gpubench.dtype == torch.float32 else np.float64
        function, kind = numpy_simulated_price, {"generator": np.random.default_rng(gpubench.data.seed), "dtype": dtype}
    if gpubench.first:
        require_price(float(function(n, **kind)), n)
    why = "random paths: the price is compared with the exact one"
    gpubench.declare(check=why, items=n, unit="path", threads=numpy_threads(gpubench))
    gpubench(function, n, **kind)


def heat_step(u):
    """Return the inner points after a step of the heat equation, by the five-point stencil."""
    middle = u[1:-1, 1:-1]
    return middle + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * middle)


@pytest.mark.gpubench(title="Stencil", variants=["eager", "compile"], quick_variants="compile")
@pytest.mark.gpubench_sweep("n", smoke=[64], quick=[2048], full=[64, 256, 1024, 2048, 4096, 8192])
def test_stencil(gpubench, n):
    """A step of the heat equation on n x n points: seven operations per point, each a pass over memory."""
    u, inner = gpubench.randn(n, n), (n - 2) ** 2
    work = {"flops": 7 * inner, "nbytes": u.nbytes + inner * u.element_size(), "items": inner, "unit": "point"}
    measure(gpubench, heat_step, heat_step, u, **work)


CHANNELS, LARGE, SMALL = 3, 448, 256
"""Resizing from 448 to 256 pixels: a ratio of 1.75, at which float32 holds the positions between pixels exactly."""
TAPS = [math.exp(-(x**2) / 2) for x in (-2, -1, 0, 1, 2)]
BATCHES = pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[8], full=[1, 8, 32, 128])
resize = partial(F.interpolate, size=(SMALL, SMALL), mode="bilinear", align_corners=False)


def numpy_resize(images):
    place = ((np.arange(SMALL) + 0.5) * LARGE / SMALL - 0.5).clip(0).astype(images.dtype)
    low = place.astype(int)
    high, share = np.minimum(low + 1, LARGE - 1), place - low
    rows = images[..., low, :] * (1 - share)[:, None] + images[..., high, :] * share[:, None]
    return rows[..., low] * (1 - share) + rows[..., high] * share


@pytest.mark.gpubench(title="Image resize", size="batch")
@BATCHES
def test_resize(gpubench, batch):
    """Colour images from 448 x 448 to 256 x 256, bilinear."""
    images = gpubench.randn(batch, CHANNELS, LARGE, LARGE)
    nbytes = images.nbytes + batch * CHANNELS * SMALL**2 * images.element_size()
    measure(gpubench, resize, numpy_resize, images, nbytes=nbytes, items=batch, unit="image")


def blur(images, taps):
    """Apply a Gaussian blur, five by five: along the rows, then the columns. Beyond its edge the image is black."""
    kernels, reach = taps.expand(CHANNELS, 1, 1, len(TAPS)), len(TAPS) // 2
    along_rows = F.conv2d(images, kernels, padding=(0, reach), groups=CHANNELS)
    return F.conv2d(along_rows, kernels.mT, padding=(reach, 0), groups=CHANNELS)


def scipy_blur(images, taps):
    """Blur like ``scipy.ndimage.gaussian_filter``."""
    along, rows = partial(scipy.ndimage.correlate1d, weights=taps, mode="constant"), images
    return along(along(rows, axis=-1), axis=-2)


@pytest.mark.gpubench(title="Image blur", size="batch")
@BATCHES
def test_blur(gpubench, batch):
    """A Gaussian blur of colour images of 448 x 448: ten multiply-adds per pixel, in two passes."""
    images = gpubench.randn(batch, CHANNELS, LARGE, LARGE)
    taps = torch.tensor(TAPS, dtype=gpubench.dtype, device=gpubench.device)
    work = {"flops": 2 * 2 * len(TAPS) * images.numel(), "nbytes": 2 * images.nbytes, "items": batch, "unit": "image"}
    measure(gpubench, blur, scipy_blur, images, taps / taps.sum(), **work)
