"""Products of 8-bit numbers, n x n: integers summed in 32 bits, and floating-point numbers.

A CPU multiplies bytes with its VNNI or AMX instructions where it has them. The operands are quantised beforehand. A
multiply-add counts as two operations; these are not FLOPs, since the peak of such products isn't measured. The recorded
dtype is bfloat16, which they replace.
"""

import pytest
import torch

from gpubench.devices import CPU
from gpubench.measure import budget
from gpubench.measure.clock import DeviceClock, repeat

from .libraries import required

SMALL = 256  # size n at which a product is tried
pytestmark = [
    pytest.mark.gpubench(kind="other_matmul", size="n", dtypes=["bfloat16"]),
    pytest.mark.gpubench_sweep("n", smoke=[64], quick=[1024, 4096], full=[512, 1024, 2048, 4096, 8192]),
]


def exactly(a, b, *_):
    """Return the exact result: products and sums of so few bits are exact in float64, and the scales are 1."""
    return a.double() @ b.double()


def require(gpubench, product, n, *operands):
    """Skip, with torch's reason, where torch has no such product, or a CPU only in plain loops, which take thousands of
    times as long: no counted work would reveal that earlier."""
    home = CPU if gpubench.home.simulated else gpubench.home
    small, clock = min(n, SMALL), DeviceClock([home])
    few = [each if each.dim() < 2 else each[:small, :small] for each in operands]
    with required("such product"):
        call_s = min(repeat(lambda: product(*few), clock, least=1, most=3, seconds=0.1))
    if not home.accelerator:
        budget.require(call_s * (n / small) ** 3, f"estimated from n = {small}", gpubench.allowance, slack=budget.SLACK)


def multiply(gpubench, product, n, *operands):
    require(gpubench, product, n, *operands)
    gpubench.declare(check=exactly, items=2 * n**3, unit="operation")
    gpubench(product, *operands)


@pytest.mark.gpubench(title="Product in int8")
def test_int8(gpubench, n):
    """Integers from -127 to 127, sums in 32 bits. The right side is stored by columns, as tensor cores read it."""
    a, b = ((gpubench.randint(255, (n, n)) - 127).to(torch.int8) for _ in range(2))
    multiply(gpubench, lambda *each: torch._int_mm(*each), n, a, b.t())


@pytest.mark.gpubench(title="Product in fp8")
def test_fp8(gpubench, n):
    """float8_e4m3fn, one scale for each operand, sums in bfloat16. ``use_fast_accum`` is off, as by default; some
    published rates are with it."""
    a, b = (gpubench.randn(n, n, dtype=torch.float32).to(torch.float8_e4m3fn) for _ in range(2))
    scale = gpubench.empty(1, dtype=torch.float32).fill_(1)
    multiply(gpubench, lambda *each: torch._scaled_mm(*each, out_dtype=torch.bfloat16), n, a, b.t(), scale, scale)
