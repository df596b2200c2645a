"""Peaks of devices: several ways on a CPU, and the effect of a library that is held back. And the measurements of a
case besides its wall time, on an accelerator with scripted costs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import forked
import msgspec
import pytest
import torch
from dispatched import Dispatched
from vendors import Moment, raising

from gpubench import devices
from gpubench.devices import CPU, implementations
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.measure import environment, probes
from gpubench.measure.clock import DeviceClock
from gpubench.measure.fixture import MOST_REMEASURED
from gpubench.measure.session import Session, Settings
from gpubench.runfile.facts import facts
from gpubench.runfile.ledger import assemble, read_ledger
from gpubench.runfile.quality import slow_products
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Case, Ceilings, CpuFacts, Machine, Run

TESTS = Path(__file__).parent.parent
pytestmark = pytest.mark.xdist_group("probes")  # they look at one run
SCRIPTED = """
import itertools, pytest, torch
def neg(gpubench):
    x, y = gpubench.randn(250_000), gpubench.empty(250_000)
    gpubench.declare(nbytes=2 * x.nbytes, items=250_000)(torch.neg, x, out=y)
@pytest.mark.costs(launch_s=2e-5, delay_s=2e-4, copy_byte_per_s=1e9, watts=200.0)
def test_all(gpubench):
    before = gpubench.home.allocated_memory()
    neg(gpubench)
    flush = 1 << 21 if gpubench.case.cache == "cold" else 0
    assert before - gpubench.home.allocated_memory() >= flush  # what flushes is gone, though pytest keeps the fixture
@pytest.mark.costs(launch_s=2e-4, delay_s=1e-5)
def test_launch_bound(gpubench): neg(gpubench)
@pytest.mark.costs(launch_s=5e-5, delay_s=2e-4)
def test_item(gpubench): gpubench.declare(check=False)(lambda x: x.sum().item(), gpubench.randn(8))
@pytest.mark.costs(launch_s=5e-5, delay_s=0.5)
def test_long(gpubench):
    calls = itertools.count()  # the first call alone needs more memory
    gpubench(lambda x: x.neg() if next(calls) else x.neg().neg().neg(), gpubench.randn(250_000))
@pytest.mark.gpubench(dtypes=["float32"])
def test_switches(gpubench):
    seen, before = set(), torch.get_float32_matmul_precision()
    def call(x):
        seen.add(torch.get_float32_matmul_precision())
        return x.neg()
    torch.set_float32_matmul_precision("high")
    gpubench.declare(check=False)(call, gpubench.randn(8))
    torch.set_float32_matmul_precision(before)
    assert seen == {"highest"}  # the call after the probes too: in other switches a compiled one compiles again
@pytest.mark.costs(launch_s=5e-5, delay_s=0.0)
def test_nothing(gpubench): neg(gpubench)
"""


def on_scripted(folder, source, *options):
    """The benchmarks of a process on the scripted accelerator."""
    (folder / "test_it.py").write_text(source)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    usual = "--gpubench-no-ceilings", "--gpubench-device=fake", "--benchmark-json=run.json"
    done = forked.pytest("-p", "scripted", *usual, *options, "-q", cwd=folder, PYTHONPATH=paths)
    assert done.returncode == 0, done.stdout
    return json.loads((folder / "run.json").read_text())["benchmarks"]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """All cases in one process, hot and cold: benchmarks by (test, cache)."""
    # Of a clock that only moves as scripted; less time has no energy.
    options = "--gpubench-cache=both", "--benchmark-max-time=0.05"
    benchmarks = on_scripted(tmp_path_factory.mktemp("scripted"), SCRIPTED, *options)
    return {(each["name"].split("[")[0], each["extra_info"]["gpubench"]["cache"]): each for each in benchmarks}


def about(value):
    return pytest.approx(value, rel=0.02)


def test_wall_device_launch_and_transfer_times_come_back(scripted):
    benchmark = scripted["test_all", "hot"]
    record = benchmark["extra_info"]["gpubench"]
    assert benchmark["stats"]["median"] == about(2e-4)
    assert (record["device_s"], record["device_method"]) == (about(2e-4), "held")
    assert record["launch_s"] == about(2e-5)
    assert record["latency_s"] == about(2.2e-4)
    moved = record["transfer"]
    assert (moved["in_bytes"], moved["out_bytes"]) == (1_000_000, 1_000_000)
    assert [moved["in_s"], moved["out_s"]] == [about(2e-3 + 2e-5)] * 2  # pageable: half the speed, and one launch
    assert record["energy_j"] is None  # measured by the preset full alone
    assert record["memory_bytes"] == 2_000_000
    bound = scripted["test_launch_bound", "hot"]
    assert bound["stats"]["median"] == about(2e-4)
    record = bound["extra_info"]["gpubench"]
    assert (record["device_s"], record["launch_s"]) == (about(1e-5), about(2e-4))  # less than the wall time
    # Rounds of one call each keep its result during the next one; memory is that of one call.
    long = scripted["test_long", "hot"]["extra_info"]["gpubench"]
    assert long["memory_bytes"] == 2_000_000


def test_a_gpu_in_the_cpu_s_memory_has_no_copies(tmp_path):
    (tmp_path / "conftest.py").write_text("from scripted import Scripted; Scripted.shares_memory = True")
    source = SCRIPTED.partition("@pytest")[0] + "test_it = neg"
    (mark,) = on_scripted(tmp_path, source, "--gpubench-preset=smoke")
    moved = mark["extra_info"]["gpubench"]["transfer"]
    assert (moved.pop("in_bytes"), moved.pop("out_bytes"), {*moved.values()}) == (1_000_000, 1_000_000, {None})


def test_cold_flushes_before_every_round_and_outside_the_device_time(scripted):
    assert {each["extra_info"]["gpubench"]["device"] for each in scripted.values()} == {"fake:0"}
    assert {cache for name, cache in scripted if name == "test_all"} == {"hot", "cold"}
    cold = scripted["test_all", "cold"]["extra_info"]["gpubench"]
    assert cold["id"] == "it.all[float32-cold]"
    assert cold["device_s"] == about(2e-4)
    assert cold["processes"][0]["iterations"] == 1
    assert cold["memory_bytes"] == 2_000_000  # the flushed room is not the case's
    assert {each["options"]["timer"] for each in scripted.values()} == {"device_clock"}


def test_what_has_no_device_time_of_its_own_has_a_reason(scripted):
    waits, nothing = (scripted[name, "hot"]["extra_info"]["gpubench"] for name in ("test_item", "test_nothing"))
    assert waits["device_s"] is nothing["device_s"] is None
    assert "waits for the device" in waits["device_reason"]
    assert nothing["device_reason"] == "the call took no time that the device's clock shows"


def test_a_cpu_has_no_device_time_and_of_transfers_the_bytes_alone(bench):
    source = SCRIPTED.partition("@pytest")[0] + "def test_neg(gpubench): neg(gpubench)\n"
    ran = bench(source, usual=["--gpubench-preset=smoke", "--benchmark-json=run.json"], passed=1)
    (record,) = ran.records
    assert [record[key] for key in ("device_s", "launch_s", "energy_j")] == [None] * 3
    sizes = {"in_bytes": 1_000_000, "out_bytes": 1_000_000}
    assert record["transfer"] == sizes | dict.fromkeys(("in_s", "out_s", "in_pinned_s", "out_pinned_s"))
    assert record["memory_bytes"] == 2_000_000
    assert record["precision"]["tf32"] is False
    assert "cpu" in ran.data["gpubench"]["ceilings"]


@dataclass
class Calls:
    """Calls that cost the host and the device so many seconds; ``count`` of them were made."""

    device_s: float
    host_s: float = 0.0
    start_s: float = 0.0
    count: int = 0

    def __post_init__(self):
        self.machine = VirtualMachine(time_s=self.start_s)

    def __call__(self):
        self.count += 1
        self.machine.time_s += self.host_s
        self.machine.launch(self.device_s)

    def timed(self, watts=200.0, step_s=0.1):
        """A virtual device with events and an energy counter that moves every ``step_s`` seconds; it can't be held."""
        machine = self.machine

        class Timed(VirtualDevice.on(machine)):
            def energy_j(self):
                return None if watts is None else watts * step_s * int(machine.time_s / step_s)

            def record_event(self):
                return Moment(max(machine.time_s, machine.busy_until_s.get(self.index, 0.0)), machine)

        return Timed()

    def energy(self, **terms):
        device = self.timed(**terms)
        return probes.energy(self, device, DeviceClock([device]), self.device_s, 1.0)

    def device_time(self, device=None):
        return probes.device_time(self, device or self.timed(), self.device_s + self.host_s, None)


@pytest.mark.parametrize(
    ("call_s", "step_s", "start_s", "least_s", "most_s"),
    [
        # From step to step for a second, wherever between two it begins: over 0.3 s it would be off by a third.
        (3e-3, 0.1, 0.0, 1.0, 1.3),
        (3e-3, 0.1, 0.013, 1.0, 1.3),
        (3e-3, 0.1, 0.099, 1.0, 1.3),
        (1e-3, 1e-3, 0.0, 0.0, 0.3),  # one that moves often needs no second
    ],
)
def test_energy_is_counted_from_step_to_step(call_s, step_s, start_s, least_s, most_s):
    calls = Calls(call_s, start_s=start_s)
    assert calls.energy(step_s=step_s) == pytest.approx(200.0 * call_s, rel=0.01)
    assert least_s <= calls.machine.time_s - start_s < most_s


@pytest.mark.parametrize("watts", [0.0, None])
def test_a_counter_that_stands_still_or_is_none_gives_no_energy(watts):
    calls = Calls(3e-3)
    assert calls.energy(watts=watts) is None
    assert calls.machine.time_s < 1.1


def test_probes_make_few_calls_of_a_long_one():
    """Of ten seconds each: eleven more of them would double a benchmark's time."""
    calls = Calls(10.0, host_s=1e-3)
    found = calls.device_time()
    assert (found.device_s, found.launch_s) == (about(10.0), about(1e-3))
    assert calls.count == 1
    assert calls.energy() == about(2000.0)
    assert calls.count == 3


def test_a_device_that_cannot_be_held_is_timed_by_its_events_where_it_lags_behind(monkeypatch):
    busy, waits = Calls(2e-4, host_s=1e-5).device_time(), Calls(1e-5, host_s=2e-4).device_time()
    assert (busy.device_s, busy.launch_s, busy.device_reason) == (about(2e-4), about(1e-5), None)
    assert (waits.device_s, waits.launch_s) == (None, about(2e-4))
    assert waits.device_reason == "launching takes as long as the work itself; device time unknown"
    calls = Calls(2e-4)
    found = calls.device_time(VirtualDevice.on(calls.machine)())  # without events
    assert (found.device_s, found.device_reason) == (None, "virtual can neither be made to wait nor time itself")
    monkeypatch.setattr(Moment, "elapsed_time", raising(NotImplementedError))  # events that tell no time
    assert Calls(2e-4).device_time().device_reason == "virtual can neither be made to wait nor time itself"


@pytest.mark.parametrize(
    ("device_s", "host_s", "found_s", "method", "says"),
    [
        (1e-5, 2e-4, None, None, "waits for the device"),
        (5e-3, 5e-5, 5e-3, "marked", "None"),  # of more launches than the queue holds, as a large network's step
    ],
)
def test_a_call_that_cannot_be_held_is_timed_where_the_device_lags(device_s, host_s, found_s, method, says):
    calls = Calls(device_s, host_s=host_s)
    device = calls.timed()
    device.queue_wait = lambda seconds: True  # over before the calls are queued
    found = calls.device_time(device)
    assert (found.device_s, found.launch_s) == (found_s and about(found_s), about(host_s))
    assert found.device_method == method
    assert says in str(found.device_reason)


def test_copies_return_the_pinned_memory_that_they_took_and_where_there_is_none_ordinary_ones_are_timed(monkeypatch):
    class Host(VirtualDevice):
        kind, indexed, returned = "cpu", False, []
        now = staticmethod(time.perf_counter)

        @classmethod
        def release_pinned_memory(cls):
            cls.returned.append(True)

    pinned, host = True, Host()
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: pinned)
    assert probes.transfer([torch.ones(100)], [torch.ones(10)], host).in_pinned_s is not None
    assert host.returned == [True]
    probes.measure_ceilings({host: []}, "smoke", print)
    assert host.returned == [True, True]
    pinned = False
    moved = probes.transfer([x := torch.ones(100), x.detach()], [], host)  # of one memory
    assert (moved.in_bytes, moved.in_s is None, moved.in_pinned_s) == (400, False, None)


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_estimate_of_a_run_has_the_second_in_which_energy_is_counted(virtual, monkeypatch, preset):
    counted, estimated = [], []
    source = "def test_it(gpubench, machine): gpubench.declare(check=False)(machine.launch, 1e-3)"
    for reading in (lambda self: None, lambda self: int(20 * self.machine.time_s)):
        monkeypatch.setattr(VirtualDevice, "energy_j", reading)
        begin = VirtualDevice.machine.time_s
        virtual(source, f"--gpubench-preset={preset}", "--gpubench-ledger=journal.jsonl", passed=1)
        counted.append(VirtualDevice.machine.time_s - begin)
        estimated.append(json.loads(Path("journal.jsonl").read_text().splitlines()[0])["estimated_s"])
        Path("journal.jsonl").unlink()
    assert estimated[1] - estimated[0] == pytest.approx(counted[1] - counted[0], rel=0.2, abs=0.01)


@pytest.mark.parametrize(("launches", "most"), [(1, 50), (30, 16), (1000, 1)])
def test_no_more_is_queued_than_fits_a_queue(launches, most):
    calls, made = Calls(1e-5, host_s=1e-6), []
    device = calls.timed()

    def wait(seconds):
        calls.machine.launch(seconds)
        made.append(calls.count)
        return True

    device.queue_wait = wait
    probes.device_time(calls, device, 1e-5, None, launches)
    assert {after - before for before, after in itertools.pairwise([*made, calls.count])} == {most}


def test_a_flush_writes_twice_the_cache_and_reads_as_much(monkeypatch):
    monkeypatch.setattr(type(CPU), "cache_bytes", lambda self: 1 << 20)
    call, done = probes.flush(CPU), []
    with Dispatched(lambda operator, args, *_: done.append((operator.overloadpacket.__name__, args[0].nbytes))):
        call()
    assert done == [("zero_", 2 << 20), ("sum", 2 << 20)]


# Peaks ----------------------------------------------------------------------------------------------------------------

HELD_BACK = """
import msgspec
from gpubench.measure import environment, probes
environment.set_threads(1)
facts = environment.machine()["cpu"], probes.measure_products(["float32", "float64"])
print(msgspec.json.encode(facts).decode())
"""


def test_a_cpus_products_are_computed_in_several_ways_and_the_fastest_counts(one_thread):
    found = probes.measure_products(["float32", "float64", "tf32"])
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
    found = probes.measure_products(["float32", "float64"])
    assert "other" not in found.ways["float32"]
    assert found.ways["float64"]["other"] > 0
    assert Other.closed == ["float64"]


def test_a_way_that_fails_is_left_out(one_thread, monkeypatch):
    monkeypatch.setattr(probes, "_of_onednn", raising(RuntimeError))
    assert "onednn" not in probes.measure_products(["float32"]).ways["float32"]


@pytest.mark.parametrize(("clock", "known"), [(3e9, True), (None, False)])
def test_beside_it_what_the_instruction_set_allows(one_thread, monkeypatch, clock, known):
    monkeypatch.setattr(probes, "highest_clock", lambda: clock)
    monkeypatch.setattr(probes, "instructions", lambda: ("avx2", "fma"))
    found = probes.measure_products(["float32"])
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
    """In one second each; memory written in place was read before. All have one footprint."""
    monkeypatch.setattr(probes, "shortest", lambda call, clock, seconds: 1.0)
    monkeypatch.setattr(probes, "_footprints", lambda device, effort: [("memory", 2410)])
    found = probes._bandwidth(CPU, probes.EFFORTS["smoke"])
    passes = {"read": 1, "in-place": 2, "copy": 1, "triad": 1, "write": 1}
    rates = {each.pattern: (each.footprint_bytes, each.byte_per_s) for each in found}
    assert rates == {name: (2400, 2400 * count) for name, count in passes.items()}


@pytest.mark.parametrize("size", [None, 50 << 20, 4 << 20])
@pytest.mark.parametrize("effort", ["brief", "quick", "full"])
def test_memory_begins_at_four_times_the_last_cache(monkeypatch, size, effort):
    """Apple's and Intel's are unknown and have up to 100 MB and more: memory must not be measured in them."""
    monkeypatch.setattr(VirtualDevice, "cache_bytes", lambda self: size)
    monkeypatch.setattr(VirtualDevice, "memory", lambda self: None)
    levels = probes._footprints(VirtualDevice(), probes.EFFORTS[effort])
    memory = [nbytes for level, nbytes in levels if level == "memory"]
    assert memory
    most = probes.EFFORTS[effort].footprint
    assert most >= max(memory) >= min(memory) >= min(4 * (size or 256e6), most)
    in_caches = max(nbytes for level, nbytes in levels if level != "memory")
    assert in_caches >= min(memory) / 2  # data just beyond the cache isn't compared with the cache itself


def test_a_pass_shorter_than_its_launch_is_timed_by_the_device(monkeypatch):
    shortest, device_s = {"value": 1e-5}, probes.device_time(lambda: None, VirtualDevice(), 1e-5, None)
    monkeypatch.setattr(probes, "shortest", lambda *_: shortest["value"])
    monkeypatch.setattr(probes, "device_time", lambda *_: device_s._replace(device_s=2e-6))
    monkeypatch.setattr(probes, "_footprints", lambda *_: [("l2", 1 << 20)])
    monkeypatch.setattr(probes, "_random", lambda count, device: torch.zeros(count))

    def rates():
        measured = probes._bandwidth(VirtualDevice(), probes.EFFORTS["smoke"])
        return {round(each.byte_per_s / (1 << 20) / 1e3) for each in measured}

    assert max(rates()) == 1000
    shortest["value"] = 1e-3
    assert max(rates()) == 2


@pytest.mark.parametrize(("lacks", "dtypes"), [(None, {"float32", "tf32"}), ("emulated", {"float32"})])
def test_tf32_has_a_peak_beside_float32_because_a_program_may_have_it_on(monkeypatch, lacks, dtypes):
    kind = type("Accelerator", (VirtualDevice,), {"lacks": lambda self, dtype: lacks})
    monkeypatch.setitem(devices.base.KINDS, "virtual", kind)
    monkeypatch.setattr(probes, "measure_ceilings", lambda wanted, *_: wanted)
    session = Session(Settings(), collected=[Case("a.b", "virtual:0", "float32")], threads=1)
    session.measure_ceilings()
    assert session.peaks == {kind(): dtypes}


def test_accelerators_have_one_way():
    accelerator = type("Accelerator", (type(CPU),), {"accelerator": True, "memory": lambda self: None})()
    assert set(probes.product_rates(accelerator, "float32", probes.EFFORTS["smoke"])) == {"torch"}


def test_peaks_that_a_run_disproves_are_measured_again_for_its_first_results(bench, pytester, monkeypatch):
    """They are 1000 times too low, and stay so."""
    low, products = Ceilings(throughput={"float32": 1e3, "float16": 1e3}), []

    def measure(wanted, *_):
        products.extend(sorted(dtypes) for dtypes in wanted.values())
        return {"cpu": low}

    monkeypatch.setattr(probes, "measure_ceilings", measure)
    source = "import pytest, torch\n@pytest.mark.parametrize('n', [64, 65, 66, 67])\n"
    source += "def test_it(gpubench, n): gpubench(torch.mm, *(gpubench.randn(n, n),) * 2)"
    bench(source, usual=["--gpubench-threads=1", "--benchmark-json=run.json"])
    assert products[1:] == MOST_REMEASURED * [["float32"]]  # of the dtype in doubt alone
    assert read(pytester.path / "run.json").disproved == {"cpu": "4 of 4 results exceed them"}


def test_peaks_that_were_measured_again_are_those_of_the_run(bench, pytester, monkeypatch):
    low, high = (Ceilings(throughput={"float32": rate}) for rate in (1e3, 1e15))
    given = iter([low])
    monkeypatch.setattr(probes, "measure_ceilings", lambda *_: {"cpu": next(given, high)})
    source = "import torch\ndef test_it(gpubench): gpubench(torch.mm, *(gpubench.randn(64, 64),) * 2)"
    bench(source, usual=["--gpubench-threads=1", "--gpubench-ledger=run.ledger.jsonl"])
    made = assemble(read_ledger(pytester.path / "run.ledger.jsonl"))
    assert made["gpubench"]["ceilings"]["cpu"]["throughput"] == {"float32": 1e15}


def test_a_device_that_fails_has_no_peaks_and_the_run_says_so_and_goes_on(bench, monkeypatch):
    monkeypatch.setattr(probes, "_ceilings", raising(RuntimeError))
    source = "import torch\ndef test_it(gpubench): gpubench(torch.neg, gpubench.randn(64))"
    ran = bench(source, "-Werror", usual=["--gpubench-threads=1", "--benchmark-json=run.json"], passed=1)
    assert "gpubench: no % of peak of cpu, as measuring its peaks failed: no driver" in ran.said
    assert ran.data["gpubench"]["ceilings"] == {}
