"""How often is a verdict wrong? Measures a pool of runs with a busy neighbour coming and going, then judges pairs.

    python docs/experiments/verdicts.py measure ONES --processes 1     # runs of one process, for interleaving
    python docs/experiments/verdicts.py measure THREES --processes 3   # runs of three; both go on where they stopped
    python docs/experiments/verdicts.py judge ONES THREES            # the tables of docs/how-comparisons-are-decided.md
    python docs/experiments/verdicts.py measure CORE0 --core 0 --neighbours 2       # while CORE1 is measured on core 1
    python docs/experiments/verdicts.py disturbed CORE0 CORE1        # by how many processes of each side had neighbours

A round is four runs of verdict_cases.py: twice unchanged code, once with a case that does 10 % more work, once 20 %.
Every other round takes them in reverse (A B B A), so that the pairs of a round are interleaved. The neighbour is a
process that only counts, on for one to six runs, off for as many.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_benchmark.utils import PercentageRegressionCheck

from gpubench.compare.interleaved import Sequential
from gpubench.compare.samples import CaseKey, Observation, Side, merge_side, read_side
from gpubench.compare.verdict import Verdict, judge
from gpubench.runfile.ledger import assemble
from gpubench.runfile.writer import write
from gpubench.supervise.supervisor import Supervisor

HERE = Path(__file__).resolve().parent
CASES = HERE / "verdict_cases.py"
SLOWED = "products["
KINDS = {"same": 10, "slower10": 11, "again": 10, "slower20": 12}
"""The runs of a round, and how many products the compute-bound case multiplies in them."""


def schedule(rounds: int, most: int = 1) -> list[tuple[int, str, int]]:
    """(round, kind, neighbours) of each run in turn; equal for equal rounds, longer for more."""
    chance = random.Random(2026)
    found: list[tuple[int, str, int]] = []
    neighbours, left = 0, 3
    for number in range(rounds):
        for kind in list(KINDS) if number % 2 == 0 else reversed(KINDS):
            if not left:
                left = chance.randint(1, 6)
                neighbours = 0 if neighbours else chance.randint(1, most)
            found.append((number, kind, neighbours))
            left -= 1
    return found


def measure(pool: Path, args: argparse.Namespace) -> None:
    pool.mkdir(parents=True, exist_ok=True)
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    began = time.monotonic()
    for number, kind, count in schedule(args.rounds, args.neighbours):
        path = pool / f"{number:03d}-{kind}-{f'busy{count}' if count else 'quiet'}.json"
        if path.exists():
            continue
        if time.monotonic() - began > args.minutes * 60:
            print(f"stopped before {path.name}: run it again to go on")
            return
        os.environ["VERDICT_PRODUCTS"] = str(KINDS[kind])
        neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            with tempfile.TemporaryDirectory() as folder:
                words = ["--gpubench-device=cpu", "--gpubench-no-ceilings", f"--gpubench-threads={args.threads}"]
                words.append(f"--benchmark-max-time={0.1 * args.processes}")
                run = Supervisor(Path(folder), [str(CASES)], words, args.processes, 120.0, lambda event: None)
                run.measure()
                write(path, assemble(run.events))
        finally:
            for neighbour in neighbours:
                neighbour.kill()
                neighbour.wait()


Row = tuple[str, int, int, int, int]
"""What was compared, how often, and how often ours, pytest-benchmark and github-action-benchmark raised an alarm."""


@dataclass(frozen=True)
class Measured:
    """One run of a pool: what ``gpubench compare`` reads of it, and the statistics that the others read."""

    side: Side
    stats: dict[str, dict[str, float]]


def load(pool: Path) -> dict[str, dict[int, Measured]]:
    """By kind and round."""
    found: dict[str, dict[int, Measured]] = {kind: {} for kind in KINDS}
    for path in sorted(pool.glob("*.json")):
        number, kind, _ = path.stem.split("-")
        stats = {each["name"]: each["stats"] for each in json.loads(path.read_text())["benchmarks"]}
        found[kind][int(number)] = Measured(read_side("pool", [path]), stats)
    return found


def together(runs: list[Measured]) -> dict[CaseKey, list[Observation]]:
    side = Side("pool")
    for run in runs:
        merge_side(side, run.side)
    return side.cases


def others(base: Measured, new: Measured, case: str) -> tuple[bool, bool]:
    """Whether the rules of pytest-benchmark (its own code) and of github-action-benchmark raise an alarm."""
    names = [name for name in new.stats if case in name]
    median = PercentageRegressionCheck("median", 5.0)
    ours = any(median.fails(new.stats[name], base.stats[name]) for name in names)
    theirs = any(base.stats[name]["ops"] / new.stats[name]["ops"] > 2.0 for name in names)
    return ours, theirs


def alarmed(verdicts: list[Verdict], case: str) -> bool:
    return any(each.verdict == "slower" and case in each.key.name for each in verdicts)


def drawn(pool: dict[str, dict[int, Measured]], kind: str, side: int, count: int) -> Row:
    """Comparisons of ``side`` runs a side, drawn from the pool without regard to what the machine was doing."""
    chance = random.Random(f"{kind} {side}")
    unchanged = [*pool["same"].values(), *pool["again"].values()]
    case = "" if kind == "again" else SLOWED
    hits = [0, 0, 0]
    for _ in range(count):
        runs = chance.sample(unchanged, 2 * side)
        base, new = runs[:side], runs[side:]
        if kind != "again":
            new = chance.sample(list(pool[kind].values()), side)
        hits[0] += alarmed(judge(together(base), together(new)), case)
        for i, alarm in enumerate(others(base[0], new[0], case), 1):
            hits[i] += alarm
    return f"{side} {'run' if side == 1 else 'runs'} a side", count, hits[0], hits[1], hits[2]


def interleaved(pool: dict[str, dict[int, Measured]], kind: str, count: int, most: int = 20) -> tuple[Row, float]:
    """Comparisons of pairs taken in turn, in an order drawn from the pool; and how many pairs they took."""
    chance = random.Random(kind)
    rounds = sorted(set(pool["same"]) & set(pool[kind]))
    case = "" if kind == "again" else SLOWED
    hits, pairs = [0, 0, 0], 0
    for _ in range(count):
        numbers = chance.sample(rounds, most)
        seen, verdicts = Sequential(most, 0.05), []
        for number in numbers:
            base, new = pool["same"][number], pool[kind][number]
            if kind == "again" and chance.random() < 0.5:  # of two that are the same either may be the new one
                base, new = new, base
            seen.add(base.side.cases, new.side.cases)
            if seen.due:
                verdicts = seen.look()
                if not any(each.verdict == "inconclusive" for each in verdicts):
                    break
        pairs += seen.count
        hits[0] += alarmed(verdicts, case)
        for i, alarm in enumerate(others(pool["same"][numbers[0]], pool[kind][numbers[0]], case), 1):
            hits[i] += alarm
    return (f"interleaved, up to {most} pairs", count, hits[0], hits[1], hits[2]), pairs / count


def tables(ones: Path, threes: Path | None) -> None:
    for pool in filter(None, (ones, threes)):
        names = [path.stem for path in pool.glob("*.json")]
        print(f"{pool.name}: {len(names)} runs, {sum('busy' in name for name in names)} of them with the neighbour")
    pairs = load(ones)
    runs = load(threes) if threes else pairs
    print("\nUnchanged code: comparisons that raise an alarm\n")
    row, length = interleaved(pairs, "again", 40)
    _print([drawn(runs, "again", 1, 40), drawn(runs, "again", 3, 40), row])
    print(f"\n({length:.1f} pairs on average.)\n\nOne case slower: comparisons that name it\n")
    found = [drawn(runs, "slower20", side, 20) for side in (1, 3)]
    found += [drawn(runs, "slower10", 3, 20)]
    (ten, length), (twenty, shorter) = interleaved(pairs, "slower10", 20), interleaved(pairs, "slower20", 20)
    words = ["20 %", "20 %", "10 %", "10 %", "20 %"]
    _print([(f"{word}, {row[0]}", *row[1:]) for word, row in zip(words, [*found, ten, twenty], strict=True)])
    print(f"\n({length:.1f} and {shorter:.1f} pairs on average.)")


Runs = dict[tuple[str, bool], list[Measured]]
"""Runs of one process by kind, and whether they ran beside neighbours; unchanged code is one kind."""


def by_company(pool: Path) -> Runs:
    found: Runs = {(kind, busy): [] for kind in KINDS for busy in (False, True)}
    for kind, runs in load(pool).items():
        for number, run in runs.items():
            busy = not (pool / f"{number:03d}-{kind}-quiet.json").exists()
            found["same" if kind == "again" else kind, busy].append(run)
    return found


def as_processes(runs: list[Measured]) -> dict[CaseKey, list[Observation]]:
    """Runs of one process as if they were the processes of one run."""
    return {
        key: [replace(each, process=(0, each.process[0])) for each in observations]
        for key, observations in together(runs).items()
    }


def disturbed(pools: list[Path], count: int) -> None:
    """Comparisons of three processes a side, by how many of them ran beside neighbours."""
    names = [path.stem for pool in pools for path in pool.glob("*.json")]
    print(f"{len(names)} runs, {sum('busy' in name for name in names)} of them beside neighbours\n")
    print("| beside neighbours: base, new | alarms | 10 % named | 20 % named |\n|---|---:|---:|---:|")
    every = [by_company(pool) for pool in pools]
    kinds = ("same", "slower10", "slower20")
    for beside in itertools.product(range(4), repeat=2):
        chance, hits = random.Random(repr(beside)), Counter[str]()
        for runs, kind, _ in itertools.product(every, kinds, range(count)):
            new = _picked(chance, runs, kind, beside[1], [])
            base = _picked(chance, runs, "same", beside[0], new)
            if len(base) + len(new) < 6:  # too small a pool
                continue
            hits[f"of {kind}"] += 1
            hits[kind] += alarmed(judge(as_processes(base), as_processes(new)), "" if kind == "same" else SLOWED)
        cells = f"{beside[0]}, {beside[1]} of 3", *(f"{hits[kind]} of {hits[f'of {kind}']}" for kind in kinds)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _picked(chance: random.Random, runs: Runs, kind: str, busy: int, used: list[Measured]) -> list[Measured]:
    """Three runs that aren't ``used`` yet, so many of them beside neighbours."""
    pools = ([run for run in runs[kind, company] if not any(run is each for each in used)] for company in (True, False))
    wanted = zip(pools, (busy, 3 - busy), strict=True)
    return [run for pool, size in wanted for run in chance.sample(pool, min(size, len(pool)))]


def _print(rows: list[Row]) -> None:
    print("| | comparisons | gpubench compare | pytest-benchmark median:5% | github-action-benchmark 200% |")
    print("|---|---:|---:|---:|---:|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "judge", "disturbed"])
    parser.add_argument("pools", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--neighbours", type=int, default=1, help="most counting processes at once")
    parser.add_argument("--core", type=int, help="the core for all of it: two pools can be measured at once")
    parser.add_argument("--count", type=int, default=40, help="how often to draw each comparison from each pool")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop measuring after that long")
    args = parser.parse_args()
    if args.what == "disturbed":
        disturbed(args.pools, args.count)
    elif args.what == "judge":
        tables(args.pools[0], args.pools[1] if len(args.pools) > 1 else None)
    else:
        measure(args.pools[0], args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
