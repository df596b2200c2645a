"""Steps and phases of the watcher, by a scripted clock; hooks that fail."""

from __future__ import annotations

import itertools
import os
import sys
import threading

import pytest
import torch

from gpubench.profiling import script
from gpubench.profiling.profile import LoaderFacts, Profile
from gpubench.profiling.watcher import BATCH, CALLED, STEPPED, WENT_BACK, Plan, Watcher, line_of

PLAN = Plan(steps=6, steps_s=0.0, warm=3, warm_s=0.0, most_warm=4, most_s=1e9, patient_s=1000.0)


def watched(*loop, plan=PLAN, phases=lambda: False, **state):
    """Run a loop of events ``(region, rank, key)`` until the watcher has enough, with a second between two notes."""
    clock = itertools.count()
    watcher = Watcher(plan, phases, lambda: float(next(clock)))
    vars(watcher).update(state)
    for region, rank, key in itertools.islice(itertools.cycle(loop), 400):
        if watcher.phase == "over":
            break
        watcher.enter(region, key)
        watcher.leave(region, rank, key)
    return watcher


DATA, FORWARD = ("data", BATCH, "train"), ("forward", CALLED, "net")
BACKWARD, OPTIMIZER = ("backward", WENT_BACK, None), ("optimizer", STEPPED, "adam")


@pytest.mark.parametrize(
    ("loop", "mark", "notes"),
    [
        ([DATA, FORWARD, BACKWARD, OPTIMIZER], "adam", 8),
        ([DATA, FORWARD, BACKWARD] * 4 + [OPTIMIZER], "adam", 26),
        ([DATA, FORWARD, BACKWARD], None, 6),
        ([DATA, FORWARD], "train", 4),
        ([FORWARD], "net", 2),
        ([BACKWARD, ("optimizer", STEPPED, "first"), BACKWARD, OPTIMIZER], "adam", 8),
    ],
)
def test_best_event_ends_a_step(loop, mark, notes):
    watcher = watched(*loop)
    assert watcher.mark == mark
    assert [len(step) for _, _, step in watcher.steps()] == [notes] * 6


def test_an_optimizer_that_exists_is_waited_for():
    evaluation = watched(DATA, FORWARD, optimizers=1)
    assert not evaluation.timed
    assert watched(DATA, FORWARD, optimizers=1, plan=Plan(6, 0.0, 3, 0.0, 4, patient_s=20.0)).timed
    assert watched(OPTIMIZER, optimizers=1).timed


def test_long_steps_are_timed_five_times():
    watcher = watched(BACKWARD, OPTIMIZER, plan=Plan(6, 0.0, 3, 0.0, 4, most_s=1.0, fewest=5))
    assert len(watcher.steps()) == 5


def test_a_better_event_starts_again():
    watcher = Watcher(PLAN, lambda: False, itertools.count().__next__)
    for _ in range(6):
        watcher.event(BATCH, "held", float(watcher._clock()))
    assert watcher.phase == "timed"
    watcher.event(STEPPED, "adam", float(watcher._clock()))
    assert (watcher.phase, watcher.timed) == ("warm", [])


def test_nothing_inside_a_loader_counts_and_other_threads_note_apart():
    watcher = Watcher(PLAN, lambda: False)
    assert watcher.enter("data", "train")
    assert not watcher.enter("forward", "normalize")
    watcher.leave("data")
    other = threading.Thread(target=watcher.enter, args=("forward", "net"))
    other.start()
    other.join()
    assert watcher.stacks[threading.get_ident()] == []


@pytest.fixture
def installed():
    watcher = Watcher(PLAN, lambda: False)
    watcher.install()
    yield watcher
    watcher.restore()


NAMES = [
    (torch.nn.Module, "__call__"), (torch.autograd, "backward"), (torch.autograd, "grad"), (torch, "compile"),
    (torch.nn.Module, "compile"), (torch.optim.Optimizer, "__init__"), (torch.utils.data.DataLoader, "__init__"),
]  # fmt: skip


def test_attributes_of_torch_are_put_back():
    before = [getattr(owner, name) for owner, name in NAMES]
    watcher = Watcher(PLAN, lambda: False)
    watcher.install()
    assert all(getattr(owner, name) is not old for (owner, name), old in zip(NAMES, before, strict=True))
    watcher.restore()
    assert [getattr(owner, name) for owner, name in NAMES] == before


def test_a_network_that_is_compiled_has_no_hook(installed):
    torch.compile(torch.nn.Linear(2, 2), backend="eager")
    assert not hasattr(torch.nn.Module.__call__, "__wrapped__")
    assert installed.compiled


@pytest.mark.parametrize("method", ["event", "enter", "leave", "_use", "_note_loader", "_note_optimizer", "_is_warm"])
def test_a_hook_that_fails_costs_its_part_and_never_the_script(monkeypatch, method):
    def broken(*_):
        raise RuntimeError("broken")

    broken.__name__ = method
    monkeypatch.setattr(Watcher, method, broken)
    watcher = Watcher(PLAN, lambda: False)
    watcher.install()
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x in torch.utils.data.DataLoader(torch.ones(4, 2)):
        net(x).sum().backward()
        optimizer.step()
    watcher.restore()
    assert any("broken" in why for why in watcher.lost.values())


def test_lines_are_those_of_the_user_and_loops_are_found():
    names = {"sys": sys}
    exec(compile("frame = sys._getframe()", torch.__file__.replace("__init__", "nn/modules/module"), "exec"), names)
    assert line_of(names["frame"]).startswith("test_watcher.py:")
    source = "for i in range(9):\n    a = i\n    for j in range(9):\n        a += j\nb = 1\n"
    assert script.busiest_loop(source, {4: 19, 5: 1}) == (3, 0.95)
    assert script.busiest_loop(source, {2: 10, 4: 10}) == (1, 1.0)
    assert script.busiest_loop(source, {5: 3}) is None
    turns = []
    exec(compile(script.marked(source, 4), "loop", "exec"), {script.MARK: lambda: turns.append(1)})
    assert len(turns) == 81
    assert script.marked(source, 5) is None
    latin = '# coding: latin-1\nfor i in "é":\n    i\n'.encode("latin-1")
    assert script.marked(latin, 3) is not None


def test_a_function_that_fails_while_it_is_counted_leaves_no_mode_of_torch():
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    weight = torch.ones(8, requires_grad=True)

    def step():
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("mine")
        weight.square().sum().backward()

    with pytest.raises(RuntimeError, match="mine"):
        script.profile(step, steps=5, gpus=["L4"])
    assert _get_current_dispatch_mode() is None


def test_a_script_without_a_step_is_given_up_after_ten_minutes_unless_it_runs_to_its_end(monkeypatch, capsys):
    ends = []
    monkeypatch.setattr(script, "switch_off", ends.append)
    for to_the_end in (True, False):
        watched = script.Script(os.devnull, ["train.py"], to_the_end=to_the_end)
        watched.stop()
        watched._say_place(29.0, None)
        watched._say_place(601.0, sys._getframe())
        assert bool(watched.profile.refusal) != to_the_end
    assert ends == [2]
    assert watched.profile.refusal.startswith("no step within 10 minutes; it last was in test_a_script_without_a_step")
    assert capsys.readouterr().err.count("no step yet after 601 s: in test_a_script_without_a_step") == 2


def test_a_fork_is_watched_once_in_a_process(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "register_at_fork", lambda **how: calls.append(how))
    for _ in range(2):
        watcher = Watcher(PLAN, lambda: False)
        watcher.install()
        watcher.restore()
    assert calls == []


def test_the_start_of_a_loader_is_waiting_for_data():
    """Workers are started in each ``next(iter(loader))``, and a stream may open its files."""
    clock = itertools.count()
    watcher = Watcher(PLAN, lambda: False, lambda: float(next(clock)))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            [next(clock) for _ in range(100)]
            return iter(torch.ones(4, 2))

    watcher.install()
    weight = torch.ones(2, requires_grad=True)
    loader, optimizer = torch.utils.data.DataLoader(Stream()), torch.optim.SGD([weight], 0.1)
    while watcher.phase != "over":
        (next(iter(loader)) @ weight).sum().backward()
        optimizer.step()
    watcher.restore()
    profile = Profile("train.py")
    profile.split(watcher.steps(), by_rule=False)
    assert profile.parts["data"] > 100
    assert profile.parts["python"] < 10


class Loader(torch.utils.data.DataLoader):
    """Two workers that have made four batches; each further one takes 10 ms of a clock."""

    seconds = 0.0

    def __iter__(self):
        for i in range(60):
            self.seconds += 0.01 * (i > 4)
            yield i


def test_a_loader_alone_is_timed_after_the_batches_that_it_made_in_advance(monkeypatch):
    loader, train = Loader([0], num_workers=2), frozenset({"train"})
    watched = script.Script(os.devnull, ["train.py"], to_the_end=True)
    watched.stop()
    monkeypatch.setattr(script.time, "perf_counter", lambda: loader.seconds)
    watched.watcher.loaders, watched._train = {"train": (loader, "train.py:1")}, train
    watched.profile.loaders = [LoaderFacts("train.py:1", 2, False)]
    watched._alone()
    assert watched.profile.loaders[0].alone_s == pytest.approx(0.01)


@pytest.mark.parametrize(("foreach", "launches"), [(None, range(1, 9)), (False, [100])])
def test_launches_of_an_optimizer_are_those_of_all_tensors_at_once_unless_the_script_forbids_it(foreach, launches):
    weights = [torch.ones(2, requires_grad=True) for _ in range(20)]
    sum(weight.sum() for weight in weights).backward()
    watched = script.Script(os.devnull, ["train.py"], to_the_end=True)
    watched.stop()
    watched.watcher.optimizer = torch.optim.SGD(weights, 0.1, momentum=0.9, foreach=foreach)
    watched.watcher.optimizer.step()  # makes its state
    watched.profile.optimizer_launches = 100
    watched._foreach()
    assert watched.profile.optimizer_launches in launches


def test_a_function_that_makes_one_step_has_a_profile(capsys):
    weight = torch.ones(64, 64, requires_grad=True)

    def step():
        (torch.ones(10, 64).to("cpu") @ weight).square().sum().backward()
        return weight.grad.sum().item()

    profile = script.profile(step, steps=5, gpus=["L4"])
    assert (profile.step.rank, profile.step.mark, profile.step.n) == ("line", "one call", 5)
    assert (profile.copied_bytes, [place.call for place in profile.waits]) == (2560, ["item"])
    assert (profile.parts["backward"] > 0, profile.launches > 4, profile.lost) == (True, True, {})
    assert profile.gpus[0].gpu == "L4"
    assert capsys.readouterr().out.startswith("step(): ")
