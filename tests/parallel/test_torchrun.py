"""The same cases under torchrun: two agents on this machine, meeting over loopback, as two machines would."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def agent(folder, port, *options, timeout_s=60):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test", "--local-addr=127.0.0.1",
        f"--rdzv-conf=join_timeout={timeout_s}", "-m", "pytest", str(ROOT / "benchmarks/test_distributed.py"),
        "-c", os.devnull, f"--rootdir={ROOT}", "-p", "gpubench.plugin", "-p", "no:cacheprovider", "--benchmark-only",
        "--gpubench-preset=smoke", "--benchmark-json=run.json", *options,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def left_in(folder):
    """Processes that still work in a folder."""
    return [
        process
        for process in psutil.process_iter(["cwd", "status"])
        if (process.info["cwd"] or "").startswith(str(folder)) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_two_agents_measure_one_case_together_and_rank_0_writes_the_run_file(tmp_path):
    port = free_port()
    folders = [tmp_path / "one", tmp_path / "two"]
    agents = []
    for folder in folders:
        folder.mkdir()
        agents.append(agent(folder, port, "-k", "linear or all_reduce"))
    said = [each.communicate(timeout=120)[0] for each in agents]
    assert [each.returncode for each in agents] == [0, 0], said
    written = [folder / "run.json" for folder in folders if (folder / "run.json").exists()]
    assert len(written) == 1
    run = json.loads(written[0].read_text())
    cases = {b["name"]: b["extra_info"]["gpubench"] for b in run["benchmarks"]}
    together = cases["test_linear[cpu-float32-ddp-2]"]
    assert together["parallel"]["devices"] == 2
    assert together["parallel"]["interconnect"] == "network"
    assert together["check"]["status"] == "passed"
    assert cases["test_linear[cpu-float32-single-1]"]["parallel"]["devices"] == 1
    assert cases["test_all_reduce[cpu-float32-10000-2]"]["check"]["status"] == "passed"
    assert not run["gpubench"]["unmeasured"]
    assert not left_in(tmp_path)


def test_an_agent_that_waits_for_a_second_one_in_vain_ends_in_time(tmp_path):
    alone = agent(tmp_path, free_port(), timeout_s=3)
    said = alone.communicate(timeout=60)[0]
    assert alone.returncode != 0
    assert "RendezvousTimeoutError" in said
    assert not left_in(tmp_path)
