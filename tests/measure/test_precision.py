"""Matrix precision: float32 is IEEE, TF32 is asked for by name, and earlier settings are put back."""

import functools
import importlib
import sys
import types

import forked
import pytest
import torch

from gpubench import devices
from gpubench.measure import precision
from gpubench.runfile.schema import Case


@pytest.fixture
def switches():
    """The newer ones, as they are by default again afterwards."""
    backends = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has the older switches only")
    found = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.conv)
    usual = [switch.fp32_precision for switch in found]
    yield found
    backends.cudnn.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    for switch, value in zip(found, usual, strict=True):
        switch.fp32_precision = value


def test_float32_is_ieee_and_tf32_is_asked_for_by_name():
    torch.set_float32_matmul_precision("high")
    try:
        for name, set_to, allowed in (("float32", "highest", False), ("tf32", "high", True)):
            with precision.matmul_precision(name):
                found = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
                assert found == (set_to, allowed)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_newer_precision_switches_are_overridden_and_put_back(switches):
    torch.backends.cuda.matmul.fp32_precision = torch.backends.cudnn.fp32_precision = "tf32"
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    before = [switch.fp32_precision for switch in switches]
    with precision.matmul_precision("float32"):
        assert {switch.fp32_precision for switch in switches} == {"ieee"}
    assert [switch.fp32_precision for switch in switches] == before
    with precision.matmul_precision("tf32"):
        assert [switch.fp32_precision for switch in switches] == ["tf32", "tf32", "tf32", "ieee"]


def test_the_older_switches_are_put_back_where_torch_can_tell_only_one_of_them(switches):
    _, conv, rnn, _ = switches
    conv.fp32_precision, rnn.fp32_precision = "ieee", "tf32"
    with pytest.raises(RuntimeError):
        _ = torch.backends.cudnn.allow_tf32
    before = precision.float32_state()
    torch.set_float32_matmul_precision("medium")
    precision.set_float32_state(before)
    assert torch.get_float32_matmul_precision() == "highest"
    assert precision.float32_state() == before


def test_a_broad_switch_reaches_layers_after_their_default_was_restored():
    """In a process of its own, because torch's default of these switches can't be put back."""
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has the older switches only")
    ran = forked.python(
        """
import warnings; warnings.simplefilter("ignore")
import torch
from gpubench.measure.precision import matmul_precision, pass_on_broad_switch
layers = torch.backends.cudnn.conv, torch.backends.cudnn.rnn
with matmul_precision("float32"):
    pass
pass_on_broad_switch()
print(*(each.fp32_precision for each in layers))
torch.backends.fp32_precision = "ieee"
pass_on_broad_switch()
print(*(each.fp32_precision for each in layers))
"""
    )
    assert ran.stdout.split() == ["tf32", "tf32", "ieee", "ieee"]


def test_tf32_sets_the_switch_of_cudnn_for_autotuned_convolutions(switches):
    with precision.matmul_precision("tf32"):
        assert torch.backends.cudnn.fp32_precision == "tf32"
    assert torch.backends.cudnn.fp32_precision == "none"


class Recorder(type(devices.CPU)):
    """A CPU with graphs that replay the call on the memory of the first one."""

    def capture_graph(self, call):
        return call, call()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (torch.nn.ReLU(inplace=True), [0.0, 1.0]),
        (lambda x: x, [-1.0, 1.0]),
        (lambda x: x.view(2, 1).squeeze(1), [-1.0, 1.0]),
        (lambda x, out: torch.add(x, 1, out=out), [0.0, 2.0]),
        (torch.nn.Identity().forward, [-1.0, 1.0]),
    ],
    ids=["in place", "its input", "a view", "out", "of a module's method"],
)
def test_a_recorded_call_reads_its_inputs_as_they_were(call, expected):
    """A result is filled with NaN before the first replay, unless it is the memory of an input."""
    x = torch.tensor([-1.0, 1.0])
    kwargs = {"out": torch.empty(2)} if expected == [0.0, 2.0] else {}
    assert precision.apply("graph", call, Recorder())(x, **kwargs).tolist() == expected


def test_a_recorded_call_that_fills_nothing_returns_no_earlier_answer(monkeypatch):
    monkeypatch.setattr(Recorder, "capture_graph", lambda self, call: (lambda: None, call()))
    assert precision.apply("graph", torch.neg, Recorder())(torch.ones(2)).isnan().all()


def test_autocast_is_float16_where_bfloat16_is_emulated():
    lacks = lambda self, dtype: "emulated" if dtype == "bfloat16" else None  # noqa: E731
    old = type("Old", (type(devices.CPU),), {"lacks": lacks})()
    case = Case("w", "cpu", "float32", variant="autocast")
    a = torch.randn(4, 4)
    for device, name in ((devices.CPU, "bfloat16"), (old, "float16")):
        assert precision.autocast_dtype(device) == precision.computed_dtype(case, device) == name
        assert precision.apply("autocast", torch.mm, device)(a, a).dtype == getattr(torch, name)
    assert precision.computed_dtype(Case("w", "cpu", "float32"), old) == "float32"


@pytest.mark.parametrize("known", [None, types.SimpleNamespace(job_id=None)])
def test_the_caches_of_an_older_compiler_are_switched_off_too(monkeypatch, known):
    """torch 2.6 to 2.8 have the switch in another module, and refuse to set it in this one."""
    older = types.ModuleType("older")
    older.force_disable_caches = False
    older.__getattr__ = functools.partial(getattr, importlib.import_module("torch._inductor.config"))
    monkeypatch.setattr(torch.compiler, "config", known, raising=False)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", older)
    reset: list[None] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: reset.append(None))
    precision.compiled(lambda x: x)
    assert older.force_disable_caches is True
    assert len(reset) == 1  # each case pays for its own compilation
