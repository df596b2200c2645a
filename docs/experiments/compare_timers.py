"""Do our times agree with torch's own timer, and what does the fixture cost? Prints ratios; asserts nothing.

    python docs/experiments/compare_timers.py [more options of pytest]

Each call is timed five times by the ``gpubench`` fixture and by ``torch.utils.benchmark.Timer`` with as many threads
(it uses one by default), in turn, in one process and on the same tensors. A call that does nothing is timed in turn
by the ``gpubench`` fixture and by pytest-benchmark's own.
"""

from __future__ import annotations

import functools
import statistics
import sys
from pathlib import Path

import pytest

REPETITIONS = 5
pairs: dict[str, list[tuple[float, float]]] = {}


@functools.cache
def call(name: str):
    """Function, arguments and keywords; the same tensors whenever it is asked for."""
    import torch

    from gpubench.devices import CPU
    from gpubench.measure.data import Data
    from gpubench.workloads import models, training

    data = Data(CPU, torch.float32, 0)
    if name == "add of 10^7, out=":
        a, b, out = (torch.randn(10**7) for _ in range(3))
        return torch.add, (a, b), {"out": out}
    if name == "matmul of 1024, out=":
        a, b, out = (torch.randn(1024, 1024) for _ in range(3))
        return torch.mm, (a, b), {"out": out}
    if name == "attention of 512, flash":
        query, key, value = (torch.randn(1, 16, 512, 64) for _ in range(3))
        return torch.nn.functional.scaled_dot_product_attention, (query, key, value), {"is_causal": True}
    if name == "int8 product of 1024":
        a, b = (torch.randint(-127, 128, (1024, 1024), dtype=torch.int8) for _ in range(2))
        return torch._int_mm, (a, b), {}
    if name == "sort of 10^6":
        return torch.sort, (torch.randn(10**6),), {}
    if name == "update of LeNet, adam fused":
        learner = training.trainer("lenet", data, 2, update="adam fused")
        learner.backward()
        return learner.update, (), {}
    size, start, count = {"prefill of 128, 10M": ("10M", 0, 128), "decode after 128, 125M": ("125M", 128, 1)}[name]
    decoder = models.on_device(lambda: models.Decoder(size, 1, start + count), data)
    decoder.start = start
    return torch.inference_mode()(decoder), (data.randint(16_000, (1, count)),), {}


NAMES = (
    "add of 10^7, out=", "matmul of 1024, out=", "prefill of 128, 10M", "decode after 128, 125M",
    "attention of 512, flash", "int8 product of 1024", "sort of 10^6", "update of LeNet, adam fused",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_timer(gpubench, benchmark, name, repetition):
    import torch
    from torch.utils.benchmark import Timer

    function, args, kwargs = call(name)
    gpubench(function, *args, check=False, **kwargs)
    ours = benchmark.stats.stats.median
    names = {"function": function, "args": args, "kwargs": kwargs}
    timer = Timer("function(*args, **kwargs)", globals=names, num_threads=torch.get_num_threads())
    theirs = timer.blocked_autorange(min_run_time=1.0).median
    pairs.setdefault(name, []).append((ours, theirs))


def nothing() -> None:
    """A call that does nothing."""


noops: dict[str, list[float]] = {"gpubench": [], "pytest-benchmark": []}


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_noop_ours(gpubench, benchmark, repetition):
    gpubench(nothing, check=False)
    noops["gpubench"].append(benchmark.stats.stats.median)


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_noop_theirs(benchmark, repetition):
    benchmark(nothing)
    noops["pytest-benchmark"].append(benchmark.stats.stats.median)


def main() -> int:
    options = ["-q", "--benchmark-quiet", "--benchmark-max-time=1", "--gpubench-device=cpu", "-p", "no:cacheprovider"]
    code = pytest.main([__file__, *options, *sys.argv[1:]])
    collected = sys.modules[Path(__file__).stem]  # pytest imports this file under its own name
    for name, seen in collected.pairs.items():
        ours, theirs = (statistics.median(values) for values in zip(*seen, strict=True))
        ratios = ", ".join(f"{o / t:.3f}" for o, t in seen)
        print(f"{name}: gpubench / Timer = {ours / theirs:.3f}  (pair by pair: {ratios})")
    cost = {name: statistics.median(values) for name, values in collected.noops.items() if values}
    shown = ", ".join(f"{name} {value * 1e9:.1f} ns" for name, value in cost.items())
    if shown:
        print(f"a call that does nothing: {shown}")
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
