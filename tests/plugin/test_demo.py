"""The simulated device: its times follow its model, and whatever shows them says that they are simulated."""

from __future__ import annotations

import importlib
import json
import re

import pytest
import records
import torch
from inprocess import gpubench as command

import gpubench
from gpubench.cards.datasheets import read_cards
from gpubench.cards.model import DISPATCH_S, LEAST_KERNEL_S, Likely, likely, middle_s, shortest
from gpubench.commands.notebook import magic
from gpubench.devices import EIGHT_BITS, Load, find_device, kinds, present, select
from gpubench.devices.virtual import VirtualMachine
from gpubench.plugin.demo import COPY_S, LINK_SHARE, PAGEABLE, WAIT_S, Demo
from gpubench.report.results import Results
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Case, Operators, Work
from gpubench.supervise.process import suite

pytestmark = pytest.mark.usefixtures("no_ceilings")


def test_it_is_measured_only_when_it_is_named():
    importlib.import_module("gpubench.plugin.hooks")  # registers it
    assert "demo" in kinds()
    assert not any(device.simulated for device in present())
    assert [choice.name for request in ("auto", "all") for choice in select([request]) if choice.name == "demo"] == []
    assert find_device("demo").device == Demo()
    assert Demo().facts()["simulated"] is True


def test_its_clock_passes_as_work_is_launched_and_waited_for():
    first, again = (VirtualMachine(wait_cost_s=WAIT_S, jitter=0.01) for _ in range(2))
    for machine in (first, again):
        machine.launch(1e-3, host_s=1e-6)
        assert machine.now() == pytest.approx(1e-6, rel=0.1)  # queued, not done
        machine.synchronize(0)
        assert machine.now() == pytest.approx(1e-3 + WAIT_S, rel=0.1)
        assert machine.now() != pytest.approx(1e-3 + WAIT_S, rel=1e-5)
    assert again.time_s == first.time_s  # the same in every run


CARD = read_cards()[0]["L4"]

OPERATORS = (Operators("product", 2, 2e12, 2e9), Operators("elementwise", 40, 0.0, 4e10))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_call_takes_what_an_estimate_calls_likely(dtype):
    work, device = Work(2e12, 1e9, operators=OPERATORS), Demo()
    seconds, guess = device.busy_s(Load(2e12, 1e9, 42, dtype, OPERATORS)), likely(work, dtype, device.gpu)
    assert isinstance(guess, Likely)
    assert shortest(work, dtype, device.gpu).seconds < guess.low_s < seconds < guess.high_s
    assert seconds == pytest.approx(guess.middle_s)


def test_a_call_takes_no_less_than_its_kernels_and_its_sums():
    assert Demo().busy_s(Load(1.0, 1.0, 7, "float32")) == 7 * LEAST_KERNEL_S
    sums_s = middle_s("product", 1e12, 1e6, "float32", CARD)
    assert Demo().busy_s(Load(1e12, 1e6, 1, "float32", (Operators("other", 1, 0.0, 1e6),))) == sums_s
    assert Demo().busy_s(Load(1e12, 1e6, 1, EIGHT_BITS)) == middle_s("product", 5e11, 1e6, "float16", CARD)


@pytest.fixture(scope="module")
def results():
    setup = "--setup 'a, b = randn(n, n), randn(n, n)'"
    return magic(f"--preset smoke --device cpu --device demo --size n=64,512,2048 {setup}", "a @ b", {})


def test_times_copies_and_peaks_are_those_of_the_model(results):
    rows = {(row["device"], row["n"]): row for row in results.df.to_dict("records")}
    # A busy CPU skips the largest.
    assert {row["status"] for (device, n), row in rows.items() if device == "demo" or n < 2048} == {"ok"}
    large, small = rows["demo", 2048], rows["demo", 64]
    seconds = middle_s("product", 2 * 2048**3, 3 * 4 * 2048**2, "float32", CARD)
    assert large["time_s"] == pytest.approx(seconds, rel=0.1)
    assert large["utilisation"] == pytest.approx(2 * 2048**3 / seconds / CARD.flop_per_s("float32"), rel=0.1)
    assert small["time_s"] == pytest.approx(DISPATCH_S, rel=0.5)
    nbytes = 2 * 4 * 2048**2
    assert large["copy_in_s"] == pytest.approx(COPY_S + nbytes / PAGEABLE)
    assert large["copy_in_pinned_s"] == pytest.approx(COPY_S + nbytes / (LINK_SHARE * CARD.value("link")))
    assert {row["check"] for (_, n), row in rows.items() if n < 2048} == {"passed"}
    assert large["flop_per_s"] == pytest.approx(2 * 2048**3 / large["time_s"])
    assert large["launch_s"] == DISPATCH_S


def test_every_screen_says_that_it_is_simulated(results):
    assert re.search("^WARNING: .*Simulated accelerator", str(results), re.MULTILINE)
    assert "Simulated" in results._repr_html_()
    assert set(results.df["device_name"].dropna()) > {"Simulated accelerator"}


def test_a_network_and_autograd_are_simulated_operation_by_operation():
    setup = "net, x = module(lambda: nn.Sequential(*[nn.Linear(64, 64)] * 9)), randn(8, 64)"
    line = f"--preset smoke --device demo --setup '{setup}'"
    (row,) = magic(line, "net(x)", {}).df.to_dict("records")
    assert row["status"] == "ok", row["reason"]
    assert row["time_s"] == pytest.approx(9 * DISPATCH_S, rel=0.3)
    assert row["check"] == "passed"
    (row,) = magic("--preset smoke --device demo a.tolist()", None, {"a": torch.ones(9)}).df.to_dict("records")
    assert row["status"] == "skipped"
    assert "its model needs work that PyTorch can count" in row["reason"]


def run_file(path, simulated):
    device = {"name": "demo", "kind": "demo", "label": "GPU", "simulated": simulated}
    marks = [records.benchmark(Case("a.b", "cpu", "float32"), 1e-3, medians=(1e-3, 1.01e-3))]
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, device), processes=2)))
    return path


def test_compare_refuses_to_mix_it_with_hardware(tmp_path):
    real, made = run_file(tmp_path / "real.json", False), run_file(tmp_path / "made.json", True)
    assert [device.simulated for device in read(made).machine.devices] == [False, True]
    done = command("compare", real, made, cwd=tmp_path)
    assert done.returncode == 2
    assert "new was measured on a simulated device (demo): it can't be compared with hardware" in done.stderr
    assert "simulated device" not in command("compare", made, made, cwd=tmp_path).stderr
    assert isinstance(gpubench.load(made), Results)


MODELLED = """
import pytest, torch
from torch import nn
def uncounted(x): return float(-x.numpy()[0])
WORK = {"flops": 1e12}, {"nbytes": 1e10}, {"items": 10**12, "unit": "operation"}, {"items": 8}
@pytest.mark.parametrize("work", WORK)
def test_declared(gpubench, work): gpubench.declare(**work)(uncounted, gpubench.randn(8))
@pytest.mark.parametrize("part", ["forward", "backward", "step"])
def test_training(gpubench, part):
    network = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    x = torch.randn(4096, 256)
    def forward(): return network(x).square().mean()
    def backward():
        optimizer.zero_grad()
        loss = forward()
        loss.backward()
        return loss
    def step():
        loss = backward()
        optimizer.step()
        return loss
    gpubench.declare(check=False)(locals()[part])
def test_copy(gpubench): gpubench(torch.clone, gpubench.randn(10**6))
def test_sort(gpubench): gpubench(torch.sort, gpubench.randn(10**6))
"""
RUN = ("run", "--device=demo", "--preset=smoke", "--charts=none", "-o", "out")


def test_the_model_takes_work_as_it_is_declared_and_does_not_contradict_itself(tmp_path):
    """A step takes longer than its backward pass, and that than its forward pass; a sort than several passes."""
    (tmp_path / "test_modelled.py").write_text(MODELLED)
    files = "test_modelled.py", *(suite() / f"test_{name}.py" for name in ("attention", "quantised"))
    done = command(*RUN, *files, "-k", "modelled or attention.causal or quantised.int8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    every = read(tmp_path / "out" / "run.json").results
    results = [result for result in every if result.workload.startswith("modelled")]
    (items,) = (result for result in results if result.status == "skipped")
    assert items.reason.endswith("can count, or gpubench.declare(flops=…)")
    measured = (result.times.median_s for result in results if result.status != "skipped")
    *declared, forward, backward, step, copied, sorted_ = measured
    moved, product = middle_s("elementwise", 0.0, 1e10, "float32", CARD), ("product", 1e12, 32, "float32", CARD)
    expected = middle_s(*product), moved, middle_s("product", 5e11, 32, "float16", CARD)
    assert declared == [pytest.approx(seconds, rel=0.05) for seconds in expected]
    assert 1.5 * forward < backward < step
    assert sorted_ > 4 * copied
    results = [result for result in every if not result.workload.startswith("modelled")]
    assert {(result.workload, result.params.get("backend")) for result in results} == {
        ("attention.causal", "flash"), ("attention.causal", "math"), ("quantised.int8", None)
    }  # fmt: skip
    assert {result.status: result.reason for result in results} == {"ok": None}
    by_kernel = {result.params.get("backend"): result for result in results if result.dtype == "float32"}
    assert by_kernel["math"].times.median_s > 2 * by_kernel["flash"].times.median_s  # several kernels, and not one
