"""What a rank times: its device's work, not the queueing."""

import pytest
from virtual import Machine, device

from gpubench import devices
from gpubench.measure.budget import PRESETS
from gpubench.measure.verify import unchecked
from gpubench.parallel.rank import measure
from gpubench.parallel.rendezvous import Place


class Job:
    """Each step queues 2 ms on a virtual accelerator."""

    dtype = "float32"

    def __init__(self, machine):
        self.machine = machine

    def start(self, place):
        return self

    def check(self):
        return unchecked("nothing to check")

    def reset(self):
        pass

    def step(self):
        self.machine.launch(2e-3)

    def told(self):
        return {}


def test_a_rank_waits_for_its_device(monkeypatch):
    machine = Machine()
    monkeypatch.setitem(devices.base.KINDS, "virtual", type(device(machine)))
    found = measure(Place(0, 1, "virtual:0", 1), Job(machine), PRESETS["quick"])
    assert found.first_s == pytest.approx(2e-3, rel=1e-6)
    assert found.durations == [pytest.approx(2e-3 * found.iterations, rel=1e-6)] * len(found.durations)
