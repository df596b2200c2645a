"""A request as a server sees it: the input is in the host's memory, so is the answer, and the time includes both
copies.

Every round is one call with another request, so the percentiles of results.csv (p95_s, p99_s) are those of single
requests. FLOPs are the network's. Bytes are those of the request and the answer, which cross to an accelerator; on a
CPU they are those of its memory. A cold start is a separate benchmark: a new process up to its first answer.
"""

import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
from functools import partial

import pytest
import torch

from gpubench.errors import Unmeasurable

from . import models

pytestmark = pytest.mark.gpubench(kind="networks")

REQUESTS = 4
"""Number of different requests, which are used in turn."""
PATIENCE = {"max_time": 5, "min_rounds": 4}
"""Factors by which the time and the rounds exceed those of other benchmarks: percentiles need many calls."""


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
    network = models.Served(gpubench.module(models.resnet50))
    request = partial(gpubench.host.randn, batch, 3, 224, 224)
    serve(gpubench, network, request, items=batch, unit="image", answers=batch * 1000)


@pytest.mark.gpubench(title="BERT request", size="batch")
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 8, 32])
@pytest.mark.gpubench_sweep("length", smoke=[16], quick=[32], full=[32, 128])
def test_bert(gpubench, batch, length):
    """A text of ``length`` tokens to a vector for each."""
    network = models.Served(gpubench.module(models.bert))
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


START = f"""
import json, sys, time
marks = [time.perf_counter()]
def mark(tensor):
    tensor.cpu()  # waits for the device
    marks.append(time.perf_counter())
import torch
mark(torch.ones(1))
device, mode = sys.argv[1:]
mark(torch.ones(1, device=device))
mark(torch.ones(1, device=device) * 2)
from {models.__name__} import LeNet
network = LeNet().eval().to(device)
images = torch.ones(1, 1, 32, 32, device=device)
mark(images)
with torch.inference_mode():
    mark((torch.compile(network) if mode == "compile" else network)(images))
print(json.dumps([end - start for start, end in zip(marks, marks[1:])]))
"""
PHASES = ("import torch", "context", "first kernel", "build", "first answer")


@pytest.mark.gpubench(title="Cold start", kind="details")
@pytest.mark.gpubench_sweep("mode", smoke=[], quick=[], full=["eager", "compile"])
def test_cold_start(gpubench, mode):
    """A new process: it imports torch, creates the device's context, runs a kernel, builds LeNet, and has its first
    answer on the host. With ``compile`` the answer waits for the compiler."""
    spent = []

    def start(device):
        spent.append(phases_of_a_start(device, mode))

    reason = "each call is a process of its own, whose answer isn't looked at"
    gpubench.parallel = {"phases": {}}
    gpubench.declare(check=reason, items=1, unit="start")
    gpubench(start, gpubench.home.torch_name)
    gpubench.parallel["phases"] = {name: statistics.median(each[name] for each in spent) for name in PHASES}


def phases_of_a_start(device, mode):
    """Return the seconds of each phase, which the process itself measured."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    variables["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # else another process's code is reused
    done = subprocess.run(
        [sys.executable, "-c", START, device, mode], capture_output=True, text=True, env=variables, check=False
    )
    if done.returncode:
        raise Unmeasurable(f"a new process can't: {' '.join(done.stderr.split())[-120:]}")
    return dict(zip(PHASES, json.loads(done.stdout.splitlines()[-1]), strict=True))
