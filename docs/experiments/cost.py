"""What do newer measurements add to the wall time of a run? Two checkouts, the same cases, in turn: A B B A.

    git worktree add ../before COMMIT
    python docs/experiments/cost.py ../before . --processes 1

Runs the files that both have, with the CPU and the quick preset, and prints each run's wall time and the ratio.
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

from gpubench.runfile.reader import read

FILES = ("elementwise", "matmul", "transfer", "models", "classic")


def measure(checkout: Path, processes: int, out: Path) -> tuple[float, set[str]]:
    """Seconds of one run of a checkout, and the cases it measured."""
    files = [str(checkout / f"benchmarks/test_{name}.py") for name in FILES]
    command = [sys.executable, "-m", "gpubench", "run", *files, "--device=cpu", "--preset=quick", "--no-charts"]
    command += [f"--processes={processes}", "-o", str(out)]
    before = time.perf_counter()
    done = subprocess.run(
        command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True
    )
    seconds = time.perf_counter() - before
    if done.returncode:
        raise SystemExit(f"cost: {checkout} ended with {done.returncode}: {done.stderr[-500:]}")
    return seconds, {result.case.id for result in read(out / "run.json").results if result.times}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    sides = {"base": args.base.resolve(), "new": args.new.resolve()}
    seen: dict[str, list[float]] = {"base": [], "new": []}
    cases: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, side in enumerate(("base", "new", "new", "base")):
            seconds, cases[side] = measure(sides[side], args.processes, Path(folder) / str(number))
            seen[side].append(seconds)
    print("| checkout | cases | wall time, s |\n|---|---:|---:|")
    for side, times in seen.items():
        print(f"| {side} | {len(cases[side])} | {', '.join(f'{seconds:.1f}' for seconds in times)} |")
    ratio = statistics.mean(seen["new"]) / statistics.mean(seen["base"])
    print(f"\nCases in both: {len(cases['base'] & cases['new'])}. New over base: {ratio:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
