"""Peak memory: the most that a case held on its device at once, its inputs included."""

from __future__ import annotations

from ...devices import Device


class Peak:
    """Made before a case's data, reset before its rounds, asked after the last.

    Accelerators count what torch's allocator handed out; what this process held before is left out.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._before = device.kind.allocated_memory(device.index)

    def reset(self) -> None:
        """What was only needed to prepare the calls doesn't count."""
        self._device.kind.reset_peak_memory(self._device.index)

    def bytes(self) -> int | None:
        """``None`` on kinds that don't count."""
        peak = self._device.kind.peak_memory(self._device.index)
        if peak is None or self._before is None:
            return None
        return max(0, peak - self._before)
