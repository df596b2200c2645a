"""A kind of device that gpubench doesn't know: Huawei's Ascend, through torch_npu.

    PYTHONPATH=examples pytest -p device_npu benchmarks --gpubench-device=auto

``import device_npu`` in a conftest.py does the same. Synchronization, memory and names come from torch.npu.
"""

import importlib

from gpubench.devices import TorchDevice, register


@register
class Npu(TorchDevice):
    """Absent, with a reason, where torch_npu can't be imported."""

    kind = "npu"

    @classmethod
    def count(cls) -> int:
        try:
            importlib.import_module("torch_npu")  # it adds torch.npu
        except ImportError:
            return 0
        return super().count()

    @classmethod
    def why_absent(cls) -> str:
        return "torch_npu can't be imported, or finds no NPU"
