"""Attention alone, by the kernel that computes it: scaled_dot_product_attention with 16 heads of size 64.

FLOPs are those of the two products (4 x heads x queries x keys x size). A causal attention has half of them plus the
diagonal; ``math`` computes the whole square and masks it. Bytes are those of queries, keys, values and results.
"""

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpubench.errors import Unmeasurable
from gpubench.measure.data import dispatch_mode

from .libraries import required

pytestmark = pytest.mark.gpubench(kind="operators", size="length", dtypes=["float32", "bfloat16"])
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH,
}  # fmt: skip
FEW, SOME, KERNELS = ["flash", "math"], ["flash", "cudnn", "math"], [*BACKENDS]
LENGTHS = pytest.mark.gpubench_sweep("length", smoke=[32], quick=[512, 4096], full=[128, *(2**n for n in range(9, 15))])
BY_KERNEL = pytest.mark.gpubench_sweep("backend", smoke=FEW, quick=SOME, full=KERNELS)
FULL_ONLY = pytest.mark.gpubench_sweep("backend", smoke=FEW, quick=[], full=KERNELS)
HEADS, SIZE = 16, 64


def attention(query, key, value, backend, causal, grouped):
    """Compute attention by a single kernel, also on a CPU."""
    with sdpa_kernel(BACKENDS[backend]):
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)


def plain(query, key, value, backend, causal, grouped):
    """Compute attention by any kernel, since float64 has only one."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)


def attend(gpubench, backend, length, *, causal=False, groups=1):
    query, key, value = (gpubench.randn(1, heads, length, SIZE) for heads in (HEADS, HEADS // groups, HEADS // groups))
    arguments = query, key, value, backend, causal, groups > 1
    require_kernel(arguments, backend)
    share = (length + 1) / (2 * length) if causal and backend != "math" else 1
    flops, nbytes = 4 * HEADS * length**2 * SIZE * share, 2 * query.nbytes + key.nbytes + value.nbytes
    gpubench.declare(check=plain, flops=flops, nbytes=nbytes, items=length, unit="token")
    gpubench(attention, *arguments)


def require_kernel(arguments, backend):
    """Skip where torch has no such kernel for these tensors: it raises an error, or silently uses another kernel."""
    few = [part[:, :, :32] if isinstance(part, torch.Tensor) else part for part in arguments]
    taken = set()

    def note(mode, operator, types, args, kwargs):
        taken.update(name for name in BACKENDS if f"{name}_attention" in operator.name())
        return operator(*args, **kwargs)

    with required("such kernel"), dispatch_mode()(note):
        attention(*few)
    if (taken or {"math"}) != {backend}:
        raise Unmeasurable(f"no such kernel here: torch takes {' and '.join(sorted(taken or {'math'}))}")


@pytest.mark.gpubench(title="Attention")
@FULL_ONLY
@LENGTHS
def test_full(gpubench, backend, length):
    attend(gpubench, backend, length)


@pytest.mark.gpubench(title="Causal attention")
@BY_KERNEL
@LENGTHS
def test_causal(gpubench, backend, length):
    attend(gpubench, backend, length, causal=True)


@pytest.mark.gpubench(title="Causal attention, grouped queries")
@FULL_ONLY
@LENGTHS
def test_grouped(gpubench, backend, length):
    """Causal, with four query heads per key and value head, as in Llama 3."""
    attend(gpubench, backend, length, causal=True, groups=4)
