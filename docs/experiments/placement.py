"""Whether the range that ``gpubench time`` prints holds the time of other runs.

Each of four expressions is timed in several runs, in turn. A printed range should hold the median of all its
expression's runs, and be no wider than it must::

    python docs/experiments/placement.py                          # 4 × 10 runs, some six minutes on idle cores
    python docs/experiments/placement.py --command OLD/gpubench   # the same of another checkout's environment
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpubench.report.results import Results

EXPRESSIONS = {
    "LSTM": ("lstm(x)", "lstm = module(lambda: nn.LSTM(64, 64)); x = randn(32, 8, 64)"),
    "convolution": ("F.conv2d(x, w, padding=1)", "x, w = randn(8, 16, 56, 56), randn(16, 16, 3, 3)"),
    "addition of 10⁵": ("a + b", "a, b = randn(10**5), randn(10**5)"),
    "product of 256": ("a @ b", "a, b = randn(256, 256), randn(256, 256)"),
}
MOST_SPREADS = 2.0
"""Widest median range, in spreads of the runs."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed time with its range, in seconds; ``wall_s`` is the time of the command."""

    time_s: float
    low_s: float
    high_s: float
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The runs of one expression: ``held`` ranges hold the median; ``width`` and ``spread`` are shares of it."""

    held: int
    runs: int
    median_s: float
    width: float
    spread: float
    wall_s: float


def outcome(printed: Sequence[Printed]) -> Outcome:
    """Return how many ranges hold the median of the runs, and their median width beside the spread of the runs."""
    times = [each.time_s for each in printed]
    middle = statistics.median(times)
    held = sum(each.low_s <= middle <= each.high_s for each in printed)
    width = statistics.median(each.high_s - each.low_s for each in printed) / middle
    wall_s = statistics.median(each.wall_s for each in printed)
    return Outcome(held, len(times), middle, width, (max(times) - min(times)) / middle, wall_s)


def run(command: str, name: str, options: Sequence[str]) -> Printed:
    """Time an expression in a new process."""
    text, setup = EXPRESSIONS[name]
    with tempfile.TemporaryDirectory() as folder:
        path, begun_s = Path(folder, "run.json"), time.monotonic()
        words = [*command.split(), "time", text, "--setup", setup, "--device=cpu", "-o", str(path), *options]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        wall_s = time.monotonic() - begun_s
        (row,) = Results.load(path).study.measured
    if row.interval:
        return Printed(row.time_s, row.interval.low, row.interval.high, wall_s)
    half_s = row.times.iqr_s / 2
    return Printed(row.time_s, row.time_s - half_s, row.time_s + half_s, wall_s)


def main() -> None:
    """Print a line for each expression, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", default=f"{sys.executable} -m gpubench")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("options", nargs="*", help="of gpubench time, after --")
    args = parser.parse_args()
    printed: dict[str, list[Printed]] = {name: [] for name in EXPRESSIONS}
    for _, name in itertools.product(range(args.runs), EXPRESSIONS):
        printed[name].append(run(args.command, name, args.options))
    outcomes = {name: outcome(each) for name, each in printed.items()}
    for name, each in outcomes.items():
        print(
            f"{name:16} {each.median_s * 1e6:8.1f} µs   holds {each.held} of {each.runs}   "
            f"width {each.width:6.1%}   spread of the runs {each.spread:6.1%}   {each.wall_s:5.1f} s a run"
        )
    held, runs = sum(each.held for each in outcomes.values()), sum(each.runs for each in outcomes.values())
    width = statistics.median(each.width / each.spread if each.spread else math.inf for each in outcomes.values())
    print(f"{held} of {runs} ranges hold the median of their runs (at least nine in ten wanted);")
    print(f"their median width is {width:.2f} times the spread of the runs (at most {MOST_SPREADS:g} wanted)")


if __name__ == "__main__":
    main()
