"""What do ordinary benchmark files get from ``gpubench run``? Prints; asserts nothing.

    python docs/experiments/plain_suites.py agree BENCHMARKS… [--turns 6]   # in a project
    python docs/experiments/plain_suites.py verdicts [--pairs 20] [--only wait]  # a test that got 20 % slower, and none
    python docs/experiments/plain_suites.py in-turn [--pairs 20] [--only wait]  # the same by compare --interleave

``agree`` measures the files with ``pytest --benchmark-enable``, plain and with one more call before rounds are counted
(as gpubench does: where the first call compiles, pytest-benchmark times five), and with ``gpubench run --processes 1``
in turn, and compares their cases by full name and their medians. ``verdicts`` judges runs of a suite of ten tests,
three processes a run, against each other: one of five that compute gets 20 % slower, and one of five that wait, whose
times a neighbour on the machine hardly disturbs. Only one of a kind, since a suite that changes alike counts as drift
of the machine. ``in-turn`` lets ``gpubench compare --interleave`` measure both.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpubench.runfile.reader import read

CLOSE = 0.05
SLOWER = 1.2
SUITE = """
import pytest, time

pytestmark = pytest.mark.benchmark(max_time=0.3)

@pytest.mark.parametrize("n", [20_000, 30_000, 40_000, 50_000, 60_000])
def test_compute(benchmark, n):
    benchmark(lambda: sum(range(n * ({factor} if n == 60_000 else 100) // 100)))

@pytest.mark.parametrize("ms", [2, 3, 4, 5, 6])
def test_wait(benchmark, ms):
    benchmark(time.sleep, ms * ({factor} if ms == 6 else 100) / 1e5)
"""
CHANGED = {"compute": "test_compute[60000]", "wait": "test_wait[6]"}
KINDS = tuple(CHANGED)


WARM = ["--benchmark-warmup=on", "--benchmark-warmup-iterations=1"]


def by_pytest(files: list[str], out: Path, *options: str) -> Path:
    path = out.with_suffix(".json")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--benchmark-enable",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:gpubench.plugin",
    ]
    command += [f"--benchmark-json={path}", *options, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not path.exists():
        raise SystemExit(f"plain_suites: pytest wrote no results: {done.stdout[-500:]}")
    return path


def by_gpubench(files: list[str], out: Path, *options: str, folder: Path = Path()) -> Path:
    command = [sys.executable, "-m", "gpubench", "run", *files, "--charts=none", "-o", str(out), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not (out / "run.json").exists():
        raise SystemExit(f"plain_suites: gpubench wrote no results: {done.stderr[-500:]}")
    return out / "run.json"


def medians(path: Path) -> dict[str, float]:
    return {result.fullname: result.times.median_s for result in read(path).results if result.times}


def agree(files: list[str], turns: int) -> None:
    """The control is pytest-benchmark against itself, its odd turns against its even ones: what the machine leaves."""
    turn: dict[str, Callable[[Path], Path]] = {
        "pytest-benchmark": lambda out: by_pytest(files, out),
        "pytest-benchmark, warm": lambda out: by_pytest(files, out, *WARM),
        "gpubench": lambda out: by_gpubench(files, out, "--processes=1"),
    }
    times: dict[str, list[dict[str, float]]] = {name: [] for name in turn}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(turns):
            for name in list(turn) if number % 2 else reversed(turn):
                times[name].append(medians(turn[name](Path(folder) / f"{name}{number}")))
    plain, warm, ours = times.values()
    cases, others = ({case for each in side for case in each} for side in (plain, ours))
    print(f"cases: {len(cases)} by pytest-benchmark, {len(others)} by gpubench; only one has {sorted(cases ^ others)}")
    shared = sorted(cases & others)
    against = {
        "gpubench / pytest-benchmark": {case: between(plain, ours, case) for case in shared},
        "pytest-benchmark / itself": {case: between(plain[::2], plain[1::2], case) for case in shared},
        "gpubench / pytest-benchmark, warm": {case: between(warm, ours, case) for case in shared},
        "pytest-benchmark, warm / itself": {case: between(warm[::2], warm[1::2], case) for case in shared},
    }
    for name, ratios in against.items():
        close = sum(abs(math.log(ratio)) <= math.log(1 + CLOSE) for ratio in ratios.values())
        middle = math.exp(statistics.median(map(math.log, ratios.values())))
        print(f"{name}: {middle:.3f} in the middle of the cases, within 5 % in {close} of {len(ratios)}")
    _, _, ratios, noise = against.values()
    print("farthest from the warm:")
    for case in sorted(shared, key=lambda case: -abs(math.log(ratios[case])))[:8]:
        print(f"  {ratios[case]:.3f} (itself: {noise[case]:.3f})  {case}")


def between(base: list[dict[str, float]], new: list[dict[str, float]], case: str) -> float:
    """Ratio of the middle turns of both."""
    before, after = (statistics.median(each[case] for each in side if case in each) for side in (base, new))
    return after / before


class Suites:
    """The suite in a folder of its own for each side, and a count of what was named."""

    def __init__(self, folder: Path, only: str) -> None:
        self.folder, self.options = folder, ["-k", only] if only else []
        self.kinds = [kind for kind in KINDS if kind == (only or kind)]
        self.named = dict.fromkeys(self.kinds, 0)
        self.alarms = dict.fromkeys(self.kinds, 0)
        for side, factor in (("base", 100), ("same", 100), ("slower", round(100 * SLOWER))):
            (folder / side).mkdir()
            (folder / side / "test_suite.py").write_text(SUITE.format(factor=factor))

    def count(self, slower: list[str], unchanged: list[str], number: int) -> None:
        """Cases that are called slower where one of a kind is, and where none is."""
        for kind in self.kinds:
            changed = CHANGED[kind]
            self.named[kind] += any(case.endswith(changed) for case in slower)
            others = [case for case in slower if not case.endswith(changed)] + unchanged
            self.alarms[kind] += any(f"test_{kind}" in case for case in others)
        print(f"after {number} pairs: named {self.named}, pairs with a false alarm {self.alarms}", flush=True)


def verdicts(suites: Suites, pairs: int) -> None:
    def measured(side: str, number: int) -> Path:
        out = suites.folder / f"{side}{number}"
        by_gpubench(["test_suite.py"], out, "--processes=3", *suites.options, folder=suites.folder / side)
        return out

    base = measured("base", 0)
    for pair in range(1, pairs + 1):
        slower = slower_cases(str(base), str(measured("slower", pair)))
        base, before = measured("base", pair), base
        suites.count(slower, slower_cases(str(before), str(base)), pair)


def in_turn(suites: Suites, pairs: int) -> None:
    for pair in range(1, pairs + 1):
        found = []
        for side in ("slower", "same"):
            out = f"--output={suites.folder / side}{pair}"
            sides = [str(suites.folder / each) for each in ("base", side)]
            found.append(slower_cases("--interleave", *sides, "--paths", "test_suite.py", out, *suites.options))
        suites.count(found[0], found[1], pair)


def slower_cases(*words: str) -> list[str]:
    """The cases that are proven slower."""
    command = [sys.executable, "-m", "gpubench", "compare", *words, "--format=json", "--threshold=5%"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"plain_suites: nothing was compared: {done.stderr[-500:]}")
    return [case["id"] for case in json.loads(done.stdout)["cases"] if case["verdict"] == "slower"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", choices=["agree", "verdicts", "in-turn"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", choices=KINDS, default="", help="a suite of one kind of tests")
    args = parser.parse_args()
    if args.question == "agree":
        agree(args.files, args.turns)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        suites = Suites(Path(folder), args.only)
        (in_turn if args.question == "in-turn" else verdicts)(suites, args.pairs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
