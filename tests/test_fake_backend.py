"""The fake accelerator: its queue, its clock, its memory and its errors. Its values are checked wherever it is
measured, against float64.

A backend is registered for the life of a process, so all checks run in one of their own.
"""

from __future__ import annotations

from pathlib import Path

import fake_backend
import forked
import pytest
import torch
from torch import nn

HERE = Path(__file__).parent


def backend():
    return torch.get_device_module("fake")


def check_mixed_devices_raise():
    zero, one, cpu = torch.ones(2, device="fake:0"), torch.ones(2, device="fake:1"), torch.ones(2)
    for mixed in (
        lambda: zero + one,
        lambda: zero + cpu,
        lambda: torch.add(zero, zero, out=cpu),
        lambda: cpu.mul_(zero),
        lambda: torch.tensor(1.0).add_(zero.sum()),
        lambda: torch.cat([zero, one]),
        lambda: nn.Linear(2, 2).to("fake:0")(cpu),
    ):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            mixed()
    with pytest.raises(TypeError, match="can't convert fake:0"):
        zero.numpy()


def check_pending():
    fake = backend()
    x, y = torch.ones(4, device="fake:0"), torch.ones(4, device="fake:1")
    for i in (0, 1):
        fake.synchronize(i)
    calls, launched = fake.synchronize_count, fake.launched(0)
    x.add_(1).mul_(2)
    assert (fake.pending(0), fake.pending(1)) == (2, 0)
    x.view(2, 2), x.detach(), torch.empty_like(x)  # no work
    assert fake.pending(0) == 2
    x.to("fake:1", non_blocking=True)
    assert (fake.pending(0), fake.pending(1)) == (3, 1)
    fake.synchronize(0)
    assert (fake.pending(0), fake.pending(1)) == (0, 1)
    fake.synchronize("fake:1")
    assert fake.pending(1) == 0
    assert fake.synchronize_count == calls + 2
    assert fake.launched(0) == launched + 3
    for wait in (lambda: y.add_(1).sum().item(), lambda: y.add_(1).cpu(), lambda: torch.equal(y.add_(1), y)):
        wait()
        assert fake.pending(1) == 0
    y.add_(1).to("cpu", non_blocking=True)
    assert fake.pending(1) == 2
    assert fake.synchronize_count == calls + 2


def check_virtual_clock():
    fake, x = backend(), torch.ones(4, device="fake:0")
    fake.clock = clock = fake_backend.VirtualClock(time_s=1e6, tick_s=0.0)
    fake.delay_s = 3.0
    try:
        x.add_(1).add_(1)
        assert clock.time_s == 1e6
        fake.synchronize(0)
        assert clock.time_s == 1e6 + 6.0
    finally:
        del fake.clock, fake.delay_s
        fake._devices[0].done_at = 0.0


def check_memory():
    fake = backend()
    before = fake.memory_allocated(1)
    fake.reset_peak_memory_stats(1)
    x = torch.zeros(1000, device="fake:1")
    y, view = x + 1, x.view(10, 100)
    assert fake.memory_allocated(1) == before + 8000
    free, total = fake.mem_get_info(1)
    assert (total - free, total) == (before + 8000, fake.memory_bytes)
    del x, y
    assert fake.memory_allocated(1) == before + 4000
    del view
    assert fake.memory_allocated(1) == before
    assert fake.max_memory_allocated(1) == before + 8000
    fake.reset_peak_memory_stats(1)
    assert fake.max_memory_allocated(1) == before
    fake.memory_bytes = before + 4000
    try:
        with pytest.raises(torch.OutOfMemoryError, match="fake out of memory"):
            torch.zeros(1001, device="fake:1")
        torch.zeros(1000, device="fake:1")
    finally:
        del fake.memory_bytes
    assert fake.memory_allocated(1) == before


@pytest.mark.skipif(bool(fake_backend.available()), reason=str(fake_backend.available()))
def test_fake_backend():
    done = forked.python(f"import sys; sys.path.insert(0, {str(HERE)!r}); import test_fake_backend as it; it.main()")
    assert done.returncode == 0, done.stdout


def main() -> None:
    fake_backend.register()
    assert not fake_backend.backend.is_initialized()
    for check in (check_mixed_devices_raise, check_pending, check_virtual_clock, check_memory):
        check()
    assert fake_backend.backend.is_initialized()
