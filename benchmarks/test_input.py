"""A network that is fed by a DataLoader: the loader alone, with the copies to the device, and with the training step.

The loader converts, flips and normalises each image in this process. While a GPU computes, it can prepare the next
batch, unless the loop waits for each loss: ``overlapped`` or ``in turn``, the same on a CPU.
"""

import contextlib

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from gpubench.errors import Unmeasurable
from gpubench.measure.data import pinned_copy

from . import training

pytestmark = [
    pytest.mark.gpubench(size="images"),
    pytest.mark.gpubench_sweep("images", smoke=[16], quick=[1024], full=[1024, 8192]),
]
BATCH = 128  # images of a batch; half of all where these are fewer
MEAN, STD = 0.47, 0.25  # rounded mean and standard deviation of a pixel of CIFAR-10, as a share of 255


class Images(Dataset):
    """Random colour images of 32 x 32 with labels of ten classes; an item is an image in float32 and its label."""

    def __init__(self, data, count):
        self.images = data.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
        self.labels = data.randint(10, (count,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].float() / 255
        return ((image.flip(-1) if index % 2 else image) - MEAN) / STD, self.labels[index]


def batch_of(images):
    return min(BATCH, len(images) // 2)


def has_pinned_memory():
    with contextlib.suppress(Unmeasurable):
        return pinned_copy(torch.empty(1)).is_pinned()
    return False


class Epoch:
    """A pass over a loader's batches, which are copied to the ``data``'s device; ``learner`` trains on each, and
    ``waits`` for its loss. A step returns the last batch or, of a learner, the last loss."""

    def __init__(self, images, data, learner=None, waits=False):
        self._loader = DataLoader(images, batch_of(images), pin_memory=data.home.accelerator and has_pinned_memory())
        self._data, self._learner, self._waits = data, learner, waits

    def step(self):
        result, own = None, self._learner and self._learner.batches
        for images, labels in self._loader:
            images = images.to(self._data.device, self._data.dtype, non_blocking=True)
            result = images, labels.to(self._data.device, non_blocking=True)
            if self._learner:
                self._learner.batches = [result]
                result = self._learner.step()
                if self._waits:
                    result.item()
        if self._learner:
            self._learner.batches = own  # each epoch begins alike
        return result

    def gradient(self):
        return self._learner.gradient()


def load(gpubench, count):
    images = Images(gpubench.host, count)

    def last_batch():
        last = map(images.__getitem__, range(count - batch_of(images), count))
        return tuple(map(torch.stack, zip(*last, strict=True)))

    gpubench.declare(check=last_batch, items=count, unit="image", devices=["cpu"])
    gpubench(Epoch(images, gpubench.data).step)


@pytest.mark.gpubench(title="Loader", kind="copies", devices="cpu")
def test_loader(gpubench, images):
    load(gpubench, images)


@pytest.mark.gpubench(title="Loader and copies", kind="copies", devices="accelerator")
def test_copies(gpubench, images):
    """Each batch is copied from page-locked memory, while the next one is prepared."""
    load(gpubench, images)


@pytest.mark.gpubench(title="Training from a loader", kind="training")
@pytest.mark.parametrize("order", ["in turn", "overlapped"])
def test_training(gpubench, order, images):
    """An epoch of the CIFAR-10 tutorial's network in batches of 128."""
    source = Images(gpubench.host, images)

    def epoch(data):
        return Epoch(source, data, training.trainer("cifar", data, batch_of(source)), waits=order == "in turn")

    training.measure(gpubench, epoch, items=images, unit="image", devices=["cpu"])
