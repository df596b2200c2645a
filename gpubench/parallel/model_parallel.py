"""A model cut over several devices: naive, one stage working at a time, or pipelined by microbatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import Unmeasurable
from ..measure.verify import unchecked
from ..runfile.schema import Check
from ..workloads import training
from .rank import TrainingJob
from .rendezvous import Rank

if TYPE_CHECKING:
    import torch
    from torch import nn

SCHEDULES = ("naive", "gpipe", "1f1b")


def pipeline_speedup(stages: int, microbatches: int) -> float:
    """k m / (m + k - 1): of m + k - 1 slots the first and last stage work in m.

    Source: Huang et al., *GPipe* (2019), whose bubble is (k - 1) / (m + k - 1) of the time.
    """
    return stages * microbatches / (microbatches + stages - 1)


@dataclass(frozen=True, slots=True)
class PipelineTraining(TrainingJob):
    """A training step of a network cut into one stage a rank; ``method`` is the schedule.

    Naive is a pipeline of one microbatch.
    """

    microbatches: int = 1

    def start(self, rank: Rank) -> _PipelineWork:
        """Build this rank's stage."""
        return _PipelineWork(self, rank)


def cut(layers: Sequence[nn.Module], stages: int) -> list[list[nn.Module]]:
    """Consecutive layers of about equal parameters for each stage, one layer at least.

    Raises :class:`Unmeasurable` for more stages than layers.
    """
    if stages > len(layers):
        raise Unmeasurable(f"{len(layers)} layers can't be cut into {stages} stages")
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    total, done = sum(sizes) or 1, 0
    parts: list[list[nn.Module]] = [[] for _ in range(stages)]
    for i, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        stage = min(stages - 1, int(stages * (done + size / 2) / total))
        first_empty = next((s for s in range(stages) if not parts[s]), stages - 1)
        # No stage is skipped, and each later one gets a layer.
        stage = max(min(stage, first_empty), stages - (len(layers) - i))
        parts[stage].append(layer)
        done += size
    return parts


class _PipelineWork:
    def __init__(self, job: PipelineTraining, rank: Rank) -> None:
        self._job, self._rank = job, rank
        self._start()

    def _start(self) -> None:
        from torch import nn
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        job, rank = self._job, self._rank
        data = job.data(rank)
        whole = training.network(job.task, data, **job.options)
        self._batches = training.batches(job.task, data, job.rows or job.batch, job.batch)
        if any(len(inputs) % job.microbatches for inputs, _ in self._batches):
            raise Unmeasurable(f"batches can't be split into {job.microbatches} equal microbatches")
        self._stage = nn.Sequential(*cut(list(whole.children()), rank.world_size)[rank.number])
        self._update = training.optimizer(job.optimizer, list(self._stage.parameters()), job.rate)
        schedule = Schedule1F1B if job.method == "1f1b" else ScheduleGPipe
        # A stage keeps the shapes of its first batch: one schedule for each batch size.
        sizes = {len(inputs) for inputs, _ in self._batches}
        loss = training.task(job.task).loss
        device = rank.torch_device
        self._schedules = {
            rows: schedule(
                PipelineStage(self._stage, rank.number, rank.world_size, device), job.microbatches, loss_fn=loss
            )
            for rows in sizes
        }

    def _pass(self, index: int) -> list[torch.Tensor]:
        """Forward and backward of one batch; returns the losses of its microbatches on the last rank, else none."""
        inputs, targets = self._batches[index]
        schedule = self._schedules[len(inputs)]
        first, last = self._rank.number == 0, self._rank.number == self._rank.world_size - 1
        losses: list[torch.Tensor] = []
        options: dict[str, Any] = {"target": targets, "losses": losses} if last else {}
        schedule.step(*((inputs,) if first else ()), **options)
        return losses

    def step(self) -> list[torch.Tensor]:
        losses: list[torch.Tensor] = []
        for index in range(len(self._batches)):
            self._update.zero_grad(set_to_none=True)
            losses = self._pass(index)
            self._update.step()
        return losses

    def reset(self) -> None:
        """Nothing to reset: training goes on."""

    def gradient(self) -> torch.Tensor:
        """The gradient of all stages on rank 0, of this stage elsewhere: one float64 vector on the CPU."""
        import torch
        import torch.distributed as dist

        part = training.flat([parameter.grad for parameter in self._stage.parameters()])
        parts: list[Any] | None = [None] * self._rank.world_size if self._rank.number == 0 else None
        dist.gather_object(part, parts)
        return torch.cat(parts) if parts else part

    def check(self) -> Check:
        """Rank 0 compares the stages' gradients with those of one process on the whole network in float64."""
        self._pass(0)
        gradient = self.gradient()
        self._update.zero_grad(set_to_none=True)
        if self._rank.number:
            return unchecked("checked by rank 0")
        return self._job.compare(gradient)

    def record(self) -> dict[str, Any]:
        """The loss curve of a new network, if the job has epochs: each epoch's mean loss over all rows."""
        if not self._job.epochs:
            return {}
        self._start()
        curve = []
        for _ in range(self._job.epochs):
            total = 0.0
            for index, (inputs, _) in enumerate(self._batches):
                self._update.zero_grad(set_to_none=True)
                losses = self._pass(index)
                self._update.step()
                total += len(inputs) * sum(loss.item() for loss in losses) / max(1, len(losses))
            curve.append(total / sum(len(inputs) for inputs, _ in self._batches))
        return {"losses": curve}
