"""The data of a case: from the seed, the same everywhere."""

import gc
import types
import weakref

import numpy as np
import pytest
import torch

from gpubench.devices import CPU, Memory
from gpubench.devices.virtual import VirtualDevice
from gpubench.errors import TooLarge, Unmeasurable, UsageError
from gpubench.measure import data as measured_data
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.data import Data, factory_defaults, pinned_copy, require_memory
from gpubench.measure.fixture import Gpubench
from gpubench.measure.session import Session, Settings
from gpubench.runfile.schema import Case


def test_data_are_the_same_in_every_process_and_differ_between_calls_and_seeds():
    first, again, other = (Data(CPU, torch.float32, seed) for seed in (0, 0, 1))
    a, b = first.randn(100), first.randn(100)
    assert torch.equal(a, again.randn(100))
    assert not torch.equal(a, b)
    assert not torch.equal(a, other.randn(100))
    assert not torch.equal(a, Data(CPU, torch.float32, 0, stream=1).randn(100))
    assert first.empty(3).isnan().all()
    same, twin, apart = (Data(CPU, torch.float32, n).module(lambda: torch.nn.Linear(4, 4)).weight for n in (0, 0, 1))
    assert torch.equal(same, twin)
    assert not torch.equal(same, apart)


def test_values_are_drawn_once_for_all_dtypes_and_kept_within_bounds(monkeypatch):
    monkeypatch.setattr(measured_data, "_kept", {})
    monkeypatch.setattr(measured_data, "KEPT_BYTES", 1000)
    draw, drawn = torch.randn, []
    monkeypatch.setattr(torch, "randn", lambda *shape, **terms: drawn.append(shape) or draw(*shape, **terms))
    made = [Data(CPU, dtype, 7).randn(100) for dtype in (torch.bfloat16, torch.float32, torch.float64)]
    made[0].zero_(), made[1].zero_()
    assert torch.equal(Data(CPU, torch.float32, 7).randn(100).double(), made[2])
    assert len(drawn) == 1
    for seed in range(5):
        Data(CPU, torch.bfloat16, seed).randn(100)
        assert 0 < sum(each.nbytes for each in measured_data._kept.values()) <= 1000
    assert len(drawn) == 6


@pytest.fixture
def left_behind():
    """Whether something in a reference cycle is alive; no collection happens by itself."""

    gc.disable()
    node = type("Node", (), {})()
    node.itself = node
    alive = weakref.ref(node)
    del node
    yield alive
    gc.enable()


def test_memory_that_only_waits_for_the_garbage_collector_is_free(left_behind):
    device = types.SimpleNamespace(memory=lambda: Memory(1 if left_behind() else 100, 100))
    require_memory(50, device)
    with pytest.raises(TooLarge, match="100 B are free"):
        require_memory(90, device)


def test_what_an_earlier_case_left_is_not_held_by_a_later_one(left_behind):
    """As networks of transformers are: their memory would be missing from the later one's, once it is collected."""
    kind = type("Holding", (VirtualDevice,), {"allocated_memory": lambda self: 10**9 if left_behind() else 5})
    keeper = types.SimpleNamespace(enabled=False, fullname="")
    fixture = Gpubench(
        Session(Settings()), PRESET_SETTINGS["smoke"], Case("a.b", "virtual:0", "float32"), kind(), keeper
    )
    assert fixture._plan(torch.neg, (), {}).held_bytes == 5


def test_data_have_the_dtype_of_the_case_unless_another_is_asked_for():
    data = Data(CPU, torch.float64, 0)
    made = data.randn(2), data.empty(2), data.module(lambda: torch.nn.Linear(2, 2)).weight
    assert {each.dtype for each in made} == {torch.float64}
    assert {each.dtype for each in (data.randn(2, dtype=torch.int8), data.empty(2, dtype=torch.int8))} == {torch.int8}


SPELLINGS = {
    "randn": ("randn(3, 4)", "randn((3, 4))", "randn([3, 4])", "randn(torch.Size([3, 4]))", "randn(size=(3, 4))",
              "randn(3, 4, requires_grad=True)", "randn(3, 4, device=device)", "randn(3, 4, device='cpu')",
              "randn(3, 4, dtype=dtype)", "randn(np.int64(3), 4)"),
    "rand": ("rand(3, 4)", "rand((3, 4))", "rand(size=[3, 4])"),
    "randint": ("randint(10, (3, 4))", "randint(0, 10, (3, 4))", "randint(low=0, high=10, size=(3, 4))",
                "randint(10, shape=[3, 4])", "randint(10, (3, 4), device=device, dtype=torch.int64)",
                "randint(0, high=10, size=(3, 4))"),
}  # fmt: skip


def evaluated(text):
    data = Data(CPU, torch.float32, 0)
    names = {name: getattr(data, name) for name in ("randn", "rand", "randint", "empty", "module", "device", "dtype")}
    return eval(text, {"torch": torch, "nn": torch.nn, "np": np, **names})


@pytest.mark.parametrize("name", SPELLINGS)
def test_inputs_take_the_spellings_of_torch(name):
    usual, *others = map(evaluated, SPELLINGS[name])
    assert usual.shape == (3, 4)
    assert [torch.equal(usual, other) for other in others] == [True] * len(others)
    assert [other.requires_grad for other in others] == ["requires_grad" in text for text in SPELLINGS[name][1:]]


def test_values_have_the_bounds_of_torch_and_those_of_a_generator_are_its_own():
    assert 0 <= evaluated("rand(999)").min() < 0.1 < 0.9 < evaluated("rand(999)").max() < 1
    assert {*evaluated("randint(5, 7, (99,))").tolist()} == {5, 6}
    first, again = (evaluated(f"randn(9, generator=torch.Generator().manual_seed({n}))") for n in (7, 7))
    assert torch.equal(first, again)
    assert not torch.equal(first, evaluated("randn(9)"))
    assert evaluated("empty((2, 3), requires_grad=True)").isnan().all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("randint(10, 64)", r"in brackets: write randint\(10, \(64,\)\)"),
        ("randint(0, 10, 64)", r"write randint\(0, 10, \(64,\)\)"),
        ("randint(10)", r"write randint\(10, \(10,\)\)"),
        ("randint((3,))", "in brackets"),
        ("randn(8, device='cuda')", "leave out device='cuda': randn makes its values on each device"),
        ("randn(8 / 2)", "randn needs a shape of whole numbers, not"),
        ("randn('8')", "whole numbers"),
        ("randn(8, layout=1)", "dtype=, requires_grad= and generator=, not layout=: use torch.randn"),
        ("module(nn.Linear(8, 8))", r"write module\(lambda: nn.Linear\(…\)\)"),
        ("module(nn.Linear, 8, 8)", r"write module\(lambda: nn.Linear\(…\)\)"),
        ("module(lambda: 3)", "returns no network, but int"),
    ],
)
def test_other_arguments_are_refused_with_the_right_ones(text, message):
    with pytest.raises(UsageError, match=message):
        evaluated(text)


def test_data_do_not_depend_on_torchs_own_defaults():
    """As in a suite that calls ``torch.set_default_dtype`` or ``torch.set_default_device``."""

    def drawn():
        data = Data(CPU, torch.float32, 0)
        return data.randn(9), data.randint(99, (9,)), data.module(lambda: torch.nn.Linear(4, 4)).weight

    usual = drawn()
    with factory_defaults("meta", torch.float64):
        assert all(map(torch.equal, usual, drawn()))


@pytest.mark.parametrize(("locked", "place"), [(True, "mps"), (False, "cpu")])  # the first on a Mac (pytorch#181374)
def test_what_torch_calls_pinned_and_is_not_is_no_pinned_memory(locked, place):
    moved = types.SimpleNamespace(is_pinned=lambda: locked, device=torch.device(place))
    with pytest.raises(Unmeasurable, match="no pinned memory: torch returned ordinary memory"):
        pinned_copy(types.SimpleNamespace(pin_memory=lambda: moved))
