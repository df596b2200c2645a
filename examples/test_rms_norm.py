"""Two ways to write one function: does torch's own beat the one by hand, and what does torch.compile bring?

    gpubench run examples/test_rms_norm.py --device auto --variant eager --variant compile -o out

``gpubench.declare(check=…)`` names the reference for the function by hand: both must give torch's result in float64.
"""

import pytest
import torch
from torch.nn import functional


def by_hand(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def from_torch(x):
    return functional.rms_norm(x, x.shape[-1:], eps=1e-6)


@pytest.mark.gpubench(size="tokens", variants=["eager", "compile"])
@pytest.mark.gpubench_sweep("tokens", smoke=[4], quick=[256, 4096], full=[256, 4096, 65536])
@pytest.mark.parametrize("form", [by_hand, from_torch], ids=lambda form: form.__name__)
def test_rms_norm(gpubench, form, tokens):
    x = gpubench.randn(tokens, 1024)
    gpubench.declare(check=from_torch, nbytes=2 * x.nbytes, items=tokens, unit="token")
    gpubench(form, x)
