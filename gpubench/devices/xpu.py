"""Intel GPUs, which torch calls ``xpu``."""

from __future__ import annotations

from .base import register
from .torch_device import TorchDevice


@register
class Xpu(TorchDevice):
    """A torch device like any other."""

    kind = "xpu"
