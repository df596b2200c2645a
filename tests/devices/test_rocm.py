"""What an AMD GPU's library and kernel would tell, by their documentation: stand-ins of both."""

from __future__ import annotations

import contextlib
import functools
import sys
import types

import pytest
import torch
import vendors

from gpubench.devices import cuda, rocm
from gpubench.testing import VirtualMachine

PLACE = "0000:43:00"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(rocm, "_library", functools.cache(rocm._library.__wrapped__))


@pytest.fixture
def library(monkeypatch):
    fake = vendors.amdsmi()
    monkeypatch.setitem(sys.modules, "amdsmi", fake)
    return fake


def test_what_the_library_tells_of_the_gpu_at_a_place(library):
    assert rocm.why_unknown(PLACE) is None
    assert rocm.clocks(PLACE) == {"sm": 2.1e9, "memory": 1.3e9}
    assert rocm.energy_j(PLACE) == pytest.approx(61.0)
    assert rocm.throttle_reasons(PLACE) == ("power limit",)
    # An older library names the counter otherwise.
    library.amdsmi_get_energy_count = lambda gpu: {"power": 1_000_000, "counter_resolution": 15.25}
    assert rocm.energy_j(PLACE) == pytest.approx(15.25)


def test_what_is_missing_says_so(library, monkeypatch):
    assert rocm.why_unknown("0000:99:00") == "amdsmi knows no GPU at 0000:99:00"
    assert rocm.why_unknown(None) == "this PyTorch doesn't say where on the PCI bus a GPU is"
    library.amdsmi_get_clock_info = lambda gpu, domain: {"clk": "N/A"}
    assert rocm.clocks(PLACE) is None
    library.amdsmi_init = vendors.raising(RuntimeError)
    rocm._library.cache_clear()
    assert rocm.why_unknown(PLACE) == "amdsmi can't be used: no driver"
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    rocm._library.cache_clear()
    assert str(rocm.why_unknown(PLACE)).startswith("amdsmi can't be imported")
    assert (rocm.clocks(PLACE), rocm.energy_j(PLACE), rocm.throttle_reasons(PLACE)) == (None, None, ())


def test_the_place_of_a_gpu(monkeypatch):
    assert rocm.address(types.SimpleNamespace(pci_domain_id=0, pci_bus_id=0x43, pci_device_id=0)) == PLACE
    assert rocm.address(types.SimpleNamespace(pci_bus_id=0x43)) is None


def test_the_last_cache_is_the_largest_that_the_kernel_lists(tmp_path):
    for node, location, caches in ((0, 0, {}), (1, 0x43 << 8, {"0": (2, 4096), "1": (3, 262144)})):
        folder = tmp_path / str(node)
        folder.mkdir()
        (folder / "properties").write_text(f"simd_count 4\nlocation_id {location}\ndomain 0\nname gfx\n")
        for name, (level, size) in caches.items():
            (folder / "caches" / name).mkdir(parents=True)
            (folder / "caches" / name / "properties").write_text(f"level {level}\nsize {size}\n")
    assert rocm.cache_bytes(PLACE, tmp_path) == 256 << 20
    assert rocm.cache_bytes("0000:44:00", tmp_path) is None
    assert rocm.cache_bytes(None, tmp_path) is None


class TestCudaOnAmd:
    @pytest.fixture
    def gpu(self, monkeypatch):
        monkeypatch.setattr(torch.version, "hip", "7.0")
        places = {"pci_domain_id": 0, "pci_bus_id": 0x43, "pci_device_id": 0}
        properties = types.SimpleNamespace(L2_cache_size=4 << 20, **places)
        monkeypatch.setattr(cuda.Cuda, "_properties", lambda self: properties)
        monkeypatch.setattr(cuda, "_ticks_per_s", functools.cache(cuda._ticks_per_s.__wrapped__))
        return cuda.Cuda(0)

    def test_its_second_level_cache_is_not_taken_for_the_last(self, gpu, monkeypatch):
        monkeypatch.setattr(rocm, "cache_bytes", lambda place: {PLACE: 256 << 20}[place])
        assert gpu.cache_bytes() == 256 << 20

    def test_the_library_is_asked(self, gpu, library):
        assert gpu.clocks() == {"sm": 2.1e9, "memory": 1.3e9}
        assert gpu.energy_j() == pytest.approx(61.0)
        assert gpu.throttle_reasons() == ("power limit",)

    @pytest.mark.parametrize("ticks_per_s", [1e8, 2.4e9])
    def test_a_hold_lasts_as_long_as_asked_for_whatever_clock_it_counts(self, gpu, monkeypatch, ticks_per_s):
        """100 MHz on RDNA3, where cycles at 3 GHz would be thirty times too many."""
        machine = VirtualMachine(tick_s=0.0)

        def sleep(ticks: int) -> None:
            machine.time_s += ticks / ticks_per_s

        monkeypatch.setattr(torch.cuda, "_sleep", sleep, raising=False)
        monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
        monkeypatch.setattr(cuda.Cuda, "record_event", lambda self: vendors.Moment(machine.time_s))
        monkeypatch.setattr(cuda.Cuda, "synchronize", lambda self: None)
        gpu.queue_wait(0.0)
        before = machine.time_s
        gpu.queue_wait(0.01)
        assert 0.01 <= machine.time_s - before <= 0.016
