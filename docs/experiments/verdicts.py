"""How often is a verdict wrong? Measures a pool of runs with a busy neighbour coming and going, then judges pairs.

    python docs/experiments/verdicts.py measure ONES --processes 1     # runs of one process, for interleaving
    python docs/experiments/verdicts.py measure THREES --processes 3   # runs of three; both go on where they stopped
    python docs/experiments/verdicts.py judge ONES THREES              # prints the tables of docs/ci.md

A round is four runs of verdict_cases.py: twice unchanged code, once with a case that does 10 % more work, once 20 %.
Every other round takes them in reverse (A B B A), so that the pairs of a round are interleaved. The neighbour is a
process that only counts, on for one to six runs, off for as many.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = HERE / "verdict_cases.py"
KINDS = {"same": 10, "slower10": 11, "again": 10, "slower20": 12}
"""The runs of a round, and how many products the compute-bound case multiplies in them."""


def schedule(rounds: int) -> list[tuple[int, str, bool]]:
    """(round, kind, neighbour) of each run in turn; equal for equal rounds, longer for more."""
    chance = random.Random(2026)
    found: list[tuple[int, str, bool]] = []
    busy, left = False, 3
    for number in range(rounds):
        for kind in list(KINDS) if number % 2 == 0 else reversed(KINDS):
            if not left:
                busy, left = not busy, chance.randint(1, 6)
            found.append((number, kind, busy))
            left -= 1
    return found


def measure(pool: Path, rounds: int, processes: int, threads: int, minutes: float) -> None:
    pool.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for number, kind, busy in schedule(rounds):
        path = pool / f"{number:03d}-{kind}-{'busy' if busy else 'quiet'}.json"
        if path.exists():
            continue
        if time.monotonic() - began > minutes * 60:
            print(f"stopped before {path.name}: run it again to go on")
            return
        environment = os.environ | {"VERDICT_PRODUCTS": str(KINDS[kind])}
        neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        try:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "gpubench", "run", str(CASES), "--device=cpu", "--no-charts"]
                command += [f"--threads={threads}", f"--processes={processes}", "-o", folder]
                command += ["--", f"--benchmark-max-time={0.1 * processes}"]
                subprocess.run(command, check=True, capture_output=True, env=environment)
                shutil.copy(Path(folder) / "run.json", path)
        finally:
            if neighbour:
                neighbour.kill()
                neighbour.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "judge"])
    parser.add_argument("pools", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop measuring after that long")
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.pools[0], args.rounds, args.processes, args.threads, args.minutes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
