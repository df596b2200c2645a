"""Peaks of products: several ways on a CPU, and what a library that is held back does to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
import torch
from vendors import raising

from gpubench.devices import CPU, implementations
from gpubench.devices.virtual import VirtualDevice
from gpubench.measure import ceilings, environment
from gpubench.measure.record import MOST_REMEASURED
from gpubench.runfile.facts import facts
from gpubench.runfile.journal import read_ledger
from gpubench.runfile.ledger import assemble
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Ceilings, CpuFacts, Machine, Run
from gpubench.runfile.utilisation import slow_products

HELD_BACK = """
import msgspec
from gpubench.measure import ceilings, environment
environment.set_threads(1)
facts = environment.machine()["cpu"], ceilings.measure_products(["float32", "float64"])
print(msgspec.json.encode(facts).decode())
"""


def test_a_cpus_products_are_computed_in_several_ways_and_the_fastest_counts(one_thread):
    found = ceilings.measure_products(["float32", "float64", "tf32"])
    assert set(found.ways["float32"]) >= {"torch", "numpy"}
    assert ("onednn" in found.ways["float32"]) == torch.backends.mkldnn.is_available()
    assert set(found.ways["float64"]) == {"torch", "numpy"}  # oneDNN has no float64
    assert found.throughput == {dtype: max(ways.values()) for dtype, ways in found.ways.items() if ways}


def test_a_library_is_asked_by_its_own_interface_and_closed(one_thread, monkeypatch):
    class Other(implementations.NumPy):
        name, label, closed = "other", "Other", []
        dtypes: ClassVar = ("float64",)

        def close(self) -> None:
            self.closed.append(self.dtype)

    monkeypatch.setitem(implementations.LIBRARIES, "other", Other)
    found = ceilings.measure_products(["float32", "float64"])
    assert "other" not in found.ways["float32"]
    assert found.ways["float64"]["other"] > 0
    assert Other.closed == ["float64"]


def test_a_way_that_fails_is_left_out(one_thread, monkeypatch):
    monkeypatch.setattr(ceilings, "_of_onednn", raising(RuntimeError))
    assert "onednn" not in ceilings.measure_products(["float32"]).ways["float32"]


@pytest.mark.parametrize(("clock", "known"), [(3e9, True), (None, False)])
def test_beside_it_what_the_instruction_set_allows(one_thread, monkeypatch, clock, known):
    monkeypatch.setattr(ceilings, "highest_clock", lambda: clock)
    monkeypatch.setattr(ceilings, "instructions", lambda: ("avx2", "fma"))
    found = ceilings.measure_products(["float32"])
    assert found.allowed == ({"float32": 2 * 8 * 2 * 3e9} if known else {})


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="MKL alone knows the variable")
def test_a_library_that_a_variable_holds_back_is_named_and_has_its_true_share():
    """MKL_CBWR=COMPATIBLE has MKL use SSE2 alone, on any x86 CPU, and nothing else than MKL."""
    command = [sys.executable, "-c", HELD_BACK]
    held = os.environ | {"MKL_CBWR": "COMPATIBLE"}
    printed = subprocess.run(command, capture_output=True, env=held, check=True).stdout
    cpu, products = msgspec.json.decode(printed, type=tuple[CpuFacts, Ceilings])
    assert products.throughput["float32"] == max(products.ways["float32"].values())
    slow = [(claim, reason) for library, claim, reason in slow_products(products, cpu) if library == "torch"]
    for dtype, (claim, reason) in zip(("float32", "float64"), slow, strict=True):
        share = products.ways[dtype]["torch"] / products.throughput[dtype]
        assert claim.startswith(f"PyTorch's {dtype} products run at {share:.0%} of ")
        assert "MKL_CBWR=COMPATIBLE is set" in reason
    without = msgspec.convert(environment.machine()["cpu"], CpuFacts)
    before, after = facts([Run(Path(), Machine("", (), cpu=each), ()) for each in (without, cpu)], ())
    assert (before.cpu["MKL_CBWR"], after.cpu["MKL_CBWR"]) == ("not set", "COMPATIBLE")


def test_each_pattern_counts_the_passes_over_its_arrays(monkeypatch):
    """In one second each; what is written in place was read before. All have one footprint."""
    monkeypatch.setattr(ceilings, "_shortest", lambda call, clock, seconds: 1.0)
    monkeypatch.setattr(ceilings, "_footprints", lambda device, effort: [("memory", 2410)])
    found = ceilings._bandwidth(CPU, ceilings.EFFORTS["smoke"])
    passes = {"read": 1, "in-place": 2, "copy": 1, "triad": 1, "write": 1}
    rates = {each.pattern: (each.footprint_bytes, each.byte_per_s) for each in found}
    assert rates == {name: (2400, 2400 * count) for name, count in passes.items()}


@pytest.mark.parametrize("size", [None, 50 << 20, 4 << 20])
@pytest.mark.parametrize("effort", ["brief", "quick", "full"])
def test_memory_begins_at_four_times_the_last_cache(monkeypatch, size, effort):
    """Apple's and Intel's are unknown and have up to 100 MB and more: memory must not be measured in them."""
    monkeypatch.setattr(VirtualDevice, "cache_bytes", lambda self: size)
    monkeypatch.setattr(VirtualDevice, "memory", lambda self: None)
    levels = ceilings._footprints(VirtualDevice(), ceilings.EFFORTS[effort])
    memory = [nbytes for level, nbytes in levels if level == "memory"]
    assert memory
    most = ceilings.EFFORTS[effort].footprint
    assert most >= max(memory) >= min(memory) >= min(4 * (size or 256e6), most)
    in_caches = max(nbytes for level, nbytes in levels if level != "memory")
    assert in_caches >= min(memory) / 2  # data just beyond the cache isn't compared with the cache itself


def test_a_pass_shorter_than_its_launch_is_timed_by_the_device(monkeypatch):
    shortest, device_s = {"value": 1e-5}, ceilings.device_time(lambda: None, VirtualDevice(), 1e-5, None)
    monkeypatch.setattr(ceilings, "_shortest", lambda *_: shortest["value"])
    monkeypatch.setattr(ceilings, "device_time", lambda *_: device_s._replace(device_s=2e-6))
    monkeypatch.setattr(ceilings, "_footprints", lambda *_: [("l2", 1 << 20)])
    monkeypatch.setattr(ceilings, "_random", lambda count, device: torch.zeros(count))

    def rates():
        measured = ceilings._bandwidth(VirtualDevice(), ceilings.EFFORTS["smoke"])
        return {round(each.byte_per_s / (1 << 20) / 1e3) for each in measured}

    assert max(rates()) == 1000
    shortest["value"] = 1e-3
    assert max(rates()) == 2


def test_accelerators_have_one_way():
    accelerator = type("Accelerator", (type(CPU),), {"accelerator": True, "memory": lambda self: None})()
    assert set(ceilings._ways(accelerator, "float32", ceilings.EFFORTS["smoke"])) == {"torch"}


def test_peaks_that_a_run_disproves_are_measured_again_for_its_first_results(bench, pytester, monkeypatch):
    """They are 1000 times too low, and stay so."""
    low, products = Ceilings(throughput={"float32": 1e3, "float16": 1e3}), []

    def measure(wanted, effort):
        products.extend(sorted(dtypes) for dtypes in wanted.values())
        return {"cpu": low}

    monkeypatch.setattr(ceilings, "measure_ceilings", measure)
    source = "import pytest, torch\n@pytest.mark.parametrize('n', [64, 65, 66, 67])\n"
    source += "def test_it(gpubench, n): gpubench(torch.mm, *(gpubench.randn(n, n),) * 2)"
    bench(source, usual=["--gpubench-threads=1", "--benchmark-json=run.json"])
    assert products[1:] == MOST_REMEASURED * [["float32"]]  # of the dtype in doubt alone
    assert read(pytester.path / "run.json").disproved == {"cpu": "4 of 4 results exceed them"}


def test_peaks_that_were_measured_again_are_those_of_the_run(bench, pytester, monkeypatch):
    low, high = (Ceilings(throughput={"float32": rate}) for rate in (1e3, 1e15))
    given = iter([low])
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda wanted, effort: {"cpu": next(given, high)})
    source = "import torch\ndef test_it(gpubench): gpubench(torch.mm, *(gpubench.randn(64, 64),) * 2)"
    bench(source, usual=["--gpubench-threads=1", "--gpubench-ledger=run.ledger.jsonl"])
    made = assemble(read_ledger(pytester.path / "run.ledger.jsonl"))
    assert made["gpubench"]["ceilings"]["cpu"]["throughput"] == {"float32": 1e15}
