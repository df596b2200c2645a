"""Do the intervals cover? Repeats real runs, and counts how often a run's interval holds the median of all runs.

    python docs/experiments/coverage.py --runs 20 --processes 3

Ten cases of all kinds. Prints, for each, how often the 95 % interval of its time covered, and the interval's
half-width (median over the runs).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from repeatability import geometric, measure, times

from gpubench.statistics import mean_interval


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for the runs; those that are there are not measured again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folders = [(args.keep or Path(name)) / str(number) for number in range(args.runs)]
        runs = [times(each) if (each / "results.csv").exists() else measure(args.processes, each) for each in folders]
    print(f"{args.runs} runs of {args.processes} processes\n")
    print("| case | interval covers | half-width | between runs |\n|---|---:|---:|---:|")
    covered = 0
    for case in runs[0]:
        values = [geometric(run[case]) for run in runs]
        truth = statistics.median(values)
        intervals = [mean_interval([process.median_s for process in run[case].processes]) for run in runs]
        hits = sum(interval.low <= truth <= interval.high for interval in intervals)
        width = statistics.median(interval.high / interval.value - 1 for interval in intervals)
        variation = statistics.stdev(values) / statistics.mean(values)
        covered += hits
        print(f"| {case} | {hits} of {len(runs)} | {width:.1%} | {variation:.1%} |")
    print(f"\nAll cases: {covered / len(runs) / len(runs[0]):.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
