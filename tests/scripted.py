"""The fake backend on a virtual clock, every cost of it scripted: all facts of a kind of device, exactly.

``-p scripted`` (with tests/ on PYTHONPATH) registers it in place of the real-time one. The marker ``costs`` of a test
sets ``launch_s``, ``delay_s``, ``copy_byte_per_s`` and ``watts``.
"""

import fake_backend
import pytest
from vendors import Moment

from gpubench import devices

COSTS = {"launch_s": 5e-6, "delay_s": 2e-5, "copy_byte_per_s": 1e9, "watts": 250.0}

CLOCK = fake_backend.VirtualClock(tick_s=1e-10)


class Scripted(devices.TorchDevice):
    """The kind ``fake``, with a device-side wait, events, a cache and an energy counter."""

    kind = "fake"
    now = staticmethod(CLOCK.now)

    def _queue(self):
        return fake_backend.backend._devices[self.index]

    def queue_wait(self, seconds):
        queue = self._queue()
        queue.done_at = max(CLOCK.time_s, queue.done_at) + seconds
        return True

    def record_event(self):
        return Moment(max(CLOCK.time_s, self._queue().done_at), CLOCK)

    def cache_bytes(self):
        return 1 << 20

    def energy_j(self):
        return fake_backend.backend.watts * CLOCK.time_s


def pytest_configure(config):
    config.addinivalue_line("markers", "costs(**seconds_and_rates): what this test's launches, work and copies cost")
    fake_backend.register(CLOCK)
    devices.register(Scripted)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    marker = item.get_closest_marker("costs")
    vars(fake_backend.backend).update(COSTS | (marker.kwargs if marker else {}))
