"""How much do repeated runs differ, with one process and with three at equal measuring time? Prints a table.

    python docs/experiments/repeatability.py --runs 8

Runs ten cases of all kinds again and again, in turn with one process and with three, and prints each case's
coefficient of variation (standard deviation / mean) of the reported time over the runs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gpubench.runfile.runs import read
from gpubench.runfile.schema import Times

CASES = (
    "test_add[cpu-float32-1000-out]",
    "test_add[cpu-float32-10000000-out]",
    "test_exp[cpu-float32-1000000-out]",
    "test_sum[cpu-float32-10000000]",
    "test_square[cpu-float32-64]",
    "test_square[cpu-float32-1024]",
    "test_batched[cpu-float32-16]",
    "test_within_device[cpu-float32-10000000]",
    "test_mlp[cpu-float32-256]",
    "test_lenet[cpu-float32-32]",
)


def geometric(times: Times) -> float:
    """Geometric mean of the per-process medians: what speedups and their intervals are made from."""
    return statistics.geometric_mean(process.median_s for process in times.processes)


def measure(processes: int, folder: Path) -> dict[str, Times]:
    command = [sys.executable, "-m", "gpubench", "run", "--device=cpu", "--charts=none", f"--processes={processes}"]
    command += ["-k", " or ".join(CASES), "-o", str(folder)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        failed = [f"{r.case.id}: {r.status}, {r.reason}" for r in read(folder / "run.json").results if not r.times]
        raise SystemExit("\n".join([done.stderr[-500:], *failed]))
    return times(folder)


def times(folder: Path) -> dict[str, Times]:
    """Return the times of a run's cases, by id."""
    return {result.case.id: result.times for result in read(folder / "run.json").results if result.times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=8)
    args = parser.parse_args()
    seen: dict[int, list[dict[str, Times]]] = {1: [], 3: []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(args.runs):
            for processes in seen:
                seen[processes].append(measure(processes, Path(name) / f"{processes}-{number}"))

    def variation(processes: int, case: str) -> float:
        values = [geometric(run[case]) for run in seen[processes]]
        return statistics.stdev(values) / statistics.mean(values)

    ratios = []
    print(f"Coefficient of variation of the reported time over {args.runs} runs\n")
    print("| case | one process | three processes | ratio |\n|---|---:|---:|---:|")
    for case in seen[1][0]:
        one, three = variation(1, case), variation(3, case)
        ratios.append(three / one)
        print(f"| {case} | {one:.1%} | {three:.1%} | {three / one:.2f} |")
    print(f"\nMedian ratio over the cases: {statistics.median(ratios):.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
