"""Training on several ranks by DistributedDataParallel or in stages, and all_reduce."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gpubench.devices import find_device
from gpubench.errors import Unmeasurable, WrongAnswer
from gpubench.measure.data import Data, reference_data
from gpubench.measure.precision import torch_dtype
from gpubench.measure.ranks import Rank, RankJob
from gpubench.measure.verify import unchecked
from gpubench.runfile.schema import Check

from . import training

_TOLERANCES = {"float64": 1e-10, "float32": training.GRADIENT_TOLERANCE}
"""Largest relative L2 error of the gradient, compared with one process in float64 on the CPU. Unless rounding switches
a ReLU or max-pooling, float32 stays below 1e-6; one switch has cost thousandths, and a missing average costs 0.5."""
_OTHER_TOLERANCE = 0.2  # bfloat16 has eight bits, and rounds in every layer


@dataclass
class Training(RankJob):
    """A training step of the whole network on every rank: ``batch`` rows over all ranks together; ``rows`` as in
    :func:`training.trainer`. With ``epochs``, the loss curve of a new network is recorded too. The methods ``single``
    and ``one thread`` are the plain step on one rank; ``unsynchronised`` is the plain step on every rank, with its
    share of the rows, as if communication were free."""

    task: str
    method: str
    batch: int
    optimizer: str = "sgd"
    rate: float = 1e-3
    rows: int | None = None
    epochs: int = 0
    dtype: str = "float32"
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def start(self, rank: Rank) -> None:
        """Build this rank's part from the whole network and all rows of each batch."""
        self.rank = rank
        device = find_device(rank.device).device
        assert device is not None, rank.device
        data = Data(device, torch_dtype(self.dtype), self.seed)
        network = training.network(self.task, data, **self.options)
        self.share(network, training.batches(self.task, data, self.rows or self.batch, self.batch))

    def share(self, network: nn.Module, batches: list[training.Batch]) -> None:
        """Keep a replica of the network, and this rank's rows."""
        count, number, shares = self.rank.world_size, self.rank.number, None
        if count > 1:
            whole = [len(inputs) for inputs, _ in batches]
            batches = [tuple(part.tensor_split(count)[number] for part in batch) for batch in batches]  # type: ignore[misc]
            shares = [len(part) * count / rows for (part, _), rows in zip(batches, whole, strict=True)]
        if self.method == "ddp":
            index = torch.device(self.rank.device).index
            network = nn.parallel.DistributedDataParallel(network, device_ids=None if index is None else [index])
        loss = training.TASKS[self.task].loss
        self.trainer = training.Trainer(network, loss, batches, self.update_rule(network), shares=shares)

    def update_rule(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the job's optimiser for a network or a part of one."""
        return training.optimizer(self.optimizer, list(network.parameters()), self.rate)

    def step(self) -> Any:
        return self.trainer.step()

    def gradient(self) -> torch.Tensor:
        """Return the gradient of the first batch's loss by the whole network, at least on rank 0, as float64 on the
        CPU."""
        return self.trainer.first_gradient()

    def epoch(self) -> float:
        """Train once on every batch; return the mean loss over all rows, at least on the last rank."""
        mean = self.trainer.step().float()
        if self.rank.world_size > 1:
            dist.all_reduce(mean)
        return mean.item() / self.rank.world_size

    def check(self) -> Check:
        """Compare the job's first gradient, on rank 0, with that of one process on the whole batch, in float64 on the
        CPU, where the method shares gradients and no other statistics. Raises WrongAnswer if they differ by more than
        rounding in the job's dtype explains."""
        if training.TASKS[self.task].batch_norm:
            return unchecked("with batch norm each rank normalises by its own rows")
        if self.method == "unsynchronised":
            return unchecked("every rank has a gradient of its own")
        gradient = self.gradient()
        if self.rank.number:
            return unchecked("checked by rank 0")
        exact = reference_data(self.seed)
        reference = training.trainer(self.task, exact, self.batch, rows=self.rows, **self.options)
        error = training.relative_error(gradient, reference.first_gradient())
        allowed = _TOLERANCES.get(self.dtype, _OTHER_TOLERANCE)
        if not error <= allowed:
            differs = f"the gradient differs from a single process's by {error:.3g} in the L2 norm"
            raise WrongAnswer(f"{differs}, allowed is {allowed:g}")
        return Check("passed", error, allowed)

    def record(self) -> dict[str, Any]:
        """Return the loss curve."""
        if not self.epochs:
            return {}
        self.start(self.rank)
        return {"losses": [self.epoch() for _ in range(self.epochs)]}


@dataclass
class StagedTraining(Training):
    """A training step of a network that is cut into one stage per rank, of which one works at a time."""

    def share(self, network: nn.Module, batches: list[training.Batch]) -> None:
        """Keep this rank's stage, of about equally many layers. Raises Unmeasurable if there are too few."""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        rank, layers, self.batches = self.rank, list(network.children()), batches
        if rank.world_size > len(layers):
            raise Unmeasurable(f"{len(layers)} layers can't be cut into {rank.world_size} stages")
        first, end = (len(layers) * number // rank.world_size for number in (rank.number, rank.number + 1))
        stage = self.stage = nn.Sequential(*layers[first:end])
        self.update = self.update_rule(stage)
        loss, place = training.TASKS[self.task].loss, (rank.number, rank.world_size, torch.device(rank.device))
        # A stage keeps the shapes of its first batch: one schedule, of one microbatch, for each batch size.
        sizes = {len(inputs) for inputs, _ in batches}
        self.schedules = {rows: ScheduleGPipe(PipelineStage(stage, *place), 1, loss_fn=loss) for rows in sizes}

    def _pass(self, index: int) -> torch.Tensor:
        """Run forward and backward passes of one batch; return its loss on the last rank, 0 elsewhere."""
        inputs, targets = self.batches[index]
        losses, last = list[torch.Tensor](), self.rank.number == self.rank.world_size - 1
        options: dict[str, Any] = {"target": targets, "losses": losses} if last else {}
        self.schedules[len(inputs)].step(*(() if self.rank.number else (inputs,)), **options)
        return losses[0] if losses else torch.zeros(())

    def step(self) -> Any:
        losses = []
        for index in range(len(self.batches)):
            self.update.zero_grad(set_to_none=True)
            losses.append(self._pass(index))
            self.update.step()
        return losses

    def gradient(self) -> torch.Tensor:
        """Return the gradient of all stages on rank 0, of this stage elsewhere."""
        self._pass(0)
        part = training.flat([parameter.grad for parameter in self.stage.parameters()])
        self.update.zero_grad(set_to_none=True)
        parts: list[Any] | None = [None] * self.rank.world_size if self.rank.number == 0 else None
        dist.gather_object(part, parts)
        return torch.cat(parts) if parts else part

    def epoch(self) -> float:
        rows = [len(inputs) for inputs, _ in self.batches]
        return sum(n * float(loss) for n, loss in zip(rows, self.step(), strict=True)) / sum(rows)


@dataclass
class AllReduce(RankJob):
    """The sum of a message over all ranks, in place."""

    nbytes: int
    seed: int = 0
    dtype = "float32"

    def start(self, rank: Rank) -> None:
        self.rank = rank
        self.source = self._message(rank.number).to(rank.device)
        self.buffer = self.source.clone()

    def _message(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed + number)
        return torch.randn(max(1, self.nbytes // 4), generator=generator)

    def reset(self) -> None:
        """Restore the message: sums of sums would overflow after a hundred rounds."""
        self.buffer.copy_(self.source)

    def step(self) -> None:
        dist.all_reduce(self.buffer)

    def check(self) -> Check:
        """Compare with the sum of every rank's random numbers."""
        self.step()
        count = min(1000, self.source.numel())
        expected = torch.zeros(count)
        for number in range(self.rank.world_size):
            expected += self._message(number)[:count]
        error = float((self.buffer[:count].cpu() - expected).abs().max() / expected.abs().max())
        if not error <= 1e-5:
            raise WrongAnswer(f"wrong sum on rank {self.rank.number}: relative error {error:.3g}")
        return Check("passed", error, 1e-5)
