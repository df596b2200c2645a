"""A model that is cut into stages on several devices, of which one works at a time."""

import pytest

from gpubench.measure.ranks import device_counts

from .test_distributed import ALONE, step, tabular

pytestmark = [pytest.mark.gpubench_parallel, pytest.mark.gpubench(kind="distributed")]
CUT = [("stages", 2)]
STEPS = [*ALONE, *(("stages", count) for count in device_counts())]


@pytest.mark.gpubench(title="MLP in stages")
@pytest.mark.gpubench_sweep("method, devices", smoke=CUT, quick=STEPS[:3], full=STEPS)
def test_mlp(gpubench, gpubench_ranks, method, devices):
    """Eight layers of 512, 256 rows."""
    step(gpubench, gpubench_ranks, "deep_mlp", method, devices, "strong", 256)


@pytest.mark.gpubench(title="Tabular MLP in stages")
@pytest.mark.gpubench_sweep("method, devices", smoke=CUT, quick=CUT, full=STEPS[:3])
def test_tabular(gpubench, gpubench_ranks, method, devices):
    tabular(gpubench, gpubench_ranks, method, devices)
