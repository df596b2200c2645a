"""CUDA devices as the pretend runtime has them: one process's share, a broken one's cost, the driver's
library through NVIDIA's own binding, and that every benchmark's code ends without an error."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

if "PRETEND_CUDA_DEVICES" not in os.environ:
    pytest.skip("needs the pretend CUDA runtime: tox run -e pretend-cuda", allow_module_level=True)

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import training
from gpubench.devices.cuda import Cuda
from gpubench.measure.data import Data
from gpubench.measure.disturbance import disturbed, read_counters
from gpubench.measure.probes import device_time
from gpubench.measure.work import watched
from gpubench.runfile.ledger import read_ledger

MIB = 1 << 20
WAIT_S = 0.02
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=tmp_path)
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
def test_neg(gpubench, n): gpubench(torch.neg, gpubench.randn(n))
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
def test_neg(gpubench, n): gpubench(torch.neg, gpubench.randn(n))
@pytest.mark.gpubench(devices="accelerator", variants=["graph"])
def test_item(gpubench): gpubench.declare(check=False)(lambda x: x.sum().item(), gpubench.randn(10))
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
    gpubench.declare(check=False)(torch.mm, gpubench.randn(1024, 1024), gpubench.randn(1024, 1024))
def test_chain(gpubench):
    gpubench.declare(check=False)(lambda x, y: (x @ y).relu(), gpubench.randn(1024, 1024), gpubench.randn(1024, 1024))
def test_network(gpubench):
    layers = lambda: torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(3)))
    gpubench.declare(check=False)(gpubench.module(layers), gpubench.randn(1024, 1024))
@pytest.mark.gpubench(devices="accelerator", variants=["eager"])
def test_backward(gpubench):
    x = gpubench.randn(1024, 1024).requires_grad_()
    gpubench.declare(check=False)(lambda y: torch.autograd.grad((x @ y).sum(), x)[0], gpubench.randn(1024, 1024))
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


def flops_of(backward):
    learner = training.trainer("gpt2", Data(Cuda(0), torch.float32, 0), 1)
    with watched() as seen:
        (learner.first_gradient if backward else partial(learner.forward, 0))()
    return seen.flops


@pytest.mark.parametrize(("backward", "passes"), [(False, 1), (True, 3)])
def test_fused_attention_does_the_work_of_its_products_up_to_the_diagonal(backward, passes):
    fused = flops_of(backward)
    with sdpa_kernel(SDPBackend.MATH):
        products = flops_of(backward)
    masked = training.GPT2_LENGTH * (training.GPT2_LENGTH - 1) // 2
    assert fused + passes * 2 * 2 * GPT2_LAYERS * GPT2_HEADS * GPT2_HEAD_SIZE * masked == products


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


def test_a_call_of_too_many_launches_has_no_device_time_unless_the_device_lags():
    """They take 6 ms there; the host takes longer."""
    x = torch.ones(10, device="cuda:0")

    def call() -> None:
        time.sleep(WAIT_S)
        for _ in range(1500):
            x.neg_()

    measured = device_time(call, Cuda(0), 0.01, None)
    assert measured.device_s is None
    assert "more launches than fit its queue" in measured.device_reason


# The runtime itself ---------------------------------------------------------------------------------------------------


def test_each_device_captures_its_own_work():
    def replay_ms(device: Cuda) -> float:
        x = torch.ones(10, device=str(device))

        def call() -> torch.Tensor:
            assert not torch.cuda.is_current_stream_capturing() or not gc.isenabled()
            for _ in range(100):
                x.neg_()
            return x

        replay, _ = device.capture_graph(call)
        assert gc.isenabled()
        start = device.record_event()
        replay()
        end = device.record_event()
        device.synchronize()
        return start.elapsed_time(end)

    assert min(replay_ms(Cuda(index)) for index in (0, 1)) > 0.1


def test_a_device_has_a_context_once_it_is_used():
    script = """
import torch
def contexts(): return [torch._C._cuda_hasPrimaryContext(index) for index in (0, 1)]
print(contexts())
torch.ones(1, device="cuda:1")
print(contexts())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[False, False]", "[False, True]"], done.stderr


# What the driver's library tells --------------------------------------------------------------------------------------

FIRST, SECOND = Cuda(0), Cuda(1)
CLOCKS = {"sm": 1980e6, "memory": 2619e6}
USUAL = {"SM_MHZ": 1980, "WATTS": 300, "TICK_MS": 100, "NVLINK": 1}
USUAL |= dict.fromkeys(("REASONS", "POWER_NS", "HEAT_NS", "PIDS"), 0)


@pytest.fixture
def tell():
    """Change the library's facts of the second GPU, until the end of the test."""
    library = ctypes.CDLL("libnvidia-ml.so.1")

    def change(**values: int) -> None:
        for name, value in values.items():
            assert library.pretend_nvml_set(1, name.encode(), ctypes.c_int64(value)) == 0

    yield change
    change(**USUAL)


def test_facts_are_the_driver_s():
    facts = SECOND.facts()
    assert (facts["driver"], facts["power_limit_w"]) == ("580.00.01", 700.0)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [(0, ()), (1, ()), (4, ("power limit",)), (0x20, ("heat",)), (0x44, ("power limit", "heat (hardware)"))],
)
def test_answers_are_those_of_the_gpu_that_is_asked(tell, bits, reasons):
    tell(SM_MHZ=1200, REASONS=bits, POWER_NS=2_500_000_000, HEAT_NS=1_000_000, PIDS=2)
    assert (FIRST.clocks(), SECOND.clocks()) == (CLOCKS, CLOCKS | {"sm": 1200e6})
    assert (FIRST.throttle_reasons(), SECOND.throttle_reasons()) == ((), reasons)
    assert SECOND.throttled_s() == {"power limit": 2.5, "heat": 1e-3}
    assert (FIRST.other_processes(), SECOND.other_processes()) == (0, 2)
    (flag,) = (each for each in disturbed(read_counters([SECOND]), read_counters([SECOND])) if each.name == "contended")
    assert "2 other processes on the device" in flag.seen


def test_lower_clocks_and_seconds_held_down_are_throttled(tell):
    before = read_counters([FIRST, SECOND])
    assert "throttled" not in [flag.name for flag in disturbed(before, read_counters([FIRST, SECOND]))]
    time.sleep(0.02)
    tell(SM_MHZ=1000, HEAT_NS=10_000_000)
    (flag,) = (each for each in disturbed(before, read_counters([FIRST, SECOND])) if each.name == "throttled")
    assert "cuda:1: heat" in flag.seen
    assert "cuda:1: 1.98 to 1.00 GHz" in flag.seen
    assert "cuda:0" not in flag.seen


def test_energy_is_power_over_time_in_ticks(tell):
    tell(WATTS=250, TICK_MS=20)
    start_s, start_j = time.monotonic(), SECOND.energy_j()
    time.sleep(0.3)
    joules, seconds = SECOND.energy_j() - start_j, time.monotonic() - start_s
    assert joules == pytest.approx(250 * seconds, abs=250 * 0.04)
    assert joules / (250 * 0.02) == pytest.approx(round(joules / (250 * 0.02)))


def test_nvlink_joins_both_ways_or_not(tell):
    assert Cuda.interconnect([1, 0]) == "NVLink"
    tell(NVLINK=0)
    assert Cuda.interconnect([0, 1]) == "PCIe"


# The suite ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_every_benchmark_ends_without_an_error(count, tmp_path, capsys):
    """All of smoke on all devices, eager, under autocast and as graphs; Triton, which compiles, isn't there."""
    variants = [f"--variant={variant}" for variant in ("eager", "autocast", "graph")]
    command = [sys.executable, "-m", "gpubench", "run", "--preset=smoke", "--device=all", *variants]
    command += ["--charts=none", "-o", tmp_path]
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


@pytest.mark.parametrize("family", ["matmul", "elementwise", "transfer"])
def test_the_preset_quick_measures_its_sizes(run, family):
    records, rows, _ = run("--device=cuda", "--preset=quick", "-k", f"{family}.")
    assert {row["status"] for row in rows.values()} <= {"skipped"}
    assert len(records) > 5
    for record in records.values():
        assert record["device_s"] or record["device_reason"], record


def test_ranks_of_torchrun_measure_over_nccl(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "pytest"]
    suite = Path(__file__).parents[2] / "benchmarks/test_distributed.py"
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
