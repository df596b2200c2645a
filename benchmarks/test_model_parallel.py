"""A model that is cut into stages on several devices, of which one works at a time."""

import pytest

from gpubench.measure.ranks import device_counts

from . import training
from .test_distributed import step

pytestmark = [pytest.mark.gpubench_parallel, pytest.mark.gpubench(kind="distributed")]

CUT = [("stages", 2)]
STEPS = [("single", 1), ("one thread", 1), *(("stages", count) for count in device_counts())]


@pytest.mark.gpubench(title="MLP in stages")
@pytest.mark.gpubench_sweep("method, devices", smoke=CUT, quick=STEPS[:3], full=STEPS)
def test_mlp(gpubench, gpubench_ranks, method, devices):
    """Eight layers of 512, 256 rows."""
    step(gpubench, gpubench_ranks, "deep_mlp", method, devices, "strong", 256)


@pytest.mark.gpubench(title="Tabular MLP in stages")
@pytest.mark.gpubench_sweep("method, devices", smoke=CUT, quick=CUT, full=STEPS[:3])
def test_tabular(gpubench, gpubench_ranks, method, devices):
    """An epoch of the tabular example; the loss curve of the whole job must be the single process's."""
    table = training.TABULAR | {"epochs": training.TABULAR_EPOCHS}
    step(gpubench, gpubench_ranks, "tabular", method, devices, "strong", training.TABULAR_BATCH, "adam", **table)
    training.require_task_learned(gpubench.parallel["losses"], gpubench.data.seed)
