"""Training with one process a device: DistributedDataParallel, FSDP2, and the same step without either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..measure.verify import unchecked
from ..runfile.schema import Check
from ..workloads import training
from .rank import TrainingJob
from .rendezvous import Rank

if TYPE_CHECKING:
    from torch import nn

METHODS = ("single", "one thread", "ddp", "unsynchronised", "fsdp")


@dataclass(frozen=True, slots=True)
class Training(TrainingJob):
    """A training step of the whole network on every rank.

    ``single`` and ``one thread`` are the plain step on one rank. ``unsynchronised`` is the plain step on every rank
    with its share of the rows and without communication: what the hardware would give if communication were free.
    """

    def start(self, rank: Rank) -> _Training:
        """Build this rank's replica or shard."""
        return _Training(self, rank)


class _Training:
    def __init__(self, job: Training, rank: Rank) -> None:
        self._job, self._rank = job, rank
        self.trainer = self._trainer()

    def _trainer(self) -> training.Trainer:
        job, rank = self._job, self._rank
        data = job.data(rank)
        network = training.network(job.task, data, **job.options)
        batches = training.batches(job.task, data, job.rows or job.batch, job.batch)
        shares = None
        if rank.world_size > 1:
            whole = [len(inputs) for inputs, _ in batches]
            batches = [tuple(part.tensor_split(rank.world_size)[rank.number] for part in batch) for batch in batches]  # type: ignore[misc]
            shares = [len(part) * rank.world_size / rows for (part, _), rows in zip(batches, whole, strict=True)]
        network = wrap(network, job.method, rank)
        parameters = list(network.parameters())
        update = training.optimizer(job.optimizer, parameters, job.rate)
        return training.Trainer(network, training.task(job.task).loss, batches, update, shares=shares)

    def step(self) -> Any:
        return self.trainer.step()

    def reset(self) -> None:
        """Nothing to reset: training goes on."""

    def check(self) -> Check:
        """Rank 0 compares the averaged gradient with that of one process on the whole batch in float64."""
        job, rank = self._job, self._rank
        if training.task(job.task).batch_norm:
            return unchecked("with batch norm each rank normalises by its own rows")
        if job.method == "unsynchronised":
            return unchecked("every rank has a gradient of its own")
        self.trainer.forward().backward()  # type: ignore[no-untyped-call]
        gradient = self.trainer.gradient()  # collective where it is sharded
        self.trainer.update_rule.zero_grad(set_to_none=True)
        if rank.number:
            return unchecked("checked by rank 0")
        return job.compare(gradient)

    def record(self) -> dict[str, Any]:
        """The loss curve of a new trainer, if the job has epochs."""
        if not self._job.epochs:
            return {}
        losses = training.loss_curve(self._trainer(), self._job.epochs)
        return {"losses": self._averaged(losses)}

    def _averaged(self, values: list[float]) -> list[float]:
        if self._rank.world_size == 1:
            return values
        import torch
        import torch.distributed as dist

        shared = torch.tensor(values, device=self._rank.device)
        dist.all_reduce(shared)
        return [value / self._rank.world_size for value in shared.tolist()]


def wrap(network: nn.Module, method: str, rank: Rank) -> nn.Module:
    """The network under a method; DDP and FSDP2 average gradients over the ranks."""
    if method == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        index = rank.torch_device.index
        return DistributedDataParallel(network, device_ids=None if index is None else [index])
    if method == "fsdp":
        return _sharded(network, rank)
    return network


def _sharded(network: nn.Module, rank: Rank) -> nn.Module:
    """FSDP2: each child with parameters is one unit that is gathered when needed; the root holds the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(rank.torch_device.type, (rank.world_size,))
    for child in network.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    fully_shard(network, mesh=mesh)  # in rank
    return network
