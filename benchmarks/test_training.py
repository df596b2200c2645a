"""Training: steps of small and large networks, wider networks, and a small table."""

import math

import pytest
import torch

from gpubench.measure.data import Data

from . import models, training

pytestmark = pytest.mark.gpubench(kind="training")
VARIANTS = pytest.mark.gpubench(variants=["eager", "autocast", "compile"], size="batch", dtypes=["float32", "tf32"])
SMALL = {"smoke": [2], "quick": [4, 128], "full": [4, 32, 128, 512]}
SMALL_BATCHES = pytest.mark.gpubench_sweep("batch", **SMALL)
LARGE_BATCHES = pytest.mark.gpubench_sweep("batch", smoke=[], quick=[1], full=[1, 8, 32])
OPTIMIZERS = pytest.mark.gpubench_sweep("optimizer", quick=["sgd"], full=["sgd", "adam"])
LOOSE = 0.2  # gradients under autocast carry bfloat16's eight bits


def train(gpubench, name, batch, optimizer="sgd", pieces=1, scaled=False, flops=None, **options):
    """Time a training step; its loss and gradients are compared with float64 on the CPU. ``scaled`` is mixed precision:
    products in float16, weights in float32, gradients scaled."""
    task, variant = training.TASKS[name], "autocast float16" if scaled else gpubench.variant

    def fresh(data):
        data, rows = Data(data.home, torch.float32, data.seed) if scaled else data, batch // pieces
        learner = training.trainer(name, data, rows, rows=batch, update=optimizer, variant=variant, **options)
        learner.accumulates = pieces > 1
        return learner

    def exact(data):
        return training.trainer(name, data, batch, update=optimizer, **options)

    exactly = gpubench.variant != "autocast" and gpubench.case.dtype in ("float32", "float64")
    tolerance = training.GRADIENT_TOLERANCE if exactly else LOOSE
    if task.batch_norm:
        tolerance = math.inf  # the statistics of a small batch amplify rounding to percents
    work = {"items": batch * (task.tokens or 1), "unit": "token" if task.tokens else "sample", "flops": flops}
    training.measure(gpubench, fresh, exact, tolerance, **work)


def not_for_a_quick_run(gpubench):
    """Skip a large network under autocast in a quick run on a CPU, which may emulate bfloat16."""
    if gpubench.preset == "quick" and gpubench.variant == "autocast" and not gpubench.home.accelerator:
        pytest.skip("a large network under autocast on a CPU: in preset full only")


@pytest.mark.gpubench(title="Training LeNet")
@VARIANTS
@OPTIMIZERS
@pytest.mark.gpubench_sweep("batch", glance=[128], **SMALL)
def test_lenet(gpubench, optimizer, batch):
    train(gpubench, "lenet", batch, optimizer=optimizer)


@pytest.mark.gpubench(title="Training CIFAR CNN")
@VARIANTS
@OPTIMIZERS
@SMALL_BATCHES
def test_cifar(gpubench, optimizer, batch):
    train(gpubench, "cifar", batch, optimizer=optimizer)


@pytest.mark.gpubench(title="Training ResNet-50")
@VARIANTS
@OPTIMIZERS
@pytest.mark.gpubench_sweep("batch", smoke=[], glance=[1, 32], quick=[1, 32], full=[1, 8, 32])
def test_resnet50(gpubench, optimizer, batch):
    """32 images (0.8 TFLOP, 3 GB) fill a data-centre GPU and fit into most others."""
    not_for_a_quick_run(gpubench)
    train(gpubench, "resnet50", batch, optimizer=optimizer, flops=batch * models.RESNET50_FLOPS["training"])


@pytest.mark.gpubench(title="Training GPT-2")
@VARIANTS
@OPTIMIZERS
@LARGE_BATCHES
def test_gpt2(gpubench, optimizer, batch):
    not_for_a_quick_run(gpubench)
    train(gpubench, "gpt2", batch, optimizer=optimizer)


@pytest.mark.gpubench(title="Training GPT-2, 512 tokens")
@VARIANTS
@pytest.mark.gpubench_sweep("batch", smoke=[], quick=[], full=[1, 8])
def test_gpt2_512(gpubench, batch):
    """GPT-2 at the length of the shorter texts in real training."""
    train(gpubench, "gpt2_512", batch, optimizer="adam")


@pytest.mark.gpubench(title="Training Llama")
@VARIANTS
@pytest.mark.gpubench_sweep("model", smoke=["10M"], quick=[], full=["125M"])
@pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[1], full=[1, 8])
def test_llama(gpubench, model, batch):
    """The decoder of test_llm.py, on 512 tokens (the smallest: 32)."""
    train(gpubench, f"llama_{model}", batch, optimizer="adam")


@pytest.mark.gpubench(title="Training in float16, scaled gradients", size="batch", dtypes=["float16"])
@pytest.mark.gpubench_sweep("network", smoke=["lenet"], quick=[], full=["cifar", "resnet50", "gpt2_512"])
@pytest.mark.gpubench_sweep("batch", smoke=[2], quick=[128], full=[8, 64])
def test_scaled(gpubench, network, batch):
    """Mixed precision in float16 with a GradScaler."""
    train(gpubench, network, batch, scaled=True)


@pytest.mark.gpubench(title="Gradient accumulation", size="pieces")
@pytest.mark.gpubench_sweep("network", smoke=["lenet"], quick=["cifar"], full=["cifar", "gpt2"])
@pytest.mark.gpubench_sweep("pieces", smoke=[2], quick=[4], full=[1, 2, 4, 8, 16])
def test_accumulation(gpubench, network, pieces):
    """A batch that is too large for the memory, 128 rows (GPT-2: 16), in parts with a sum of gradients."""
    train(gpubench, network, 16 if network == "gpt2" else 128, pieces=pieces)


@pytest.mark.gpubench(title="Training a CNN by width", size="width")
@pytest.mark.parametrize("widened", ["first layer", "all layers"])
@pytest.mark.gpubench_sweep("width", smoke=[1], quick=[1, 16], full=[1, 2, 4, 8, 16])
@pytest.mark.gpubench_sweep("batch", smoke=[2], quick=[4], full=[4, 128])
def test_width(gpubench, widened, width, batch):
    """The CIFAR-10 tutorial's exercise."""
    train(gpubench, "cifar", batch, **{"first" if widened == "first layer" else "width": width})


@pytest.mark.gpubench(title="Training a tabular MLP")
def test_tabular(gpubench):
    """Time per epoch: 506 rows of 13 columns in batches of 128, Adam 0.01. The whole job is 100 epochs."""

    def fresh(data):
        return training.trainer("tabular", data, training.TABULAR_BATCH, update="adam", **training.TABULAR)

    gpubench.parallel = {"method": "single", "devices": 1}
    work = {"items": training.TABULAR_ROWS, "unit": "sample", "epochs": training.TABULAR_EPOCHS}
    training.measure(gpubench, fresh, **work)
