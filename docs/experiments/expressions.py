"""Does ``gpubench time`` agree with torch's own timer, and with itself by its four doors? Prints; asserts nothing.

    python docs/experiments/expressions.py [--turns 10] [--repetitions 20]

First ``a @ b`` at three sizes: by gpubench.time and by ``torch.utils.benchmark.Timer``, on the same tensors, in turn.
Then the same expression by the command, from Python, by the magic and by the fixture in a test file: whether work,
check and unit are equal, and how often the four intervals overlap. An interval is 95 % of a door's measurements, by
how its times differ from one repetition to the next: within one process that can't be seen.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from scipy.special import stdtrit
from torch.utils.benchmark import Timer

import gpubench
from gpubench.commands.notebook import magic
from gpubench.runfile.schema import Result

SIZES, ONE_SIZE = (256, 1024, 2048), 512
SETUP = "a, b = randn(n, n), randn(n, n)"
TEST = f"""
def test_product(gpubench):
    a, b = gpubench.randn({ONE_SIZE}, {ONE_SIZE}), gpubench.randn({ONE_SIZE}, {ONE_SIZE})
    gpubench(lambda a, b: a @ b, a, b)
"""
GPUBENCH = (sys.executable, "-m", "gpubench")
OPTIONS = "--device cpu --no-ceilings"


def first(results: gpubench.Results) -> Result:
    return results.runs[0].results[0]


def agreement(turns: int) -> None:
    """Ratio of the two timers' medians, turn by turn."""
    for n in SIZES:
        names = {"a": torch.randn(n, n), "b": torch.randn(n, n)}
        ratios = []
        for turn in range(turns):
            seconds = {}
            for timer in ("ours", "theirs") if turn % 2 else ("theirs", "ours"):
                if timer == "ours":
                    seconds[timer] = first(magic(f"{OPTIONS} a @ b", None, names)).times.median_s
                else:
                    torchs = Timer("a @ b", globals=names, num_threads=torch.get_num_threads())
                    seconds[timer] = torchs.blocked_autorange(min_run_time=0.3).median
            ratios.append(seconds["ours"] / seconds["theirs"])
        logs = sorted(map(math.log, ratios))
        error = float(stdtrit(turns - 1, 0.975)) * statistics.stdev(logs) / math.sqrt(turns)
        middle = statistics.median(logs)
        interval = f"{math.exp(middle - error):.3f} to {math.exp(middle + error):.3f}"
        print(f"n={n}: gpubench / Timer = {math.exp(middle):.3f} (95 %: {interval})", flush=True)


def by_command(folder: Path) -> Result:
    words = [
        *GPUBENCH,
        "time",
        "a @ b",
        "--setup",
        SETUP,
        "--size",
        f"n={ONE_SIZE}",
        *OPTIONS.split(),
        "-o",
        "run.json",
    ]
    subprocess.run(words, cwd=folder, capture_output=True, check=True)
    return first(gpubench.load(folder / "run.json"))


def by_python(folder: Path) -> Result:
    return first(gpubench.time("a @ b", setup=SETUP, sizes=[ONE_SIZE], devices="cpu"))


def by_magic(folder: Path) -> Result:
    return first(magic(f"{OPTIONS} --size n={ONE_SIZE} {SETUP}", "a @ b", {}))


def by_fixture(folder: Path) -> Result:
    (folder / "test_mine.py").write_text(TEST)
    words = [*GPUBENCH, "run", "test_mine.py", "--processes", "1", "--charts=none", *OPTIONS.split(), "-o", "out"]
    subprocess.run(words, cwd=folder, capture_output=True, check=True)
    return first(gpubench.load(folder / "out/run.json"))


DOORS = {"command": by_command, "Python": by_python, "magic": by_magic, "fixture": by_fixture}


def doors(repetitions: int) -> None:
    """How often the four overlap, and whether they say the same of the work."""
    terms = set()
    logs: dict[str, list[float]] = {name: [] for name in DOORS}
    for turn in range(repetitions):
        for name in list(DOORS) if turn % 2 else reversed(DOORS):
            with tempfile.TemporaryDirectory() as folder:
                result = DOORS[name](Path(folder))
            terms.add((result.work, result.check and result.check.status))
            logs[name].append(math.log(result.times.median_s))
    half = {name: float(stdtrit(repetitions - 1, 0.975)) * statistics.stdev(values) for name, values in logs.items()}
    overlaps = sum(
        max(logs[name][i] - half[name] for name in DOORS) <= min(logs[name][i] + half[name] for name in DOORS)
        for i in range(repetitions)
    )
    print(f"the intervals of all four overlap in {overlaps} of {repetitions} repetitions")
    print(f"work and check: {'equal' if len(terms) == 1 else terms}")
    for name, values in logs.items():
        middle_ms = math.exp(statistics.median(values)) * 1e3
        print(f"{name}: {middle_ms:.3f} ms, a measurement is ±{math.expm1(half[name]):.0%}")


def wall() -> None:
    """Seconds that the command takes with three sizes."""
    began = time.monotonic()
    words = [*GPUBENCH, "time", "a @ b", "--setup", SETUP, "--size", "n=256,1024,4096", "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    print(f"three sizes up to 4096 in {time.monotonic() - began:.1f} s\n{done.stdout}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=20)
    args = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(gpubench.__file__).parent.parent))
    wall()
    agreement(args.turns)
    doors(args.repetitions)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
