"""``nn.DataParallel`` over 1, 2, 4, … GPUs, with its split: one process with a thread per device, which copies the
network to every device in each step."""

from functools import partial

import pytest
import torch

from gpubench.errors import GpubenchError, Unmeasurable
from gpubench.measure.ranks import circle, device_counts, require_devices

from . import training

pytestmark = [pytest.mark.gpubench_parallel, pytest.mark.gpubench(kind="distributed", devices="accelerator")]
COUNTS = [1, *device_counts()]
MODES = pytest.mark.gpubench_sweep("mode", smoke=["strong"], quick=["strong", "weak"], full=["strong", "weak"])


def split_batches(rows, batch, devices):
    """Return the rows of each replica, of each batch of an epoch: by ``torch.chunk``, maybe fewer than devices."""
    sizes = [min(batch, rows - start) for start in range(0, rows, batch)]
    return [[len(part) for part in torch.empty(size, device="meta").chunk(devices)] for size in sizes]


def split_speedup(split):
    """Return the largest speedup that the split allows: all rows over those of the fullest replica of each batch."""
    return sum(map(sum, split)) / sum(map(max, split))


def replicated(network, devices):
    """Return the network under DataParallel on exactly these devices. Raises GpubenchError if DataParallel uses others:
    without a GPU it becomes the plain network."""
    requested = [device.index for device in devices]
    parallel = torch.nn.DataParallel(network, device_ids=requested)
    if parallel.device_ids != requested:
        used = f"on {parallel.device_ids}" if parallel.device_ids else "as the plain network"
        raise GpubenchError(f"DataParallel was given devices {requested} and silently runs {used}")
    return parallel


def step(gpubench, task, devices, mode, rows, batch, optimizer="sgd", epochs=None, **options):
    """Measure an epoch of ``rows`` in batches of ``batch``, in all or, with weak scaling, per device; of ``epochs``
    also record the loss curve of a new network."""
    home = gpubench.home
    if home.kind != "cuda":
        raise Unmeasurable(f"nn.DataParallel does not split over {home.kind} devices")
    require_devices(devices, home, gpubench)
    if mode == "weak":
        rows, batch = rows * devices, batch * devices
    used = circle(home, devices)
    names, split = [str(each) for each in used], split_batches(rows, batch, devices)
    exact = partial(training.trainer, task, batch=batch, update=optimizer, rows=rows, **options)
    fresh = partial(exact, wrap=partial(replicated, devices=[torch.device(name) for name in names]))
    link = home.interconnect([each.index for each in used]) if devices > 1 else None
    about = {"mode": mode, "devices": devices, "ideal_speedup": split_speedup(split), "rows": split}
    gpubench.parallel = {"method": "data_parallel", **about, "interconnect": link}
    work = {"items": rows, "unit": "sample", "devices": names, "epochs": epochs}
    training.measure(gpubench, fresh, exact, **work)


@pytest.mark.gpubench(title="LeNet, DataParallel")
@MODES
@pytest.mark.parametrize("devices", COUNTS)
def test_lenet(gpubench, devices, mode):
    """LeNet four times as wide, 128 images."""
    step(gpubench, "lenet", devices, mode, 128, 128, width=4)


@pytest.mark.gpubench(title="Tutorial network, DataParallel")
@pytest.mark.parametrize("devices", COUNTS)
def test_tutorial(gpubench, devices):
    """The DataParallel tutorial: Linear(5, 2) on 100 rows in batches of 30, the last of 10."""
    step(gpubench, "linear", devices, "strong", 100, 30)


@pytest.mark.gpubench(title="Tabular MLP, DataParallel")
@pytest.mark.parametrize("devices", COUNTS)
def test_tabular(gpubench, devices):
    """An epoch of the tabular example; the loss curve of the whole job must be the single process's."""
    batch, job = training.TABULAR_BATCH, training.TABULAR | {"epochs": training.TABULAR_EPOCHS}
    step(gpubench, "tabular", devices, "strong", batch=batch, optimizer="adam", **job)
