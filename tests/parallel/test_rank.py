"""What a rank times: its device's work, not the queueing."""

import pytest

from gpubench import devices
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.verify import unchecked
from gpubench.parallel.rank import measure_rank
from gpubench.parallel.rendezvous import Rank
from gpubench.testing import VirtualDevice, VirtualMachine


class Job:
    """Each step queues 2 ms on a virtual accelerator."""

    dtype = "float32"

    def __init__(self, machine):
        self.machine = machine

    def start(self, rank):
        return self

    def check(self):
        return unchecked("nothing to check")

    def reset(self):
        pass

    def step(self):
        self.machine.launch(2e-3)

    def record(self):
        return {}


def test_a_rank_waits_for_its_device(monkeypatch):
    machine = VirtualMachine()
    monkeypatch.setitem(devices.base.KINDS, "virtual", VirtualDevice.on(machine))
    times = measure_rank(Rank(0, 1, "virtual:0", 1), Job(machine), PRESET_SETTINGS["quick"])
    assert times.first_s == pytest.approx(2e-3, rel=1e-6)
    assert times.durations == [pytest.approx(2e-3 * times.iterations, rel=1e-6)] * len(times.durations)
