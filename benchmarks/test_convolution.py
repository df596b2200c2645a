"""Convolution as a single operator, in shapes of ResNet-50 and MobileNet. FLOPs are those of the direct algorithm."""

import pytest
import torch
import torch.nn.functional as F

SHAPES = {"3x3": (64, 64, 3, 56, 1), "1x1": (256, 64, 1, 56, 1), "depthwise": (128, 128, 3, 56, 128)}
"""Input and output channels, kernel width, image width, and groups."""
pytestmark = [
    pytest.mark.gpubench(kind="operators", dtypes=["float32", "tf32"], size="batch"),
    pytest.mark.gpubench_sweep("batch", smoke=[1], quick=[8], full=[1, 8, 32, 128]),
    pytest.mark.parametrize("kind", list(SHAPES)),
]


def convolve(gpubench, kind, batch, layout=torch.contiguous_format):
    channels, filters, width, image, groups = SHAPES[kind]
    x, weight = gpubench.randn(batch, channels, image, image), gpubench.randn(filters, channels // groups, width, width)
    x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
    out = batch * filters * image * image
    flops = 2 * out * (channels // groups) * width**2
    nbytes = x.nbytes + weight.nbytes + out * x.element_size()
    gpubench.declare(flops=flops, nbytes=nbytes, items=batch, unit="image")
    gpubench(F.conv2d, x, weight, padding=width // 2, groups=groups)


@pytest.mark.gpubench(title="Convolution")
def test_conv2d(gpubench, kind, batch):
    convolve(gpubench, kind, batch)


@pytest.mark.gpubench(title="Convolution, channels last")
def test_conv2d_channels_last(gpubench, kind, batch):
    """The same with a pixel's channels adjacent in memory, the layout that oneDNN and cuDNN prefer."""
    convolve(gpubench, kind, batch, torch.channels_last)
