"""The bar: every benchmark's code ends without an error on pretend devices, however many there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

if "PRETEND_CUDA_DEVICES" not in os.environ:
    pytest.skip("needs the pretend CUDA runtime: tox run -e pretend-cuda", allow_module_level=True)


@pytest.mark.parametrize("count", [1, 2])
def test_every_benchmark_ends_without_an_error(count, tmp_path, capsys):
    """All of smoke on all devices, eager, under autocast and as graphs; Triton, which compiles, isn't there."""
    command = [sys.executable, "-m", "gpubench", "run", "--preset=smoke", "--device=all", "--no-charts", "-o", tmp_path]
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
    assert not any("can't be captured" in reason for reason in skipped)
