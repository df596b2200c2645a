"""Prove the figures of a CUDA GPU: tests, published figures, other timers, the classic script, a reference run.

    python docs/experiments/validate_gpu.py OUT                  # everything, in steps of at most ten minutes
    python docs/experiments/validate_gpu.py OUT --step figures   # or one of: tests, figures, timers, classic, run

Checks first which versions are there. Writes ``OUT/validation.md``, the log of the tests and the run file with its
report. Refuses, with one line, where there is no CUDA GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpubench import devices
from gpubench.measure import ceilings
from gpubench.measure.clock import DeviceClock
from gpubench.measure.precision import matmul_precision
from gpubench.quantity import seconds_text, text

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 570
LEAST_BENCHMARK = (5, 3)

PUBLISHED: dict[str, dict[str, float]] = {
    "H200": {"bfloat16": 759e12, "float32": 51.3e12, "copy": 4.0e12, "host to device": 52e9},
    "H100": {"bfloat16": 790e12, "float32": 52e12, "copy": 2.9e12, "host to device": 51e9},
    "A100": {"bfloat16": 264e12, "float32": 19.2e12, "copy": 1.6e12, "host to device": 26e9},
}
"""FLOP/s of matrix products, bytes/s of a copy (read and written) and of pinned copies: the lower end of what is
published as measured, not data sheets."""


class Refused(Exception):
    """This machine can't be used, and why."""


def check() -> devices.Device:
    """The GPU. Raises Refused without one, or with a pytest-benchmark that doesn't fit."""
    cuda = devices.kinds()["cuda"]
    if not cuda.count():
        raise Refused(f"no CUDA GPU: {cuda.why_absent()}")
    for name in ("torch", "pytest", "pytest-benchmark", "py-cpuinfo", "py-cpuinfo2"):
        try:
            print(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            print(f"{name} is not installed")
    found = tuple(int(part) for part in metadata.version("pytest-benchmark").split(".")[:2])
    if found < LEAST_BENCHMARK:
        raise Refused(f"pytest-benchmark 5.3 or newer is needed, {'.'.join(map(str, found))} is here")
    return devices.Device(cuda, 0)


def run(command: list[str], log: Path) -> int:
    """A step in a process of its own, within the limit; its output goes to the log."""
    with log.open("w") as file:
        try:
            code = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, timeout=LIMIT_S).returncode
        except subprocess.TimeoutExpired:
            code = 124
    print(f"{log.name}: exit {code}: {(log.read_text().splitlines() or ['nothing said'])[-1]}")
    return code


def tests(gpu: devices.Device, out: Path) -> Iterator[str]:
    code = run([sys.executable, "-m", "pytest", "-m", "gpu", "tests", "-q"], out / "tests.log")
    last = ((out / "tests.log").read_text().splitlines() or [""])[-1].strip("= ")
    yield f"## Tests on the GPU\n\n`pytest -m gpu tests/`: {last} (exit {code}).\n"


def figures(gpu: devices.Device, out: Path) -> Iterator[str]:
    found = ceilings.measure({gpu: ["float32", "tf32", "bfloat16", "float16", "float64"]}, "full")[str(gpu)]
    known = next((values for name, values in PUBLISHED.items() if name in gpu.label), {})
    memory = [entry for entry in found.bandwidth if entry.level == "memory" and entry.pattern == "copy"]
    ours: dict[str, tuple[float | None, str]] = {name: (rate, "FLOP/s") for name, rate in found.throughput.items()}
    ours["copy"] = (max((entry.byte_per_s for entry in memory), default=None), "B/s")
    ours["host to device"] = (found.host_to_device_byte_per_s, "B/s")
    ours["device to host"] = (found.device_to_host_byte_per_s, "B/s")
    yield f"## {gpu.label}: our figures beside published ones\n"
    yield "| what | ours | published as measured | ratio |\n|---|---:|---:|---:|"
    for name, (value, unit) in ours.items():
        theirs = known.get(name)
        ratio = f"{value / theirs:.3f}" if value and theirs else "—"
        yield f"| {name} | {text(value, unit)} | {text(theirs, unit)} | {ratio} |"
    yield f"| launch floor | {seconds_text(found.launch_floor_s)} | — | — |\n"


def _median(call: Callable[[], Any], clock: Callable[[], float], rounds: int = 30, calls: int = 20) -> float:
    """Median over rounds of the seconds per call, after a quarter of a second of warm-up."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.25:
        call()
    times = []
    for _ in range(rounds):
        start = clock()
        for _ in range(calls):
            call()
        times.append((clock() - start) / calls)
    return statistics.median(times)


def timers(gpu: devices.Device, out: Path) -> Iterator[str]:
    import torch
    from torch.utils.benchmark import Timer

    try:
        from triton.testing import do_bench
    except ImportError:
        do_bench = None
    a, b = (torch.randn(4096, 4096, device=str(gpu)) for _ in range(2))
    x, y, target = (torch.randn(10**8, device=str(gpu)) for _ in range(3))
    cases = {
        "matmul of 4096, float32": lambda: torch.mm(a, b),
        "add of 10^8, out=": lambda: torch.add(x, y, out=target),
    }
    yield "## Our time beside other timers'\n"
    yield "| call | ours / torch's Timer | ours / triton's do_bench |\n|---|---:|---:|"
    with matmul_precision("float32"):
        for name, call in cases.items():
            ratios: dict[str, list[float]] = {"timer": [], "triton": []}
            for _ in range(5):
                ours = _median(call, DeviceClock([gpu]))
                timer = Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.5).median
                ratios["timer"].append(ours / timer)
                if do_bench:
                    ratios["triton"].append(ours / (do_bench(call, return_mode="median") / 1e3))
            shown = [f"{statistics.median(values):.3f}" if values else "—" for values in ratios.values()]
            yield f"| {name} | {' | '.join(shown)} |"
    yield "\nMedians of five in turn. do_bench flushes the L2 cache before each call; ours doesn't.\n"


def classic(gpu: devices.Device, out: Path) -> Iterator[str]:
    """As published: create, a thousand times result + a * b, and read the clock without waiting."""
    import torch

    def script(wait: bool) -> float:
        clock: Callable[[], float] = DeviceClock([gpu]) if wait else time.perf_counter
        a, b = (torch.rand(100, 1000, 1000, device=str(gpu)) for _ in range(2))
        result = a * b
        gpu.synchronize()
        start = clock()
        for _ in range(1000):
            result = result + a * b
        seconds = clock() - start
        gpu.synchronize()
        return seconds

    script(wait=True)
    unwaited, waited = script(wait=False), script(wait=True)
    yield "## The classic script\n"
    yield "Two tensors of 100 × 1000 × 1000 float32, 1,000 times `result = result + a * b`.\n"
    yield f"| as published, without a wait | measured | ratio |\n|---:|---:|---:|\n| {seconds_text(unwaited)} | "
    yield f"{seconds_text(waited)} | {waited / unwaited:.3g} |\n"


def reference(gpu: devices.Device, out: Path) -> Iterator[str]:
    """The full preset in three processes as far as the limit allows; what is missing, ``--resume`` measures."""
    folder = out / "run"
    command = [sys.executable, "-m", "gpubench", "run"]
    begun = (folder / "run.ledger.jsonl").exists()
    options = ["--resume", str(folder)] if begun else ["--preset=full", "--require-device=cuda", "-o", str(folder)]
    code = run([*command, *options], out / "run.log")
    yield f"## Reference run\n\n`gpubench run --preset full`: exit {code}; its report is in `run/summary.md`.\n"


STEPS = {"tests": tests, "figures": figures, "timers": timers, "classic": classic, "run": reference}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--step", choices=STEPS, action="append")
    args = parser.parse_args()
    try:
        gpu = check()
    except Refused as error:
        print(f"validate_gpu: {error}", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.step or STEPS:
        lines = list(STEPS[name](gpu, args.out))
        with (args.out / "validation.md").open("a") as file:  # a later step that fails costs none of the earlier
            file.write("\n".join(lines) + "\n")
        print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
