"""By how much do the gradients of each method differ from those of one process? Prints relative L2 errors::

PYTHONPATH=. torchrun --standalone --nproc-per-node 2 docs/experiments/gradients.py
"""

from __future__ import annotations

import torch.distributed as dist

from benchmarks.distributed import StagedTraining, Training
from gpubench.measure.ranks import Rank, RankJob


def show_error(rank: Rank, name: str, job: RankJob) -> None:
    """Print the relative L2 error that the case's own check computes, on rank 0."""
    job.start(rank)
    error = job.check().error
    if rank.number == 0:
        print(f"{name}: {error:.2e}")


def main() -> None:
    dist.init_process_group("gloo")
    rank = Rank(dist.get_rank(), dist.get_world_size(), "cpu", 1)
    for task in ("lenet", "cifar", "deep_mlp", "tabular"):
        for seed in range(3):
            show_error(rank, f"{task} ddp seed {seed}", Training(task, "ddp", 128, seed=seed))
    show_error(rank, "deep_mlp stages", StagedTraining("deep_mlp", "stages", 128))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
