"""``nn.DataParallel``: one process, a thread a device, the network copied to every device in each step.

People try it first, since it is one line. Its costs are in four phases: the batch is scattered, the network
replicated, the replicas run, the outputs gathered on the first device.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import nn

from ..errors import GpubenchError
from ..measure.clock import DeviceClock

ROUNDS = 10


class FellBack(GpubenchError):
    """DataParallel runs on other devices than it was told to: its time would be that of something else."""


def plan(rows: int, devices: int) -> list[int]:
    """Rows that each replica gets of a batch: ``torch.chunk``'s, so there may be fewer replicas than devices."""
    return [len(part) for part in torch.empty(rows, device="meta").chunk(devices)]


def plans(rows: int, batch: int, devices: int) -> list[list[int]]:
    """The plan of each batch of an epoch."""
    return [plan(min(batch, rows - start), devices) for start in range(0, rows, batch)]


def ideal_speedup(rows: int, batch: int, devices: int) -> float:
    """Rows over those of the fullest replica, summed over the batches: what the split allows at best."""
    return rows / sum(max(split) for split in plans(rows, batch, devices))


def replicated(network: nn.Module, devices: Sequence[torch.device]) -> nn.DataParallel[nn.Module]:
    """The network under DataParallel on exactly these devices.

    Raises :class:`FellBack` if it isn't: without a GPU it silently becomes the plain network, whatever it was told.
    """
    wanted = [device.index for device in devices]
    parallel = nn.DataParallel(network, device_ids=wanted)
    if parallel.device_ids != wanted:
        used = f"on {parallel.device_ids}" if parallel.device_ids else "as the plain network"
        raise FellBack(f"DataParallel was given devices {wanted} and silently runs {used}")
    return parallel


def phases(
    parallel: nn.DataParallel[nn.Module], inputs: torch.Tensor, clock: DeviceClock, rounds: int = ROUNDS
) -> dict[str, float]:
    """Median seconds of scatter, replicate, parallel forward and gather, each with a wait at its end.

    ``clock`` waits for all devices. Raises :class:`FellBack` when the rows that arrive aren't those of :func:`plan`.
    """
    spent: dict[str, list[float]] = {"scatter": [], "replicate": [], "forward": [], "gather": []}
    devices = list(parallel.device_ids)
    for _ in range(rounds + 1):
        marks = [clock()]
        scattered, keywords = parallel.scatter((inputs,), {}, devices)
        marks.append(clock())
        arrived = [len(part[0]) for part in scattered]
        if arrived != plan(len(inputs), len(devices)):
            raise FellBack(f"DataParallel split {len(inputs)} rows as {arrived}, not {plan(len(inputs), len(devices))}")
        replicas = parallel.replicate(parallel.module, devices[: len(scattered)])
        marks.append(clock())
        outputs = parallel.parallel_apply(replicas, scattered, keywords)
        marks.append(clock())
        parallel.gather(outputs, parallel.output_device)
        marks.append(clock())
        for name, begin, end in zip(spent, marks, marks[1:], strict=False):
            spent[name].append(end - begin)
    return {name: statistics.median(times[1:]) for name, times in spent.items()}
