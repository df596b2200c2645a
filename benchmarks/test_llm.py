"""A Llama decoder's inference, with the names of llama-bench: ``pp`` tokens of a prompt at once (prefill), then one
token after another with ``tg`` of them already in the cache (decode).

Weights are random and in the benchmark's dtype, not under autocast. Bytes are every weight once, the cache and the
scores; this traffic limits decoding.
"""

import pytest
import torch

from . import models

pytestmark = pytest.mark.gpubench(kind="networks", dtypes=["float32", "bfloat16"])
QUICK = [("125M", 1, 128)]
FULL = [("125M", batch, tg) for batch in (1, 8, 32) for tg in (128, 1024)]
FULL += [(model, batch, tg) for model in ("1B", "8B") for batch in (1, 8, 32) for tg in (128, 4096)]


def infer(gpubench, model, batch, start, count):
    """Measure one call: ``count`` tokens of each of ``batch`` sequences, after ``start`` tokens."""
    decoder = models.on_device(lambda: models.Decoder(model, batch, start + count), gpubench.data)
    decoder.start = start
    tokens = gpubench.randint(models.LLAMAS[model]["vocab_size"], (batch, count))
    work = {"flops": decoder.flops(batch, count), "nbytes": decoder.least_bytes(batch, count)}
    with torch.inference_mode():
        gpubench.declare(items=batch * count, unit="token", **work)
        gpubench(decoder, tokens)


@pytest.mark.gpubench(title="Llama prefill", size="pp", variants=["eager", "compile"])
@pytest.mark.gpubench_sweep("model", smoke=["10M"], quick=["125M"], full=["125M", "1B", "8B"])
@pytest.mark.gpubench_sweep("pp", smoke=[16], quick=[512], full=[128, 512, 2048, 4096])
def test_prefill(gpubench, model, pp):
    """Process a prompt into the cache. The latency is the time to the first token."""
    infer(gpubench, model, 1, 0, pp)


@pytest.mark.gpubench(title="Llama decode", size="batch", variants=["eager", "compile", "graph"])
@pytest.mark.gpubench(quick_variants="graph")
@pytest.mark.gpubench_sweep("model, batch, tg", smoke=[("10M", 1, 16)], quick=QUICK, full=FULL)
def test_decode(gpubench, model, batch, tg):
    """The next token of each sequence, always at the same position, so that every call does the same work."""
    infer(gpubench, model, batch, tg, 1)
