"""Training steps: one equals a plain loop's, a wrong one is caught, the table is learnt."""

import dataclasses
import math

import pytest
import torch
from dispatched import Dispatched

from benchmarks import training
from gpubench.devices import CPU
from gpubench.errors import WrongAnswer
from gpubench.measure.data import Data

pytestmark = pytest.mark.usefixtures("one_thread")


def data(dtype=torch.float64, seed=0):
    return Data(CPU, dtype, seed)


@pytest.mark.parametrize("update", ["sgd", "adam"])
def test_a_step_is_what_a_plain_loop_does(update):
    ours = training.trainer("lenet", data(), 6, update=update)
    network = training.network("lenet", data())
    ((images, labels),) = training.batches("lenet", data(), 6, 6)
    plain = {"sgd": (torch.optim.SGD, {"momentum": 0.9}), "adam": (torch.optim.Adam, {})}
    kind, terms = plain[update]
    rule = kind(network.parameters(), lr=1e-3, **terms)
    for _ in range(3):
        rule.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        rule.step()
        assert ours.step().item() == pytest.approx(loss.item(), rel=1e-12)
    assert training.relative_error(training.flat(ours.parameters), training.flat(list(network.parameters()))) < 1e-12


def test_an_epoch_trains_on_every_batch_and_its_loss_is_the_mean_over_rows():
    ours = training.trainer("tabular", data(), 128, rows=506, rate=0.0)
    assert [len(inputs) for inputs, _ in ours.batches] == [128, 128, 128, 122]
    rows = torch.cat([inputs for inputs, _ in ours.batches])
    assert rows.mean(0).abs().max() < 1e-12
    assert rows.std(0) == pytest.approx(torch.ones(13).numpy())
    ((inputs, targets),) = training.batches("tabular", data(), 506, 506)
    whole = torch.nn.functional.mse_loss(training.network("tabular", data())(inputs), targets)
    assert ours.step().item() == pytest.approx(whole.item(), rel=1e-12)


def test_a_curve_that_does_not_fall_or_goes_elsewhere_is_a_wrong_answer():
    fine = [1.0, 0.5, 0.2]
    training.require_learning(fine, fine)
    for wrong, says in (
        ([1.0, 0.8, 0.6], r"the loss fell from 1 to 0\.6 only, not by half"),
        ([1.0, 0.4, 0.2], r"the loss curve is off by 0\.1 of the first loss, allowed is 0\.02"),
        ([1.0, math.nan, math.nan], ""),
    ):
        with pytest.raises(WrongAnswer, match=says or None):
            training.require_learning(wrong, fine)


def test_a_wrong_gradient_is_caught():
    ours, reference = (training.trainer("lenet", data(), 4) for _ in range(2))
    ours.step()
    training.verify_step(ours, reference)
    ours.parameters[0].grad.mul_(1.5)
    with pytest.raises(WrongAnswer, match="wrong gradient: relative L2 error"):
        training.verify_step(ours, training.trainer("lenet", data(), 4))


def test_dropout_is_off_so_that_a_step_has_one_answer(monkeypatch):
    dropping = dataclasses.replace(training.TASKS["linear"], build=lambda: torch.nn.Sequential(torch.nn.Dropout(0.5)))
    monkeypatch.setitem(training.TASKS, "dropping", dropping)
    network = training.network("dropping", data())
    assert network.training
    inputs = torch.randn(4, 64, dtype=torch.float64)
    assert torch.equal(network(inputs), network(inputs))


def test_float16_is_trained_with_scaled_gradients(monkeypatch):
    """Where a device only emulates bfloat16: the update equals plain training's, as exact as float16 is."""
    monkeypatch.setattr(training, "autocast_dtype", lambda device: "float16")
    scaled, plain = (
        training.trainer("linear", data(torch.float32), 16, variant=variant, rate=0.1)
        for variant in ("autocast", "eager")
    )
    seen = []
    scaled.parameters[0].register_hook(lambda gradient: seen.append(gradient.abs().max().item()))
    start = training.flat(plain.parameters)
    assert scaled.step().item() == pytest.approx(plain.step().item(), rel=1e-2)
    assert training.relative_error(scaled.gradient(), plain.gradient()) < 1e-2
    assert seen[0] > 100 * plain.gradient().abs().max().item()
    moved = [training.flat(each.parameters) - start for each in (scaled, plain)]
    assert training.relative_error(*moved) < 1e-2


def test_a_trainer_names_what_is_new_at_each_call():
    learner = training.trainer("tabular", data(), 128, rows=506)
    whole = [tensor for batch in learner.batches for tensor in batch]
    assert all(x is y for x, y in zip(learner.inputs_of("step"), whole, strict=True))


def test_values_leave_a_device_before_they_become_float64():
    """Metal has no float64: a copy that converts on the way fails there."""
    done = []
    with Dispatched(lambda operator, args, kwargs, result: done.append((operator, kwargs))):
        training.flat([torch.ones(2, dtype=torch.float16)])
    copies = [kwargs for operator, kwargs in done if operator is torch.ops.aten._to_copy.default]
    assert [(copy.get("device"), copy.get("dtype")) for copy in copies] == [(None, torch.float64)]


def test_accumulated_gradients_are_those_of_the_whole_batch():
    pieces, whole = training.trainer("cifar", data(), 4, rows=16), training.trainer("cifar", data(), 16)
    pieces.accumulates = True
    assert len(pieces.batches) == 4
    assert pieces.step().item() == pytest.approx(whole.step().item(), rel=1e-12)
    assert training.relative_error(pieces.gradient(), whole.gradient()) < 1e-12
    moved = [training.flat(each.parameters) for each in (pieces, whole)]
    assert training.relative_error(*moved) < 1e-12
    apart = training.trainer("cifar", data(), 4, rows=16)
    apart.step()
    assert training.relative_error(training.flat(apart.parameters), moved[1]) > 1e-6


def test_autocast_may_name_its_dtype():
    learner = training.trainer("linear", data(torch.float32), 8, variant="autocast float16")
    assert (learner._autocast, learner._scaler is not None) == (torch.float16, True)
    assert training.trainer("linear", data(torch.float32), 8, variant="autocast")._scaler is None
