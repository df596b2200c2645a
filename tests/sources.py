"""Benchmark files for measuring processes, with calls that take no time or as long as they are asked to."""

from collections.abc import Mapping
from pathlib import Path


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
    gpubench.declare(check=False)(lambda x: x.is_meta or time.sleep(0.05), gpubench.randn(n + 1))
"""


def lay(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into files of these names, and make the folders that these lie in."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
