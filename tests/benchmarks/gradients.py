"""Gradients that tests have ranks compute, by functions that workers import by name."""

from dataclasses import replace

import torch
import torch.distributed as dist

from benchmarks import training
from gpubench.devices import find_device
from gpubench.measure.data import Data


def of_job(rank, job):
    """After one forward and backward pass."""
    job.start(rank)
    return job.gradient()


def forgotten(rank, job):
    """Check a job as DDP's whose network was never wrapped."""
    forgetful = replace(job, method="unsynchronised")
    forgetful.start(rank)
    forgetful.method = job.method
    return forgetful.check()


def on_device(rank, device):
    """This rank's half of a batch computed on ``device``, averaged over the ranks through the CPU."""
    home = Data(find_device(device).device, torch.float64, 0)
    network = training.network("lenet", home)
    ((images, labels),) = training.batches("lenet", home, 64, 64)
    half = images.chunk(rank.world_size)[rank.number], labels.chunk(rank.world_size)[rank.number]
    update = training.optimizer("sgd", list(network.parameters()))
    own = training.Trainer(network, training.TASKS["lenet"].loss, [half], update)
    own.backward()
    total = own.gradient()
    dist.all_reduce(total)
    return total / rank.world_size
