"""A model that is cut over several devices: naive, where one stage works at a time, and pipelined in microbatches."""

import pytest

from gpubench.parallel.ranks import device_counts

from . import training
from .distributed import PipelineTraining, Training

pytestmark = [pytest.mark.gpubench_parallel, pytest.mark.gpubench(kind="distributed")]

BATCH = 256
SINGLE = [("single", 1, 1), ("one thread", 1, 1)]


def schedules(microbatches, counts=(2,)):
    """Return the non-parallel cases, the naive cut, and both schedules by number of microbatches."""
    cases = list(SINGLE)
    for count in counts:
        cases += [("naive", count, 1)]
        cases += [(name, count, many) for name in ("gpipe", "1f1b") for many in microbatches if many >= count]
    return cases


def pipeline_speedup(stages, microbatches):
    """Return the ideal speedup k m / (m + k - 1): the first and the last stage work in m of m + k - 1 slots.

    Source: Huang et al., *GPipe* (2019), whose bubble is (k - 1) / (m + k - 1) of the time.
    """
    return stages * microbatches / (microbatches + stages - 1)


def pipeline(gpubench, ranks, task, schedule, devices, microbatches, batch, optimizer="sgd", **options):
    if schedule == "one thread" and gpubench.home.accelerator:
        pytest.skip("one thread is for CPUs: an accelerator's single device is the case 'single'")
    terms = {"dtype": gpubench.case.dtype, "seed": gpubench.data.seed, **options}
    job = Training(task, schedule, batch, optimizer, **terms)
    ideal = 1.0
    if devices > 1:
        job = PipelineTraining(task, schedule, batch, optimizer, microbatches=microbatches, **terms)
        ideal = pipeline_speedup(devices, microbatches)
    gpubench.declare(items=options.get("rows", batch), unit="sample")
    record = {"method": schedule, "mode": "strong", "ideal_speedup": ideal, "microbatches": microbatches}
    ranks.measure(gpubench, job, devices, all_threads=schedule == "single", **record)


@pytest.mark.gpubench(title="MLP, pipeline", size="microbatches")
@pytest.mark.gpubench_sweep(
    "schedule, devices, microbatches",
    smoke=schedules([2])[1:4],
    quick=schedules([2, 8]),
    full=schedules([2, 4, 8, 16, 32], device_counts()),
)
def test_mlp(gpubench, gpubench_ranks, schedule, devices, microbatches):
    """Eight layers of 512, 256 rows."""
    pipeline(gpubench, gpubench_ranks, "deep_mlp", schedule, devices, microbatches, BATCH)


@pytest.mark.gpubench(title="Tabular MLP, pipeline")
@pytest.mark.gpubench_sweep(
    "schedule, devices, microbatches", smoke=[("gpipe", 2, 2)], quick=[("gpipe", 2, 2)], full=schedules([2])
)
def test_tabular(gpubench, gpubench_ranks, schedule, devices, microbatches):
    """An epoch of the tabular example; the loss curve of the whole job must be the single process's."""
    table = training.TABULAR | {"epochs": training.TABULAR_EPOCHS}
    batch = training.TABULAR_BATCH
    pipeline(gpubench, gpubench_ranks, "tabular", schedule, devices, microbatches, batch, "adam", **table)
    training.require_task_learned(gpubench.parallel["losses"], gpubench.data.seed)
