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


class SilentFallback(GpubenchError):
    """DataParallel doesn't run on the requested devices: its time would be that of something else."""


def split_rows(rows: int, devices: int) -> list[int]:
    """Rows that each replica gets of a batch: ``torch.chunk``'s, so there may be fewer replicas than devices."""
    return [len(part) for part in torch.empty(rows, device="meta").chunk(devices)]


def split_batches(rows: int, batch: int, devices: int) -> list[list[int]]:
    """The rows of each replica, for each batch of an epoch."""
    return [split_rows(min(batch, rows - start), devices) for start in range(0, rows, batch)]


def split_speedup(rows: int, batch: int, devices: int) -> float:
    """Rows over those of the fullest replica, summed over the batches: what the split allows at best."""
    return rows / sum(max(split) for split in split_batches(rows, batch, devices))


def replicated(network: nn.Module, devices: Sequence[torch.device]) -> nn.DataParallel[nn.Module]:
    """The network under DataParallel on exactly these devices.

    Raises :class:`SilentFallback` if it isn't: without a GPU DataParallel becomes the plain network.
    """
    requested = [device.index for device in devices]
    parallel = nn.DataParallel(network, device_ids=requested)
    if parallel.device_ids != requested:
        used = f"on {parallel.device_ids}" if parallel.device_ids else "as the plain network"
        raise SilentFallback(f"DataParallel was given devices {requested} and silently runs {used}")
    return parallel


def phase_times(
    parallel: nn.DataParallel[nn.Module], inputs: torch.Tensor, clock: DeviceClock, rounds: int = 10
) -> dict[str, float]:
    """Median seconds of scatter, replicate, parallel forward and gather, each with a wait at its end.

    ``clock`` waits for all devices. Raises :class:`SilentFallback` when the rows aren't split as by :func:`split_rows`.
    """
    times: dict[str, list[float]] = {"scatter": [], "replicate": [], "forward": [], "gather": []}
    devices = list(parallel.device_ids)
    planned = split_rows(len(inputs), len(devices))
    for _ in range(rounds + 1):
        marks = [clock()]
        scattered, keywords = parallel.scatter((inputs,), {}, devices)
        marks.append(clock())
        rows = [len(part[0]) for part in scattered]
        if rows != planned:
            raise SilentFallback(f"DataParallel split {len(inputs)} rows as {rows}, not {planned}")
        replicas = parallel.replicate(parallel.module, devices[: len(scattered)])
        marks.append(clock())
        outputs = parallel.parallel_apply(replicas, scattered, keywords)
        marks.append(clock())
        parallel.gather(outputs, parallel.output_device)
        marks.append(clock())
        for name, begin, end in zip(times, marks, marks[1:], strict=False):
            times[name].append(end - begin)
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
