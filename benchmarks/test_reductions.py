"""Reductions and norms along rows of 1024: each element is read once, and a row's result needs the whole row.

Bytes are the minimum memory traffic: inputs read once, outputs written once. A kernel that passes over its row twice,
out of cache, reaches half the bandwidth.
"""

import pytest
import torch
import torch.nn.functional as F

COLUMNS = 1024
VOCABULARY = 32_000
"""Classes of the cross-entropy: the tokens of Llama 2."""
FULL = [16, 64, 256, 1024, 4096, 65536]
ROWS = {"smoke": [8], "quick": [4096], "full": FULL}

pytestmark = pytest.mark.gpubench(kind="operators", size="rows")


@pytest.mark.gpubench(title="Softmax")
@pytest.mark.gpubench_sweep("rows", smoke=[8], quick=[64, 4096], full=FULL)
def test_softmax(gpubench, rows):
    x = gpubench.randn(rows, COLUMNS)
    gpubench(torch.softmax, x, -1, nbytes=2 * x.nbytes, items=rows, unit="row")


@pytest.mark.gpubench(title="Layer norm")
@pytest.mark.gpubench_sweep("rows", **ROWS)
def test_layer_norm(gpubench, rows):
    x, weight, bias = gpubench.randn(rows, COLUMNS), gpubench.randn(COLUMNS), gpubench.randn(COLUMNS)
    gpubench(F.layer_norm, x, (COLUMNS,), weight, bias, nbytes=2 * x.nbytes + 2 * weight.nbytes, items=rows, unit="row")


@pytest.mark.gpubench(title="RMS norm")
@pytest.mark.gpubench_sweep("rows", **ROWS)
def test_rms_norm(gpubench, rows):
    x, weight = gpubench.randn(rows, COLUMNS), gpubench.randn(COLUMNS)
    gpubench(F.rms_norm, x, (COLUMNS,), weight, nbytes=2 * x.nbytes + weight.nbytes, items=rows, unit="row")


@pytest.mark.gpubench(title="Argmax")
@pytest.mark.gpubench_sweep("rows", **ROWS)
def test_argmax(gpubench, rows):
    """Each row has one largest element, planted, so that every device finds the same one."""
    x, place = gpubench.randn(rows, COLUMNS).clamp_(max=3), gpubench.randint(COLUMNS, (rows, 1))
    x.scatter_(1, place, 4.0)
    gpubench(torch.argmax, x, -1, nbytes=x.nbytes + place.nbytes, items=rows, unit="row")


@pytest.mark.gpubench(title="Cross-entropy", size="tokens")
@pytest.mark.gpubench_sweep("tokens", smoke=[4], quick=[128], full=[16, 128, 1024, 4096])
def test_cross_entropy(gpubench, tokens):
    """The loss of a language model: 32,000 classes, which is why its scores are large and its arithmetic small."""
    scores, labels = gpubench.randn(tokens, VOCABULARY), gpubench.randint(VOCABULARY, (tokens,))
    gpubench(F.cross_entropy, scores, labels, nbytes=scores.nbytes + labels.nbytes, items=tokens, unit="token")
