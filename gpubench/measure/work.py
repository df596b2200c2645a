"""How much work a call does, counted without running it.

The call is repeated with ``meta`` tensors, which have shapes and no data, under torch's FLOP counter. On real CPU
tensors that counter misses attention and recurrent layers. It never counts elementwise work, there or here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import WorkMismatch
from ..schema import Work


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs torch knows of (``None`` if it knows of none), and the bytes of the outputs."""

    flops: float | None
    output_bytes: int


def count(call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Counted | None:
    """Count one call; ``None`` if it has no tensor arguments or can't run on ``meta`` tensors."""
    import torch
    from torch.utils import _pytree
    from torch.utils.flop_counter import FlopCounterMode

    from .data import tensors

    given = tensors(args, kwargs, call if isinstance(call, torch.nn.Module) else ())
    if not given:
        return None

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return Substituted(value, lambda tensor: tensor.detach().to("meta"))
        return value.detach().to("meta") if isinstance(value, torch.Tensor) else value

    args, kwargs = _pytree.tree_map(to_meta, args), _pytree.tree_map(to_meta, dict(kwargs))
    target = to_meta(call)
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.random.fork_rng(devices=[]):
            result = target(*args, **kwargs)
    except Exception:  # whatever a call does that meta tensors can't: nothing is known, and nothing lost
        return None
    out = tensors(result)
    return Counted(float(counter.get_total_flops()) or None, sum(t.nbytes for t in out))


class Substituted:
    """A module called with other parameters and buffers, made from its own; the module itself is not copied."""

    def __init__(self, module: Any, convert: Callable[[Any], Any]) -> None:
        self._module = module
        state = (*module.named_parameters(), *module.named_buffers())
        self._state = {name: convert(tensor) for name, tensor in state}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        return torch.func.functional_call(self._module, self._state, args, kwargs)


def agree(declared: Work, counted: Counted | None) -> Work:
    """The declared work, completed by what was counted.

    Raises :class:`WorkMismatch` when declared FLOPs differ from counted ones by more than a thousandth.
    """
    if counted is None or counted.flops is None:
        return declared
    if declared.flops is not None and abs(declared.flops - counted.flops) > 1e-3 * counted.flops:
        raise WorkMismatch(
            f"{declared.flops:.6g} FLOP declared, {counted.flops:.6g} counted: a multiply-add counts as two"
        )
    return Work(counted.flops, declared.bytes, declared.items, declared.unit)
