"""The fake accelerator: its queue, its clock, its memory and its errors. Its values are checked wherever it is
measured, against float64.

A backend is registered for the life of a process, so all checks run in one of their own (this file as a script), and
each is a test here by its outcome there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
from torch import nn

HERE = Path(__file__).resolve()

pytestmark = pytest.mark.xdist_group("fake backend")  # all look at what one process said


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
    fake, x, clock = backend(), torch.ones(4, device="fake:0"), [1e6]

    def sleep(seconds):
        clock[0] += seconds

    fake.now, fake.sleep, fake.delay_s = lambda: clock[0], sleep, 3.0
    try:
        x.add_(1).add_(1)
        assert clock[0] == 1e6
        fake.synchronize(0)
        assert clock[0] == 1e6 + 6.0
    finally:
        del fake.now, fake.sleep, fake.delay_s
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


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}


@pytest.fixture(scope="module")
def outcomes():
    """What each check said in a process of its own: its traceback, or None."""
    import fake_backend

    if reason := fake_backend.available():
        pytest.skip(reason)
    process = subprocess.run(
        [sys.executable, "-B", str(HERE)], capture_output=True, text=True, timeout=120, check=False, cwd=HERE.parent
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_fake_backend(outcomes, name):
    assert outcomes[name] is None, outcomes[name]


def main() -> None:
    import fake_backend

    fake_backend.register()
    assert not fake_backend.backend.is_initialized()
    said = {}
    for name, check in CHECKS.items():
        try:
            check()
            said[name] = None
        except (Exception, pytest.fail.Exception):
            said[name] = traceback.format_exc()
    assert fake_backend.backend.is_initialized()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
