"""What a benchmark reads when one thing is left out: each pitfall beside the right way, in one run.

    python docs/experiments/pitfalls.py

Prints a table: what was left out, the reading without it, the right reading, and the ratio. Pitfalls that need an
accelerator report that where there is none.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from gpubench import devices
from gpubench.measure.clock import DeviceClock
from gpubench.measure.environment import set_threads
from gpubench.measure.precision import matmul_precision
from gpubench.runfile.quantities import seconds_text

Row = tuple[str, float | None, float | None]


def median(call: Callable[[], Any], clock: Callable[[], float], calls: int = 20) -> float:
    """Return the median seconds of single calls, after three untimed ones."""
    for _ in range(3):
        call()
    times = []
    for _ in range(calls):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def no_wait(accelerator: devices.Device | None) -> Row:
    name = "no wait for the device (4096×4096 product)"
    if accelerator is None:
        return f"{name}: needs an accelerator", None, None
    a = torch.randn(4096, 4096, device=str(accelerator))
    call = lambda: a @ a  # noqa: E731
    right = median(call, DeviceClock([accelerator]))
    return name, median(call, time.perf_counter, calls=3), right


def tf32(accelerator: devices.Device | None) -> Row:
    name = "TF32 left on (4096×4096 float32 product)"
    if accelerator is None or accelerator.lacks("tf32"):
        return f"{name}: needs a GPU that has it", None, None
    a = torch.randn(4096, 4096, device=str(accelerator))
    found = []
    for dtype in ("tf32", "float32"):
        with matmul_precision(dtype):
            found.append(median(lambda: a @ a, DeviceClock([accelerator])))
    return name, found[0], found[1]


def no_warm_up(accelerator: devices.Device | None) -> Row:
    """Measure in a new process, because warm-up can't be undone."""
    device = str(accelerator or "cpu")
    code = f"""
import time, torch
from gpubench import devices
from gpubench.measure.clock import DeviceClock
device = devices.find_device({device!r}).device
clock = DeviceClock([device])
network = torch.nn.Conv2d(3, 64, 3).to({device!r})
x = torch.randn(8, 3, 64, 64, device={device!r})
times = []
with torch.inference_mode():
    for _ in range(50):
        start = clock(); network(x); times.append(clock() - start)
print(times[0], sorted(times[10:])[20])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    first, warm = map(float, done.stdout.split())
    return "no warm-up (first call of a convolution)", first, warm


def page_faults() -> Row:
    r, a, b = (torch.randn(25_000_000) for _ in range(3))
    out, product = torch.empty_like(r), torch.empty_like(r)
    wrong = median(lambda: r + a * b, time.perf_counter, calls=7)
    right = median(lambda: torch.add(r, torch.mul(a, b, out=product), out=out), time.perf_counter, calls=7)
    return "new memory in every call (r + a * b, 100 MB each)", wrong, right


def one_thread() -> Row:
    a = torch.randn(1024, 1024)
    every = torch.get_num_threads()
    torch.set_num_threads(1)
    wrong = median(lambda: a @ a, time.perf_counter)
    torch.set_num_threads(every)
    return f"one CPU thread of {every} (1024×1024 product)", wrong, median(lambda: a @ a, time.perf_counter)


def busy_neighbour() -> Row:
    """Compare means over seconds: a neighbour takes turns of milliseconds, so most single calls never meet it."""
    a = torch.randn(256, 256)

    def mean(seconds: float = 2.0) -> float:
        calls, start = 0, time.perf_counter()
        while (end := time.perf_counter()) - start < seconds:
            a @ a
            calls += 1
        return (end - start) / calls

    right = mean()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(torch.get_num_threads())]
    try:
        time.sleep(1)
        wrong = mean()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return "a busy neighbour on the same cores (256×256 product)", wrong, right


def main() -> int:
    set_threads()
    accelerator = next((device for device in devices.present() if device.accelerator), None)
    rows = [no_wait(accelerator), tf32(accelerator), no_warm_up(accelerator)]
    rows += [page_faults(), one_thread(), busy_neighbour()]
    print("| left out | it read | right | ratio |\n|---|---:|---:|---:|")
    for name, wrong, right in rows:
        ratio = f"{wrong / right:.3g}" if wrong and right else "—"
        print(f"| {name} | {seconds_text(wrong)} | {seconds_text(right)} | {ratio} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
