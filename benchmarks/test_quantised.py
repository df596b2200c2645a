"""Products of numbers of 8 bits, n x n: bytes summed up in 32 bits, and floating-point numbers of 8 bits.

A CPU multiplies bytes by its VNNI or AMX instructions where it has them. The operands are quantised beforehand. A
multiply-add counts as two operations; they are no FLOPs, since no peak of such products is measured. The record's
dtype is bfloat16, which they stand in for.
"""

import pytest
import torch

from gpubench.devices import CPU
from gpubench.errors import Unmeasurable
from gpubench.measure import budget
from gpubench.measure.clock import DeviceClock, repeat

SMALL = 256
"""Size at which a product is tried."""

pytestmark = [
    pytest.mark.gpubench(kind="other_matmul", size="n", dtypes=["bfloat16"]),
    pytest.mark.gpubench_sweep("n", smoke=[64], quick=[1024], full=[512, 1024, 2048, 4096, 8192]),
]


def whole_sums(a, b):
    """Bytes times bytes, in 32 bits. Without data it isn't counted: no peak of bytes is measured to hold it against."""
    if a.is_meta:
        raise NotImplementedError("operations, not FLOPs")
    return torch._int_mm(a, b)


def scaled_sums(a, b, scale_a, scale_b):
    """Numbers of 8 bits with a scale for each operand, in bfloat16; not counted either."""
    if a.is_meta:
        raise NotImplementedError("operations, not FLOPs")
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)


def exactly(a, b, *_):
    """Products and sums of so few bits are exact in float64; the scales are 1."""
    return a.double() @ b.double()


def require(gpubench, product, n, *operands):
    """Skip, with torch's reason, where it has no such product; and where a CPU has one in plain loops, which take
    thousands of times as long as another: no work is counted that would say so before."""
    home = CPU if gpubench.home.simulated else gpubench.home
    small, clock = min(n, SMALL), DeviceClock([home])
    few = [each if each.dim() < 2 else each[:small, :small] for each in operands]
    try:
        call_s = min(repeat(lambda: product(*few), clock, least=1, most=3, seconds=0.1))
    except (AttributeError, RuntimeError, NotImplementedError, ValueError) as error:
        raise Unmeasurable(f"no such product here: {' '.join(str(error).split())[:120]}") from None
    if not home.accelerator:
        budget.require(call_s * (n / small) ** 3, f"estimated from n = {small}", gpubench.allowance, slack=budget.SLACK)


def multiply(gpubench, product, n, *operands):
    gpubench.prepare(require, gpubench, product, n, *operands)
    gpubench(product, *operands, check=exactly, items=2 * n**3, unit="operation")


@pytest.mark.gpubench(title="Product in int8")
def test_int8(gpubench, n):
    """Bytes from -127 to 127, sums of 32 bits."""
    a, b = ((gpubench.randint(255, (n, n)) - 127).to(torch.int8) for _ in range(2))
    multiply(gpubench, whole_sums, n, a, b)


@pytest.mark.gpubench(title="Product in fp8")
def test_fp8(gpubench, n):
    """float8_e4m3fn, one scale for each operand, sums in bfloat16."""
    a, b = (gpubench.randn(n, n, dtype=torch.float32).to(torch.float8_e4m3fn) for _ in range(2))
    scale = gpubench.empty(1, dtype=torch.float32).fill_(1)
    multiply(gpubench, scaled_sums, n, a, b.t(), scale, scale)
