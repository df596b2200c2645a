"""CUDA devices as the pretend runtime has them: what one process shares, and what a broken one costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if "PRETEND_CUDA_DEVICES" not in os.environ:
    pytest.skip("needs the pretend CUDA runtime: tox run -e pretend-cuda", allow_module_level=True)

import torch

from gpubench.devices.cuda import Cuda
from gpubench.measure.data import Data
from gpubench.measure.probes import device_time
from gpubench.measure.work import flop_counter
from gpubench.runfile.ledger import read_ledger
from gpubench.workloads import training

MIB = 1 << 20
BOTH = ("--variant=eager", "--variant=graph")


@pytest.fixture
def run(tmp_path):
    """Measure with the preset smoke; returns records by name, rows without a number by name, and the log."""

    def go(*options: str, source: str = "", out: str = "out"):
        files = []
        if source:
            (tmp_path / "test_it.py").write_text(source)
            files.append("test_it.py")
        command = [sys.executable, "-m", "gpubench", "run", *files, "--preset=smoke", "--charts=none"]
        command += ["--processes=1", "-o", out, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
        data = json.loads((tmp_path / out / "run.json").read_text())
        records = {each["name"]: each["extra_info"]["gpubench"] for each in data["benchmarks"]}
        rows = {row["name"]: row for row in data["gpubench"]["unmeasured"]}
        log = (tmp_path / out / "run.log").read_text()
        assert "INTERNALERROR" not in log, log[-3000:]
        return records, rows, log + done.stderr

    return go


def sessions(folder: Path) -> list[list[str]]:
    """Names of the cases that each measuring process began."""
    begun: list[list[str]] = []
    for event in read_ledger(folder / "run.ledger.jsonl"):
        if event["event"] == "session":
            begun.append([])
        elif event["event"] == "start":
            begun[-1].append(event["name"].split("[")[0])
    return begun


BREAKING = """
import ctypes, pytest, torch

pytestmark = pytest.mark.gpubench(devices="accelerator", variants=["eager"])

@pytest.mark.parametrize("n", [10, 20, 30])
def test_neg(gpubench, n):
    gpubench(torch.neg, gpubench.randn(n))

def test_broken(gpubench):
    x = gpubench.randn(10)
    ctypes.CDLL("libcudart.so.13").pretend_break()
    HOW
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [("gpubench(torch.neg, x)", "illegal memory access"), ("raise ValueError('no such thing')", "no such thing")],
    ids=["known at once", "known later"],
)
def test_a_broken_context_costs_its_case_and_its_process(run, tmp_path, how, reason):
    records, rows, log = run("--device=cuda:0", source=BREAKING.replace("HOW", how))
    assert len(records) == 3
    (row,) = rows.values()
    assert row["status"] == "error"
    assert reason in row["reason"]
    begun = sessions(tmp_path / "out")
    assert [names[-1] for names in begun[:-1]] == ["test_broken"] * (len(begun) - 1)
    assert len(begun) == 2 or begun[0][-1] == "test_broken"
    assert "cuda:0 is unusable (CUDA error: an illegal memory access was encountered" in log


UNCAPTURABLE = """
import pytest, torch

@pytest.mark.gpubench(devices="accelerator", variants=["graph"])
@pytest.mark.parametrize("n", [10, 20, 30])
def test_neg(gpubench, n):
    gpubench(torch.neg, gpubench.randn(n))

@pytest.mark.gpubench(devices="accelerator", variants=["graph"])
def test_item(gpubench):
    gpubench(lambda x: x.sum().item(), gpubench.randn(10), check=False)
"""


def test_a_failed_capture_costs_its_case_and_its_process(run, tmp_path):
    """torch goes on to allocate for the graph that there isn't."""
    records, rows, _ = run("--device=cuda:0", "--variant=graph", source=UNCAPTURABLE)
    assert len(records) == 3
    (row,) = rows.values()
    assert row["status"] == "skipped"
    cause = "CUDA error: operation not permitted when stream is capturing"  # not that of ending the capture
    assert row["reason"] == f"the call can't be captured in a CUDA graph: {cause}"
    begun = sessions(tmp_path / "out")
    assert [names[-1] for names in begun[:-1]] == ["test_item"] * (len(begun) - 1)
    assert all("test_item" not in names[:-1] for names in begun)


PRODUCTS = """
import pytest, torch

pytestmark = pytest.mark.gpubench(devices="accelerator", variants=["eager", "graph"])

def test_product(gpubench):
    gpubench(torch.mm, gpubench.randn(1024, 1024), gpubench.randn(1024, 1024), check=False)

def test_chain(gpubench):
    gpubench(lambda x, y: (x @ y).relu(), gpubench.randn(1024, 1024), gpubench.randn(1024, 1024), check=False)

def test_network(gpubench):
    layers = lambda: torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(3)))
    gpubench(gpubench.module(layers), gpubench.randn(1024, 1024), check=False)

@pytest.mark.gpubench(devices="accelerator", variants=["eager"])
def test_backward(gpubench):
    x = gpubench.randn(1024, 1024).requires_grad_()
    gpubench(lambda y: torch.autograd.grad((x @ y).sum(), x)[0], gpubench.randn(1024, 1024), check=False)
"""


def test_a_case_holds_the_same_memory_alone_and_after_others(run):
    together, _, _ = run("--device=cuda:0", *BOTH, source=PRODUCTS, out="together")
    held = {name: record["memory_bytes"] for name, record in together.items()}
    for name in ("product", "chain", "network", "backward"):
        alone, _, _ = run("--device=cuda:0", *BOTH, "-k", name, source=PRODUCTS, out=name)
        assert {each: record["memory_bytes"] for each, record in alone.items()}.items() <= held.items()
    by_test = {(name.split("[")[0], "graph" in name): nbytes for name, nbytes in held.items()}
    matrix = 4 * MIB
    network = 3 * (matrix + 4096) + matrix + 3 * matrix  # parameters, the input, and outputs that autograd keeps
    for name, nbytes in (("test_product", 3 * matrix), ("test_chain", 4 * matrix), ("test_network", network)):
        assert by_test[name, False] == nbytes
        assert by_test[name, True] == pytest.approx(nbytes, abs=4096)  # a graph has a seed and an offset of its own


GPT2_LAYERS, GPT2_HEADS, GPT2_HEAD_SIZE = 12, 12, 64


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_fused_attention_does_as_much_work_as_is_declared(part):
    """But for the masked half of the scores, which a causal kernel leaves out on the way forward."""
    learner = training.trainer("gpt2", Data(Cuda(0), torch.float32, 0), 1)
    learner.forward() if part == "forward" else learner.backward()
    with flop_counter() as counter:
        getattr(learner, part)()
    assert any("attention" in str(operator) for operator in counter.get_flop_counts()["Global"])
    masked = training.GPT2_LENGTH * (training.GPT2_LENGTH - 1) // 2 if part == "forward" else 0
    left_out = 2 * 2 * GPT2_LAYERS * GPT2_HEADS * GPT2_HEAD_SIZE * masked
    assert counter.get_total_flops() + left_out == training.count_flops("gpt2", 1)[part]


def test_each_device_of_all_measures_itself(run):
    names = "data_parallel.tutorial or distributed.linear or distributed.all_reduce"
    records, rows, _ = run("--device=all", "-k", names)
    assert {row["status"] for row in rows.values()} <= {"skipped"}
    for record in records.values():
        devices, count = record["devices"], record["parallel"]["devices"]
        if record["device"] != "cpu":
            assert record["device"] in devices
            assert len(devices) == count
    alone = {record["device"] for record in records.values() if record["parallel"]["devices"] == 1}
    both = {record["device"] for record in records.values() if record["parallel"]["devices"] == 2}
    assert alone == both == {"cpu", "cuda:0", "cuda:1"}


def test_a_call_of_too_many_launches_has_no_device_time():
    x = torch.ones(10, device="cuda:0")

    def call() -> None:
        for _ in range(1500):
            x.neg_()

    measured = device_time(call, Cuda(0), 0.01, None)
    assert measured.device_s is None
    assert "more launches than fit its queue" in measured.device_reason
