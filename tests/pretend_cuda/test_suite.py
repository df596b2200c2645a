"""The bar: every benchmark's code ends without an error on pretend devices, however many there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

if "PRETEND_CUDA_DEVICES" not in os.environ:
    pytest.skip("needs the pretend CUDA runtime: tox run -e pretend-cuda", allow_module_level=True)

ROOT = Path(__file__).resolve().parent.parent.parent
RUN = [sys.executable, "-m", "gpubench", "run"]


@pytest.mark.parametrize("count", [1, 2])
def test_every_benchmark_ends_without_an_error(count, tmp_path, capsys):
    """All of smoke on all devices, eager, under autocast and as graphs; Triton, which compiles, isn't there."""
    command = [*RUN, "--preset=smoke", "--device=all", "--charts=none", "-o", tmp_path]
    command += [f"--variant={variant}" for variant in ("eager", "autocast", "graph")]
    environment = os.environ | {"PRETEND_CUDA_DEVICES": str(count)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, env=environment)
    data = json.loads((tmp_path / "run.json").read_text())
    measured = Counter(mark["extra_info"]["gpubench"]["device"] for mark in data["benchmarks"])
    graphs = sum(mark["extra_info"]["gpubench"]["variant"] == "graph" for mark in data["benchmarks"])
    rows = data["gpubench"]["unmeasured"]
    skipped = Counter(row["reason"] for row in rows if row["status"] == "skipped")
    failed = [f"{row['name']}: {row['status']}: {row['reason']}" for row in rows if row["status"] != "skipped"]
    with capsys.disabled():
        print(f"\n{count} pretend devices: measured {dict(measured)}, {graphs} as graphs; failed {len(failed)}")
        print("\n".join(f"  {number} skipped: {reason}" for reason, number in skipped.most_common()))
    assert failed == []
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(measured) == {"cpu", *(f"cuda:{index}" for index in range(count))}
    assert graphs
    assert not any("can't be captured" in reason or "out of memory" in reason for reason in skipped)


def run(folder, *options):
    """Results by name of a run with one process on two pretend devices; nothing in it may fail."""
    command = [*RUN, "--device=cuda", "--processes=1", "--charts=none", "-o", folder]
    environment = os.environ | {"PRETEND_CUDA_DEVICES": "2"}
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=1200, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    data = json.loads((folder / "run.json").read_text())
    assert {row["status"] for row in data["gpubench"]["unmeasured"]} <= {"skipped"}
    return {mark["name"]: mark["extra_info"]["gpubench"] for mark in data["benchmarks"]}


@pytest.mark.parametrize("workload", ["lenet", "tabular"])
def test_fsdp_shards_over_two_devices(workload, tmp_path):
    records = run(tmp_path, "--preset=quick", "-k", f"distributed.{workload} and fsdp")
    assert records
    for record in records.values():
        assert record["parallel"]["method"] == "fsdp"
        assert record["devices"] == ["cuda:0", "cuda:1"]
        assert record["check"]["status"] == "unchecked"


@pytest.mark.parametrize("family", ["matmul", "elementwise", "transfer"])
def test_the_preset_quick_measures_its_sizes(family, tmp_path):
    records = run(tmp_path, "--preset=quick", "-k", f"{family}.")
    assert len(records) > 5
    for record in records.values():
        assert record["device_s"] or record["device_reason"], record


def test_ranks_of_torchrun_measure_over_nccl(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "pytest"]
    suite = ROOT / "benchmarks/test_distributed.py"
    options = ["-c", os.devnull, f"--rootdir={suite.parent}", "-p", "gpubench.plugin", "-p", "no:cacheprovider"]
    options += ["--benchmark-only", "--gpubench-preset=smoke", "--gpubench-device=cuda", "--benchmark-json=run.json"]
    command = [*launcher, suite, *options, "-k", "linear or all_reduce"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=os.environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    data = json.loads((tmp_path / "run.json").read_text())
    records = {mark["name"]: mark["extra_info"]["gpubench"] for mark in data["benchmarks"]}
    together = records["test_linear[cuda:0-float32-ddp-2]"]
    assert together["devices"] == ["cuda:0", "cuda:1"]
    assert together["parallel"]["interconnect"] == "NVLink"
    assert records["test_all_reduce[cuda:0-float32-10000-2]"]["parallel"]["devices"] == 2
    assert {row["status"] for row in data["gpubench"]["unmeasured"]} <= {"skipped"}
