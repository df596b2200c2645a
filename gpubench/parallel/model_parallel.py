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
from .rendezvous import Place

if TYPE_CHECKING:
    import torch
    from torch import nn

SCHEDULES = ("naive", "gpipe", "1f1b")


def ideal_speedup(stages: int, microbatches: int) -> float:
    """k m / (m + k - 1): of m + k - 1 slots the first and last stage work in m.

    Source: Huang et al., *GPipe* (2019), whose bubble is (k - 1) / (m + k - 1) of the time.
    """
    return stages * microbatches / (microbatches + stages - 1)


@dataclass(frozen=True, slots=True)
class Pipeline(TrainingJob):
    """A training step of a network cut into one stage a rank; ``method`` is the schedule.

    Naive is a pipeline of one microbatch.
    """

    microbatches: int = 1

    def start(self, place: Place) -> _Pipeline:
        return _Pipeline(self, place)


def cut(layers: Sequence[nn.Module], stages: int) -> list[list[nn.Module]]:
    """Consecutive layers of about equal parameters for each stage, one layer at least.

    Raises :class:`Unmeasurable` for more stages than layers.
    """
    if stages > len(layers):
        raise Unmeasurable(f"{len(layers)} layers can't be cut into {stages} stages")
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    total, done = sum(sizes) or 1, 0
    found: list[list[nn.Module]] = [[] for _ in range(stages)]
    for i, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        stage = min(stages - 1, int(stages * (done + size / 2) / total))
        first_empty = next((s for s in range(stages) if not found[s]), stages - 1)
        stage = max(min(stage, first_empty), stages - (len(layers) - i))  # none skipped, one left for each that follows
        found[stage].append(layer)
        done += size
    return found


class _Pipeline:
    def __init__(self, job: Pipeline, place: Place) -> None:
        self._job, self._place = job, place
        self._start()

    def _start(self) -> None:
        from torch import nn
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        job, place = self._job, self._place
        data = job.data(place)
        whole = training.network(job.task, data, **job.options)
        self._batches = training.batches(job.task, data, job.rows or job.batch, job.batch)
        if any(len(inputs) % job.microbatches for inputs, _ in self._batches):
            raise Unmeasurable(f"batches can't be split into {job.microbatches} equal microbatches")
        self._own = nn.Sequential(*cut(list(whole.children()), place.size)[place.rank])
        self._update = training.optimizer(job.optimizer, list(self._own.parameters()), job.rate)
        kind = Schedule1F1B if job.method == "1f1b" else ScheduleGPipe
        # A stage remembers the shapes it first met: one for each size of batch.
        sizes = {len(inputs) for inputs, _ in self._batches}
        loss = training.task(job.task).loss
        device = place.torch_device
        self._schedules = {
            rows: kind(PipelineStage(self._own, place.rank, place.size, device), job.microbatches, loss_fn=loss)
            for rows in sizes
        }

    def _pass(self, index: int) -> list[torch.Tensor]:
        """Forward and backward of one batch; the losses of its microbatches, on the last rank."""
        inputs, targets = self._batches[index]
        schedule = self._schedules[len(inputs)]
        first, last = self._place.rank == 0, self._place.rank == self._place.size - 1
        losses: list[torch.Tensor] = []
        given = (inputs,) if first else ()
        wanted: dict[str, Any] = {"target": targets, "losses": losses} if last else {}
        schedule.step(*given, **wanted)
        return losses

    def step(self) -> list[torch.Tensor]:
        losses: list[torch.Tensor] = []
        for index in range(len(self._batches)):
            self._update.zero_grad(set_to_none=True)
            losses = self._pass(index)
            self._update.step()
        return losses

    def reset(self) -> None:
        """Nothing: training goes on."""

    def gradient(self) -> torch.Tensor:
        """That of all stages, on rank 0: one float64 vector on the CPU."""
        import torch
        import torch.distributed as dist

        own = training.flat([parameter.grad for parameter in self._own.parameters()])
        parts: list[Any] | None = [None] * self._place.size if self._place.rank == 0 else None
        dist.gather_object(own, parts)
        return torch.cat(parts) if parts else own

    def check(self) -> Check:
        """The stages' gradients against those of the whole network in one process, computed by rank 0 in float64."""
        self._pass(0)
        ours = self.gradient()
        self._update.zero_grad(set_to_none=True)
        if self._place.rank:
            return unchecked("checked by rank 0")
        return self._job.compare(ours)

    def told(self) -> dict[str, Any]:
        """The loss curve, of a fresh start, where the job has epochs: each epoch's mean loss over all rows."""
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
