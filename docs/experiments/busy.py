"""Are times from a busy machine right if they have no star? One line per operation; exit code 1 if any is wrong.

    python docs/experiments/busy.py [OUT] [--processes 3] [--busy 2]

``gpubench time`` measures 20 small operations of torch on an idle machine, with all threads and with one, and once more
beside programs that compute, which this script starts and ends. A time from the busy machine without a star must be
within 25 % of the idle machine's with as many threads. A time with a star must have an interval that contains the idle
time, or state instead that the machine was busy, that its threads waited, or that the time is too noisy.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpubench.report import words
from gpubench.report.rows import Measured
from gpubench.report.study import Study
from gpubench.runfile.quantities import seconds_text
from gpubench.runfile.reader import read

CLOSE = 0.25
SETUP = "x, y, z, a, b = randn(1000), randn(10_000), randn(100_000), randn(64, 64), randn(200, 200)\n"
SETUP += "i = randint(1000, (1000,))"
OPERATIONS = (
    "x + x", "x.exp()", "x.sum()", "x.sort().values", "x[i]", "x.cumsum(0)", "y + y", "y.mul(2)", "y.tanh()",
    "y.mean()", "y.softmax(0)", "y.clone()", "z + z", "z.relu()", "z.sum()", "z.abs()", "a @ a", "b @ b",
    "a.softmax(-1)", "F.layer_norm(b, (200,))",
)  # fmt: skip


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """A context in which ``count`` other programs compute."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measured(folder: Path, name: str, processes: int, *options: str) -> dict[str, Measured]:
    """Return what ``gpubench time`` measures for the operations, by expression."""
    file = folder / f"{name}.json"
    command = [
        sys.executable,
        "-m",
        "gpubench",
        "time",
        *OPERATIONS,
        "--setup",
        SETUP,
        "--device",
        "cpu",
        "-o",
        str(file),
    ]
    subprocess.run([*command, f"--processes={processes}", *options], check=True, stdout=subprocess.DEVNULL)
    return {words.name(row.result): row for row in Study([read(file)]).measured}


def judged(idle: Measured, busy: Measured) -> tuple[bool, str]:
    """Return whether what is shown of the busy machine's time is right, and a text about it."""
    shown, error = words.time(busy), busy.time_s / idle.time_s - 1
    spread = words.precision(busy)
    told = f"{shown:>9} {spread:>9}   idle {seconds_text(idle.time_s):>8}   {error:+.0%}"
    if "*" not in shown:
        return abs(error) <= CLOSE, told
    if spread[0] not in "±~":
        return True, told
    low, high = (busy.interval.low, busy.interval.high) if busy.interval else (busy.times.q1_s, busy.times.q3_s)
    return low <= idle.time_s <= high, told


def main() -> int:
    """Measure, compare, and count."""
    parser = argparse.ArgumentParser(description="Does a busy machine's time hold, where it has no star?")
    parser.add_argument("out", nargs="?", help="folder of the results files (default: none are kept)")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2, help="how many programs compute")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.out or scratch)
        folder.mkdir(exist_ok=True)
        for file in folder.glob("*.json"):
            file.unlink()
        idle = {threads: measured(folder, f"idle-{threads}", args.processes, *options)
                for threads, options in ((1, ("--threads", "1")), (None, ()))}  # fmt: skip
        with neighbours(args.busy):
            busy = measured(folder, "busy", args.processes)
    wrong = starred = 0
    for name, row in busy.items():
        holds, told = judged(idle[1 if row.result.threads == 1 else None][name], row)
        starred += "*" in words.time(row)
        wrong += not holds
        print(f"{'   ' if holds else 'NO '} {name:24} {row.result.threads} threads {told}")
    print(f"{len(busy)} of {len(OPERATIONS)} operations; {starred} have a star; {wrong} don't hold")
    return int(bool(wrong) or len(busy) < len(OPERATIONS))


if __name__ == "__main__":
    sys.exit(main())
