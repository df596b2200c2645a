"""The gradient of every method is that of one process on the whole batch, and a method that forgets to share is caught;
DataParallel's split, and that it can't fall back unseen. Nothing here needs a GPU.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import gradients

from benchmarks import models, training
from benchmarks.distributed import (
    AllReduce,
    PipelineTraining,
    SilentFallback,
    Training,
    bus_bandwidth,
    cut,
    pipeline_speedup,
    replicated,
    split_batches,
    split_speedup,
)
from gpubench.devices import CPU
from gpubench.errors import Unmeasurable, WrongAnswer
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.data import Data, reference_data
from gpubench.parallel.ranks import measure_rank
from gpubench.parallel.team import Rank, WorkerGroup

pytestmark = pytest.mark.xdist_group("distributed")  # most use the same two workers


@pytest.fixture(scope="module")
def kept():
    groups = [WorkerGroup(["cpu"] * 2, 1, 60.0)]
    yield groups
    for group in groups:
        group.close()


@pytest.fixture
def two(kept):
    """Two workers, others where a test has broken them."""
    if kept[-1].broken:
        kept.append(WorkerGroup(["cpu"] * 2, 1, 60.0))
    return kept[-1]


def single(task, batch, dtype):
    data = Data(CPU, getattr(torch, dtype), 0)
    reference = training.trainer(task, data, batch)
    reference.backward()
    return reference.gradient()


@pytest.mark.parametrize(("task", "batch", "dtype"), [("lenet", 33, "float64"), ("deep_mlp", 64, "float32")])
@pytest.mark.parametrize("method", ["ddp", "fsdp"])
def test_gradients_equal_those_of_a_single_process(two, task, method, batch, dtype):
    found = two.run(gradients.of_job, Training(task, method, batch, dtype=dtype))
    expected = single(task, batch, dtype)
    for rank in range(2):
        assert training.relative_error(found[rank], expected) < 1e-5


@pytest.mark.parametrize(("schedule", "microbatches"), [("naive", 1), ("gpipe", 4), ("1f1b", 4)])
def test_pipelined_gradients_equal_those_of_a_single_process(two, schedule, microbatches):
    found = two.run(gradients.of_job, PipelineTraining("deep_mlp", schedule, 64, microbatches=microbatches))
    assert training.relative_error(found[0], single("deep_mlp", 64, "float32")) < 1e-5


def test_a_gradient_that_was_not_shared_is_a_wrong_answer(two):
    """The same step without DDP has each rank's own gradient: as DDP's it must not pass."""
    with pytest.raises(WrongAnswer, match="the gradient differs from a single process's by"):
        two.run(gradients.forgotten, Training("lenet", "ddp", 64))


def wrong_in_float32(layer, inputs, right=torch.nn.Linear.forward):
    return right(layer, inputs) * (1.1 if inputs.dtype == torch.float32 else 1.0)


@pytest.mark.parametrize("method", ["single", "one thread"])
def test_a_single_process_is_held_against_float64_not_against_itself(monkeypatch, method):
    job, rank = Training("lenet", method, 64), Rank(0, 1, "cpu", 1)
    sound = job.start(rank).check()
    assert sound.status == "passed"
    assert 0 < sound.error < 1e-5
    monkeypatch.setattr(torch.nn.Linear, "forward", wrong_in_float32)
    with pytest.raises(WrongAnswer, match=r"in the L2 norm, allowed is 0\.01"):
        job.start(rank).check()


def test_unequal_shares_weigh_by_their_rows():
    whole = training.trainer("deep_mlp", Data(CPU, torch.float64, 0), 5)
    assert whole.forward().item() == pytest.approx(
        sum(gradients.share_of_loss(rank, 2, 5) for rank in range(2)) / 2, rel=1e-12
    )


def test_all_reduce_is_checked_and_its_buses_counted(two):
    (one, _) = two.run(measure_rank, AllReduce(10_000), PRESET_SETTINGS["smoke"], True)
    assert one.check.status == "passed"
    assert bus_bandwidth(1e9, 0.5, 8) == pytest.approx(3.5e9)  # nccl-tests: algbw x 2 (n - 1) / n
    assert bus_bandwidth(1e9, 0.5, 2) == pytest.approx(2e9)


EPOCHS = 20
"""By then a gradient that isn't shared has left the curve, and the loss has fallen by half."""


@pytest.mark.parametrize("job", [
    Training("tabular", "ddp", 128, "adam", 0.01, rows=506, epochs=EPOCHS),
    Training("tabular", "fsdp", 128, "adam", 0.01, rows=506, epochs=EPOCHS),
    PipelineTraining("tabular", "gpipe", 128, "adam", 0.01, rows=506, epochs=EPOCHS, microbatches=2),
])  # fmt: skip
def test_every_method_learns_along_the_same_curve(two, job):
    losses = two.run(measure_rank, job, PRESET_SETTINGS["smoke"], False)[-1].record["losses"]
    exact = training.trainer("tabular", reference_data(0), 128, update="adam", rate=0.01, rows=506)
    training.require_learning(losses, training.loss_curve(exact, EPOCHS))


def test_a_network_is_cut_into_stages_of_equal_weight():
    layers = [torch.nn.Linear(8, 8) for _ in range(8)]
    assert [len(stage) for stage in cut(layers, 2)] == [4, 4]
    assert [len(stage) for stage in cut(layers, 3)] == [3, 2, 3]
    uneven = list(models.tabular().children())
    for count in range(1, 6):
        stages = cut(uneven, count)
        assert [layer for stage in stages for layer in stage] == uneven
        assert all(stages)
    with pytest.raises(Unmeasurable, match="5 layers can't be cut into 6 stages"):
        cut(uneven, 6)


def test_the_pipeline_s_ideal_is_gpipe_s():
    assert pipeline_speedup(2, 1) == 1
    assert pipeline_speedup(4, 12) == pytest.approx(4 * 12 / 15)


@pytest.mark.parametrize(
    ("devices", "full", "last", "speedup"),
    [
        (1, [30], [10], 1.0),
        (2, [15, 15], [5, 5], 2.0),
        (3, [10, 10, 10], [4, 4, 2], 100 / 34),
        (8, [4, 4, 4, 4, 4, 4, 4, 2], [2, 2, 2, 2, 2], 100 / 14),
    ],
)
def test_the_tutorial_s_table_and_the_ideal_speedup_that_its_split_allows(devices, full, last, speedup):
    """Linear(5, 2) on 100 rows in batches of 30; the last batch of 10 uses 5 of 8 devices."""
    assert split_batches(100, 30, devices) == [full, full, full, last]
    assert split_speedup(100, 30, devices) == pytest.approx(speedup)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_silent_fallback_is_an_error():
    with pytest.raises(SilentFallback, match=r"was given devices \[0, 1, 2\] and silently runs as the plain network"):
        replicated(nn.Linear(5, 2), [torch.device("cuda", i) for i in range(3)])
