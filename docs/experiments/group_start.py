"""How long does a group of two workers take to start: the first time, and again?

python docs/experiments/group_start.py --times 10
"""

from __future__ import annotations

import argparse
import statistics
import time

from gpubench.parallel.team import WorkerGroup


def seconds() -> float:
    """Return the seconds from nothing to two connected ranks; ending them isn't timed."""
    begin = time.perf_counter()
    group = WorkerGroup(["cpu", "cpu"], 1, 60.0)
    spent = time.perf_counter() - begin
    group.close()
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    args = parser.parse_args()
    print(f"first group: {seconds():.2f} s")
    again = [seconds() for _ in range(args.times)]
    print(f"{args.times} further groups: median {statistics.median(again):.3f} s, longest {max(again):.3f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
