"""Every method has the gradient of one process on the whole batch, and a method that forgets to share is caught;
DataParallel's split, and that it can't fall back unseen. Nothing here needs a GPU.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import duties
import pytest
import torch
from torch import nn

from benchmarks import test_data_parallel as data_parallel, test_distributed as suite, training
from benchmarks.distributed import StagedTraining, Training
from gpubench.devices import CPU
from gpubench.errors import GpubenchError, Unmeasurable, WrongAnswer
from gpubench.measure.data import Data, reference_data
from gpubench.measure.ranks import Rank

pytestmark = pytest.mark.xdist_group("distributed")  # most look at what two ranks did
EPOCHS = 20
"""By then a gradient that isn't shared has left the curve, and the loss has fallen by half."""
GRADIENTS = [
    Training("lenet", "ddp", 33, dtype="float64"),  # shares of 17 and 16 rows
    StagedTraining("deep_mlp", "stages", 64),
]
CURVES = [
    Training("tabular", "ddp", 128, "adam", 0.01, rows=506, epochs=EPOCHS),
    StagedTraining("tabular", "stages", 128, "adam", 0.01, rows=506, epochs=EPOCHS),
]
FORGOTTEN = Training("lenet", "unsynchronised", 64)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    jobs = [*GRADIENTS, *CURVES, FORGOTTEN]
    found = duties.on_two_ranks(tmp_path_factory.mktemp("ranks"), duties.trained, jobs)
    return dict(zip(map(repr, jobs), found, strict=True))


@pytest.mark.parametrize("job", GRADIENTS)
def test_the_gradient_is_that_of_a_single_process(answers, job):
    single = training.trainer(job.task, Data(CPU, getattr(torch, job.dtype), 0), job.batch)
    expected = single.first_gradient()
    found = answers[repr(job)]
    for gradient in found[:1] if isinstance(job, StagedTraining) else found:
        assert training.relative_error(gradient, expected) < 1e-5


def test_a_gradient_that_was_not_shared_is_a_wrong_answer(answers):
    """The same step without DDP has each rank's own gradient: as DDP's it must not pass."""
    with pytest.raises(WrongAnswer, match="the gradient differs from a single process's by"):
        raise answers[repr(FORGOTTEN)][0]


def wrong_in_float32(layer, inputs, right=torch.nn.Linear.forward):
    return right(layer, inputs) * (1.1 if inputs.dtype == torch.float32 else 1.0)


@pytest.mark.parametrize("method", ["single", "one thread"])
def test_a_single_process_is_held_against_float64_not_against_itself(monkeypatch, method):
    job, rank = Training("lenet", method, 64), Rank(0, 1, "cpu", 1)
    job.start(rank)
    sound = job.check()
    assert sound.status == "passed"
    assert 0 < sound.error < 1e-5
    monkeypatch.setattr(torch.nn.Linear, "forward", wrong_in_float32)
    with pytest.raises(WrongAnswer, match=r"in the L2 norm, allowed is 0\.01"):
        job.check()


@pytest.mark.parametrize("job", CURVES)
def test_every_method_learns_along_the_same_curve(answers, job):
    exact = training.trainer("tabular", reference_data(0), 128, update="adam", rate=0.01, rows=506)
    training.require_learning(answers[repr(job)][-1], training.loss_curve(exact, EPOCHS))


def test_more_stages_than_layers_are_a_skip_and_the_share_of_a_link_is_that_of_nccl_tests():
    assert [suite.bus_share(count) for count in (2, 8)] == [1.0, 1.75]
    with pytest.raises(Unmeasurable, match="5 layers can't be cut into 6 stages"):
        StagedTraining("tabular", "stages", 64).start(Rank(0, 6, "cpu", 1))


ROW = re.compile(r"\| (\d) \| ([\d ]+) \| ([\d ]+) \| ([\d.]+)× \|")
PAGE = Path(__file__).parents[2] / "docs/five-sources.md"


@pytest.mark.parametrize(("devices", "full", "last", "speedup"), ROW.findall(PAGE.read_text("utf-8")))
def test_the_tutorial_s_split_and_the_ideal_speedup_are_those_of_the_page(devices, full, last, speedup):
    """Linear(5, 2) on 100 rows in batches of 30; the last batch of 10 uses 5 of 8 devices."""
    split = data_parallel.split_batches(100, 30, int(devices))
    whole, rest = ([*map(int, rows.split())] for rows in (full, last))
    assert split == [whole, whole, whole, rest]
    assert f"{data_parallel.split_speedup(split):.2f}" == speedup


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_silent_fallback_is_an_error():
    with pytest.raises(GpubenchError, match=r"was given devices \[0, 1, 2\] and silently runs as the plain network"):
        data_parallel.replicated(nn.Linear(5, 2), [torch.device("cuda", i) for i in range(3)])


def test_a_result_that_another_launch_has_measured_is_taken_over():
    """As plain pytest does, in a process that has no losses to look at."""
    bench = SimpleNamespace(home=CPU, preset="quick", parallel={}, case=SimpleNamespace(dtype="float32"))
    bench.data, bench.declare, taken = SimpleNamespace(seed=0), lambda **_terms: None, []
    suite.tabular(bench, SimpleNamespace(measure=lambda *given, **_record: taken.append(given)), "single", 1)
    assert [given[0] for given in taken] == [bench]
