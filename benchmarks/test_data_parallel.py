"""``nn.DataParallel`` over 1, 2, 4, … GPUs, with its split: one process with a thread per device, which copies the
network to every device in each step."""

import pytest
import torch

from gpubench.errors import GpubenchError, Unmeasurable
from gpubench.measure.data import Data, reference_data
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


def step(gpubench, task, devices, mode, rows, batch, optimizer="sgd", rate=1e-3, epochs=0, **options):
    """Measure an epoch of ``rows`` in batches of ``batch``, in all or, with weak scaling, per device; of ``epochs``
    also record the loss curve of a new network."""
    home = gpubench.home
    if home.kind != "cuda":
        raise Unmeasurable(f"nn.DataParallel does not split over {home.kind} devices")
    require_devices(devices, home, gpubench)
    if mode == "weak":
        rows, batch = rows * devices, batch * devices
    used = circle(home, devices)
    names = [str(each) for each in used]

    def fresh(data):
        network = training.network(task, data, **options)
        batches = training.batches(task, data, rows, batch)
        update = training.optimizer(optimizer, list(network.parameters()), rate)
        network = replicated(network, [torch.device(name) for name in names])
        return training.Trainer(network, training.TASKS[task].loss, batches, update)

    learner, split = fresh(gpubench.data), split_batches(rows, batch, devices)
    link = home.interconnect([each.index for each in used]) if devices > 1 else None
    about = {"mode": mode, "devices": devices, "ideal_speedup": split_speedup(split), "rows": split}
    gpubench.parallel = {"method": "data_parallel", **about, "interconnect": link}
    if epochs:
        again = fresh(Data(gpubench.home, gpubench.dtype, gpubench.data.seed))
        losses = gpubench.parallel["losses"] = training.loss_curve(again, epochs)
        if gpubench.first:
            training.require_task_learned(losses, gpubench.data.seed)

    def reference():
        exact = reference_data(gpubench.data.seed)
        single = training.trainer(task, exact, batch, update=optimizer, rate=rate, rows=rows, **options)
        return training.verify_step(learner, single)

    gpubench.declare(check=reference, items=rows, unit="sample", devices=names, steps=epochs or None)
    gpubench(learner.step)


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
