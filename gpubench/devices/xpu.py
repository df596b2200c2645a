"""Intel GPUs. Written from the documentation of ``torch.xpu``; not run on one yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import register
from .torch_device import TorchDevice

if TYPE_CHECKING:
    import torch


@register
class Xpu(TorchDevice):
    """Intel GPUs, whose events time their work; a queue of theirs can't be held."""

    kind = "xpu"
    caches_pinned_memory = True

    def lacks(self, dtype: str) -> str | None:
        if dtype == "float64" and not getattr(self._ask("get_device_properties", self.index), "has_fp64", True):
            return f"{self.label} has no float64"
        return super().lacks(dtype)

    def record_event(self) -> torch.Event:
        event = self._ask("Event", True)  # enable_timing
        if event is None:
            raise NotImplementedError("torch.xpu has no events that time")
        event.record(self._module().current_stream(self.index))
        return event  # type: ignore[no-any-return]
