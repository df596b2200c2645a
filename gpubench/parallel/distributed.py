"""Training with one process a device: DistributedDataParallel, FSDP2, and the same step without either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..measure.verify import unchecked
from ..runfile.schema import Check
from ..workloads import training
from .rank import TrainingJob
from .rendezvous import Place

if TYPE_CHECKING:
    from torch import nn

METHODS = ("single", "one thread", "ddp", "unsynchronised", "fsdp")


@dataclass(frozen=True, slots=True)
class Training(TrainingJob):
    """A training step of the whole network on every rank.

    ``single`` and ``one thread`` are the plain step on one rank; ``unsynchronised`` is the same on every rank, with
    its own share of the rows and nothing exchanged: what the hardware would give if gradients travelled for nothing.
    """

    def start(self, place: Place) -> _Training:
        return _Training(self, place)


class _Training:
    def __init__(self, job: Training, place: Place) -> None:
        self._job, self._place = job, place
        self.trainer = self._trainer()

    def _trainer(self) -> training.Trainer:
        job, place = self._job, self._place
        data = job.data(place)
        network = training.network(job.task, data, **job.options)
        batches = training.batches(job.task, data, job.rows or job.batch, job.batch)
        shares = None
        if place.size > 1:
            whole = [len(inputs) for inputs, _ in batches]
            batches = [tuple(part.tensor_split(place.size)[place.rank] for part in batch) for batch in batches]  # type: ignore[misc]
            shares = [len(own) * place.size / rows for (own, _), rows in zip(batches, whole, strict=True)]
        network = wrap(network, job.method, place)
        parameters = list(network.parameters())
        update = training.optimizer(job.optimizer, parameters, job.rate)
        return training.Trainer(network, training.task(job.task).loss, batches, update, shares=shares)

    def step(self) -> Any:
        return self.trainer.step()

    def reset(self) -> None:
        """Nothing: training goes on."""

    def check(self) -> Check:
        """The averaged gradient against that of one process on the whole batch, computed by rank 0 in float64."""
        job, place = self._job, self._place
        if training.task(job.task).batch_norm:
            return unchecked("with batch norm each rank normalises by its own rows")
        if job.method == "unsynchronised":
            return unchecked("every rank has a gradient of its own")
        self.trainer.forward().backward()  # type: ignore[no-untyped-call]
        ours = self.trainer.gradient()  # collective where it is sharded
        self.trainer.update_rule.zero_grad(set_to_none=True)
        if place.rank:
            return unchecked("checked by rank 0")
        return job.compare(ours)

    def told(self) -> dict[str, Any]:
        """The loss curve, of a fresh start, where the job has epochs."""
        if not self._job.epochs:
            return {}
        losses = training.loss_curve(self._trainer(), self._job.epochs)
        return {"losses": self._averaged(losses)}

    def _averaged(self, values: list[float]) -> list[float]:
        if self._place.size == 1:
            return values
        import torch
        import torch.distributed as dist

        shared = torch.tensor(values, device=self._place.device)
        dist.all_reduce(shared)
        return [value / self._place.size for value in shared.tolist()]


def wrap(network: nn.Module, method: str, place: Place) -> nn.Module:
    """The network under a method; DDP and FSDP2 average gradients over the ranks."""
    if method == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        index = place.torch_device.index
        return DistributedDataParallel(network, device_ids=None if index is None else [index])
    if method == "fsdp":
        return _sharded(network, place)
    return network


def _sharded(network: nn.Module, place: Place) -> nn.Module:
    """FSDP2: each child with parameters is a unit that is gathered when it is needed, the rest belongs to the root."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(place.torch_device.type, (place.size,))
    for child in network.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    fully_shard(network, mesh=mesh)  # in place
    return network
