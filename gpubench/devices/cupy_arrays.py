"""CuPy: NumPy's functions on NVIDIA and AMD GPUs, in the memory of the tensors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import Unmeasurable
from .base import Device
from .implementations import Implementation, register_implementation

if TYPE_CHECKING:
    import torch

_TF32 = "CUPY_TF32"


@register_implementation
class CuPy(Implementation):
    """CuPy, which queues work on its current stream of the case's GPU."""

    name, label, module = "cupy", "CuPy", "cupy"
    install = "pip install 'pytest-gpubench[cupy]', or the cupy package of your CUDA or ROCm"
    distributions = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")
    dtypes = ("float32", "float16", "float64")
    asynchronous = True
    kinds: ClassVar[tuple[str, ...]] = ("cuda",)
    """Kinds of device on which CuPy computes: torch calls AMD's GPUs ``cuda`` too."""

    @classmethod
    def why_not_on(cls, device: Device) -> str | None:
        """Return why CuPy can't compute on a device that isn't a CUDA or ROCm GPU."""
        return None if device.kind in cls.kinds else "CuPy computes on CUDA and ROCm GPUs only"

    @classmethod
    def release_memory(cls) -> None:
        """Release the blocks that CuPy's memory pool keeps for later."""
        pool = getattr(sys.modules.get(cls.module), "get_default_memory_pool", None)
        if pool:
            pool().free_all_blocks()

    def open(self, threads: int) -> None:
        """Make the case's GPU CuPy's current one. Raises :class:`Unmeasurable` if CuPy doesn't see it, or if its
        float32 products would be TF32."""
        if os.environ.get(_TF32, "0") not in ("", "0") and self.dtype == "float32":
            raise Unmeasurable(f"{_TF32} is set, so CuPy's float32 products would be TF32: unset it")
        cuda = self._import().cuda
        try:
            count = cuda.runtime.getDeviceCount()
        except Exception as error:  # CuPy's own error: the driver is missing or too old
            raise Unmeasurable(f"CuPy finds no GPU: {' '.join(str(error).split())}") from error
        if self.device.index >= count:
            raise Unmeasurable(f"CuPy sees {count} GPU{'s' * (count != 1)}, not {self.device}")
        self._before = cuda.Device()
        self._gpu = cuda.Device(self.device.index)
        self._gpu.use()

    def close(self) -> None:
        """Restore the GPU that was current before."""
        if hasattr(self, "_before"):
            self._before.use()

    def array(self, tensor: torch.Tensor) -> Any:
        """Return the tensor's own memory as a CuPy array, through DLPack."""
        return self.xp.from_dlpack(tensor.detach().resolve_conj())

    def wait(self) -> None:
        """Wait for all work on the GPU."""
        self._gpu.synchronize()

    def on_stream_of_torch(self) -> bool:
        """Whether CuPy's current stream is torch's; by default it is, since both use the legacy default stream."""
        import torch

        current = getattr(torch.get_device_module(self.device.kind), "current_stream", None)
        return bool(current and current(self.device.index).cuda_stream == self.xp.cuda.get_current_stream().ptr)
