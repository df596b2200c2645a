"""Collectives without a model: the time of one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import WrongAnswer
from ..runfile.schema import Check
from .rendezvous import Rank


def bus_bandwidth(nbytes: float, seconds: float, size: int) -> float:
    """Bytes/s that each link must carry for an all_reduce: algorithm bandwidth x 2 (n - 1) / n.

    nccl-tests' formula (its PERFORMANCE.md): algbw = size / time, and each of n ranks has to send and receive
    2 (n - 1) / n of the message at least, so that busbw can be held against the hardware whatever n is.
    """
    return nbytes / seconds * 2 * (size - 1) / size


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The sum of a message over all ranks, in rank."""

    nbytes: int
    dtype: str = "float32"
    seed: int = 0

    def start(self, rank: Rank) -> _AllReduce:
        """Prepare this rank's buffers."""
        return _AllReduce(self, rank)


class _AllReduce:
    def __init__(self, job: AllReduce, rank: Rank) -> None:
        import torch

        self._rank = rank
        generator = torch.Generator().manual_seed(job.seed + rank.number)
        self._source = torch.randn(max(1, job.nbytes // 4), generator=generator).to(rank.device)
        self._buffer = self._source.clone()
        self._job = job

    def reset(self) -> None:
        """Restore the message: sums of sums would overflow after a hundred rounds."""
        self._buffer.copy_(self._source)

    def step(self) -> None:
        import torch.distributed as dist

        dist.all_reduce(self._buffer)

    def check(self) -> Check:
        """Compare with the sum of every rank's random numbers."""
        import torch

        self.step()
        count = min(1000, self._source.numel())
        expected = torch.zeros(count)
        for rank in range(self._rank.world_size):
            generator = torch.Generator().manual_seed(self._job.seed + rank)
            expected += torch.randn(self._source.numel(), generator=generator)[:count]
        error = float((self._buffer[:count].cpu() - expected).abs().max() / expected.abs().max())
        if not error <= 1e-5:
            raise WrongAnswer(f"wrong sum on rank {self._rank.number}: relative error {error:.3g}")
        return Check("passed", error, 1e-5)

    def record(self) -> dict[str, Any]:
        return {}
