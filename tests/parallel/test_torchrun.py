"""The same cases under torchrun: two agents on this machine, meeting over loopback, as two machines would."""

import json
import os
import subprocess
import sys
from pathlib import Path

import forked
from waiting import survivors

sys.path.insert(0, str(Path(__file__).parent))
import duties
from duties import free_port, start_rank

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BENCHMARKS = ROOT / "benchmarks/test_distributed.py"


def pytest_words(file, *options):
    return [
        "-m", "pytest", str(file), "-c", os.devnull, f"--rootdir={file.parent}", "-p", "gpubench.plugin",
        "-p", "no:cacheprovider", "--benchmark-only", "--gpubench-preset=smoke", "--gpubench-no-ceilings",
        "--benchmark-json=run.json", *options,
    ]  # fmt: skip


def start(folder, words, **environment):
    """A forked Python, as torchrun's launcher and its ranks are; what it says is appended to ``said``."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths.strip(os.pathsep), **environment}
    with (folder / "said").open("w") as said, forked.instead():
        return subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT
        )


def agent(folder, port, *options):
    """The launcher on one machine: it starts its rank."""
    words = [
        "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=test", "--local-addr=127.0.0.1", "--rdzv-conf=join_timeout=60",
    ]  # fmt: skip
    return start(folder, ["-m", "torch.distributed.run", *words, *pytest_words(BENCHMARKS, *options)])


def both(folder, begin):
    """The exit codes of two that ``begin`` starts in folders of their own, what they said, the run files they wrote."""
    folders = [folder / "one", folder / "two"]
    for own in folders:
        own.mkdir()
    started = [begin(own, number) for number, own in enumerate(folders)]
    codes = [each.wait(timeout=120) for each in started]
    written = [own / "run.json" for own in folders if (own / "run.json").exists()]
    return codes, [(own / "said").read_text() for own in folders], [json.loads(path.read_text()) for path in written]


def test_two_agents_measure_one_case_together_and_rank_0_writes_the_run_file(tmp_path):
    port = free_port()
    codes, said, runs = both(tmp_path, lambda own, _: agent(own, port, "-k", "linear or all_reduce"))
    assert codes == [0, 0], said
    (run,) = runs
    cases = {b["name"]: b["extra_info"]["gpubench"] for b in run["benchmarks"]}
    together, alone = (cases[f"test_linear[cpu-float32-{name}]"] for name in ("ddp-2", "single-1"))
    assert (together["parallel"]["devices"], alone["parallel"]["devices"]) == (2, 1)
    assert together["parallel"]["interconnect"] == "network"
    assert together["check"]["status"] == "passed"
    assert cases["test_all_reduce[cpu-float32-10000-2]"]["check"]["status"] == "passed"
    assert not run["gpubench"]["unmeasured"]
    assert not survivors(tmp_path)


def test_a_rank_that_raises_ends_its_case_and_the_next_one_runs(tmp_path):
    """Threads that a rank leaves changed are put back, and the first rank's are flagged."""
    file, port = tmp_path / "test_it.py", free_port()
    file.write_text(duties.source("", "fail", "exhaust", "threads 0", "mistake", "after"))
    words = pytest_words(file, "--gpubench-ranks-deadline=10")[2:]
    codes, said, runs = both(tmp_path, lambda own, n: start_rank(own, port, n, "pytest", words))
    assert all(codes), said
    (run,) = runs
    assert [b["params"]["duty"] for b in run["benchmarks"]] == ["", "threads 0", "after"]
    rows = {row["params"]["duty"]: (row["status"], row["reason"]) for row in run["gpubench"]["unmeasured"]}
    assert rows == {
        "fail": ("error", "rank 1: ValueError: no such thing"),
        "exhaust": ("oom", "rank 1: MemoryError: no more"),
        "mistake": ("error", "WrongAnswer: its sum is wrong"),
    }
    assert not survivors(tmp_path)
