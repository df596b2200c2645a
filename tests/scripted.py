"""The fake backend on a virtual clock, every cost of it scripted: what a kind of device can tell, exactly.

``-p scripted`` (with tests/ on PYTHONPATH) registers it in place of the real-time one. The environment variable
``SCRIPT`` sets the costs as JSON: ``launch_s``, ``delay_s``, ``copy_byte_per_s``, ``watts``.
"""

import json
import os
import types

import fake_backend

from gpubench import devices
from gpubench.devices.generic import TorchModule

SCRIPT = {"launch_s": 5e-6, "delay_s": 2e-5, "copy_byte_per_s": 1e9, "watts": 250.0}
SCRIPT |= json.loads(os.environ.get("SCRIPT", "{}"))


class Clock:
    """Stands still but for a tick at every reading, and for what is slept."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        self.time += 1e-10
        return self.time

    def sleep(self, seconds):
        self.time += seconds


class Scripted(TorchModule):
    """The kind ``fake``, with a device-side wait, marks, a cache and an energy counter."""

    def __init__(self, clock):
        super().__init__("fake")
        self.clock = clock
        self.now = clock.now

    def _queue(self, index):
        return fake_backend.backend._devices[index]

    def hold(self, index, seconds):
        at = self._queue(index)
        at.done_at = max(self.clock.time, at.done_at) + seconds
        return True

    def mark(self, index):
        return types.SimpleNamespace(at=max(self.clock.time, self._queue(index).done_at))

    def reached(self, mark):
        return self.clock.time >= mark.at

    def between(self, start, end):
        return end.at - start.at

    def cache_bytes(self, index):
        return 1 << 20

    def energy_j(self, index):
        return SCRIPT["watts"] * self.clock.time


def pytest_configure():
    backend = fake_backend.register()
    clock = Clock()
    backend.now, backend.sleep = clock.now, clock.sleep
    backend.launch_s, backend.delay_s = SCRIPT["launch_s"], SCRIPT["delay_s"]
    backend.copy_byte_per_s = SCRIPT["copy_byte_per_s"]
    devices.BUILT_IN += (Scripted(clock),)
