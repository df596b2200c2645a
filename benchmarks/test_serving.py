"""A request as a server sees it: input and answer are in the host's memory, and the time includes both copies.

Every round is one call with another request, so p95_s and p99_s of results.csv are those of single requests. FLOPs are
the network's. Bytes are those of the request and the answer, which cross to an accelerator; on a CPU its memory's.
"""

import dataclasses
import itertools
from functools import partial

import pytest
import torch

from . import models

pytestmark = pytest.mark.gpubench(kind="networks")
REQUESTS = 4  # different ones, which are used in turn
PATIENCE = {"max_time": 5, "min_rounds": 4}  # times as much as for other benchmarks: percentiles need many calls


def serve(gpubench, network, draw, *, answers, nbytes=None, **work):
    """Measure requests, which ``draw`` makes; ``answers`` is how many numbers an answer has. ``nbytes`` is the traffic
    of a CPU's memory, if it isn't each weight once."""
    requests = [draw() for _ in range(REQUESTS)]
    turn = itertools.cycle(requests)
    if gpubench.preset != "smoke":
        longer = {name: times * getattr(gpubench.allowance, name) for name, times in PATIENCE.items()}
        gpubench.allowance = dataclasses.replace(gpubench.allowance, **longer)
    if gpubench.home.accelerator:
        nbytes = requests[0].nbytes + answers * gpubench.dtype.itemsize
    with torch.inference_mode():
        gpubench.declare(setup=lambda: ((next(turn),), {}), nbytes=nbytes, devices=["cpu"], **work)
        gpubench(network)


@pytest.mark.gpubench(title="ResNet-50 request", size="batch")
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 8, 32])
def test_resnet50(gpubench, batch):
    """An image of 224 x 224 to 1,000 scores."""
    network = models.Served(gpubench.module(models.kept(models.resnet50)))
    request = partial(gpubench.host.randn, batch, 3, 224, 224)
    serve(gpubench, network, request, items=batch, unit="image", answers=batch * 1000)


@pytest.mark.gpubench(title="BERT request", size="batch")
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 8, 32])
@pytest.mark.gpubench_sweep("length", smoke=[16], quick=[32], full=[32, 128])
def test_bert(gpubench, batch, length):
    """A text of ``length`` tokens to a vector for each."""
    network = models.Served(gpubench.module(models.kept(models.bert)))
    request = partial(gpubench.host.randint, 30522, (batch, length))
    serve(gpubench, network, request, items=batch, unit="sequence", answers=batch * length * 768)


@pytest.mark.gpubench(title="Llama request", size="batch")
@pytest.mark.gpubench_sweep("model", smoke=["10M"], quick=["125M"], full=["125M", "1B"])
@pytest.mark.gpubench_sweep("prompt, answer", smoke=[(16, 2)], quick=[(32, 2)], full=[(128, 16)])
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 8, 32])
def test_decoder(gpubench, model, prompt, answer, batch):
    """A prompt to the most likely next tokens, one after the other."""
    decoder = models.on_device(lambda: models.Decoder(model, batch, prompt + answer), gpubench.data)
    network = models.ServedDecoder(decoder, answer)
    request = partial(gpubench.host.randint, models.LLAMAS[model]["vocab_size"], (batch, prompt))
    check = network.reference() if gpubench.first else False
    nbytes = decoder.least_bytes(batch, prompt)
    for decoder.start in range(prompt, prompt + answer - 1):
        nbytes += decoder.least_bytes(batch, 1)
    work = {"items": batch * answer, "unit": "token", "nbytes": nbytes, "check": check}
    serve(gpubench, network, request, answers=2 * batch * answer, **work)  # tokens and their scores
