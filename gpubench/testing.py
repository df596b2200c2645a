"""A fake accelerator on a virtual clock: tests what measures, without a GPU, exactly and in no time.

In a ``conftest.py``::

    import pytest
    from gpubench import devices, testing

    devices.register(testing.VirtualDevice)

    @pytest.fixture
    def machine():
        return testing.VirtualDevice.machine

``pytest --gpubench-device=virtual`` then measures on ``virtual:0``: a benchmark that calls ``machine.launch(2e-3)``
takes 2 ms by the clock of the run. No tensor can lie on a virtual device.
"""

from .devices.demo import VirtualDevice, VirtualMachine

__all__ = ["VirtualDevice", "VirtualMachine"]
