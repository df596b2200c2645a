"""Do tables and comparisons stay quick with a thousand run files? Prints times and the most memory taken.

    python docs/experiments/many_runs.py --runs 250 500 1000

The files are made up, for timing only: 300 cases, 200 samples each; a third of the workloads becomes slower on the way.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from gpubench.runfile.schema import Case

WORKLOADS, SIZES, SAMPLES = 15, 20, 200


def write(folder: Path, count: int) -> None:
    chance = random.Random(0)
    cases = [
        Case(f"family{w % 3}.work{w}", "cpu", "float32", {"n": 2**n}, threads=2, size="n", devices=("cpu",))
        for w in range(WORKLOADS)
        for n in range(SIZES)
    ]
    for number in range(count):
        marks = [_mark(case, chance, 1.2 if i < 100 and number > count / 2 else 1.0) for i, case in enumerate(cases)]
        machine = {"label": "made up", "devices": [{"name": "cpu", "kind": "cpu", "label": "made up"}], "threads": 2}
        started = f"{2000 + number // 360}-{number // 30 % 12 + 1:02}-{number % 28 + 1:02}T12:00:00+00:00"
        run = {
            "schema_version": 1,
            "preset": "quick",
            "started": started,
            "processes": [{"process": 0}],
            "unmeasured": [],
        }
        document = {"machine_info": {"gpubench": machine}, "benchmarks": marks, "gpubench": run}
        (folder / f"{number:04}.json").write_text(json.dumps(document))


def _mark(case: Case, chance: random.Random, slower: float) -> dict:
    median = 1e-6 * case.params["n"] * slower * chance.lognormvariate(0, 0.03)
    data = [median * chance.lognormvariate(0, 0.02) for _ in range(SAMPLES)]
    process = {"process": 0, "rounds": SAMPLES, "kept": SAMPLES, "iterations": 1, "median_s": median}
    ours = {**case.as_dict(), "work": {"bytes": 8.0 * case.params["n"]}, "processes": [process]}
    stats = {"min": min(data), "max": max(data), "mean": median, "median": median, "iqr": 0.02 * median, "stddev": 0.0}
    stats |= {
        "q1": 0.99 * median,
        "q3": 1.01 * median,
        "rounds": SAMPLES,
        "iterations": 1,
        "ops": 1 / median,
        "data": data,
    }
    name = f"test_{case.workload}[{case.id}]"
    return {
        "name": name, "fullname": f"made_up.py::{name}", "group": None, "params": {}, "extra_info": {"gpubench": ours},
        "options": {"timer": "device_clock"}, "stats": stats,
    }  # fmt: skip


class Cost(NamedTuple):
    """What a command took: its time, and ``memory_bytes``, the most that it held at once."""

    wall_s: float
    cpu_s: float
    memory_bytes: float


def measure_command(words: list[str]) -> Cost:
    """Run ``gpubench`` with these words. Raises SystemExit if it fails."""
    code = (
        "import resource, sys; from gpubench.commands.cli import main; code = main(sys.argv[1:]);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print('used', used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    cpu_s, memory = map(float, done.stderr.split()[-2:])
    return Cost(time.monotonic() - began, cpu_s, memory * (1 if sys.platform == "darwin" else 1024))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--charts=none", action="store_true", help="leave out the report with charts")
    args = parser.parse_args()
    print("| run files | command | time | CPU time | memory |\n|---:|---|---:|---:|---:|")
    for count in args.runs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "runs"
            folder.mkdir()
            write(folder, count)
            sides = [folder / "base", folder / "new"]
            runs = sorted(folder.iterdir())
            for side, half in zip(sides, (runs[: count // 2], runs[count // 2 :]), strict=True):
                side.mkdir()
                for path in half:
                    path.rename(side / path.name)
            commands = {
                "compare, half a side": ["compare", *map(str, sides)],
                "report --charts none": ["report", str(folder), "-o", f"{name}/out", "--charts=none"],
                "report --format svg": ["report", str(folder), "-o", f"{name}/out", "--format", "svg"],
            }
            if args.no_charts:
                del commands["report --format svg"]
            for what, words in commands.items():
                cost = measure_command(words)
                cells = f"{cost.wall_s:.0f} s | {cost.cpu_s:.0f} s | {cost.memory_bytes / 1e9:.2f} GB"
                print(f"| {count} | {what} | {cells} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
