"""How often is a verdict wrong? Judges recorded and made-up runs.

    python docs/experiments/verdicts.py recorded FOLDER       # series of pairs: FOLDER/NAME/base and /new, JSON or gzip
    python docs/experiments/verdicts.py mixed FOLDER          # suites of 100 tests that vary as the recorded ones do
    python docs/experiments/verdicts.py made-up               # a pool of runs by stated figures

A round of a made-up pool is four runs: twice unchanged code, once with a benchmark that does 10 % more work, once
20 %. Every other round runs them in reverse (A B B A). A neighbour is on for one to six runs, and off for as many.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpubench.compare.evidence import THRESHOLD, Terms
from gpubench.compare.interleaved import (
    LEAST_FRESH,
    MOST_SCREENING,
    SCREENING_PAIRS,
    planned_pairs,
    screening_pairs,
)
from gpubench.compare.samples import CONFIRM, SCREEN, CaseKey, Cases, Observation, Side, add_runs
from gpubench.compare.verdict import FASTER, SLOWER, Verdict, judge

SLOWED = "products["
KINDS = {"same": 10, "slower10": 11, "again": 10, "slower20": 12}
"""The runs of a round, with how many products the compute-bound case multiplies in each."""


def schedule(rounds: int) -> list[tuple[int, str, int]]:
    """Return (round, kind, neighbours) of each run in turn; more rounds continue the same sequence."""
    chance = random.Random(2026)
    found: list[tuple[int, str, int]] = []
    neighbours, left = 0, 3
    for number in range(rounds):
        for kind in list(KINDS) if number % 2 == 0 else reversed(KINDS):
            if not left:
                left = chance.randint(1, 6)
                neighbours = 0 if neighbours else chance.randint(1, 1)  # drawn: the figures of docs/ci.md depend on it
            found.append((number, kind, neighbours))
            left -= 1
    return found


Row = tuple[str, int, int]
"""What was compared, how often, and how often with an alarm."""
IN_TURN = Terms(in_turn=(True, True))
MADE_UP = (0.245, 0.22, 0.125, 0.12, 0.05, 0.05, 0.04, 0.04, 0.03, 0.03)
"""Spreads between processes, recorded from 24 runs of unchanged code on two idle cores."""
DRIFT = 0.05
"""Made up: by how much the machine's speed drifts slowly, for all benchmarks alike."""
MEMORY_BOUND, DELAY = (2, 3), 0.5
"""Made up: next to a neighbour these benchmarks are delayed in every other process, by this logarithm (half-normal). A
real neighbour doubled memory-bound times now and then, and hardly delayed others."""
BLOCKS, SLOWED_PLACE = 400, 4
LOTS = 400


def made_up(processes: int, rounds: int, seed: int = 1) -> dict[str, dict[int, Side]]:
    """Return a pool of runs by kind and round, of ten benchmarks with the spreads of :data:`MADE_UP`."""
    chance = np.random.default_rng([seed, processes])
    found: dict[str, dict[int, Side]] = {kind: {} for kind in KINDS}
    drift = 0.0
    for number, kind, neighbours in schedule(rounds):
        drift = 0.95 * drift + chance.normal(0, DRIFT * math.sqrt(1 - 0.95**2))
        side = Side("pool")
        for place, spread in enumerate(MADE_UP):
            seen = []
            for process in range(processes):
                noise, delay = chance.normal(0, spread), abs(chance.normal(0, DELAY))
                hit = chance.random() < 0.5 and neighbours and place in MEMORY_BOUND
                time_s = np.exp(drift + noise) * (KINDS[kind] / 10 if place == SLOWED_PLACE else 1.0)
                shares = ((1.0, 1.0), (0.7, 0.98), (0.2, 0.95))  # of the delay, and of the median
                times = [float(time_s * least * np.exp(share * delay * hit)) for share, least in shares]
                seen.append(Observation(*times, (0, process), busy=bool(neighbours)))
            name = SLOWED if place == SLOWED_PLACE else f"b{place}["
            side.cases[CaseKey(name, "cpu", "torch")] = seen
        found[kind][number] = side
    return found


def together(runs: Sequence[Side]) -> Cases:
    """Return the cases of several runs, each numbered by its place."""
    found: dict[CaseKey, list[Observation]] = {}
    for number, run in enumerate(runs):
        for key, seen in run.cases.items():
            found.setdefault(key, []).extend(replace(each, process=(number, each.process[1])) for each in seen)
    return found


def staged(cases: Cases, stage: str, chosen: Mapping[CaseKey, int] | None = None) -> Cases:
    """Return the cases as runs of this stage; if some are ``chosen``, only these, with this many runs each."""
    return {
        key: [replace(each, stage=stage) for each in seen[: chosen[key] if chosen else None]]
        for key, seen in cases.items()
        if chosen is None or key in chosen
    }


def interleave(base: Sequence[Side], new: Sequence[Side], most: int = 20) -> tuple[list[Verdict], int]:
    """Return the verdicts of ``compare --interleave`` if it had measured these pairs, and how many pairs it would have
    taken."""
    return interleaved_effort(base, new, most)[:2]


def interleaved_effort(base: Sequence[Side], new: Sequence[Side], most: int = 20) -> tuple[list[Verdict], int, int]:
    """Return the same, and how often a benchmark would have been measured in a pair."""
    before, after = together(base), together(new)
    first = dict.fromkeys(before, SCREENING_PAIRS)
    verdicts = judge(*(staged(side, SCREEN, first) for side in (before, after)), IN_TURN)
    longer = screening_pairs(verdicts, THRESHOLD)
    first |= {key: max(SCREENING_PAIRS, count) for key, count in longer.items()}
    screened = [staged(side, SCREEN, first) for side in (before, after)]
    verdicts = judge(*screened, IN_TURN)
    start = max(first.values())
    suspects = [each for each in verdicts if each.suspect]
    planned = planned_pairs(suspects, THRESHOLD, most)
    if not planned:
        return verdicts, start, sum(first.values())
    rest = [{key: seen[start:] for key, seen in side.items()} for side in (before, after)]
    taken = dict.fromkeys(planned, 0)
    while todo := [key for key, count in planned.items() if taken[key] < min(count, len(rest[0][key]))]:
        taken |= {key: max(taken[key] + 1, LEAST_FRESH) for key in todo}
        sides = [
            {key: [*seen, *more.get(key, [])] for key, seen in kept.items()}
            for kept, more in zip(screened, (staged(side, CONFIRM, taken) for side in rest), strict=True)
        ]
        verdicts = judge(*sides, IN_TURN)
        planned = planned_pairs(suspects, THRESHOLD, most, verdicts)
    return verdicts, start + max(taken.values()), sum(first.values()) + sum(taken.values())


def alarmed(verdicts: list[Verdict], case: str) -> bool:
    return any(each.verdict == "slower" and case in each.key.name for each in verdicts)


def drawn(pool: dict[str, dict[int, Side]], kind: str, side: int, count: int) -> Row:
    """Return comparisons of ``side`` runs per side, drawn from the pool without regard to the machine's state."""
    chance = random.Random(f"{kind} {side}")
    unchanged = [*pool["same"].values(), *pool["again"].values()]
    case, hits = "" if kind == "again" else SLOWED, 0
    for _ in range(count):
        runs = chance.sample(unchanged, 2 * side)
        base, new = runs[:side], runs[side:]
        if kind != "again":
            new = chance.sample(list(pool[kind].values()), side)
        hits += alarmed(judge(together(base), together(new)), case)
    return f"{side} {'run' if side == 1 else 'runs'} a side", count, hits


def interleaved(pool: dict[str, dict[int, Side]], kind: str, count: int, most: int = 20) -> tuple[Row, float]:
    """Return comparisons of pairs taken in turn, in an order drawn from the pool, and how many pairs they took."""
    chance = random.Random(kind)
    rounds = sorted(set(pool["same"]) & set(pool[kind]))
    case = "" if kind == "again" else SLOWED
    hits, pairs = 0, 0
    for _ in range(count):
        numbers = chance.sample(rounds, min(MOST_SCREENING + most, len(rounds)))
        sides = [[pool[each][number] for number in numbers] for each in ("same", kind)]
        if kind == "again" and chance.random() < 0.5:  # either of two equal ones may be the new one
            sides.reverse()
        verdicts, taken = interleave(*sides, most)
        pairs += taken
        hits += alarmed(verdicts, case)
    return (f"interleaved, up to {MOST_SCREENING + most} pairs", count, hits), pairs / count


def tables(pairs: dict[str, dict[int, Side]], runs: dict[str, dict[int, Side]], times: int) -> None:
    print("\nUnchanged code: comparisons that raise an alarm\n")
    row, length = interleaved(pairs, "again", 40 * times)
    _print([drawn(runs, "again", 1, 40 * times), drawn(runs, "again", 3, 40 * times), row])
    print(f"\n({length:.1f} pairs on average.)\n\nOne case slower: comparisons that name it\n")
    found = [drawn(runs, "slower20", side, 20 * times) for side in (1, 3)]
    found += [drawn(runs, "slower10", 3, 20 * times)]
    (ten, length), (twenty, shorter) = (interleaved(pairs, kind, 20 * times) for kind in ("slower10", "slower20"))
    words = ["20 %", "20 %", "10 %", "10 %", "20 %"]
    _print([(f"{word}, {row[0]}", *row[1:]) for word, row in zip(words, [*found, ten, twenty], strict=True)])
    print(f"\n({length:.1f} and {shorter:.1f} pairs on average.)")


def read_series(folder: Path) -> dict[str, list[Side]]:
    """Return the runs of base and of new, in the order of their names."""
    found: dict[str, list[Side]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for side in ("base", "new"):
            for path in sorted((folder / side).iterdir()):
                plain = Path(scratch) / "run.json"
                plain.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
                found.setdefault(side, []).append(Side(side))
                add_runs(found[side][-1], [plain])
    return found


def recorded(folder: Path, slowed: Sequence[str], slower_in: Sequence[str]) -> None:
    """Print windows of each series, in turn and one after the other, and whole series as they would have been
    interleaved."""
    series = {path.name: read_series(path) for path in sorted(folder.iterdir()) if (path / "base").is_dir()}
    print(
        "| in turn, runs a side | windows | " + " | ".join(f"{name} slower, named" for name in slowed) + " | alarms |"
    )
    print("|---|---:|" + "---:|" * (len(slowed) + 1))
    for size in (3, 5, 8):
        found = [
            (name in slower_in, judge(together(runs["base"][at:][:size]), together(runs["new"][at:][:size]), IN_TURN))
            for name, runs in series.items()
            for at in range(len(runs["base"]) - size + 1)
        ]
        _print_named(f"{size}, overlapping", found, slowed)
    found = []
    for name, runs in series.items():
        for at in range(0, len(runs["base"]) - 11):
            found.append((name in slower_in, interleave(runs["base"][at:], runs["new"][at:])[0]))
    _print_named("interleaved, of 12 pairs or more", found, slowed)
    print("\n| unchanged, one side after the other | comparisons | alarms |\n|---|---:|---:|")
    for size in (1, 3, 5):
        alarms = [
            alarmed(judge(together(side[one:][:size]), together(side[other:][:size])), "")
            for runs in series.values()
            for side in runs.values()
            for at in range(len(side) - 2 * size + 1)
            for one, other in ((at, at + size), (at + size, at))
        ]
        print(f"| {size}, overlapping | {len(alarms)} | {sum(alarms)} |")
    print("\n| unchanged, pairs by lot | comparisons | with a false slower or faster |\n|---|---:|---:|")
    for names in filter(None, (sorted(series)[: len(series) // 2], sorted(series)[len(series) // 2 :])):
        for size in (3, 5, 8):
            wrong = by_lot([series[name] for name in names], slowed, size)
            print(f"| {size} pairs of {' and '.join(names)} | {LOTS} | {wrong} |")


def by_lot(series: Sequence[dict[str, list[Side]]], slowed: Sequence[str], size: int) -> int:
    """Return how many of :data:`LOTS` comparisons of pairs of a series call an unchanged test slower or faster. Which
    side of a pair is the new one is drawn too."""
    chance, wrong = random.Random(size), 0
    for _ in range(LOTS):
        runs = chance.choice(series)
        numbers = sorted(chance.sample(range(len(runs["base"])), size))
        sides = [together([runs[side][number] for number in numbers]) for side in ("base", "new")]
        drawn_sides: list[dict[CaseKey, list[Observation]]] = [{}, {}]
        swaps = [chance.random() < 0.5 for _ in numbers]
        for key in [key for key in sides[0] if not any(name in key.name for name in slowed)]:
            for at, side in enumerate(drawn_sides):
                side[key] = [sides[at != swap][key][i] for i, swap in enumerate(swaps)]
        verdicts = judge(drawn_sides[0], drawn_sides[1], IN_TURN)
        wrong += any(each.verdict in (SLOWER, FASTER) for each in verdicts)
    return wrong


def unchanged_pairs(folder: Path, without: Sequence[str]) -> dict[str, list[tuple[Observation, Observation]]]:
    """Return base and new of each unchanged test, pair by pair, all series one after the other."""
    found: dict[str, list[tuple[Observation, Observation]]] = {}
    for path in sorted(folder.iterdir()):
        if (path / "base").is_dir():
            runs = read_series(path)
            for base, new in zip(runs["base"], runs["new"], strict=True):
                for key, (one,) in base.cases.items():
                    if not any(name in key.name for name in without):
                        found.setdefault(key.name, []).append((one, new.cases[key][0]))
    return found


def mixed(folder: Path, without: Sequence[str], factor: float = 1.2, size: int = 100) -> None:
    """Print suites of ``size`` tests. Each test varies like a recorded one, beginning at a pair of its own, with sides
    drawn by lot; a recorded pair isn't used twice in a test. A plain run takes a second per test and three for the
    process, as with pytest-benchmark; a turn of gpubench takes 0.25 s per test and three for the process."""
    pairs, most = unchanged_pairs(folder, without), MOST_SCREENING + 20
    print("| | comparisons | named | with an alarm | benchmarks called slower by mistake | times a plain run of both |")
    print("|---|---:|---:|---:|---:|---:|")
    for words, slower, count in ((f"{factor - 1:.0%} slower", factor, 20), ("unchanged", 1.0, 40)):
        named, alarms, wrong, spent = 0, 0, 0, []
        for number in range(count):
            chance = random.Random(f"{words} {number}")
            sides = [[Side("made up", runs=[None]) for _ in range(most)] for _ in range(2)]  # type: ignore[list-item]
            changed = chance.randrange(size)
            for place in range(size):
                seen = pairs[chance.choice(sorted(pairs))]
                start, swapped = chance.randrange(len(seen)), chance.random() < 0.5
                for at in range(most):
                    both = seen[(start + at) % len(seen)]
                    for side, one in zip(sides, reversed(both) if swapped else both, strict=True):
                        one = _scaled(one, slower) if place == changed and side is sides[1] else one
                        side[at].cases[CaseKey(f"t{place}[", "", "")] = [one]
            verdicts, turns, tests = interleaved_effort(*sides)
            spent.append((3 * turns + 0.25 * tests) / (3 + size))
            found = [each.key.name for each in verdicts if each.verdict == SLOWER]
            false = [name for name in found if slower == 1.0 or name != f"t{changed}["]
            named += len(found) > len(false)
            alarms, wrong = alarms + bool(false), wrong + len(false)
        effort = f"{sum(spent) / count:.2f} ({max(spent):.2f} at most)"
        print(f"| {words} | {count} | {named if slower > 1 else '–'} | {alarms} | {wrong} | {effort} |", flush=True)


def _scaled(one: Observation, factor: float) -> Observation:
    times = (factor * each for each in (one.median_s, one.quartile_s, one.least_s))
    return replace(one, **dict(zip(("median_s", "quartile_s", "least_s"), times, strict=True)))


def _print_named(words: str, found: Sequence[tuple[bool, list[Verdict]]], slowed: Sequence[str]) -> None:
    changed = [verdicts for is_slower, verdicts in found if is_slower]
    named = [f"{sum(alarmed(each, name) for each in changed)} of {len(changed)}" for name in slowed]
    false = [
        any(
            each.verdict == SLOWER and not (is_slower and any(name in each.key.name for name in slowed))
            for each in verdicts
        )
        for is_slower, verdicts in found
    ]
    print(f"| {words} | {len(found)} | {' | '.join(named)} | {sum(false)} |", flush=True)


def _print(rows: list[Row]) -> None:
    print("| | comparisons | alarms |\n|---|---:|---:|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["recorded", "mixed", "made-up"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--slowed", nargs="+", default=["test_tokenize", "test_score"], help="recorded: slower tests")
    parser.add_argument(
        "--in", nargs="+", default=["j1", "j3"], dest="slower_in", help="recorded: the series with them"
    )
    parser.add_argument("--without", nargs="+", default=[], help="mixed: leave out the noise of these tests")
    args = parser.parse_args()
    if args.what == "recorded":
        recorded(args.folder, args.slowed, args.slower_in)
    elif args.what == "mixed":
        mixed(args.folder, [*args.slowed, *args.without])
    else:
        tables(made_up(1, BLOCKS), made_up(3, BLOCKS), 10)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
