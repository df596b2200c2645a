"""The same cases under torchrun: two agents on this machine, meeting over loopback, as two machines would."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from waiting import survivors

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BENCHMARKS = ROOT / "benchmarks/test_distributed.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def agent(folder, port, *options, file=BENCHMARKS, timeout_s=60):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test", "--local-addr=127.0.0.1",
        f"--rdzv-conf=join_timeout={timeout_s}", "-m", "pytest", str(file), "-c", os.devnull,
        f"--rootdir={file.parent}", "-p", "gpubench.plugin", "-p", "no:cacheprovider", "--benchmark-only",
        "--gpubench-preset=smoke", "--benchmark-json=run.json", *options,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def two_agents(folder, *options, **how):
    """The exit codes of both, what they said, and the run files they wrote."""
    port = free_port()
    folders = [folder / "one", folder / "two"]
    agents = []
    for own in folders:
        own.mkdir()
        agents.append(agent(own, port, *options, **how))
    said = [each.communicate(timeout=120)[0] for each in agents]
    written = [own / "run.json" for own in folders if (own / "run.json").exists()]
    return [each.returncode for each in agents], said, [json.loads(path.read_text()) for path in written]


def test_two_agents_measure_one_case_together_and_rank_0_writes_the_run_file(tmp_path):
    codes, said, runs = two_agents(tmp_path, "-k", "linear or all_reduce")
    assert codes == [0, 0], said
    (run,) = runs
    cases = {b["name"]: b["extra_info"]["gpubench"] for b in run["benchmarks"]}
    together = cases["test_linear[cpu-float32-ddp-2]"]
    assert together["parallel"]["devices"] == 2
    assert together["parallel"]["interconnect"] == "network"
    assert together["check"]["status"] == "passed"
    assert cases["test_linear[cpu-float32-single-1]"]["parallel"]["devices"] == 1
    assert cases["test_all_reduce[cpu-float32-10000-2]"]["check"]["status"] == "passed"
    assert not run["gpubench"]["unmeasured"]
    assert not survivors(tmp_path)


FAILING = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import pytest, torch, duties
from gpubench.parallel.distributed import Training
from gpubench.runfile.schema import Work

pytestmark = pytest.mark.gpubench_parallel

@pytest.mark.parametrize("duty", ["none", "threads", "fail", "exhaust", "after"])
def test_step(gpubench, gpubench_ranks, duty):
    if duty == "threads":
        usual = torch.get_num_threads()
        for count in (usual + 2, usual + 1):
            assert gpubench_ranks.group(gpubench, ["cpu", "cpu"], count).run(duties.threads) == [count, count]
            assert torch.get_num_threads() == usual
        group = gpubench_ranks.group(gpubench, ["cpu", "cpu"], usual + 1)
        group.run(duties.keep_threads, usual + 5)
        assert [flag.seen[:7] for flag in group.altered] == ["rank 0:", "rank 1:"]
        assert group.run(duties.threads) == [usual + 1] * 2
    if duty in ("fail", "exhaust"):
        gpubench_ranks.group(gpubench, ["cpu", "cpu"], 1).run(getattr(duties, duty), 1)
    gpubench_ranks.measure(gpubench, Training("linear", "ddp", 8), 2, work=Work(), method="ddp", mode="strong")
"""


def test_a_rank_that_raises_ends_its_case_and_the_next_one_runs(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(FAILING)
    codes, said, runs = two_agents(tmp_path, "--gpubench-ranks-deadline=5", file=file)
    assert all(codes), said
    (run,) = runs
    assert [b["params"]["duty"] for b in run["benchmarks"]] == ["none", "threads", "after"]
    rows = {row["params"]["duty"]: (row["status"], row["reason"]) for row in run["gpubench"]["unmeasured"]}
    assert rows == {
        "fail": ("error", "rank 1: ValueError: no such thing"),
        "exhaust": ("oom", "rank 1: MemoryError: no more"),
    }
    assert not survivors(tmp_path)


def test_an_agent_that_waits_for_a_second_one_in_vain_ends_in_time(tmp_path):
    alone = agent(tmp_path, free_port(), timeout_s=3)
    said = alone.communicate(timeout=60)[0]
    assert alone.returncode != 0
    assert "RendezvousTimeoutError" in said
    assert not survivors(tmp_path)
