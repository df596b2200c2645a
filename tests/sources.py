"""Benchmark files for measuring processes, whose calls take no time or as long as they are asked to."""


def negating(*sizes: int) -> str:
    return f"""
import torch, pytest

@pytest.mark.parametrize("n", {list(sizes)})
def test_neg(gpubench, n):
    gpubench(lambda x: x.is_meta or -x, gpubench.randn(n))  # not counted: torch would load its compiler for that
"""


def sleeping(cases: int) -> str:
    return f"""
import torch, pytest, time

@pytest.mark.parametrize("n", range({cases}))
def test_sleep(gpubench, n):
    gpubench(lambda x: x.is_meta or time.sleep(0.05), gpubench.randn(n + 1), check=False)
"""
