"""NumPy: on the CPU alone, in the memory of the tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..devices import Device
from ..errors import Unmeasurable
from . import Implementation, register_implementation

if TYPE_CHECKING:
    import numpy
    import torch


@register_implementation
class NumPy(Implementation):
    """Calls are done when they return."""

    name, label, module, distributions = "numpy", "NumPy", "numpy", ("numpy",)
    variants = ("eager", "autocast", "compile", "graph")

    @classmethod
    def why_not_on(cls, device: Device) -> str | None:
        """Accelerators."""
        return "NumPy computes on the CPU only" if device.accelerator else None

    def array(self, tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
        """The tensor's own memory."""
        import torch

        try:
            array: numpy.ndarray[Any, Any] = tensor.numpy()
        except TypeError as error:
            raise Unmeasurable(f"NumPy has no such dtype: {error}") from error
        assert torch.from_numpy(array).data_ptr() == tensor.data_ptr(), "NumPy got a copy, not the same memory"
        return array

    def twin(self, value: Any) -> Any:
        """Itself: called with float64, its functions compute in it."""
        return value
