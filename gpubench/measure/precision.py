"""Dtypes by name, and what a float32 matrix product really computes.

float32 means IEEE float32 on every device. The shorter product that NVIDIA calls TF32 is a dtype of its own here,
since it is up to eight times faster and a thousand times less precise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..options import DTYPES

if TYPE_CHECKING:
    import torch

# Unit roundoff of each dtype's products: 2**-(significand bits + 1).
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def torch_dtype(name: str) -> torch.dtype:
    """The dtype that holds the data; raises :class:`UsageError` naming those that exist."""
    import torch

    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}: choose from {', '.join(DTYPES)}")
    dtype: torch.dtype = getattr(torch, "float32" if name == "tf32" else name)
    return dtype


@contextlib.contextmanager
def matmul_precision(dtype: str) -> Iterator[None]:
    """Within: float32 products (and convolutions) in IEEE float32, or in TF32 for the dtype ``tf32``.

    Set through torch's older switches, which write the newer ``fp32_precision`` ones as well; the other way round,
    the older ones refuse to be read, and torch.compile reads them.
    """
    import torch

    tf32 = dtype == "tf32"
    switches = _switches()
    before = [switch.fp32_precision for switch in switches]
    try:
        legacy = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the program under test has set the newer switches
        legacy = None
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    for switch in switches:  # the older ones leave those at a default that a broader switch may have changed
        switch.fp32_precision = "tf32" if tf32 and switch in switches[:CUDA_SWITCHES] else "ieee"
    try:
        yield
    finally:
        if legacy:
            torch.set_float32_matmul_precision(legacy[0])
            torch.backends.cudnn.allow_tf32 = legacy[1]
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


CUDA_SWITCHES = 3


def _switches() -> list[Any]:
    """torch's newer switches, one a library and operation, CUDA's first; older torch has none."""
    import torch

    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    owners = [cuda.matmul, *(getattr(cudnn, name, None) for name in ("conv", "rnn"))]
    owners += [getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    return owners if all(hasattr(owner, "fp32_precision") for owner in owners) else []
