"""Several devices on a machine with a CUDA GPU: what no CPU can show. Skips, with the reason, where there is none."""

import sys
from pathlib import Path

import pytest
import torch

from gpubench import devices
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.clock import DeviceClock
from gpubench.measure.data import Data
from gpubench.parallel.distributed import AllReduce, Training, phase_times, replicated
from gpubench.parallel.ranks import measure_rank
from gpubench.parallel.team import WorkerGroup
from gpubench.workloads import training

sys.path.insert(0, str(Path(__file__).parent / "parallel"))
import methods

CUDA = devices.kinds()["cuda"]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA.count() == 0, reason=f"no CUDA GPU: {CUDA.why_absent() if not CUDA.count() else ''}"),
]


def names(count):
    return [f"cuda:{index}" for index in range(count)]


@pytest.fixture
def group():
    groups = []

    def start(*devices):
        groups.append(WorkerGroup(devices, 1, 120.0))
        return groups[-1]

    yield start
    for one in groups:
        one.close()


def test_data_parallel_uses_every_gpu_there_is_and_computes_the_same():
    count = CUDA.count()
    home = Data(CUDA(0), torch.float32, 0)
    network = training.network("lenet", home).eval()
    parallel = replicated(network, [torch.device(name) for name in names(count)])
    assert parallel.device_ids == list(range(count))
    ((images, _),) = training.batches("lenet", home, 30)
    with torch.no_grad():
        assert torch.allclose(parallel(images), network(images), atol=1e-5)
        spent = phase_times(parallel, images, DeviceClock(CUDA(index) for index in range(count)))
    assert all(seconds > 0 for seconds in spent.values())


@pytest.mark.skipif(CUDA.count() < 2, reason="needs two GPUs")
def test_data_parallel_over_two_gpus_has_the_single_gpu_s_gradient():
    home = Data(CUDA(0), torch.float64, 0)
    plain = training.trainer("lenet", home, 30)
    network = training.network("lenet", home)
    parallel = replicated(network, [torch.device(name) for name in names(2)])
    update = training.optimizer("sgd", list(network.parameters()))
    ours = training.Trainer(parallel, training.task("lenet").loss, training.batches("lenet", home, 30), update)
    plain.step()
    ours.step()
    assert training.relative_error(ours.gradient(), plain.gradient()) < 1e-5


def test_ddp_over_nccl_with_one_rank(group):
    """The whole path with a communicator of one: set_device, device_id, NCCL's initialisation, a collective."""
    (found,) = group("cuda:0").run(measure_rank, Training("lenet", "ddp", 64), PRESET_SETTINGS["smoke"], True)
    assert found.check.status == "passed"
    assert min(found.durations) > 0


@pytest.mark.skipif(CUDA.count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("method", ["ddp", "fsdp"])
def test_gradients_over_nccl_equal_those_of_one_gpu(group, method):
    found = group(*names(2)).run(methods.gradient, Training("lenet", method, 64, dtype="float64"))
    reference = training.trainer("lenet", Data(CUDA(0), torch.float64, 0), 64)
    reference.backward()
    assert training.relative_error(found[0], reference.gradient()) < 1e-5


@pytest.mark.skipif(CUDA.count() < 2, reason="needs two GPUs")
def test_all_reduce_over_nccl(group):
    found = group(*names(2)).run(measure_rank, AllReduce(10**6), PRESET_SETTINGS["smoke"], True)
    assert [one.check.status for one in found] == ["passed", "passed"]


def test_two_gloo_ranks_share_a_gpu(group):
    """NCCL refuses two ranks on one GPU; gloo meets over the CPU, and both compute on it."""
    found = group("cpu", "cpu").run(methods.gradient_on, "cuda:0")
    reference = training.trainer("lenet", Data(CUDA(0), torch.float64, 0), 64)
    reference.backward()
    assert training.relative_error(found[0], reference.gradient()) < 1e-5


def test_the_interconnect_is_named_or_unknown():
    assert CUDA.interconnect(range(CUDA.count())) in ("NVLink", "PCIe", None)
