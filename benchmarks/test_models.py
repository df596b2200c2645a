"""Forward passes, in eval mode and without autograd: small networks first, then well-known ones, these also with
weights in bfloat16 and float16 in the preset ``full``: the variant autocast converts weights at every call."""

import pytest
import torch

from . import models

pytestmark = [
    pytest.mark.gpubench(kind="networks", size="batch", variants=["eager", "autocast", "compile", "graph"]),
    pytest.mark.gpubench(dtypes=["float32", "tf32"]),  # PyTorch's own default for convolutions
]
HALF = pytest.mark.gpubench(full_dtypes=["bfloat16", "float16"])
SMALL = {"smoke": [2], "quick": [1, 32, 256], "full": [1, 4, 16, 64, 256]}
LARGE = {"smoke": [1], "quick": [1], "full": [1, 8, 32, 128, 256]}
SMALL_BATCHES = pytest.mark.gpubench_sweep("batch", **SMALL)
LARGE_BATCHES = pytest.mark.gpubench_sweep("batch", **LARGE)


def forward(gpubench, build, inputs, items, unit="sample", flops=None, **options):
    network = gpubench.module(models.kept(build, **options))
    with torch.inference_mode():
        gpubench.declare(items=items, unit=unit, flops=flops)
        gpubench(network, inputs)


@pytest.mark.gpubench(title="MLP", quick_variants="graph")
@SMALL_BATCHES
def test_mlp(gpubench, batch):
    forward(gpubench, models.mlp, gpubench.randn(batch, 784), batch)


@pytest.mark.gpubench(title="LeNet", quick_variants="graph")
@pytest.mark.gpubench_sweep("batch", glance=[1, 256], **SMALL)
def test_lenet(gpubench, batch):
    forward(gpubench, models.LeNet, gpubench.randn(batch, 1, 32, 32), batch)


@pytest.mark.gpubench(title="CIFAR CNN", quick_variants="graph")
@pytest.mark.gpubench_sweep("width", smoke=[1], quick=[4], full=[1, 2, 4, 8, 16])
@SMALL_BATCHES
def test_cifar(gpubench, width, batch):
    forward(gpubench, models.CifarNet, gpubench.randn(batch, 3, 32, 32), batch, width=width)


@pytest.mark.gpubench(title="Encoder layer", quick_variants="compile")
@pytest.mark.gpubench_sweep("length", smoke=[8], quick=[128], full=[128, 512])
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1, 8], full=[1, 4, 16, 64])
def test_encoder(gpubench, length, batch):
    forward(gpubench, models.encoder, gpubench.randn(batch, length, 512), batch * length, "token")


@pytest.mark.gpubench(title="ResNet-50")
@pytest.mark.gpubench_sweep("batch", glance=[1, 128], **LARGE | {"quick": [1, 128]})
@HALF
def test_resnet50(gpubench, batch):
    """128 images, a TFLOP, fill a data-centre GPU; on most CPUs single images are compared."""
    flops = batch * models.RESNET50_FLOPS["forward"]
    forward(gpubench, models.resnet50, gpubench.randn(batch, 3, 224, 224), batch, flops=flops)


@pytest.mark.gpubench(title="ViT")
@LARGE_BATCHES
def test_vit(gpubench, batch):
    forward(gpubench, models.vit, gpubench.randn(batch, 3, 224, 224), batch)


@pytest.mark.gpubench(title="BERT")
@pytest.mark.gpubench_sweep("length", smoke=[16], glance=[128], quick=[128], full=[128, 512])
@LARGE_BATCHES
@HALF
def test_bert(gpubench, length, batch):
    forward(gpubench, models.bert, gpubench.randint(30522, (batch, length)), batch * length, "token")


@pytest.mark.gpubench(title="GPT-2 prefill")
@pytest.mark.gpubench_sweep("length", smoke=[16], glance=[128], quick=[128], full=[128, 512])
@LARGE_BATCHES
@HALF
def test_gpt2(gpubench, length, batch):
    forward(gpubench, models.gpt2, gpubench.randint(50257, (batch, length)), batch * length, "token")
