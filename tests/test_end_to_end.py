"""From `pytest benchmarks/` to the report, for real, with a second kind of device registered with torch.

The registered kind computes on the CPU: its times are real, its speedups a slow accelerator's.
"""

import csv
import json
import os
from pathlib import Path

import fake_backend
import forked
import pytest

from gpubench.commands.cli import main

ROOT = Path(__file__).parent.parent
SLOW = (
    "resnet50", "vit", "bert", "gpt2", "tabular", "width", "llama", "decoder", "prefill", "scaled",
    "decode[", "input", "(training and autocast)",
)  # fmt: skip
EVERYWHERE = ("elementwise", "classic", "transfer")
"""Families that all devices measure; the others are measured on the second one alone, by no default."""

pytestmark = [
    pytest.mark.skipif(bool(fake_backend.available()), reason=str(fake_backend.available())),
    pytest.mark.xdist_group("end to end"),  # both tests look at one run
]


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.json"
    wanted = " and ".join([f"(fake:1 or {' or '.join(EVERYWHERE)})", *(f"not {name}" for name in SLOW)])
    options = ("-p", "fake_backend", "--gpubench-device=all", "--gpubench-preset=smoke", f"--benchmark-json={path}")
    quiet = ("-q", "--benchmark-quiet", "-p", "no:cacheprovider")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = forked.pytest(
        "benchmarks", *options, *quiet, "-k", wanted, "-m", "not gpubench_parallel", cwd=ROOT, PYTHONPATH=paths
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return path


def test_both_indices_of_the_registered_kind_are_measured(run_file):
    run = json.loads(run_file.read_text())
    cases = [b["extra_info"]["gpubench"] for b in run["benchmarks"]]
    assert {case["device"] for case in cases} == {"cpu", "fake:0", "fake:1"}
    workloads = {case["workload"] for case in cases}
    assert {"elementwise.add", "matmul.square", "models.lenet", "models.encoder", "classic.step"} <= workloads
    assert {"transfer.host_to_device", "transfer.between_devices"} <= workloads
    checked = [case for case in cases if case["device"] != "cpu"]
    random = {"irregular.random_numbers", "science.option_price"}
    assert {case["workload"] for case in checked if case["check"]["status"] != "passed"} == random
    too_slow = [entry for entry in run["gpubench"]["unmeasured"] if "too slow" in entry["reason"]]  # a busy machine
    ids = {d: {c["id"] for c in [*cases, *too_slow] if c["device"] == d} for d in ("fake:0", "fake:1")}
    assert ids["fake:0"] == {name for name in ids["fake:1"] if name.split(".")[0] in EVERYWHERE}
    assert len(ids["fake:1"]) > len(ids["fake:0"]) > 30
    labels = [device["label"] for device in run["machine_info"]["gpubench"]["devices"]]
    assert labels[1:] == ["Fake Accelerator"] * 2


def test_report_has_speedups_and_charts_of_both(run_file, tmp_path):
    assert main(["report", str(run_file), "-o", str(tmp_path / "out")]) == 0
    rows, speedups = (
        list(csv.DictReader((tmp_path / "out" / name).read_text(encoding="utf-8").splitlines(True)))
        for name in ("results.csv", "speedup.csv")
    )
    run = json.loads(run_file.read_text())
    assert len(rows) == len(run["benchmarks"]) + len(run["gpubench"]["unmeasured"])
    assert {row["device"] for row in rows if row["status"] == "ok"} == {"cpu", "fake:0", "fake:1"}
    assert len(speedups) >= 40
    known = [row for row in speedups if row["speedup"] and not row["limit"]]  # others are limits of a busy machine's
    assert len(known) >= 20
    for row in known:
        assert float(row["speedup"]) == pytest.approx(float(row["baseline_s"]) / float(row["time_s"]))
    charts = list((tmp_path / "out/charts").glob("*-light.svg"))
    assert len(charts) >= 4
    assert {path.name.partition("-")[0] for path in charts} >= {"headline", "speedup"}
