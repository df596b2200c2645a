"""How long does a gate of CI take, and is it right? Prints; asserts nothing.

    python docs/experiments/gate.py sleep                            # 40 tests that sleep 2 ms, one 25 % longer
    python docs/experiments/gate.py mixed --slower 1.15 --times 3    # 30 tests that compute, one 15 % slower
    python docs/experiments/gate.py mixed --neighbour                # beside a process that only counts

``mixed`` takes at most eight minutes each time: three plain runs, and two comparisons of at most ``--budget`` seconds.

Writes a suite for base, one for new, in which one test is slower, and one for new in which none is. Each time plain
pytest-benchmark measures both sides once, as jobs of CI do, and ``gpubench compare --interleave`` measures them in
turn. Two rules judge the plain runs: ``--benchmark-compare-fail=median:5%`` and Welch's t test of the rounds
(one-sided, 2.5 %, and 5 % slower). An alarm is a test that a rule calls slower although its code is unchanged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scipy import stats

SUITES = {
    "sleep": (
        "test_sleep[17]",
        """
import time

import pytest

SLOWER = {slower}

@pytest.mark.parametrize("n", range(40))
def test_sleep(benchmark, n):
    benchmark(time.sleep, 0.002 * (SLOWER if n == 17 else 1))
""",
    ),
    "mixed": (
        "test_words[3000]",
        """
import hashlib, json, random, re, zlib

import numpy as np
import pytest

SLOWER = {slower}
TEXT = " ".join(random.Random(1).choices(["alpha", "beta", "gamma", "x1", "42"], k=20_000))
RECORDS = [{{"id": i, "name": f"n{{i}}", "values": list(range(i % 7))}} for i in range(2000)]

@pytest.mark.parametrize("n", [500, 1000, 2000, 3000, 4000])
def test_words(benchmark, n):
    words = TEXT.split()[: int(n * (SLOWER if n == 3000 else 1))]
    benchmark(lambda: sorted({{word: len(re.findall("[a-z]+", word)) for word in enumerate_words(words)}}))

def enumerate_words(words):
    return [f"{{place}}{{word}}" for place, word in enumerate(words)]

@pytest.mark.parametrize("n", [200, 500, 1000, 1500, 2000])
def test_json(benchmark, n):
    benchmark(lambda: json.loads(json.dumps(RECORDS[:n])))

@pytest.mark.parametrize("n", [1, 2, 4, 6, 8])
def test_compress(benchmark, n):
    benchmark(zlib.compress, TEXT[: n * 10_000].encode())

@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_hash(benchmark, n):
    benchmark(lambda: hashlib.sha256(TEXT.encode() * n).digest())

@pytest.mark.parametrize("n", [1_000, 5_000, 10_000, 50_000, 100_000])
def test_sort(benchmark, n):
    benchmark(np.sort, np.random.default_rng(1).normal(size=n))

@pytest.mark.parametrize("n", [32, 64, 100, 128, 200])
def test_solve(benchmark, n):
    matrix = np.random.default_rng(1).normal(size=(n, n))
    benchmark(np.linalg.solve, matrix, matrix)
""",
    ),
}
FILE = "test_suite.py"


def plain(folder: Path, out: Path, *more: str) -> tuple[float, str]:
    """Return the seconds that plain pytest-benchmark takes for a side, and its output."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:gpubench.plugin", "-p", "no:cacheprovider", FILE]
    done = subprocess.run(
        [*command, f"--benchmark-json={out}", *more], cwd=folder, capture_output=True, text=True, check=False
    )
    if not out.exists():
        raise SystemExit(f"gate: pytest wrote no results: {done.stdout[-500:]}")
    return time.monotonic() - began, done.stdout


def by_median(base: Path, new: Path) -> list[str]:
    """Return the tests that ``--benchmark-compare-fail=median:5%`` calls slower."""
    before, after = (read(path) for path in (base, new))
    return [name for name in after if after[name]["median"] > 1.05 * before[name]["median"]]


def by_t_test(base: Path, new: Path) -> list[str]:
    before, after = (read(path) for path in (base, new))
    found = []
    for name in after:
        one, other = before[name], after[name]
        p = stats.ttest_ind(other["data"], one["data"], equal_var=False, alternative="greater").pvalue
        if p < 0.025 and other["mean"] > 1.05 * one["mean"]:
            found.append(name)
    return found


def read(path: Path) -> dict[str, dict]:
    return {each["name"]: each["stats"] for each in json.loads(path.read_text())["benchmarks"]}


def in_turn(sides: tuple[Path, Path], out: Path, budget_s: float) -> tuple[float, dict[str, str]]:
    """Return the seconds that ``gpubench compare --interleave`` takes, and the verdict on each test."""
    began = time.monotonic()
    command = [sys.executable, "-m", "gpubench", "compare", "--interleave", *map(str, sides), "--paths", FILE]
    command += ["-o", str(out), "--format=json", f"--budget={budget_s}"]
    done = subprocess.run(command, cwd=sides[0].parent, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"gate: nothing was compared: {done.stderr[-500:]}")
    cases = json.loads(done.stdout)["cases"]
    return time.monotonic() - began, {case["id"].partition("::")[2]: case["verdict"] for case in cases}


def gate(folder: Path, args: argparse.Namespace, number: int) -> None:
    slowed, source = SUITES[args.kind]
    for side, factor in (("base", 1), ("same", 1), ("slower", args.slower)):
        (folder / side).mkdir(exist_ok=True)
        (folder / side / FILE).write_text(source.format(slower=factor))
    taken, files = {}, {}
    for side in ("base", "same", "slower"):
        files[side] = folder / f"{side}{number}.json"
        taken[side], _ = plain(folder / side, files[side])
    for new in ("slower", "same"):
        plain_s = taken["base"] + taken[new]
        in_turn_s, verdicts = in_turn((folder / "base", folder / new), folder / f"{new}-{number}", args.budget)
        ours = [name for name, verdict in verdicts.items() if verdict == "slower"]
        rules = {"median:5%": by_median(files["base"], files[new]), "t test": by_t_test(files["base"], files[new])}
        for rule, named in {**rules, "gpubench compare --interleave": ours}.items():
            minutes = (in_turn_s if named is ours else plain_s) / 60
            found = ("yes" if slowed in named else "no") if new == "slower" else "–"
            alarms = len([name for name in named if new == "same" or name != slowed])
            print(f"| {new} | {rule} | {minutes:.1f} | {found} | {alarms} |", flush=True)
        words = {word: list(verdicts.values()).count(word) for word in sorted(set(verdicts.values()))}
        print(f"({words}; {in_turn_s / plain_s:.2f} times as long as plain runs of both)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=SUITES)
    parser.add_argument("--slower", type=float, default=1.25, help="factor of the test that is slower")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--budget", type=float, default=165.0, help="seconds of a comparison that measures in turn")
    parser.add_argument("--neighbour", action="store_true", help="beside a process that only counts")
    args = parser.parse_args()
    print("| new side | rule | minutes | named | alarms |\n|---|---|---:|---|---:|")
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"])] if args.neighbour else []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(args.times):
                gate(Path(folder), args, number)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
