"""The simulated device: its times follow its model, and whatever shows them says that they are simulated."""

from __future__ import annotations

import json

import pytest
import records
import torch
from inprocess import gpubench as command
from matplotlib.figure import Figure

import gpubench
from gpubench.commands.notebook import magic
from gpubench.devices import Demo, Load, find_device, kinds, present, select
from gpubench.devices.demo import (
    COPY_S,
    EIGHT_BITS,
    KERNEL_S,
    LAUNCH_S,
    PAGEABLE,
    PEAK_BYTES,
    PEAK_FLOPS,
    PEAK_OPERATIONS,
    PINNED,
    REACHED,
    WAIT_S,
)
from gpubench.report.charts.pictures import render
from gpubench.report.results import Results
from gpubench.runfile.reader import read
from gpubench.runfile.schema import Case
from gpubench.testing import VirtualMachine


def test_it_is_measured_only_when_it_is_named():
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


@pytest.mark.parametrize(
    ("load", "seconds"),
    [
        (Load(1e12, 1e6, 1, "float32"), 1e12 / PEAK_FLOPS["float32"] / REACHED),
        (Load(1e12, 1e6, 1, "bfloat16"), 1e12 / PEAK_FLOPS["bfloat16"] / REACHED),
        (Load(1.0, 1e9, 1, "float32"), 1e9 / PEAK_BYTES / REACHED),
        (Load(1.0, 1.0, 7, "float32"), 7 * KERNEL_S),
        (Load(1e12, 1e6, 1, EIGHT_BITS), 1e12 / PEAK_OPERATIONS / REACHED),
    ],
)
def test_a_call_takes_the_longer_of_flops_bytes_and_kernels(load, seconds):
    assert Demo().busy_s(load) == seconds


@pytest.fixture(scope="module")
def results():
    line = "--preset smoke --device cpu --device demo --size n=64,512,2048 a, b = randn(n, n), randn(n, n)"
    return magic(line, "a @ b", {})


def test_times_copies_and_peaks_are_those_of_the_model(results):
    rows = {(row["device"], row["n"]): row for row in results.df.to_dict("records")}
    assert {row["status"] for row in rows.values()} == {"ok"}
    large, small = rows["demo", 2048], rows["demo", 64]
    assert large["time_s"] == pytest.approx(2 * 2048**3 / PEAK_FLOPS["float32"] / REACHED, rel=0.1)
    assert large["utilisation"] == pytest.approx(REACHED, rel=0.1)
    assert small["time_s"] == pytest.approx(LAUNCH_S, rel=0.5)
    nbytes = 2 * 4 * 2048**2
    assert large["copy_in_s"] == pytest.approx(COPY_S + nbytes / PAGEABLE)
    assert large["copy_in_pinned_s"] == pytest.approx(COPY_S + nbytes / PINNED)
    assert {row["check"] for (_, n), row in rows.items() if n < 2048} == {"passed"}  # a busy CPU skips the largest
    assert large["flop_per_s"] == pytest.approx(2 * 2048**3 / large["time_s"])
    assert large["launch_s"] == LAUNCH_S


def test_every_screen_says_that_it_is_simulated(results):
    warning = "Times of the Simulated accelerator come from a model, not from hardware. Don't quote them."
    assert f"WARNING: {warning}" in str(results)
    assert "Simulated" in results._repr_html_()
    assert set(results.df["device_name"].dropna()) > {"Simulated accelerator"}


def test_every_picture_says_that_it_is_simulated(tmp_path):
    """Of times that no neighbour made too noisy to draw."""
    from gpubench.report.charts.pictures import figures_of

    cases = [Case("a.b", name, "float32", {"n": n}, size="n") for name in ("cpu", "demo") for n in (64, 512, 2048)]
    marks = [
        records.benchmark(case, (1e-9 if case.device == "cpu" else 1e-11) * case.params["n"] ** 3, work={"flops": 1e9})
        for case in cases
    ]
    results = Results.load(run_file(tmp_path / "run.json", True, marks))
    for kind in ("speedup", "rate", "time"):
        (svg,) = render(figures_of(results.study, kind)[:1], ["svg"], ["light"]).values()
        assert b"Simulated accelerator" in svg
    title = results.plot(ax=Figure().subplots()).get_title()
    assert title == "Simulated accelerator: times of a model, not of hardware"
    (run,) = results.runs
    assert [device.name for device in run.machine.devices if device.simulated] == ["demo"]


def test_a_network_and_autograd_are_simulated_operation_by_operation():
    setup = "net, x = module(lambda: nn.Sequential(*[nn.Linear(64, 64)] * 9)), randn(8, 64)"
    (row,) = magic(f"--preset smoke --no-ceilings --no-check --device demo {setup}", "net(x)", {}).df.to_dict("records")
    assert row["status"] == "ok", row["reason"]
    assert row["time_s"] == pytest.approx(9 * LAUNCH_S, rel=0.3)
    assert row["check"].startswith("unchecked")
    (row,) = magic("--preset smoke --no-ceilings --device demo a.tolist()", None, {"a": torch.ones(9)}).df.to_dict(
        "records"
    )
    assert row["status"] == "skipped"
    assert "its model needs work that PyTorch can count on meta tensors" in row["reason"]


def run_file(path, simulated, marks=None):
    device = {"name": "demo", "kind": "demo", "label": "Simulated accelerator", "simulated": simulated}
    marks = marks or [records.benchmark(Case("a.b", "cpu", "float32"), 1e-3, medians=(1e-3, 1.01e-3))]
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, device), processes=2)))
    return path


def test_compare_refuses_to_mix_it_with_hardware(tmp_path):
    real, made = run_file(tmp_path / "real.json", False), run_file(tmp_path / "made.json", True)
    assert [device.simulated for device in read(made).machine.devices] == [False, True]
    done = command("compare", "--base", real, "--new", made, cwd=tmp_path)
    assert done.returncode == 2
    assert "new was measured on a simulated device (demo): it can't be compared with hardware" in done.stderr
    assert "simulated device" not in command("compare", "--base", made, "--new", made, cwd=tmp_path).stderr
    assert isinstance(gpubench.load(made), Results)


DECLARED = """
import pytest, torch

def uncounted(x):
    if x.is_meta:
        raise NotImplementedError
    return -x

WORK = {"flops": 1e12}, {"nbytes": 1e10}, {"items": 10**12, "unit": "operation"}, {"items": 8}

@pytest.mark.parametrize("work", WORK)
def test_declared(gpubench, work):
    gpubench(uncounted, gpubench.randn(8), **work)
"""


def test_work_that_is_not_counted_is_simulated_as_it_is_declared(tmp_path):
    (tmp_path / "test_declared.py").write_text(DECLARED)
    run = ["run", "test_declared.py", "--device=demo", "--preset=smoke", "--no-ceilings", "--charts=none", "-o", "out"]
    done = command(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    flops, nbytes, operations, items = read(tmp_path / "out" / "run.json").results
    expected = 1e12 / PEAK_FLOPS["float32"], 1e10 / PEAK_BYTES, 1e12 / PEAK_OPERATIONS
    for result, seconds in zip((flops, nbytes, operations), expected, strict=True):
        assert result.times.median_s == pytest.approx(seconds / REACHED, rel=0.05)
    assert items.status == "skipped"
    assert items.reason.endswith("on meta tensors, or flops= or nbytes=")


def test_attention_and_products_of_8_bits_run_on_it(tmp_path):
    run = ["run", "--builtin", "--device=demo", "--preset=smoke", "--no-ceilings", "--charts=none", "-o", "out"]
    done = command(*run, "-k", "attention.causal or quantised.int8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = read(tmp_path / "out" / "run.json").results
    assert {(result.workload, result.params.get("backend")) for result in results} == {
        ("attention.causal", "flash"), ("attention.causal", "math"), ("quantised.int8", None)
    }  # fmt: skip
    assert {result.status: result.reason for result in results} == {"ok": None}
    by_kernel = {result.params.get("backend"): result for result in results if result.dtype == "float32"}
    assert by_kernel["math"].times.median_s > 2 * by_kernel["flash"].times.median_s  # several kernels, and not one
