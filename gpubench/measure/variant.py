"""The ways a network is run: eager, under autocast, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def apply(variant: str, call: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """The call in this variant. ``autocast`` is bfloat16; ``compile`` compiles at its first call.

    A call with ``applies_variant`` set does so itself: of a training step only the forward pass runs under autocast.
    """
    if variant == "eager" or getattr(call, "applies_variant", False):
        return call

    import torch

    if variant == "compile":
        torch.compiler.reset()  # each case pays for its own compilation, whatever ran before
        if hasattr(torch.compiler, "config"):
            torch.compiler.config.force_disable_caches = True  # and whatever lies on disk
        if isinstance(call, torch.nn.Module):
            return torch.compile(call)  # type: ignore[no-any-return]

        def in_python(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        return torch.compile(in_python)

    def autocast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype=torch.bfloat16):
            return call(*args, **kwargs)

    return autocast
