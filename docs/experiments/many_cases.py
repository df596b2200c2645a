"""Is a run of 10,000 benchmarks resumed, recovered and reported in time and memory that grow with their number alone?

    python docs/experiments/many_cases.py --cases 2500 5000 10000

The journals are made up, for timing only: three processes, 200 samples of each in every benchmark. Prints the CPU
seconds and the most memory that each command took. The run that is resumed is complete, so nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import journals
from many_runs import measure_command

PROCESSES, SAMPLES = 3, 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, nargs="+", default=[2500, 5000, 10_000])
    args = parser.parse_args()
    print("| benchmarks | command | CPU time | memory |\n|---:|---|---:|---:|")
    for count in args.cases:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            folder.mkdir()
            journals.made_up(folder / "run.ledger.jsonl", count, PROCESSES, SAMPLES)
            commands = {
                "recover": ["recover", str(folder), "-o", f"{name}/recovered.json"],
                "run --resume --charts none": ["run", "--resume", str(folder), "--charts=none"],
                "report --charts none": ["report", str(folder / "run.json"), "-o", f"{name}/out", "--charts=none"],
            }
            for what, words in commands.items():
                cost = measure_command(words)
                print(f"| {count} | {what} | {cost.cpu_s:.0f} s | {cost.memory_bytes / 1e9:.2f} GB |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
