"""The pipeline that feeds a training step: a DataLoader whose workers prepare images."""

from __future__ import annotations

import multiprocessing
import statistics
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from ..measure.clock import DeviceClock
from . import training

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench

IMAGES, BATCH = 256, 64


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Stored 3 x 40 x 40 bytes; cropped to 32 x 32 at random, maybe flipped, and normalised when loaded."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._pixels = torch.randint(256, (IMAGES, 3, 40, 40), dtype=torch.uint8, generator=generator)
        self._labels = torch.randint(10, (IMAGES,), generator=generator).tolist()

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left, flip = torch.randint(9, (3,)).tolist()
        image = self._pixels[index, :, top : top + 32, left : left + 32].float().div_(127.5).sub_(1.0)
        return image.flip(2) if flip < 4 else image, self._labels[index]


class InputPipeline:
    """A loader with its workers running, alone or in front of a training step of the CIFAR-10 network.

    Workers come from a fork server where there is one: a plain fork of a process whose threads hold locks can hang.
    """

    def __init__(self, gpubench: Gpubench, workers: int, pinned: bool, feeding: bool) -> None:
        if pinned:
            gpubench.pinned(torch.zeros(1))  # a skip where there is none
        self._clock = DeviceClock([gpubench.home])
        self._device = gpubench.device
        self._spent: list[tuple[float, float]] = []
        self._pinned = pinned
        self._trainer = training.trainer("cifar", gpubench.data, 2) if feeding else None
        start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        options: dict[str, Any] = {"multiprocessing_context": start, "persistent_workers": True} if workers else {}
        images = Images(gpubench.data.seed)
        self._loader = DataLoader(images, BATCH, pin_memory=pinned, num_workers=workers, **options)
        gpubench.parallel = {"workers": workers}

    def __enter__(self) -> InputPipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        del self._loader  # its workers end with it

    def epoch(self) -> None:
        """Every image once; with a trainer, moved to the device and trained on."""
        waited, begin = 0.0, self._clock()
        batches = iter(self._loader)
        while True:
            start = self._clock.now()  # no wait: the device goes on with the last batch
            batch = next(batches, None)
            waited += self._clock.now() - start
            if batch is None:
                break
            if self._trainer:
                images, labels = (part.to(self._device, non_blocking=self._pinned) for part in batch)
                self._trainer.batches = [(images.to(self._trainer.parameters[0].dtype), labels)]
                self._trainer.step()
        self._spent.append((waited, self._clock() - begin))

    def phases(self) -> dict[str, float]:
        """Median seconds an epoch waits for data, and spends on everything else, once it is warm."""
        warm = self._spent[1:] or self._spent
        data = statistics.median(waited for waited, _ in warm)
        whole = statistics.median(spent for _, spent in warm)
        return {"data": data, "step": max(0.0, whole - data)}
