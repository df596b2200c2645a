"""What do comparisons say of made-up suites of which a part follows the machine's speed and a part waits? Prints.

    python docs/experiments/mixed_suites.py

For docs/ci.md: 400 comparisons of one run of three processes with another.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gpubench.compare.samples import CaseKey, Observation
from gpubench.compare.verdict import FASTER, SLOWER, judge

COMPARISONS = 400
WAITING = 0.002
"""Relative spread of a benchmark that waits."""
# how many wait and compute; the machine's spread from run to run and from process to process, and that of a case
SUITES = ((5, 5, 0.05, 0.1, 0.05), (10, 20, 0.05, 0.1, 0.05), (20, 10, 0.05, 0.1, 0.05), (5, 5, 0.05, 0.01, 0.005))
Suite = tuple[int, int, float, float, float]


def run(random: np.random.Generator, suite: Suite, factor: float) -> dict[CaseKey, list[Observation]]:
    """Return one run, in which the first benchmark of each kind takes ``factor`` times as long."""
    waiting, computing, between_runs, between_processes, own = suite
    speeds = np.exp(random.normal(0, between_runs) + random.normal(0, between_processes, 3))
    cases = {}
    for number in range(waiting + computing):
        times = np.exp(random.normal(0, WAITING if number < waiting else own, 3))
        times *= 1.0 if number < waiting else speeds
        times *= factor if number in (0, waiting) else 1.0
        seen = [Observation(time, 0.97 * time, 0.96 * time, (0, i)) for i, time in enumerate(times)]
        cases[CaseKey(f"a.b[n={number}]", "cpu", "torch")] = seen
    return cases


def count(suite: Suite, factor: float) -> Counter[str]:
    """Count the comparisons that name the slower waiting or computing benchmark, and those that name another."""
    random = np.random.default_rng(1)
    found: Counter[str] = Counter()
    for _ in range(COMPARISONS):
        base, new = run(random, suite, 1.0), run(random, suite, factor)
        verdicts = {each.key: each.verdict for each in judge(base, new)}
        words = list(verdicts.values())
        slowed = {"waiting": 0, "computing": suite[0]} if factor > 1 else {}
        found.update({name: words[place] == SLOWER for name, place in slowed.items()})
        others = [word for place, word in enumerate(words) if place not in slowed.values()]
        found.update({"another slower": SLOWER in others, "another faster": FASTER in others})
    return found


def main() -> int:
    for factor in (1.0, 1.2):
        for suite in SUITES:
            print(
                f"times {factor}, (waiting, computing, spreads) {suite}: {dict(count(suite, factor))} of {COMPARISONS}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
