"""Prove the figures of a CUDA GPU: published figures, other timers, the classic script, tests, a reference run.

    python docs/experiments/validate_gpu.py OUT               # everything, within ten minutes
    python docs/experiments/validate_gpu.py OUT --step run    # or one of: figures, timers, classic, tests, run

Checks first which versions are there. Writes ``OUT/validation.md``, ``OUT/log.txt`` and the run file with its tables.
What the time doesn't suffice for is said there, and another ``--step run`` goes on with the run. Refuses, with one
line, where there is no CUDA GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata as metadata
import os
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))  # the package need not be installed

from gpubench import devices  # noqa: E402
from gpubench.format import seconds_text, text  # noqa: E402
from gpubench.measure import ceilings  # noqa: E402
from gpubench.measure.clock import DeviceClock  # noqa: E402
from gpubench.measure.precision import matmul_precision  # noqa: E402

LIMIT_S, MEASURED_S, TESTS_S = 570.0, 180.0, 270.0
PATIENCE_S = 60.0
"""What a run that is asked to stop may take to write down what it has."""
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
    """The GPU; raises Refused without one. Makes no context on it: the run would take that for another's."""
    cuda = devices.kinds()["cuda"]
    if not cuda.count():
        raise Refused(f"no CUDA GPU: {cuda.why_absent()}")
    return cuda(0)


def versions() -> Iterator[str]:
    for name in ("torch", "triton", "pytest", "pytest-benchmark", "py-cpuinfo", "py-cpuinfo2"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield f"{name} {metadata.version(name)}"


def require_benchmark() -> None:
    """Raise Refused where pytest-benchmark doesn't fit."""
    try:
        version = metadata.version("pytest-benchmark")
    except metadata.PackageNotFoundError:
        raise Refused("pytest-benchmark is not installed") from None
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_BENCHMARK:
        raise Refused(f"pytest-benchmark 5.3 or newer is needed, {version} is here")


def run(arguments: list[str], out: Path, limit_s: float, patience_s: float = 10.0) -> tuple[int, str]:
    """Exit code and last words of a Python process; when its time is up it is asked to stop, then ended."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (out / "log.txt").open("a+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(max(1.0, limit_s - patience_s))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
            process.wait()
        log.seek(0)
        return process.returncode, (log.read().split("\n")[-2:] or [""])[0].strip("= ")


def tests(gpu: devices.Device, out: Path, limit_s: float) -> Iterator[str]:
    require_benchmark()
    options = ["-p", "gpubench.plugin", "--continue-on-collection-errors", "-q", "-m", "gpu"]
    code, last = run(["-m", "pytest", *options, "tests"], out, min(limit_s, TESTS_S))
    yield f"## Tests on the GPU\n\n`pytest -m gpu tests/`: {last} (exit {code}).\n"


def figures(gpu: devices.Device, out: Path, limit_s: float) -> Iterator[str]:
    found = ceilings.measure_ceilings({gpu: ["float32", "tf32", "bfloat16", "float16", "float64"]}, "full")[str(gpu)]
    known = next((values for name, values in PUBLISHED.items() if name in gpu.label), {})
    memory = [entry for entry in found.bandwidth if entry.level == "memory" and entry.pattern == "copy"]
    ours: dict[str, tuple[float | None, str]] = {name: (rate, "FLOP/s") for name, rate in found.throughput.items()}
    largest = max(memory, key=lambda entry: entry.footprint_bytes, default=None)  # the cache helps least there
    ours["copy"] = (largest and largest.byte_per_s, "B/s")
    ours["host to device"] = (found.host_to_device_byte_per_s, "B/s")
    ours["device to host"] = (found.device_to_host_byte_per_s, "B/s")
    yield f"## {gpu.label}: our figures beside published ones\n"
    yield f"Driver {gpu.facts().get('driver')}, {', '.join(versions())}.\n"
    yield "| what | ours | published as measured | ratio |\n|---|---:|---:|---:|"
    for name, (value, unit) in ours.items():
        theirs = known.get(name)
        ratio = f"{value / theirs:.3f}" if value and theirs else "—"
        yield f"| {name} | {text(value, unit)} | {text(theirs, unit)} | {ratio} |"
    yield f"| launch floor | {seconds_text(found.launch_floor_s)} | — | — |\n"


def _median(call: Callable[[], Any], clock: Callable[[], float], rounds: int = 30, calls: int = 20) -> float:
    """Median over rounds of the seconds per call, after a quarter of a second of warm-up."""
    begin = clock()
    while clock() - begin < 0.25:
        call()
    times = []
    for _ in range(rounds):
        start = clock()
        for _ in range(calls):
            call()
        times.append((clock() - start) / calls)
    return statistics.median(times)


def timers(gpu: devices.Device, out: Path, limit_s: float) -> Iterator[str]:
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
    yield "| call | ours | ours / torch's Timer | ours / triton's do_bench |\n|---|---:|---:|---:|"
    with matmul_precision("float32"):
        for name, call in cases.items():
            ratios: dict[str, list[float]] = {"timer": [], "triton": []}
            times = []
            for _ in range(5):
                ours = _median(call, DeviceClock([gpu]))
                times.append(ours)
                timer = Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.5).median
                ratios["timer"].append(ours / timer)
                if do_bench:
                    ratios["triton"].append(ours / (do_bench(call, return_mode="median") / 1e3))
            shown = [f"{statistics.median(values):.3f}" if values else "—" for values in ratios.values()]
            yield f"| {name} | {' | '.join([seconds_text(statistics.median(times)), *shown])} |"
    yield "\nMedians of five in turn. do_bench flushes the L2 cache before each call; ours doesn't.\n"


def classic(gpu: devices.Device, out: Path, limit_s: float) -> Iterator[str]:
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
    yield "| as published, without a wait | measured | ratio |\n|---:|---:|---:|"
    yield f"| {seconds_text(unwaited)} | {seconds_text(waited)} | {waited / unwaited:.3g} |\n"


def reference(gpu: devices.Device, out: Path, limit_s: float) -> Iterator[str]:
    """The quick preset on one GPU in three processes as far as the limit allows. ``full`` takes hours; charts and
    what several devices do can be had without a GPU, and a GPU's time is short."""
    require_benchmark()
    folder = out / "run"
    begun = (folder / "run.ledger.jsonl").exists()
    fresh = ["--preset=quick", "--no-charts", "-o", str(folder), "--", "-m", "not parallel"]
    options = ["--resume", str(folder), "--no-charts"] if begun else fresh
    code, _ = run(["-m", "gpubench", "run", *options], out, limit_s, PATIENCE_S)
    if not (folder / "run.json").exists():
        run(["-m", "gpubench", "recover", str(folder)], out, PATIENCE_S)
    yield "## Reference run\n\n`gpubench run --preset quick -- -m 'not parallel'`:"
    yield f"exit {code}; its report is in `run/summary.md`.\n"


MEASURED = {"figures": figures, "timers": timers, "classic": classic}
STARTED = {"tests": tests, "run": reference}
"""These are other processes, for which ours must not hold the GPU."""
STEPS = MEASURED | STARTED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--step", choices=STEPS, action="append", help="default: all")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for all (default: 570)")
    args = parser.parse_args()
    end = time.monotonic() + args.limit
    try:
        gpu = check()
    except Refused as error:
        print(f"validate_gpu: {error}", file=sys.stderr)
        return 2
    args.out = args.out.resolve()  # the steps' processes work elsewhere
    args.out.mkdir(parents=True, exist_ok=True)
    steps, failed = args.step or list(STEPS), False

    def tell(lines: list[str]) -> None:
        with (args.out / "validation.md").open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        print("\n".join(lines), flush=True)

    ours = [name for name in steps if name in MEASURED]
    if len(ours) < len(steps) and ours:
        options = [f"--step={name}" for name in ours]
        code, last = run([__file__, str(args.out), *options], args.out, min(MEASURED_S, end - time.monotonic()))
        if code:
            failed = True
            tell([f"{', '.join(ours)}: not all of it (exit {code}: {last})\n"])
        steps = [name for name in steps if name not in ours]
    for name in steps:
        try:
            tell(list(STEPS[name](gpu, args.out, end - time.monotonic())))
        except Exception as error:  # costs none of the others
            traceback.print_exc()
            failed = True
            tell([f"## {name}\n\nFailed: {type(error).__name__}: {error}\n"])
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
