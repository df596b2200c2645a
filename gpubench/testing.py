"""A fake accelerator on a virtual clock, for exact and instant tests of measuring code without a GPU.

In a ``conftest.py``::

    import pytest
    from gpubench import devices, testing

    devices.register(testing.VirtualDevice)

    @pytest.fixture
    def machine():
        return testing.VirtualDevice.machine

``pytest --gpubench-device=virtual`` then measures on ``virtual:0``: a benchmark that calls ``machine.launch(2e-3)``
takes 2 ms by the clock of the run. A virtual device can't hold tensors.
"""

from .devices.virtual import VirtualDevice, VirtualMachine

__all__ = ["VirtualDevice", "VirtualMachine"]
