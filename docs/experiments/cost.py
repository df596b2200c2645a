"""What do newer measurements add to a run's wall time, and to the times it measures? Two checkouts, in turn: A B B A.

    git worktree add ../before COMMIT
    python docs/experiments/cost.py ../before . --processes 1

Runs the files that both have, with the CPU and the quick preset, and prints each run's wall time and the ratio, and the
geometric mean of the ratios of the measured times, case by case.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpubench.runfile.runs import read

FILES = ("elementwise", "matmul", "transfer", "models", "classic")


def measure(checkout: Path, processes: int, out: Path) -> tuple[float, dict[str, float]]:
    """Return the seconds of one run of a checkout, and each case's median time in seconds."""
    files = [str(checkout / f"benchmarks/test_{name}.py") for name in FILES]
    command = [sys.executable, "-m", "gpubench", "run", *files, "--device=cpu", "--preset=quick", "--charts=none"]
    command += [f"--processes={processes}", "-o", str(out)]
    before = time.perf_counter()
    done = subprocess.run(
        command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True
    )
    seconds = time.perf_counter() - before
    if done.returncode:
        raise SystemExit(f"cost: {checkout} ended with {done.returncode}: {done.stderr[-500:]}")
    return seconds, {result.case.id: result.times.median_s for result in read(out / "run.json").results if result.times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    sides = {"base": args.base.resolve(), "new": args.new.resolve()}
    wall: dict[str, list[float]] = {"base": [], "new": []}
    runs: dict[str, list[dict[str, float]]] = {"base": [], "new": []}
    with tempfile.TemporaryDirectory() as folder:
        for number, side in enumerate(("base", "new", "new", "base")):
            seconds, times = measure(sides[side], args.processes, Path(folder) / str(number))
            wall[side].append(seconds)
            runs[side].append(times)
    print("| checkout | cases | wall time, s |\n|---|---:|---:|")
    for side, seconds_of_runs in wall.items():
        print(f"| {side} | {len(runs[side][0])} | {', '.join(f'{seconds:.1f}' for seconds in seconds_of_runs)} |")
    shared = set.intersection(*(set(times) for both in runs.values() for times in both))
    ratios = [
        statistics.geometric_mean(times[case] for times in runs["new"])
        / statistics.geometric_mean(times[case] for times in runs["base"])
        for case in sorted(shared)
    ]
    ratio = statistics.mean(wall["new"]) / statistics.mean(wall["base"])
    print(f"\nCases in both: {len(shared)}. New over base: wall time {ratio:.3f}, ", end="")
    print(f"measured times {statistics.geometric_mean(ratios):.3f} (geometric mean)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
