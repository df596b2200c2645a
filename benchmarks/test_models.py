"""Forward passes, in eval mode and without autograd: small networks first, then those that people know."""

import pytest
import torch

from gpubench.workloads import models

pytestmark = pytest.mark.gpubench(variants=["eager", "autocast", "compile", "graph"], size="batch")

SMALL = {"smoke": [2], "quick": [1, 32, 256], "full": [1, 4, 16, 64, 256]}
LARGE = {"smoke": [1], "quick": [1], "full": [1, 8, 32, 128, 256]}
SMALL_BATCHES = pytest.mark.gpubench_sweep("batch", **SMALL)
LARGE_BATCHES = pytest.mark.gpubench_sweep("batch", **LARGE)


def forward(gpubench, build, inputs, items, unit="sample"):
    network = gpubench.module(build)
    with torch.inference_mode():
        gpubench(network, inputs, items=items, unit=unit)


@SMALL_BATCHES
def test_mlp(gpubench, batch):
    forward(gpubench, models.mlp, gpubench.randn(batch, 784), batch)


@pytest.mark.gpubench_sweep("batch", glance=[1, 256], **SMALL)
def test_lenet(gpubench, batch):
    forward(gpubench, models.LeNet, gpubench.randn(batch, 1, 32, 32), batch)


@pytest.mark.gpubench_sweep("width", smoke=[1], quick=[1, 4], full=[1, 2, 4, 8, 16])
@SMALL_BATCHES
def test_cifar(gpubench, width, batch):
    forward(gpubench, lambda: models.CifarNet(width), gpubench.randn(batch, 3, 32, 32), batch)


@pytest.mark.gpubench_sweep("length", smoke=[8], quick=[128], full=[128, 512])
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1, 8], full=[1, 4, 16, 64])
def test_encoder(gpubench, length, batch):
    forward(gpubench, models.encoder, gpubench.randn(batch, length, 512), batch * length, "token")


@pytest.mark.gpubench_sweep("batch", glance=[1], **LARGE)
def test_resnet50(gpubench, batch):
    forward(gpubench, models.resnet50, gpubench.randn(batch, 3, 224, 224), batch)


@LARGE_BATCHES
def test_vit(gpubench, batch):
    forward(gpubench, models.vit, gpubench.randn(batch, 3, 224, 224), batch)


@pytest.mark.gpubench_sweep("length", smoke=[16], glance=[128], quick=[128], full=[128, 512])
@LARGE_BATCHES
def test_bert(gpubench, length, batch):
    forward(gpubench, models.bert, gpubench.randint(30522, (batch, length)), batch * length, "token")


@pytest.mark.gpubench_sweep("length", smoke=[16], glance=[128], quick=[128], full=[128, 512])
@LARGE_BATCHES
def test_gpt2(gpubench, length, batch):
    forward(gpubench, models.gpt2, gpubench.randint(50257, (batch, length)), batch * length, "token")
