"""Do the intervals cover? Repeats real runs, and counts how often a run's interval holds the median of all runs.

    python docs/experiments/coverage.py --runs 20 --processes 3
    python docs/experiments/coverage.py --series FOLDER …    # of run files of one process each, measured in a row

Runs ten cases of all kinds. Prints for each how often the 95 % interval of its time covered, and the interval's
half-width (median over the runs), both for the geometric mean of the processes and for their median. In a series,
consecutive files are the processes of a run.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from repeatability import measure, times

from gpubench.runfile.runs import read
from gpubench.statistics.intervals import INTERVAL, Interval, median, median_interval, quantile


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the geometric mean with Student's interval, which was used before the median."""
    logs = [math.log(value) for value in values]
    half = quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    centre = statistics.fmean(logs)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half), INTERVAL)


KINDS: dict[str, tuple[Callable[[Sequence[float]], Interval], Callable[[Sequence[float]], float]]] = {
    "mean": (mean_interval, statistics.geometric_mean),
    "median": (median_interval, median),
}
Runs = Mapping[str, Sequence[Sequence[float]]]
"""Seconds of each process of each run, by case."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder for the runs; those that are there are not measured again")
    parser.add_argument("--series", type=Path, nargs="+", help="folders of run files, instead of measuring")
    args = parser.parse_args()
    runs: dict[str, list[list[float]]] = {}
    if args.series:
        for folder in args.series:
            runs |= in_a_row(folder, args.processes)
    else:
        with tempfile.TemporaryDirectory() as name:
            for number in range(args.runs):
                folder = (args.keep or Path(name)) / str(number)
                known = (folder / "results.csv").exists()
                for case, timed in (times(folder) if known else measure(args.processes, folder)).items():
                    runs.setdefault(case, []).append([process.median_s for process in timed.processes])
    show(runs)
    return 0


def in_a_row(folder: Path, processes: int) -> dict[str, list[list[float]]]:
    """Return the runs that consecutive files of a folder make, in the order of their names; a remainder at the end is
    left out."""
    medians: dict[str, list[float]] = {}
    for path in sorted(folder.iterdir()):
        for result in read(path).results:
            if result.times:
                medians.setdefault(f"{folder.name}: {result.case.id}", []).append(result.times.median_s)
    cuts = range(0, min(map(len, medians.values())) - processes + 1, processes)
    return {case: [seconds[cut : cut + processes] for cut in cuts] for case, seconds in medians.items()}


def show(runs: Runs) -> None:
    """Print a row for each case, and how often the intervals of all cases covered."""
    print(f"| case | {' | '.join(f'{kind} covers | half-width | between runs' for kind in KINDS)} |")
    print("|---|" + "---:|" * 3 * len(KINDS))
    hits, total = dict.fromkeys(KINDS, 0), 0
    for case, each in runs.items():
        total += len(each)
        cells = []
        for kind, (interval_of, value_of) in KINDS.items():
            values, intervals = [value_of(run) for run in each], [interval_of(run) for run in each]
            truth = statistics.median(values)
            covered = sum(interval.low <= truth <= interval.high for interval in intervals)
            hits[kind] += covered
            width = statistics.median(interval.high / interval.value - 1 for interval in intervals)
            variation = statistics.stdev(values) / statistics.mean(values)
            cells.append(f"{covered} of {len(each)} | {width:.1%} | {variation:.1%}")
        print(f"| {case} | {' | '.join(cells)} |")
    print("\nAll cases: " + ", ".join(f"{kind} {count / total:.1%}" for kind, count in hits.items()) + f" of {total}")


if __name__ == "__main__":
    raise SystemExit(main())
