"""What do ordinary benchmark files get from ``gpubench run``? Prints; asserts nothing.

    python docs/experiments/plain_suites.py agree BENCHMARKS… [--turns 2]   # in a project
    python docs/experiments/plain_suites.py verdicts [--pairs 20]           # a test that got 20 % slower, and none

``agree`` measures the files with ``pytest --benchmark-enable`` and with ``gpubench run --processes 1`` in turn, and
compares their cases by full name and their medians. ``verdicts`` judges runs of a suite of ten tests, three processes a
run, against each other: one of five that compute gets 20 % slower, and one of five that wait, whose times a neighbour
on the machine hardly disturbs. Only one of a kind, since a suite that changes alike counts as drift of the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
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
KINDS = ("compute", "wait")


def by_pytest(files: list[str], out: Path) -> Path:
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
        "no:gpubench",
    ]
    command += [f"--benchmark-json={path}", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not path.exists():
        raise SystemExit(f"plain_suites: pytest wrote no results: {done.stdout[-500:]}")
    return path


def by_gpubench(files: list[str], out: Path, *options: str, folder: Path = Path()) -> Path:
    command = [sys.executable, "-m", "gpubench", "run", *files, "--no-charts", "-o", str(out), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not (out / "run.json").exists():
        raise SystemExit(f"plain_suites: gpubench wrote no results: {done.stderr[-500:]}")
    return out / "run.json"


def medians(path: Path) -> dict[str, float]:
    return {result.fullname: result.times.median_s for result in read(path).results if result.times}


def agree(files: list[str], turns: int) -> None:
    times: dict[str, list[dict[str, float]]] = {"pytest-benchmark": [], "gpubench": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns):
            for name in list(times) if turn % 2 else reversed(times):
                out = Path(folder) / f"{name}{turn}"
                path = by_pytest(files, out) if name != "gpubench" else by_gpubench(files, out, "--processes=1")
                times[name].append(medians(path))
    plain, ours = ({case for each in times[name] for case in each} for name in times)
    print(f"cases: {len(plain)} by pytest-benchmark, {len(ours)} by gpubench; only one has {sorted(plain ^ ours)}")
    ratios, noise = {}, {}
    for case in plain & ours:
        sides = [[each[case] for each in times[name] if case in each] for name in times]
        ratios[case] = statistics.geometric_mean(sides[1]) / statistics.geometric_mean(sides[0])
        noise[case] = max(max(side) / min(side) for side in sides)
    logs = list(map(math.log, ratios.values()))
    print(f"gpubench / pytest-benchmark: {math.exp(statistics.median(logs)):.3f} (median of the cases)")
    close = [case for case, ratio in ratios.items() if abs(math.log(ratio)) <= math.log(1 + CLOSE)]
    steady = [case for case in ratios if noise[case] <= 1 + CLOSE]
    both = len(set(close) & set(steady))
    print(
        f"within 5 %: {len(close)} of {len(ratios)}; of those whose own runs agree within 5 %: {both} of {len(steady)}"
    )
    for case in sorted(ratios, key=lambda case: -abs(math.log(ratios[case])))[:8]:
        print(f"  {ratios[case]:.3f} (its own runs: {noise[case]:.3f})  {case}")


def verdicts(pairs: int) -> None:
    named = dict.fromkeys(KINDS, 0)
    alarms = dict.fromkeys(KINDS, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, factor in (("base", 100), ("slower", round(100 * SLOWER))):
            (folder / side).mkdir()
            (folder / side / "test_suite.py").write_text(SUITE.format(factor=factor))

        def measured(side: str, number: int) -> Path:
            out = folder / f"{side}{number}"
            by_gpubench(["test_suite.py"], out, "--processes=3", folder=folder / side)
            return out

        base = measured("base", 0)
        for pair in range(1, pairs + 1):
            slower = slower_cases(base, measured("slower", pair))
            base, before = measured("base", pair), base
            unchanged = slower_cases(before, base)
            for kind, changed in zip(KINDS, ("test_compute[60000]", "test_wait[6]"), strict=True):
                named[kind] += any(case.endswith(changed) for case in slower)
                others = [case for case in slower if not case.endswith(changed)] + unchanged
                alarms[kind] += any(f"test_{kind}" in case for case in others)
            print(f"after {pair} pairs: named {named}, pairs with a false alarm {alarms}", flush=True)


def slower_cases(base: Path, new: Path) -> list[str]:
    """The cases that are proven slower."""
    command = [sys.executable, "-m", "gpubench", "compare", str(base), str(new), "--format=json", "--threshold=5%"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [case["id"] for case in json.loads(done.stdout)["cases"] if case["verdict"] == "slower"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", choices=["agree", "verdicts"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    if args.question == "agree":
        agree(args.files, args.turns)
    else:
        verdicts(args.pairs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
