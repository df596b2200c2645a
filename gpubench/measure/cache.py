"""A cold cache: writing as many bytes as the device's last cache holds leaves nothing of a case's data in it."""

from __future__ import annotations

from ..devices import Device
from ..errors import Unmeasurable


class Flush:
    """Callable before a round. Raises :class:`Unmeasurable` where the size of the cache is unknown.

    Exactly the cache's size: more would cost time and say nothing else, less would leave some of the data there.
    """

    def __init__(self, device: Device) -> None:
        size = device.kind.cache_bytes(device.index)
        if not size:
            raise Unmeasurable(f"{device} doesn't tell the size of its cache, so it can't be flushed")
        import torch

        self._room = torch.empty(size, dtype=torch.int8, device=str(device))

    def __call__(self) -> None:
        self._room.zero_()
