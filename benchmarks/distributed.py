"""Training on several devices, and all_reduce.

DistributedDataParallel, FSDP2 and a pipeline of stages run on several ranks, ``nn.DataParallel`` in one process with a
thread per device. People try ``nn.DataParallel`` first, since it is one line. It copies the network to every device in
each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gpubench.devices import find_device
from gpubench.errors import GpubenchError, Unmeasurable, WrongAnswer
from gpubench.measure.data import Data, reference_data
from gpubench.measure.precision import torch_dtype
from gpubench.measure.verify import unchecked
from gpubench.parallel.ranks import RankWork
from gpubench.parallel.team import Rank
from gpubench.runfile.schema import Check

from . import training

_TOLERANCES = {"float64": 1e-10, "float32": training.GRADIENT_TOLERANCE}
"""Largest relative error, in the L2 norm, of the gradient compared with that of one process in float64 on the CPU.

Unless rounding switches a ReLU or max-pooling, float32 stays below 1e-6; one switch has cost thousandths, and a missing
average costs 0.5.
"""
_OTHER_TOLERANCE = 0.2  # bfloat16 has eight bits, and rounds in every layer


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training step on several ranks: ``batch`` rows over all ranks together; ``rows`` as in
    :func:`training.trainer`."""

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

    def build(self, rank: Rank) -> tuple[nn.Module, list[training.Batch]]:
        """Return the whole network and all rows of each batch, on a rank's device."""
        device = find_device(rank.device).device
        assert device is not None, rank.device
        data = Data(device, torch_dtype(self.dtype), self.seed)
        network = training.network(self.task, data, **self.options)
        return network, training.batches(self.task, data, self.rows or self.batch, self.batch)

    def update_rule(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the job's optimiser for a network or a part of one."""
        return training.optimizer(self.optimizer, list(network.parameters()), self.rate)

    def compare(self, gradient: torch.Tensor, rank: Rank) -> Check:
        """Compare the job's first gradient, on rank 0, with that of one process on the whole batch, in float64 on the
        CPU. Raises WrongAnswer if they differ by more than rounding in the job's dtype explains."""
        if rank.number:
            return unchecked("checked by rank 0")
        exact = reference_data(self.seed)
        reference = training.trainer(self.task, exact, self.batch, rows=self.rows, **self.options)
        reference.backward()
        error = training.relative_error(gradient, reference.gradient())
        allowed = _TOLERANCES.get(self.dtype, _OTHER_TOLERANCE)
        if not error <= allowed:
            raise WrongAnswer(
                f"the gradient differs from a single process's by {error:.3g} in the L2 norm, allowed is {allowed:g}"
            )
        return Check("passed", error, allowed)


@dataclass(frozen=True, slots=True)
class Training(TrainingJob):
    """A training step of the whole network on every rank.

    ``single`` and ``one thread`` are the plain step on one rank. ``unsynchronised`` is the plain step on every rank,
    with its share of the rows and without communication: what the hardware would reach if communication were free.
    """

    def start(self, rank: Rank) -> _Training:
        """Build this rank's replica or shard."""
        return _Training(self, rank)


class _Training(RankWork):
    def __init__(self, job: Training, rank: Rank) -> None:
        self._job, self._rank = job, rank
        self.trainer = self._trainer()

    def _trainer(self) -> training.Trainer:
        job, rank = self._job, self._rank
        network, batches = job.build(rank)
        shares = None
        if rank.world_size > 1:
            whole = [len(inputs) for inputs, _ in batches]
            batches = [tuple(part.tensor_split(rank.world_size)[rank.number] for part in batch) for batch in batches]  # type: ignore[misc]
            shares = [len(part) * rank.world_size / rows for (part, _), rows in zip(batches, whole, strict=True)]
        network = _wrapped(network, job.method, rank)
        loss = training.TASKS[job.task].loss
        return training.Trainer(network, loss, batches, job.update_rule(network), shares=shares)

    def step(self) -> Any:
        return self.trainer.step()

    def check(self) -> Check:
        """Compare the gradient averaged over the ranks."""
        job, rank = self._job, self._rank
        if training.TASKS[job.task].batch_norm:
            return unchecked("with batch norm each rank normalises by its own rows")
        if job.method == "unsynchronised":
            return unchecked("every rank has a gradient of its own")
        self.trainer.forward().backward()  # type: ignore[no-untyped-call]
        gradient = self.trainer.gradient()  # collective where it is sharded
        self.trainer.update_rule.zero_grad(set_to_none=True)
        return job.compare(gradient, rank)

    def record(self) -> dict[str, Any]:
        """Return the loss curve of a new trainer, if the job has epochs."""
        if not self._job.epochs:
            return {}
        losses = training.loss_curve(self._trainer(), self._job.epochs)
        if self._rank.world_size > 1:
            means = torch.tensor(losses, device=self._rank.device)
            dist.all_reduce(means)
            losses = [total / self._rank.world_size for total in means.tolist()]
        return {"losses": losses}


def _wrapped(network: nn.Module, method: str, rank: Rank) -> nn.Module:
    """Return the network under DDP or FSDP2, which average gradients over the ranks; for other methods the network
    itself."""
    if method == "ddp":
        index = torch.device(rank.device).index
        return nn.parallel.DistributedDataParallel(network, device_ids=None if index is None else [index])
    if method == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(torch.device(rank.device).type, (rank.world_size,))
        for child in network.children():
            if any(True for _ in child.parameters()):  # one unit, gathered when needed; the root holds the rest
                fully_shard(child, mesh=mesh)
        fully_shard(network, mesh=mesh)  # in place
    return network


def pipeline_speedup(stages: int, microbatches: int) -> float:
    """Return the ideal speedup k m / (m + k - 1): the first and the last stage work in m of m + k - 1 slots.

    Source: Huang et al., *GPipe* (2019), whose bubble is (k - 1) / (m + k - 1) of the time.
    """
    return stages * microbatches / (microbatches + stages - 1)


@dataclass(frozen=True, slots=True)
class PipelineTraining(TrainingJob):
    """A training step of a network that is cut into one stage per rank; the schedule ``naive`` has one microbatch."""

    microbatches: int = 1

    def start(self, rank: Rank) -> _PipelineTraining:
        """Build this rank's stage."""
        return _PipelineTraining(self, rank)


def cut(layers: Sequence[nn.Module], stages: int) -> list[list[nn.Module]]:
    """Return consecutive layers with about equally many parameters for each stage. Raises Unmeasurable if there are
    more stages than layers."""
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


class _PipelineTraining(RankWork):
    def __init__(self, job: PipelineTraining, rank: Rank) -> None:
        self._job, self._rank = job, rank
        self._start()

    def _start(self) -> None:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

        job, rank = self._job, self._rank
        whole, self._batches = job.build(rank)
        if any(len(inputs) % job.microbatches for inputs, _ in self._batches):
            raise Unmeasurable(f"batches can't be split into {job.microbatches} equal microbatches")
        stage = self._stage = nn.Sequential(*cut(list(whole.children()), rank.world_size)[rank.number])
        self._update = job.update_rule(stage)
        schedule = Schedule1F1B if job.method == "1f1b" else ScheduleGPipe
        loss, place = training.TASKS[job.task].loss, (rank.number, rank.world_size, torch.device(rank.device))
        # A stage keeps the shapes of its first batch: one schedule for each batch size.
        self._schedules = {
            rows: schedule(PipelineStage(stage, *place), job.microbatches, loss_fn=loss)
            for rows in {len(inputs) for inputs, _ in self._batches}
        }

    def _pass(self, index: int) -> list[torch.Tensor]:
        """Run forward and backward passes of one batch; return the losses of its microbatches on the last rank, else
        none."""
        inputs, targets = self._batches[index]
        first, last = self._rank.number == 0, self._rank.number == self._rank.world_size - 1
        losses: list[torch.Tensor] = []
        options: dict[str, Any] = {"target": targets, "losses": losses} if last else {}
        self._schedules[len(inputs)].step(*((inputs,) if first else ()), **options)
        return losses

    def step(self) -> list[list[torch.Tensor]]:
        losses = []
        for index in range(len(self._batches)):
            self._update.zero_grad(set_to_none=True)
            losses.append(self._pass(index))
            self._update.step()
        return losses

    def gradient(self) -> torch.Tensor:
        """Return the gradient of all stages on rank 0, of this stage elsewhere, as one float64 vector on the CPU."""
        part = training.flat([parameter.grad for parameter in self._stage.parameters()])
        parts: list[Any] | None = [None] * self._rank.world_size if self._rank.number == 0 else None
        dist.gather_object(part, parts)
        return torch.cat(parts) if parts else part

    def check(self) -> Check:
        """Compare the gradients of all stages."""
        self._pass(0)
        gradient = self.gradient()
        self._update.zero_grad(set_to_none=True)
        return self._job.compare(gradient, self._rank)

    def record(self) -> dict[str, Any]:
        """Return the loss curve of a new network, if the job has epochs: each epoch's mean loss over all rows."""
        if not self._job.epochs:
            return {}
        self._start()
        rows = [len(inputs) for inputs, _ in self._batches]
        curve = []
        for _ in range(self._job.epochs):
            batches = zip(rows, self.step(), strict=True)
            total = sum(n * sum(loss.item() for loss in losses) / max(1, len(losses)) for n, losses in batches)
            curve.append(total / sum(rows))
        return {"losses": curve}


def bus_bandwidth(nbytes: float, seconds: float, size: int) -> float:
    """Return the bytes per second that each link must carry for an all_reduce: algorithm bandwidth x 2 (n - 1) / n.

    nccl-tests' formula (its PERFORMANCE.md): algbw = size / time, and each of n ranks has to send and receive at least
    2 (n - 1) / n of the message, so that busbw can be compared with the hardware for any n.
    """
    return nbytes / seconds * 2 * (size - 1) / size


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The sum of a message over all ranks, in place."""

    nbytes: int
    dtype: str = "float32"
    seed: int = 0

    def start(self, rank: Rank) -> _AllReduce:
        """Prepare this rank's buffers."""
        return _AllReduce(self, rank)


class _AllReduce(RankWork):
    def __init__(self, job: AllReduce, rank: Rank) -> None:
        self._job, self._rank = job, rank
        self._source = self._message(rank.number).to(rank.device)
        self._buffer = self._source.clone()

    def _message(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self._job.seed + number)
        return torch.randn(max(1, self._job.nbytes // 4), generator=generator)

    def reset(self) -> None:
        """Restore the message: sums of sums would overflow after a hundred rounds."""
        self._buffer.copy_(self._source)

    def step(self) -> None:
        dist.all_reduce(self._buffer)

    def check(self) -> Check:
        """Compare with the sum of every rank's random numbers."""
        self.step()
        count = min(1000, self._source.numel())
        expected = torch.zeros(count)
        for number in range(self._rank.world_size):
            expected += self._message(number)[:count]
        error = float((self._buffer[:count].cpu() - expected).abs().max() / expected.abs().max())
        if not error <= 1e-5:
            raise WrongAnswer(f"wrong sum on rank {self._rank.number}: relative error {error:.3g}")
        return Check("passed", error, 1e-5)


class SilentFallback(GpubenchError):
    """DataParallel doesn't run on the requested devices, so its time would be that of something else."""


def split_rows(rows: int, devices: int) -> list[int]:
    """Return the rows of a batch that each replica gets: those of ``torch.chunk``, so there may be fewer replicas than
    devices."""
    return [len(part) for part in torch.empty(rows, device="meta").chunk(devices)]


def split_batches(rows: int, batch: int, devices: int) -> list[list[int]]:
    """Return the rows of each replica, for each batch of an epoch."""
    return [split_rows(min(batch, rows - start), devices) for start in range(0, rows, batch)]


def split_speedup(rows: int, batch: int, devices: int) -> float:
    """Return the largest speedup that the split allows: all rows over those of the fullest replica, summed over the
    batches."""
    return rows / sum(max(split) for split in split_batches(rows, batch, devices))


def replicated(network: nn.Module, devices: Sequence[torch.device]) -> nn.DataParallel[nn.Module]:
    """Return the network under DataParallel on exactly these devices.

    Raises :class:`SilentFallback` if DataParallel uses others: without a GPU it becomes the plain network.
    """
    requested = [device.index for device in devices]
    parallel = nn.DataParallel(network, device_ids=requested)
    if parallel.device_ids != requested:
        used = f"on {parallel.device_ids}" if parallel.device_ids else "as the plain network"
        raise SilentFallback(f"DataParallel was given devices {requested} and silently runs {used}")
    return parallel
