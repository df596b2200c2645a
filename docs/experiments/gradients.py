"""By how much do the gradients of each method differ from those of one process? Prints relative L2 errors.

PYTHONPATH=. python docs/experiments/gradients.py
"""

from __future__ import annotations

from benchmarks.distributed import PipelineTraining, Training
from gpubench.parallel.ranks import RankJob
from gpubench.parallel.team import Rank, WorkerGroup


def error(rank: Rank, job: RankJob) -> float | None:
    """Return the relative L2 error that the case's own check finds, on rank 0."""
    job.start(rank)
    return job.check().error


def main() -> int:
    group = WorkerGroup(["cpu", "cpu"], 1, 60.0)
    try:
        for task in ("lenet", "cifar", "deep_mlp", "tabular"):
            for method in ("ddp", "fsdp"):
                for seed in range(3):
                    relative = group.run(error, Training(task, method, 128, seed=seed))[0]
                    print(f"{task} {method} seed {seed}: {relative:.2e}")
        for schedule, microbatches in (("naive", 1), ("gpipe", 4), ("1f1b", 4)):
            relative = group.run(error, PipelineTraining("deep_mlp", schedule, 128, microbatches=microbatches))[0]
            print(f"deep_mlp {schedule} of {microbatches}: {relative:.2e}")
    finally:
        group.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
