"""The fake accelerator against the CPU: its values, its devices, its errors and its queue.

A backend is registered for the life of a process, so all checks run in one of their own (this file as a script), and
each is a test here by its outcome there.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import torch
from torch import nn

HERE = Path(__file__).resolve()
BOTH = ("fake:0", "fake:1")

pytestmark = pytest.mark.xdist_group("fake backend")  # all look at what one process said


def same(x, reference, device, **tolerance):
    """``x`` is on the device and equals the reference from the CPU."""
    assert (str(x.device), x.shape, x.dtype) == (device, reference.shape, reference.dtype)
    torch.testing.assert_close(x.detach().cpu(), reference.detach(), **tolerance)


def backend():
    return torch.get_device_module("fake")


def check_torch_knows_the_backend():
    fake = backend()
    assert torch._C._get_privateuse1_backend_name() == "fake"
    assert fake.is_available()
    assert fake.device_count() == 2
    assert fake.get_device_name(1) == "Fake Accelerator"
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("fake")
    assert torch.accelerator.device_count() == 2
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.empty(1, device="fake:2")


def check_registering_again_changes_nothing():
    import fake_backend

    assert fake_backend.available() is None
    assert fake_backend.register() is fake_backend.backend is backend()


def check_factories():
    torch.manual_seed(1)
    drawn = torch.randn(3, 4)
    for device in BOTH:
        torch.manual_seed(1)
        same(torch.randn(3, 4, device=device), drawn, device)
        same(torch.zeros(2, 3, device=device), torch.zeros(2, 3), device)
        same(torch.ones(3, dtype=torch.float16, device=device), torch.ones(3, dtype=torch.float16), device)
        same(torch.full((2,), 7, device=device), torch.full((2,), 7), device)
        same(torch.arange(5, device=device), torch.arange(5), device)
        same(torch.tensor([[1.0, 2.0]], device=device), torch.tensor([[1.0, 2.0]]), device)
        assert torch.empty(2, 3, device=device).shape == (2, 3)
        assert str(torch.empty_like(torch.ones(2, device=device)).device) == device


def check_current_device():
    backend().set_device(1)
    try:
        assert str(torch.zeros(1, device="fake").device) == "fake:1"
        assert backend().current_device() == 1
    finally:
        backend().set_device("fake:0")


def check_copies():
    x = torch.randn(3, 4)
    for device, other in (BOTH, BOTH[::-1]):
        y = x.to(device)
        same(y, x, device)
        same(y.to(other), x, other)
        assert y.to(device) is y
        assert y.to("cpu").device == torch.device("cpu")
        same(torch.zeros(3, 4, device=device).copy_(x), x, device)
        same(torch.zeros(3, 4, device=device).copy_(y.to(other)), x, device)
        torch.testing.assert_close(torch.zeros(3, 4).copy_(y), x)
        same(y.to(torch.bfloat16), x.bfloat16(), device)
        assert y.sum().item() == x.sum().item()
        with torch.inference_mode():
            same(y.to(other), x, other)


def check_elementwise():
    a, b = torch.randn(5, 6), torch.randn(5, 6)
    for device in BOTH:
        x, y = a.to(device), b.to(device)
        same(x + y, a + b, device)
        same(torch.addcmul(x, x, y), torch.addcmul(a, a, b), device)
        same(x.exp(), a.exp(), device)
        same(x.sum(1), a.sum(1), device)
        same(x > y, a > b, device)
        same(2 * x + torch.tensor(1.0), 2 * a + 1, device)
        out = torch.empty_like(x)
        assert torch.mul(x, y, out=out) is out
        same(out, a * b, device)
        same(torch.add(x, y, out=torch.empty(0, device=device)), a + b, device)  # out= grows
        assert x.add_(y) is x
        same(x, a + b, device)
        x.t()[0] = 1.0  # through a view
        same(x[:, 0], torch.ones(5), device)
        same(x[torch.tensor([1, 3])], x.cpu()[[1, 3]], device)


def check_products():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        a, b = torch.randn(8, 8).to(dtype), torch.randn(8, 8).to(dtype)
        for device in BOTH:
            x, y = a.to(device), b.to(device)
            same(x @ y, a @ b, device)
            same(torch.mm(x, y, out=torch.empty_like(x)), a @ b, device)
            same(torch.bmm(x[None], y[None]), torch.bmm(a[None], b[None]), device)
            same(torch.addmm(x, x, y), torch.addmm(a, a, b), device)


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


def lenet():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10)),
    )


def check_training_step():
    model, x, labels = lenet(), torch.randn(4, 1, 28, 28), torch.tensor([1, 2, 3, 4])

    def step(model, x, labels):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    for device in BOTH:
        cpu, there = copy.deepcopy(model), copy.deepcopy(model).to(device)
        same(step(there, x.to(device), labels.to(device)), step(cpu, x, labels), device)
        for p, q in zip(there.parameters(), cpu.parameters(), strict=True):
            same(p.grad, q.grad, device, rtol=1e-3, atol=1e-4)
            same(p, q, device, rtol=1e-3, atol=1e-4)


def check_backward_across_devices():
    x = torch.ones(3, requires_grad=True)
    ((x.to("fake:0") * 2).to("fake:1") * 3).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 6.0))


def check_modules():
    class Tokens(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Embedding(10, 16), nn.LayerNorm(16), transformer())

    def transformer():
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)

    tokens = torch.randint(10, (2, 5))
    for model, x in (
        (Tokens(), tokens),
        (lenet(), torch.randn(2, 1, 28, 28)),
        (nn.LSTM(3, 4, 2), torch.randn(5, 2, 3)),
        (nn.GRU(3, 4), torch.randn(5, 2, 3)),
    ):
        for device in BOTH:
            for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
                with mode():
                    cpu, there = model.eval()(x), copy.deepcopy(model).to(device)(x.to(device))
                first = (cpu, there) if isinstance(cpu, torch.Tensor) else (cpu[0], there[0])
                same(first[1], first[0], device, rtol=1e-3, atol=1e-4)


def check_inference_mode():
    a = torch.randn(3, 4)
    for device in BOTH:
        x = a.to(device)
        with torch.inference_mode():
            y, views = x + 1, (x.detach(), x.view(4, 3), x.t(), x[0], x.chunk(2)[0])
            assert x.detach().to("meta").shape == x.shape
        assert y.is_inference()
        assert not any(view.is_inference() for view in views)
        same(views[2].add_(1), a.t() + 1, device)
        same(x, a + 1, device)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            y.add_(1)


def check_moving_modules():
    model, x = nn.Linear(3, 2), torch.randn(4, 3).bfloat16()
    reference = copy.deepcopy(model).bfloat16()(x)
    model.to("fake:0").bfloat16()
    same(model(x.to("fake:0")), reference, "fake:0")
    same(copy.deepcopy(model).to("fake:1")(x.to("fake:1")), reference, "fake:1")
    assert all(isinstance(p, nn.Parameter) for p in copy.deepcopy(model).parameters())
    torch.testing.assert_close(model.cpu()(x), reference)


def check_autocast():
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    reference = (x.bfloat16() @ model.weight.bfloat16().t() + model.bias.bfloat16()).detach()
    for device in BOTH:
        there = copy.deepcopy(model).to(device)
        with torch.autocast("fake", dtype=torch.bfloat16):
            y = there(x.to(device))
            assert y.softmax(-1).dtype == torch.float32
            assert (x.to(device).double() @ x.to(device).double().t()).dtype == torch.float64
        same(y, reference, device, rtol=2e-2, atol=2e-2)
        y.sum().backward()
        assert there.weight.grad.dtype == torch.float32
        assert there(x.to(device)).dtype == torch.float32


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


def check_delay():
    fake, x = backend(), torch.ones(4, device="fake:1")
    fake.synchronize(1)
    fake.delay_s = 0.02
    try:
        start = time.perf_counter()
        for _ in range(5):
            x.add_(1)
        enqueued = time.perf_counter() - start
        fake.synchronize(0)
        other = time.perf_counter() - start
        fake.synchronize(1)
        waited = time.perf_counter() - start
    finally:
        fake.delay_s = 0.0
    assert waited >= 0.1
    assert enqueued < 0.09
    assert other < 0.09


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


def test_as_a_pytest_plugin(tmp_path, outcomes):
    (tmp_path / "test_it.py").write_text(
        "import torch\ndef test_it():\n    assert str(torch.ones(2, device='fake:1').device) == 'fake:1'\n"
    )
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "fake_backend", "-p", "no:cacheprovider", "test_it.py"],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert "1 passed" in process.stdout, process.stdout + process.stderr


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
