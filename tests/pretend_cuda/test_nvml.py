"""What the driver's library tells of a GPU, asked through NVIDIA's own binding on the pretend NVML."""

from __future__ import annotations

import ctypes
import os
import time

import pytest

if "PRETEND_CUDA_DEVICES" not in os.environ:
    pytest.skip("needs the pretend CUDA runtime: tox run -e pretend-cuda", allow_module_level=True)

from gpubench.devices import cuda
from gpubench.devices.cuda import Cuda
from gpubench.measure.disturbance import disturbed, look

FIRST, SECOND = Cuda(0), Cuda(1)
USUAL = {"SM_MHZ": 1980, "WATTS": 300, "TICK_MS": 100, "NVLINK": 1}
USUAL |= dict.fromkeys(("REASONS", "POWER_NS", "HEAT_NS", "PIDS"), 0)


@pytest.fixture
def tell():
    """Change what the library says of the second GPU, until the end of the test."""
    library = ctypes.CDLL("libnvidia-ml.so.1")

    def change(**values: int) -> None:
        for name, value in values.items():
            assert library.pretend_nvml_set(1, name.encode(), ctypes.c_int64(value)) == 0

    yield change
    change(**USUAL)


def test_facts_are_the_driver_s():
    facts = SECOND.facts()
    assert facts["driver"] == cuda.driver() == "580.00.01"
    assert (facts["power_limit_w"], facts["max_sm_hz"], facts["max_memory_hz"]) == (700.0, 1980e6, 2619e6)


def test_clocks_are_those_of_the_gpu_that_is_asked(tell):
    tell(SM_MHZ=1200)
    assert SECOND.clocks() == {"sm": 1200e6, "memory": 2619e6}
    assert FIRST.clocks() == {"sm": 1980e6, "memory": 2619e6}


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [(0, ()), (1, ()), (4, ("power limit",)), (0x20, ("heat",)), (0x44, ("power limit", "heat (hardware)"))],
)
def test_reasons_for_lower_clocks_but_for_idleness(tell, bits, reasons):
    tell(REASONS=bits)
    assert SECOND.throttle_reasons() == reasons
    assert FIRST.throttle_reasons() == ()


def test_seconds_of_each_reason(tell):
    tell(POWER_NS=2_500_000_000, HEAT_NS=1_000_000)
    assert SECOND.throttled_s() == {"power limit": 2.5, "heat": 1e-3}


def test_lower_clocks_and_seconds_held_down_are_throttled(tell):
    before = look([FIRST, SECOND])
    assert "throttled" not in [flag.name for flag in disturbed(before, look([FIRST, SECOND]), 1)]
    time.sleep(0.02)
    tell(SM_MHZ=1000, HEAT_NS=10_000_000)
    (flag,) = (each for each in disturbed(before, look([FIRST, SECOND]), 1) if each.name == "throttled")
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


def test_other_processes_are_those_besides_this_one(tell):
    assert SECOND.other_processes() == 0
    tell(PIDS=2)
    assert SECOND.other_processes() == 2
    (flag,) = (each for each in disturbed(look([SECOND]), look([SECOND]), 1) if each.name == "contended")
    assert "2 other processes on the device" in flag.seen


def test_nvlink_joins_both_ways_or_not(tell):
    assert Cuda.interconnect([1, 0]) == "NVLink"
    tell(NVLINK=0)
    assert Cuda.interconnect([0, 1]) == "PCIe"
