"""How a call is run: dtypes by name, the variants of a call, and float32 products: IEEE's, or, as a dtype of its own,
TF32, which is up to eight times faster and a thousand times less precise."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ..devices import Device
from ..devices.lazy import torch
from ..errors import UsageError
from ..runfile.options import DTYPES
from ..runfile.schema import Case
from .calls import attribute
from .data import poison

_default_written = False
"""Whether cuDNN's switches of layers hold TF32 because they were restored to it: torch's own default is TF32 unless a
broader switch is set, and can't be restored once any was written (torch 2.15, ``torch.backends.cudnn``)."""


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype that holds the data; raises :class:`UsageError` that lists the known names."""
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}: choose from {', '.join(DTYPES)}")
    return getattr(torch, "float32" if name == "tf32" else name)  # type: ignore[no-any-return]


def computing(dtype: str) -> str:
    """Return the dtype of :data:`DTYPES` that stands for any dtype: a complex one's parts', else float32."""
    return dtype if dtype in DTYPES else {"complex128": "float64", "complex32": "float16"}.get(dtype, "float32")


@contextlib.contextmanager
def matmul_precision(dtype: str) -> Iterator[None]:
    """A context in which float32 products (and convolutions) use IEEE float32, or TF32 for the dtype ``tf32``. It sets
    torch's older switches, which torch.compile reads, and which write the newer ones; not the other way round."""
    global _default_written
    tf32, before, switches = dtype == "tf32", float32_state(), _switches()
    if not _default_written and switches and switches[0].fp32_precision == "none":
        # Do the layers of cuDNN follow a broader switch, by default?
        switches[0].fp32_precision = "ieee"
        follows = switches[4].fp32_precision == "ieee" and switches[1].fp32_precision == "ieee"
        switches[0].fp32_precision = "none"
        _default_written = follows and switches[4].fp32_precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    for switch in switches[1:2] + switches[3:6]:  # the older ones leave these at a broader default
        switch.fp32_precision = "tf32" if tf32 else "ieee"
    for switch in switches[6:]:
        switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        set_float32_state(before)


def pass_on_broad_switch() -> None:
    """Set cuDNN's switches of layers to the broader one that the program has set, if they only hold the default."""
    if _default_written and (broad := _switches()[1].fp32_precision) != "none":
        for switch in _switches()[4:6]:
            switch.fp32_precision = broad


def _switches() -> list[Any]:
    """Return torch's newer switches, if it has them: three broad ones, then three of CUDA and three of oneDNN."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    owners = [torch.backends, cudnn, mkldnn, cuda.matmul, *(getattr(cudnn, name, None) for name in ("conv", "rnn"))]
    owners += [getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    return owners if all(hasattr(owner, "fp32_precision") for owner in owners) else []


def float32_state() -> tuple[Any, ...]:
    """Return all switches of float32 products: the two older ones (None where torch can't read them because the program
    has set some of the newer), then the newer ones."""
    older: list[Any] = [None, None]
    with contextlib.suppress(RuntimeError):
        older[0] = torch.get_float32_matmul_precision()
    with contextlib.suppress(RuntimeError):
        older[1] = torch.backends.cudnn.allow_tf32
    return *older, *(switch.fp32_precision for switch in _switches())


def set_float32_state(state: tuple[Any, ...]) -> None:
    """Restore the state that :func:`float32_state` returned."""
    precision, allow_tf32, *newer = state
    if precision is not None:
        torch.set_float32_matmul_precision(precision)
    if allow_tf32 is not None:
        torch.backends.cudnn.allow_tf32 = allow_tf32
    for switch, value in zip(_switches(), newer, strict=True):
        switch.fp32_precision = value


def autocast_dtype(device: Device) -> str:
    """Return the dtype of products under autocast: bfloat16, or float16 where the device only emulates bfloat16."""
    return "float16" if device.lacks("bfloat16") else "bfloat16"


def computed_dtype(case: Case, device: Device) -> str:
    """Return the dtype in which a case's products are computed on its device."""
    return autocast_dtype(device) if case.variant == "autocast" else case.dtype


def apply(variant: str, call: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """Return the call in this variant, unless its ``applies_variant`` says that it applies the variant itself.
    ``compile`` compiles and ``graph`` records at the first call; a recorded graph replays with the memory of the first
    call's arguments, whatever it is called with later."""
    if variant == "eager" or attribute(call, "applies_variant"):
        return call
    if variant == "compile":
        return compiled(call)
    context, kind, dtype = torch.autocast, device.torch_name.partition(":")[0], torch_dtype(autocast_dtype(device))
    replay: Callable[[], None] | None = None
    result: Any = None

    def autocast(*args: Any, **kwargs: Any) -> Any:
        with context(kind, dtype=dtype):
            return call(*args, **kwargs)

    def graph(*args: Any, **kwargs: Any) -> Any:
        nonlocal replay, result
        if replay is None:
            replay, result = device.capture_graph(lambda: call(*args, **kwargs))
            poison(result, args, kwargs, call, attribute(call, "__self__"))  # unfilled results must fail the check
        replay()
        return result

    return graph if variant == "graph" else autocast


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call wrapped by ``torch.compile``; it compiles at its first call."""
    config: Any = getattr(torch.compiler, "config", None)
    if not hasattr(config, "force_disable_caches"):  # torch 2.8 and older
        config = importlib.import_module("torch._inductor.config")
    torch.compiler.reset()  # each case pays for its own compilation, whatever ran before
    config.force_disable_caches = True  # and whatever lies on disk
    if isinstance(call, torch.nn.Module):
        return torch.compile(call)  # type: ignore[no-any-return]
    return torch.compile(lambda *args, **kwargs: call(*args, **kwargs))
