"""Forward passes, in eval mode and without autograd: small networks first, then well-known ones.

The preset ``full`` also has the well-known ones with weights in bfloat16 and float16: the variant autocast converts all
weights again at every call.
"""

import contextlib

import pytest
import torch

from gpubench.errors import Unmeasurable
from gpubench.measure.verify import in_float64

from . import models

pytestmark = pytest.mark.gpubench(
    kind="networks",
    variants=["eager", "autocast", "compile", "graph"],
    size="batch",
    dtypes=["float32", "tf32"],  # PyTorch's own default for convolutions
)

HALF = pytest.mark.gpubench(full_dtypes=["bfloat16", "float16"])

SMALL = {"smoke": [2], "quick": [1, 32, 256], "full": [1, 4, 16, 64, 256]}
LARGE = {"smoke": [1], "quick": [1], "full": [1, 8, 32, 128, 256]}
SMALL_BATCHES = pytest.mark.gpubench_sweep("batch", **SMALL)
LARGE_BATCHES = pytest.mark.gpubench_sweep("batch", **LARGE)


def forward(gpubench, build, inputs, items, unit="sample"):
    network = gpubench.module(build)
    with torch.inference_mode():
        gpubench.declare(items=items, unit=unit)
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
    forward(gpubench, lambda: models.CifarNet(width), gpubench.randn(batch, 3, 32, 32), batch)


@pytest.mark.gpubench(title="Encoder layer", quick_variants="compile")
@pytest.mark.gpubench_sweep("length", smoke=[8], quick=[128], full=[128, 512])
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1, 8], full=[1, 4, 16, 64])
def test_encoder(gpubench, length, batch):
    forward(gpubench, models.encoder, gpubench.randn(batch, length, 512), batch * length, "token")


@pytest.mark.gpubench(title="ResNet-50")
@pytest.mark.gpubench_sweep("batch", glance=[1, 128], **LARGE | {"quick": [1, 128]})
@HALF
def test_resnet50(gpubench, batch):
    """128 images, a TFLOP, fill a data-centre GPU. They are too many for most CPUs, where single images are
    compared."""
    forward(gpubench, models.resnet50, gpubench.randn(batch, 3, 224, 224), batch)


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


CHANNELS_LAST, CUDNN_BENCHMARK = "channels last", "cudnn.benchmark"
TUNINGS = [CHANNELS_LAST, CUDNN_BENCHMARK, f"{CHANNELS_LAST} and {CUDNN_BENCHMARK}"]


@contextlib.contextmanager
def cudnn_benchmark(wanted):
    """A context in which cuDNN times its algorithms at the first call of each shape and uses the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@HALF
@pytest.mark.gpubench(kind="details", title="ResNet-50, tuned", variants=["eager", "autocast"])
@pytest.mark.gpubench_sweep("tuning", smoke=TUNINGS[:1], quick=TUNINGS[:1], full=TUNINGS)
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 32, 256])
def test_resnet50_tuned(gpubench, tuning, batch):
    """The settings that suit convolutions: a pixel's channels adjacent in memory, and cuDNN's algorithms tried out."""
    if CUDNN_BENCHMARK in tuning and gpubench.home.kind != "cuda":
        raise Unmeasurable(f"cuDNN is for NVIDIA GPUs: {gpubench.home} has none")
    network, images = gpubench.module(models.resnet50), gpubench.randn(batch, 3, 224, 224)
    if CHANNELS_LAST in tuning:
        network = network.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode(), cudnn_benchmark(CUDNN_BENCHMARK in tuning):
        gpubench.declare(items=batch, unit="sample")
        gpubench(network, images)


NETWORKS = {
    "lenet": (models.LeNet, lambda gpubench, batch: gpubench.randn(batch, 1, 32, 32)),
    "resnet50": (models.resnet50, lambda gpubench, batch: gpubench.randn(batch, 3, 224, 224)),
    "bert": (models.bert, lambda gpubench, batch: gpubench.randint(30522, (batch, 128))),
}


@pytest.mark.gpubench(title="Network by compile mode", kind="details", variants=["eager"])
@pytest.mark.gpubench_sweep("network", smoke=[], quick=[], full=["lenet", "resnet50", "bert"])
@pytest.mark.gpubench_sweep("mode", smoke=[], quick=[], full=["default", "reduce-overhead", "max-autotune"])
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 32])
def test_compile_mode(gpubench, network, mode, batch):
    """The modes of torch.compile: ``reduce-overhead`` replays CUDA graphs, ``max-autotune`` tries out kernels too."""
    if mode == "reduce-overhead" and not gpubench.home.supports_graphs:
        raise Unmeasurable(f"it replays graphs of launches: {gpubench.home} has none")
    build, draw = NETWORKS[network]
    eager, inputs = gpubench.module(build), draw(gpubench, batch)
    with torch.inference_mode():
        gpubench.declare(check=in_float64(eager), items=batch, unit="sample")
        gpubench(models.compiled(eager, mode), inputs)
