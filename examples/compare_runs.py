"""What became faster? The ratio of times of each benchmark that two run files share.

    python examples/compare_runs.py before/run.json after/run.json

Reads files only: neither torch nor a GPU is needed. (For verdicts with error bars: ``gpubench compare``.)
"""

import sys

from gpubench import read


def times(path: str) -> dict[str, float]:
    """Seconds per call, by benchmark; the name holds the device."""
    return {result.fullname: result.times.median_s for result in read(path).results if result.times}


def main(before: str, after: str) -> None:
    old, new = times(before), times(after)
    for name in sorted(old.keys() & new.keys()):
        print(f"{old[name] / new[name]:6.2f}x  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
