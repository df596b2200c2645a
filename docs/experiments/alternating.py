"""How often is a verdict wrong on run files made in turn, A B A B …? Made-up run files, with a drift of the machine.

    python docs/experiments/alternating.py

Each comparison has five runs per side of ten cases. The machine's speed varies: a random walk of 3 % per run, and 2 %
that are independent in each run; each case follows it by a half or more. Processes of a run vary by 3 %, rounds by 2 %.
The same files are judged twice: with their time stamps as pairs, and without them as two sets of runs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpubench.compare.comparison import Comparison, compare_sides
from gpubench.compare.samples import read_side
from gpubench.compare.verdict import Terms

RUNS, CASES, ROUNDS = 5, 10, 20
WALK, RUN, PROCESS, ROUND = 0.03, 0.02, 0.03, 0.02


def result(number: int, times: np.ndarray) -> dict[str, Any]:
    """Return one entry of ``benchmarks``; the rows of ``times`` are processes, in seconds."""
    identity = {"id": f"made.case{number}", "workload": f"made.case{number}", "device": "cpu", "dtype": "float32"}
    processes = [
        {"process": i, "rounds": len(row), "kept": len(row), "iterations": 1, "median_s": float(np.median(row))}
        for i, row in enumerate(times)
    ]
    q1, median, q3 = (float(value) for value in np.quantile(times, (0.25, 0.5, 0.75)))
    stats = {
        "median": median,
        "mean": float(times.mean()),
        "min": float(times.min()),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
    }
    stats |= {"rounds": times.size, "iterations": 1, "data": times.ravel().tolist()}
    return {
        "fullname": f"test_made.py::test_case{number}",
        "stats": stats,
        "options": {"timer": "device_clock"},
        "extra_info": {"gpubench": identity | {"processes": processes}},
    }


def run_file(random: np.random.Generator, slower: Sequence[float], drift: np.ndarray, processes: int) -> dict[str, Any]:
    """Return a run file. ``slower`` are the factors of the cases, ``drift`` is the logarithm of the machine's slowness
    for each."""
    marks = []
    for number, (factor, late) in enumerate(zip(slower, drift, strict=True)):
        middle = 1e-3 * (number + 1) * factor * np.exp(late + random.normal(0, PROCESS, (processes, 1)))
        marks.append(result(number, middle * np.exp(np.abs(random.normal(0, ROUND, (processes, ROUNDS))))))
    facts = {"devices": [{"name": "cpu", "kind": "cpu", "label": "Made-up CPU"}], "threads": 1}
    return {
        "machine_info": {"gpubench": facts},
        "benchmarks": marks,
        "gpubench": {"schema_version": 1, "preset": "quick", "processes": [{"process": i} for i in range(processes)]},
    }


def compared(random: np.random.Generator, slower: Sequence[float], processes: int) -> tuple[Comparison, Comparison]:
    """Return a comparison with time stamps, and the same without."""
    follows, walk = random.uniform(0.5, 1.0, CASES), 0.0
    found = []
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, list[Path]] = {"base": [], "new": []}
        for turn in range(2 * RUNS):
            side = ("base", "new")[turn % 2]
            walk += random.normal(0, WALK)
            factors = slower if side == "new" else [1.0] * CASES
            data = run_file(random, factors, follows * (walk + random.normal(0, RUN)), processes)
            data["gpubench"]["started"] = f"2026-01-31T12:{turn:02d}:00+00:00"
            path = Path(folder) / f"{turn:02d}-{side}.json"
            path.write_text(json.dumps(data), encoding="utf-8")
            files[side].append(path)
        for known in (True, False):
            if not known:
                for path in (*files["base"], *files["new"]):
                    data = json.loads(path.read_text(encoding="utf-8"))
                    del data["gpubench"]["started"]
                    path.write_text(json.dumps(data), encoding="utf-8")
            found.append(compare_sides(*(read_side(name, paths) for name, paths in files.items()), Terms()))
    return found[0], found[1]


def hits(slower: Sequence[float], processes: int, count: int) -> tuple[int, int]:
    """Count the comparisons, with and without time stamps, that name every slower case and no other; for unchanged
    code, those that name any case."""
    expected = {f"made.case{number}" for number, factor in enumerate(slower) if factor > 1}
    random = np.random.default_rng([2026, processes, len(expected)])
    reached = [0, 0]
    for _ in range(count):
        for i, comparison in enumerate(compared(random, slower, processes)):
            named = {each.key.name.partition("[")[0] for each in comparison.verdicts if each.verdict == "slower"}
            reached[i] += named == expected if expected else bool(named)
    return reached[0], reached[1]


def main() -> int:
    print("| | comparisons | in pairs | without time stamps |\n|---|---:|---:|---:|")
    kinds = {"unchanged code, alarms": (0, 40), "one case 13 % slower, named": (1, 20)}
    kinds["all cases 13 % slower, all named"] = CASES, 20
    for words, (changed, count) in kinds.items():
        for processes in (1, 3):
            paired, apart = hits([1.13] * changed + [1.0] * (CASES - changed), processes, count)
            print(f"| {words}; {processes} processes a run | {count} | {paired} | {apart} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
