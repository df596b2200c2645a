"""Gradients that tests have ranks compute, by functions that workers import by name."""

from dataclasses import replace

import torch
import torch.distributed as dist

from benchmarks import training
from benchmarks.distributed import Training
from gpubench.devices import CPU, find_device
from gpubench.measure.data import Data


def of_job(rank, job):
    """After one forward and backward pass."""
    work = job.start(rank)
    if isinstance(job, Training):
        work.trainer.forward().backward()
        return work.trainer.gradient()
    work._pass(0)
    return work.gradient()


def forgotten(rank, job):
    """Check a job as DDP's whose network was never wrapped."""
    work = replace(job, method="unsynchronised").start(rank)
    work._job = job
    return work.check()


def share_of_loss(rank, size, rows):
    (batch,) = training.batches("deep_mlp", Data(CPU, torch.float64, 0), rows)
    own = tuple(part.tensor_split(size)[rank] for part in batch)
    network = training.network("deep_mlp", Data(CPU, torch.float64, 0))
    share = len(own[0]) * size / rows
    update = training.optimizer("sgd", list(network.parameters()))
    return training.Trainer(network, training.TASKS["deep_mlp"].loss, [own], update, shares=[share]).forward().item()


def on_device(rank, device):
    """This rank's half of a batch computed on ``device``, averaged over the ranks through the CPU."""
    home = Data(find_device(device).device, torch.float64, 0)
    network = training.network("lenet", home)
    ((images, labels),) = training.batches("lenet", home, 64)
    half = images.chunk(rank.world_size)[rank.number], labels.chunk(rank.world_size)[rank.number]
    update = training.optimizer("sgd", list(network.parameters()))
    own = training.Trainer(network, training.TASKS["lenet"].loss, [half], update)
    own.backward()
    total = own.gradient()
    dist.all_reduce(total)
    return total / rank.world_size
