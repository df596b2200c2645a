"""Where a test puts its data: on its device, in its dtype, from the run's seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..devices import CPU, Device
from ..errors import GpubenchError, Unmeasurable, UsageError
from ..runfile.schema import Case
from .data import Data
from .precision import torch_dtype
from .session import Session

if TYPE_CHECKING:
    import numpy
    import torch


class Inputs:
    """What a case is made from.

    ``device`` and ``dtype`` are torch's, to make tensors with; ``implementation`` and ``variant`` are names. ``data``
    makes all tensors of the case, ``host`` makes those on the CPU that transfers need. ``home`` is the device that the
    case is named for.
    """

    def __init__(self, session: Session, case: Case, home: Device) -> None:
        self._session = session
        self.case = case
        self.home = home
        self.data = self._data(home)
        self.host = self._data(CPU, stream=1)
        self.randn = self.data.randn
        self.randint = self.data.randint
        self.empty = self.data.empty
        self.module = self.data.module

    def _data(self, home: Device, stream: int = 0) -> Data:
        settings = self._session.settings
        return Data(home, torch_dtype(self.case.dtype), settings.seed, stream=stream, meta=settings.plan)

    @property
    def device(self) -> torch.device:
        """The device this case is to use, for torch."""
        return self.data.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype this case is to use; inputs have it."""
        return self.data.dtype

    @property
    def implementation(self) -> str:
        """``torch`` or ``numpy``."""
        return self.case.implementation

    @property
    def variant(self) -> str:
        """``eager``, ``autocast``, ``compile`` or ``graph``; the fixture applies it to the call."""
        return self.case.variant

    @property
    def preset(self) -> str:
        """``smoke``, ``quick`` or ``full``."""
        return self._session.settings.preset

    @property
    def neighbour(self) -> Data:
        """Data on the next of the chosen accelerators of the same kind, to copy to."""
        chosen = [c.device for c in self._session.choices if c.device and c.device.kind == self.home.kind]
        return self._data(chosen[(chosen.index(self.home) + 1) % len(chosen)], stream=2)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in page-locked host memory, which a device reads without the CPU's help."""
        if tensor.is_meta:
            return tensor
        try:
            return tensor.pin_memory()
        except (RuntimeError, NotImplementedError) as error:
            raise Unmeasurable(f"no pinned memory for {self.home}: {error}") from error

    def numpy(self, tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
        """The tensor's own memory as a NumPy array; skips where NumPy has no such dtype."""
        import numpy as np
        import torch

        if tensor.is_meta:
            return np.broadcast_to(np.zeros((), dtype="f4"), tuple(tensor.shape))
        try:
            array: numpy.ndarray[Any, Any] = tensor.numpy()
        except TypeError as error:
            raise Unmeasurable(f"NumPy has no such dtype: {error}") from error
        assert torch.from_numpy(array).data_ptr() == tensor.data_ptr(), "NumPy got a copy, not the same memory"
        return array

    @property
    def first(self) -> bool:
        """Whether this process is the run's first, which counts the work and checks the results."""
        return self._session.first

    def too_few(self, reason: str) -> GpubenchError:
        """The error for missing devices: a usage error where the case's kind is required, else a skip."""
        required = any(name.partition(":")[0] == self.home.kind for name in self._session.settings.required)
        return UsageError(f"required devices absent: {reason}") if required else Unmeasurable(reason)
