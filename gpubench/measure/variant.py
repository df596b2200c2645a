"""The ways a network is run: eager, under autocast, compiled, its launches recorded in a graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..devices import Device
from .data import tensors


def apply(variant: str, call: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """The call in this variant. ``autocast`` is bfloat16; ``compile`` compiles at its first call, ``graph`` records.

    A call with ``applies_variant`` set does so itself: of a training step only the forward pass runs under autocast.
    A recorded graph replays with the memory of the first call's arguments, whatever it is called with later.
    """
    if variant == "eager" or getattr(call, "applies_variant", False):
        return call
    if variant == "graph":
        return _Recorded(call, device)

    if variant == "compile":
        return compiled(call)

    import torch

    def autocast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device.kind, dtype=torch.bfloat16):
            return call(*args, **kwargs)

    return autocast


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """By ``torch.compile``, at its first call."""
    import torch

    torch.compiler.reset()  # each case pays for its own compilation, whatever ran before
    if hasattr(torch.compiler, "config"):
        torch.compiler.config.force_disable_caches = True  # and whatever lies on disk
    if isinstance(call, torch.nn.Module):
        return torch.compile(call)  # type: ignore[no-any-return]

    def in_python(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return torch.compile(in_python)


class _Recorded:
    """Records at the first call, replays at every one."""

    def __init__(self, call: Callable[..., Any], device: Device) -> None:
        self._call, self._device = call, device
        self._replay: Callable[[], None] | None = None
        self._result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._replay is None:
            self._replay, self._result = self._device.capture_graph(lambda: self._call(*args, **kwargs))
            for tensor in tensors(self._result):
                if tensor.is_floating_point():
                    tensor.detach().fill_(math.nan)  # what a replay doesn't fill, no check shall pass
        self._replay()
        return self._result
