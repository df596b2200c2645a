"""One process per device: training steps under DDP compared with the plain step, and all_reduce alone. A CPU's device
is a core, with one thread; the baseline is one process with all threads."""

import pytest

from gpubench.devices import present
from gpubench.measure.ranks import device_counts

from . import training
from .distributed import AllReduce, StagedTraining, Training

pytestmark = [pytest.mark.gpubench_parallel, pytest.mark.gpubench(kind="distributed")]
COUNTS = device_counts()
ALONE = [("single", 1), ("one thread", 1)]
STEPS = [*ALONE, *((method, count) for method in ("ddp", "unsynchronised") for count in COUNTS)]
MODES = pytest.mark.gpubench_sweep("mode", smoke=["strong"], quick=["strong"], full=["strong", "weak"])
SMALL = [*ALONE, ("ddp", 2)]


def not_beside_a_gpu(gpubench, devices):
    several = devices > 1 and not gpubench.home.accelerator
    if gpubench.preset == "quick" and several and any(device.accelerator for device in present()):
        pytest.skip("several processes on a CPU beside a GPU: in preset full only")


def step(gpubench, ranks, task, method, devices, mode, batch, optimizer="sgd", **options):
    """Measure a step of ``batch`` rows in all (strong scaling), or on each device (weak)."""
    if method == "one thread" and gpubench.home.accelerator:
        pytest.skip("one thread is for CPUs: an accelerator's single device is the case 'single'")
    not_beside_a_gpu(gpubench, devices)
    rows = batch * devices if mode == "weak" else batch
    kind = StagedTraining if method == "stages" else Training
    job = kind(task, method, rows, optimizer, dtype=gpubench.case.dtype, seed=gpubench.data.seed, **options)
    ideal = rows / -(-rows // devices) if method in ("ddp", "unsynchronised") else 1
    gpubench.declare(items=options.get("rows", rows), unit="sample")
    record = {"method": method, "mode": mode, "ideal_speedup": ideal}
    ranks.measure(gpubench, job, devices, all_threads=method == "single", **record)


def tabular(gpubench, ranks, method, devices):
    """An epoch of the tabular example; the loss curve of the whole job must be the single process's."""
    table = training.TABULAR | {"epochs": training.TABULAR_EPOCHS}
    step(gpubench, ranks, "tabular", method, devices, "strong", training.TABULAR_BATCH, "adam", **table)
    if "losses" in gpubench.parallel:  # else another launch has measured it, and looked at them
        training.require_task_learned(gpubench.parallel["losses"], gpubench.data.seed)


@pytest.mark.gpubench(title="LeNet, distributed")
@MODES
@pytest.mark.gpubench_sweep("method, devices", smoke=SMALL, quick=STEPS, full=STEPS)
def test_lenet(gpubench, gpubench_ranks, method, devices, mode):
    """LeNet four times as wide, 128 images."""
    step(gpubench, gpubench_ranks, "lenet", method, devices, mode, 128, options={"width": 4})


@pytest.mark.gpubench(title="Linear layer, distributed")
@pytest.mark.gpubench_sweep("method, devices", smoke=SMALL, quick=[], full=STEPS)
def test_linear(gpubench, gpubench_ranks, method, devices):
    """Linear(5, 2), 30 rows: so little work that synchronizing costs more than is gained."""
    step(gpubench, gpubench_ranks, "linear", method, devices, "strong", 30)


@pytest.mark.gpubench(title="ResNet-50, distributed")
@pytest.mark.gpubench_sweep("method, devices", smoke=[], quick=[], full=STEPS)
@pytest.mark.gpubench_sweep("mode", smoke=[], quick=["weak"], full=["strong", "weak"])
def test_resnet50(gpubench, gpubench_ranks, method, devices, mode):
    """32 images in all, or on each device."""
    step(gpubench, gpubench_ranks, "resnet50", method, devices, mode, 32)


@pytest.mark.gpubench(title="Tabular MLP, distributed")
@pytest.mark.gpubench_sweep("method, devices", smoke=SMALL, quick=SMALL, full=STEPS)
def test_tabular(gpubench, gpubench_ranks, method, devices):
    if method == "unsynchronised":
        pytest.skip("each rank would learn from its own rows only")
    tabular(gpubench, gpubench_ranks, method, devices)


def bus_share(devices):
    """Return what each link must carry for an all_reduce, as a multiple of the message: nccl-tests' 2 (n - 1) / n (its
    PERFORMANCE.md), with which its busbw can be compared with the hardware for any n."""
    return 2 * (devices - 1) / devices


@pytest.mark.gpubench(title="All-reduce", size="nbytes", dtypes=["float32"])
@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.gpubench_sweep(
    "nbytes", smoke=[10**4], quick=[10**3, 10**5, 10**6, 10**7], full=[10**n for n in range(3, 10)]
)
def test_all_reduce(gpubench, gpubench_ranks, devices, nbytes):
    """The sum of a message over all ranks: its bytes per time are the algorithm bandwidth of nccl-tests."""
    not_beside_a_gpu(gpubench, devices)
    gpubench.declare(nbytes=nbytes)
    job = AllReduce(nbytes, seed=gpubench.data.seed)
    gpubench_ranks.measure(gpubench, job, devices, method="all_reduce", bus_share=bus_share(devices))
