"""Reductions and norms along rows of 1024. Bytes are the minimum memory traffic: inputs read once, outputs written
once. A kernel that passes over its row twice, outside of the cache, reaches half the bandwidth."""

from functools import partial

import numpy as np
import pytest
import scipy.special
import torch
import torch.nn.functional as F

from .libraries import measure

COLUMNS = 1024
VOCABULARY = 32_000
"""Classes of the cross-entropy: the number of tokens of Llama 2."""
FULL = [16, 64, 256, 1024, 4096, 65536]
ROWS = {"smoke": [8], "quick": [4096, 65536], "full": FULL}
"""65,536 rows of float32 are 268 MB: beyond the cache of any GPU, from which 4096 rows are read."""
pytestmark = pytest.mark.gpubench(kind="operators", implementations=["torch", "numpy"], size="rows")
softmax, argmax = (partial(function, dim=-1) for function in (torch.softmax, torch.argmax))
numpy_argmax = partial(np.argmax, axis=-1)


def numpy_softmax(x):
    """Written by hand, since SciPy's function allocates two more arrays."""
    result = np.exp(x - x.max(-1, keepdims=True))
    result /= result.sum(-1, keepdims=True)
    return result


def numpy_layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    variance = np.einsum("ij,ij->i", centred, centred)[:, None] / COLUMNS
    return centred / np.sqrt(variance + 1e-5) * weight + bias


def numpy_rms_norm(x, weight):
    square = np.einsum("ij,ij->i", x, x)[:, None] / COLUMNS
    return x / np.sqrt(square + np.finfo(x.dtype).eps) * weight


LAYER_NORM = (lambda x, weight, bias: F.layer_norm(x, (COLUMNS,), weight, bias)), numpy_layer_norm
RMS_NORM = (lambda x, weight: F.rms_norm(x, (COLUMNS,), weight)), numpy_rms_norm


def numpy_cross_entropy(scores, labels):
    own = np.take_along_axis(scores, labels[:, None], 1)[:, 0]
    return (scipy.special.logsumexp(scores, axis=1) - own).mean()


@pytest.mark.gpubench(title="Softmax")
@pytest.mark.gpubench_sweep("rows", smoke=[8], quick=[64, 4096, 65536], full=FULL)
def test_softmax(gpubench, rows):
    x = gpubench.randn(rows, COLUMNS)
    measure(gpubench, softmax, numpy_softmax, x, nbytes=2 * x.nbytes, items=rows, unit="row")


@pytest.mark.gpubench(title="Layer norm")
@pytest.mark.gpubench_sweep("rows", **ROWS)
def test_layer_norm(gpubench, rows):
    x, weight, bias = gpubench.randn(rows, COLUMNS), gpubench.randn(COLUMNS), gpubench.randn(COLUMNS)
    work = {"nbytes": 2 * x.nbytes + 2 * weight.nbytes, "items": rows, "unit": "row"}
    measure(gpubench, *LAYER_NORM, x, weight, bias, **work)


@pytest.mark.gpubench(title="RMS norm")
@pytest.mark.gpubench_sweep("rows", **ROWS)
def test_rms_norm(gpubench, rows):
    x, weight = gpubench.randn(rows, COLUMNS), gpubench.randn(COLUMNS)
    work = {"nbytes": 2 * x.nbytes + weight.nbytes, "items": rows, "unit": "row"}
    measure(gpubench, *RMS_NORM, x, weight, **work)


@pytest.mark.gpubench(title="Argmax")
@pytest.mark.gpubench_sweep("rows", **ROWS)
def test_argmax(gpubench, rows):
    """Each row has one largest element, planted, so that every device finds the same one."""
    x, place = gpubench.randn(rows, COLUMNS).clamp_(max=3), gpubench.randint(COLUMNS, (rows, 1))
    x.scatter_(1, place, 4.0)
    measure(gpubench, argmax, numpy_argmax, x, nbytes=x.nbytes + place.nbytes, items=rows, unit="row")


@pytest.mark.gpubench(title="Cross-entropy", size="tokens")
@pytest.mark.gpubench_sweep("tokens", smoke=[4], quick=[128, 2048], full=[16, 128, 1024, 4096])
def test_cross_entropy(gpubench, tokens):
    """The loss of a language model: with 32,000 classes there are many scores and little arithmetic."""
    scores, labels = gpubench.randn(tokens, VOCABULARY), gpubench.randint(VOCABULARY, (tokens,))
    work = {"nbytes": scores.nbytes + labels.nbytes, "items": tokens, "unit": "token"}
    measure(gpubench, F.cross_entropy, numpy_cross_entropy, scores, labels, **work)
