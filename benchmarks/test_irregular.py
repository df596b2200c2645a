"""Irregular memory access, sorting, scans and random numbers. Bytes are the minimum memory traffic: every touched input
row read once, indices read, outputs written. Of a sort or a top-k the values are checked, but not the indices."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpubench.errors import WrongAnswer

from .libraries import measure, numpy_threads

WIDTH, TABLE = 128, 100_000
"""Columns and rows of the embedding table: 51 MB in float32, more than most caches hold."""
BINS = 1 << 16
VOCABULARY, KEPT = 50_257, 50
"""Tokens of GPT-2, and the number of them that a sampler keeps."""
LEVELS = 201
"""Heights of a running sum: the difference of two has at most the 8 bits of bfloat16."""
COUNTS = {"smoke": [1000], "quick": [10**4, 10**6], "full": [10**n for n in range(3, 8)]}
LARGE = 25 * 10**6
"""Elements that no GPU's cache holds: 10^6 are read from it."""
pytestmark = pytest.mark.gpubench(kind="irregular", size="n", implementations=["torch", "numpy"])
ONE_COUNT = pytest.mark.gpubench_sweep("n", smoke=[1000], quick=[10**6], full=COUNTS["full"])
BEYOND_CACHES = pytest.mark.gpubench_sweep("n", smoke=[1000], quick=[10**6, LARGE], full=[*COUNTS["full"], LARGE])


def expected_distinct(draws, values):
    """Return the expected number of different values among this many random draws from ``values``."""
    return values * -math.expm1(draws * math.log1p(-1 / values))


ROWS = F.embedding, (lambda tokens, table: np.take(table, tokens, axis=0))


@pytest.mark.gpubench(title="Embedding")
@pytest.mark.gpubench_sweep("n", smoke=[100], quick=[20_000, 4 * 10**5], full=[100, 1000, 20_000, 10**5, 10**6])
def test_embedding(gpubench, n):
    """n random rows of 128 from a table of 100,000."""
    table, tokens = gpubench.randn(TABLE, WIDTH), gpubench.randint(TABLE, (n,))
    nbytes = (expected_distinct(n, TABLE) + n) * WIDTH * table.element_size() + tokens.nbytes
    measure(gpubench, *ROWS, tokens, table, nbytes=nbytes, items=n, unit="row")


OF_OWN_ROW = (lambda x, index: torch.gather(x, 1, index)), (lambda x, index: np.take_along_axis(x, index, 1))


@pytest.mark.gpubench(title="Gather")
@BEYOND_CACHES
def test_gather(gpubench, n):
    """n elements, each from a random place of its own row of 1000."""
    x, index = gpubench.randn(n // 1000, 1000), gpubench.randint(1000, (n // 1000, 1000))
    measure(gpubench, *OF_OWN_ROW, x, index, nbytes=2 * x.nbytes + index.nbytes, items=n)


@pytest.mark.gpubench(title="Random access")
@BEYOND_CACHES
def test_random_access(gpubench, n):
    """All n elements in a random order. Memory moves whole lines of 64 or 128 bytes, so most of each line is wasted."""
    x = gpubench.randn(n)
    order = gpubench.host.randn(n).argsort().to(gpubench.device)
    measure(gpubench, torch.take, np.take, x, order, nbytes=2 * x.nbytes + order.nbytes, items=n)


def numpy_scatter_add(target, index, values):
    """Return a new array, as torch's function does."""
    result = target.copy()
    np.add.at(result, index, values)
    return result


SCATTER_ADD = (lambda target, index, values: torch.scatter_add(target, 0, index, values)), numpy_scatter_add


@pytest.mark.gpubench(title="Scatter-add")
@BEYOND_CACHES
def test_scatter_add(gpubench, n):
    """n values, added into 65,536 bins: a weighted histogram, or the messages to a graph's nodes."""
    target, index, values = gpubench.randn(BINS), gpubench.randint(BINS, (n,)), gpubench.randn(n)
    work = {"items": n, "flops": n, "nbytes": 2 * target.nbytes + index.nbytes + values.nbytes}
    measure(gpubench, *SCATTER_ADD, target, index, values, **work)


SORTED = (lambda x: torch.sort(x).values), (lambda x: x[np.argsort(x)])  # with their places


@pytest.mark.gpubench(title="Sort")
@pytest.mark.gpubench_sweep("n", glance=[10**6], **COUNTS)
def test_sort(gpubench, n):
    x = gpubench.randn(n)
    measure(gpubench, *SORTED, x, nbytes=2 * x.nbytes, items=n)


@pytest.mark.gpubench(title="Sort, values alone")
@ONE_COUNT
def test_sort_values(gpubench, n):
    """The sorted values are needed, but not their indices: NumPy doesn't compute them; torch, with one sort, does."""
    x = gpubench.randn(n)
    measure(gpubench, SORTED[0], np.sort, x, nbytes=2 * x.nbytes, items=n)


def numpy_largest(scores):
    """Partition, and sort the part that is kept, as NumPy has no top-k; with indices, which a sampler needs."""
    kept = np.argpartition(scores, -KEPT)[..., -KEPT:]
    values = np.take_along_axis(scores, kept, -1)
    return np.take_along_axis(values, np.argsort(values)[..., ::-1], -1)


LARGEST = (lambda scores: torch.topk(scores, KEPT).values), numpy_largest


@pytest.mark.gpubench(title="Top-k", size="batch")
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[64, 1024], full=[1, 8, 64, 512, 1024])
def test_topk(gpubench, batch):
    """The 50 largest of 50,257 scores: the cost of sampling the next token."""
    scores = gpubench.randn(batch, VOCABULARY)
    work = {"nbytes": scores.nbytes + batch * KEPT * scores.element_size(), "items": batch, "unit": "row"}
    measure(gpubench, *LARGEST, scores, **work)


@pytest.mark.gpubench(title="Unique values")
@ONE_COUNT
def test_unique(gpubench, n):
    """The distinct values of n integers below n / 8, sorted. The size of the result is known only at the end."""
    values = gpubench.randint(n // 8, (n,))
    work = {"nbytes": values.nbytes + 8 * expected_distinct(n, n // 8), "items": n}
    measure(gpubench, torch.unique, np.unique, values, **work)


@pytest.mark.gpubench(title="Running sum")
@BEYOND_CACHES
def test_cumsum(gpubench, n):
    """Of integers, in which no stretch adds up to more than 200: every partial sum is exact, even in bfloat16."""
    levels = gpubench.randint(LEVELS, (n + 1,))
    steps = (levels[1:] - levels[:-1]).to(gpubench.dtype)
    measure(gpubench, partial(torch.cumsum, dim=0), np.cumsum, steps, items=n, flops=n, nbytes=2 * steps.nbytes)


def require_normal(values):
    """Raise WrongAnswer unless mean and variance are those of normal values within six standard errors."""
    n, mean, variance = values.size, values.mean(), values.var()
    if abs(mean) > 6 / math.sqrt(n) or abs(variance - 1) > 6 * math.sqrt(2 / n):
        raise WrongAnswer(f"wrong result: {n} normal values of mean {mean:.3g} and variance {variance:.3g}")


@pytest.mark.gpubench(title="Random numbers")
@pytest.mark.gpubench_sweep("n", smoke=[1000], quick=[10**6, 5 * 10**7], full=[*COUNTS["full"], 5 * 10**7])
def test_random_numbers(gpubench, n):
    """n normal values. No two libraries draw the same ones, so mean and variance are checked instead of the values."""
    if gpubench.implementation == "numpy":
        dtype = {torch.float32: np.float32}.get(gpubench.dtype, np.float64)
        draw, how = np.random.default_rng(gpubench.data.seed).standard_normal, {"dtype": dtype}
    else:
        draw, how = torch.randn, {"dtype": gpubench.dtype, "device": gpubench.device}
    if gpubench.first:
        require_normal(torch.as_tensor(draw(n, **how)).cpu().double().numpy())
    work = {"nbytes": n * gpubench.dtype.itemsize, "items": n, "threads": numpy_threads(gpubench)}
    gpubench.declare(check="random values: their mean and variance are checked", **work)
    gpubench(draw, n, **how)
