"""DataParallel's split, its phases, and that it can't fall back unseen: nothing here needs a GPU."""

import pytest
import torch
from torch import nn

from gpubench.devices import CPU
from gpubench.measure.clock import DeviceClock
from gpubench.parallel import data_parallel
from gpubench.parallel.data_parallel import SilentFallback
from gpubench.testing import VirtualDevice, VirtualMachine


@pytest.mark.parametrize(
    ("devices", "full", "last"),
    [
        (1, [30], [10]),
        (2, [15, 15], [5, 5]),
        (3, [10, 10, 10], [4, 4, 2]),
        (8, [4, 4, 4, 4, 4, 4, 4, 2], [2, 2, 2, 2, 2]),
    ],
)
def test_the_tutorial_s_table(devices, full, last):
    """Linear(5, 2) on 100 rows in batches of 30; the last batch of 10 uses 5 of 8 devices."""
    assert data_parallel.split_batches(100, 30, devices) == [full, full, full, last]


@pytest.mark.parametrize(("devices", "speedup"), [(1, 1.0), (2, 2.0), (3, 100 / 34), (8, 100 / 14)])
def test_the_ideal_speedup_is_what_the_split_allows(devices, speedup):
    assert data_parallel.split_speedup(100, 30, devices) == pytest.approx(speedup)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_silent_fallback_is_an_error():
    with pytest.raises(SilentFallback, match=r"was given devices \[0, 1, 2\] and silently runs as the plain network"):
        data_parallel.replicated(nn.Linear(5, 2), [torch.device("cuda", i) for i in range(3)])


class OnOne(nn.DataParallel):
    """Looks like DataParallel over several devices and computes all of it on the CPU."""

    def __init__(self, module, device_ids, split=None):
        nn.Module.__init__(self)
        self.module, self.device_ids, self.output_device, self.seen = module, device_ids, "cpu", []
        self._split = split or (lambda inputs: inputs.chunk(len(device_ids)))

    def scatter(self, inputs, kwargs, device_ids):
        self.seen.append("scatter")
        parts = self._split(inputs[0])
        return [(part,) for part in parts], [{}] * len(parts)

    def replicate(self, module, device_ids):
        self.seen.append(f"replicate {len(device_ids)}")
        return [module] * len(device_ids)

    def parallel_apply(self, replicas, inputs, kwargs):
        self.seen.append("forward")
        return [replica(*own) for replica, own in zip(replicas, inputs, strict=True)]

    def gather(self, outputs, output_device):
        self.seen.append("gather")
        return torch.cat(outputs)


class Queued(OnOne):
    """Every phase queues work on a virtual accelerator: 1, 2, 3 and 4 ms."""

    def __init__(self, module, machine):
        super().__init__(module, list(range(8)))
        self.machine = machine

    def scatter(self, *arguments):
        self.machine.launch(1e-3)
        return super().scatter(*arguments)

    def replicate(self, *arguments):
        self.machine.launch(2e-3)
        return super().replicate(*arguments)

    def parallel_apply(self, *arguments):
        self.machine.launch(3e-3, 1)
        return super().parallel_apply(*arguments)

    def gather(self, *arguments):
        self.machine.launch(4e-3)
        return super().gather(*arguments)


def test_each_phase_is_waited_for_and_only_used_devices_get_a_replica():
    machine = VirtualMachine()
    network = Queued(nn.Linear(5, 2), machine)
    clock = DeviceClock([VirtualDevice.on(machine)(0), VirtualDevice.on(machine)(1)])
    spent = data_parallel.phase_times(network, torch.randn(10, 5), clock, rounds=3)
    assert list(spent) == ["scatter", "replicate", "forward", "gather"]
    assert list(spent.values()) == [pytest.approx(seconds, rel=1e-5) for seconds in (1e-3, 2e-3, 3e-3, 4e-3)]
    assert network.seen[:4] == ["scatter", "replicate 5", "forward", "gather"]
    assert len(network.seen) == 4 * 4


def test_a_split_other_than_planned_is_an_error():
    network = OnOne(nn.Linear(5, 2), [0, 1, 2], split=lambda inputs: inputs.tensor_split(3))
    with pytest.raises(SilentFallback, match=r"split 10 rows as \[4, 3, 3\], not \[4, 4, 2\]"):
        data_parallel.phase_times(network, torch.randn(10, 5), DeviceClock([CPU]))
