"""Rates over time, on a device whose clock falls, and which runs measure them."""

from __future__ import annotations

import contextlib
import json

import pytest

from gpubench.devices import CPU
from gpubench.measure import sustained as module
from gpubench.plugin import recorder
from gpubench.runfile.reader import read
from gpubench.runfile.schema import Ceilings, Sustained
from gpubench.testing import VirtualDevice, VirtualMachine


class Heating(VirtualDevice):
    """Calls take 1 ms, and 2 ms once the device has worked for five seconds. It draws 300 W, then 200."""

    def call(self):
        self.machine.launch(1e-3 if self.machine.time_s < 5 else 2e-3)

    def energy_j(self):
        time_s = self.machine.time_s
        return 300 * min(time_s, 5) + 200 * max(0, time_s - 5)

    def clocks(self):
        return {"sm": 2e9 if self.machine.time_s < 5 else 1e9, "memory": 3e9}


def test_a_rate_a_clock_and_a_power_each_second():
    device = Heating.on(VirtualMachine())()
    rates, clocks, power = module.over_time(device, device.call, 1e9)
    found = Sustained("float32", 1024, "torch", tuple(rates), tuple(clocks), tuple(power))
    assert len(rates) == len(clocks) == len(power) == 20
    assert found.burst == pytest.approx(1e12, rel=0.01)
    assert found.lasting == pytest.approx(5e11, rel=0.01)
    assert (power[0], power[-1]) == (pytest.approx(300), pytest.approx(200))
    assert (clocks[0], clocks[-1]) == (2e9, 1e9)


def test_what_a_device_does_not_tell_is_unknown():
    machine = VirtualMachine()
    rates, clocks, power = module.over_time(VirtualDevice.on(machine)(), lambda: machine.launch(1e-3), 1e9, seconds=3)
    assert (len(rates), clocks, power) == (3, [], [])


@pytest.mark.parametrize(
    ("rate", "library", "n"), [(1e9, "torch", 256), (1e11, "torch", 2048), (1e11, "numpy", 2048), (1e12, "numpy", 4096)]
)
def test_the_fastest_librarys_largest_product_that_stays_short(monkeypatch, rate, library, n):
    seen = []
    monkeypatch.setattr(module, "random_matrix", lambda size, dtype, device: seen.append(size))
    maker = {library: lambda a: lambda: None}
    monkeypatch.setattr(module, "product_makers", lambda device, dtype, wanted: contextlib.nullcontext(maker))
    monkeypatch.setattr(module, "over_time", lambda device, call, flops: ([flops], [], []))
    peaks = Ceilings(throughput={"float32": rate}, ways={"float32": {"torch": 5e8, library: rate}})
    found = module.sustained(CPU, peaks)
    assert (found.library, found.n, seen) == (library, n, [n])
    assert found.flop_per_s == (2.0 * n**3,)
    assert module.sustained(CPU, Ceilings()) is None


RATES = Sustained("float32", 1024, "torch", (2e11, 1.5e11))


@pytest.mark.parametrize(
    ("long_s", "options", "measured"),
    [
        (0.0, [], True),
        (1e9, [], False),  # a short one doesn't
        (0.0, ["--gpubench-preset=smoke"], False),
        (0.0, ["--gpubench-process=0/2"], False),  # its last process does
        (0.0, ["--gpubench-process=1/2"], False),  # which knows no peaks, without the first one
        (0.0, ["--gpubench-no-ceilings"], False),
    ],
)
def test_the_last_process_of_a_long_run_measures_them(bench, pytester, monkeypatch, long_s, options, measured):
    monkeypatch.setattr(recorder, "LONG_RUN_S", long_s)
    monkeypatch.setattr(recorder, "sustained", lambda device, peaks: RATES)
    monkeypatch.setattr("gpubench.measure.ceilings.measure_ceilings", lambda wanted, effort: {"cpu": Ceilings()})
    ledger = pytester.path / "run.ledger.jsonl"
    source = "import torch\ndef test_it(gpubench): gpubench(torch.neg, gpubench.randn(100))"
    bench(source, usual=[f"--gpubench-ledger={ledger}", *options])
    events = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert events[-1]["event"] == "finish"
    assert bool(events[-1]["sustained"]) == measured
    if measured:
        run = pytester.path / "run.json"
        run.write_text(json.dumps(recorder.assemble(recorder.read_ledger(ledger))))
        assert read(run).sustained == {"cpu": RATES}
