"""Moving data: from host to device and back, within a device, between two devices, and creating it on either side.
Bytes are those that arrive; a copy within one memory also reads as many."""

import pytest
import torch

pytestmark = [
    pytest.mark.gpubench(kind="copies", size="nbytes", dtypes=["float32"]),
    pytest.mark.gpubench_sweep(
        "nbytes", smoke=[10**3], quick=[10**3, 10**5, 10**7, 10**8], full=[10**n for n in range(3, 10)]
    ),
]

# pageable memory is copied through a pinned buffer by the driver, so it can't be non-blocking
MEMORY = pytest.mark.parametrize(("memory", "non_blocking"), [("pageable", False), ("pinned", False), ("pinned", True)])


def copy(gpubench, target, source, *how, times=1, devices=()):
    gpubench.declare(nbytes=times * target.nbytes, items=target.numel(), devices=devices)
    gpubench(torch.Tensor.copy_, target, source, *how)


def in_memory(gpubench, memory, tensor):
    if gpubench.home.shares_memory:
        pytest.skip("an integrated GPU works in the CPU's memory: nothing need be copied")
    return gpubench.pinned(tensor) if memory == "pinned" else tensor


@pytest.mark.gpubench(title="Copy to the device", devices="accelerator")
@MEMORY
def test_host_to_device(gpubench, memory, non_blocking, nbytes):
    source = in_memory(gpubench, memory, gpubench.host.randn(nbytes // 4))
    copy(gpubench, gpubench.empty(nbytes // 4), source, non_blocking, devices=["cpu"])


@pytest.mark.gpubench(title="Copy from the device", devices="accelerator")
@MEMORY
def test_device_to_host(gpubench, memory, non_blocking, nbytes):
    target = in_memory(gpubench, memory, gpubench.host.empty(nbytes // 4))
    copy(gpubench, target, gpubench.randn(nbytes // 4), non_blocking, devices=["cpu"])


@pytest.mark.gpubench(title="Copy within the device")
def test_within_device(gpubench, nbytes):
    """A copy in the device's own memory: on a CPU, what memcpy reaches. Traffic is read + write."""
    source = gpubench.randn(nbytes // 4)
    copy(gpubench, gpubench.empty(nbytes // 4), source, times=2)


@pytest.mark.gpubench(title="Copy between devices", devices="two accelerators")
def test_between_devices(gpubench, nbytes):
    source, there = gpubench.randn(nbytes // 4), gpubench.neighbour
    copy(gpubench, there.empty(nbytes // 4), source, devices=[str(there.home)])


CREATE = {
    "device": lambda count, device: torch.zeros(count, device=device),
    "host": lambda count, device: torch.zeros(count).to(device),
}


@pytest.mark.gpubench(title="Create on the device")
@pytest.mark.parametrize("place", [*CREATE])
def test_create(gpubench, place, nbytes):
    """Zeros made on the device, or made on the host and copied, which shows why device= belongs in the factory call."""
    gpubench.declare(nbytes=nbytes, items=nbytes // 4, check=lambda n, _: torch.zeros(n))
    gpubench(CREATE[place], nbytes // 4, gpubench.device)
