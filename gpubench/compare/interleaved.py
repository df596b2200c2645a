"""``gpubench compare --interleave``: alternate base and new, judge as the pairs come in.

The two runs of a pair share the machine's state, so their ratio is the observation. Judging repeatedly would raise
false alarms, so each look spends a part of the level, and the parts add up to the level. After a share f of the pairs
the part f² is spent (a power family: K. Kim, D. L. DeMets, Biometrika 74 (1987) 149-154; K. K. G. Lan, D. L. DeMets,
Biometrika 70 (1983) 659-663). Parts are added up as if looks were exclusive, which is safe for dependent looks.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import statistics
from ..errors import UsageError
from ..format import counted
from ..report.output import prepare_folder
from ..runfile.reader import workload_of
from ..statistics import Interval
from ..supervise.interleave import Environment, Interleave, find_environment
from ..supervise.progress import estimate_text
from ..supervise.project import described
from .comparison import NEW, Comparison, Missing, change_text, content_text, contents_of, missing_cases
from .samples import SMOKE, CaseKey, Cases, Side, doubts, machine_differences, merge_side, read_side
from .verdict import (
    INCONCLUSIVE,
    MOST_NEEDED,
    SAME,
    SMOKE_RUN,
    TRIED_ONLY,
    Conditions,
    Verdict,
    decide,
    doubt,
    mean_times,
    percent,
    tail,
)

TURN_DEADLINE_S = 600.0
"""Of one benchmark, as `gpubench run PATH` has it: a call of ten seconds is called several times."""
PAIRED_FALSE_DISCOVERIES = 0.01
"""The false discovery rate; lower than for separate runs, since pairs still show a slowdown of 10 %."""
RESERVE = 1.5
"""Of the budget that is advised: pairs that other work disturbs don't count."""
LOOKS = (0.3, 0.45, 0.6, 0.8, 1.0)
"""When to judge, as shares of the greatest number of pairs."""


def least_pairs(cases: int, share: float = 1.0) -> int:
    """Pairs below which a slowdown of one in so many cases can't be proven with that share of the level: the exact p
    of n pairs is at least 2 to the power of -n."""
    return math.ceil(math.log2(cases / (PAIRED_FALSE_DISCOVERIES * share)))


class _Pair(NamedTuple):
    base_s: float
    new_s: float
    smoke: bool


class Sequential:
    """Collects up to ``most`` pairs; a change that is proven once stays proven."""

    def __init__(self, most: int, threshold: float) -> None:
        self.most, self.threshold = most, threshold
        self.looks = {max(1, math.ceil(share * most)) for share in LOOKS}
        self.count = self.looked = 0
        """The number of pairs, and of those at the latest look."""
        self.disturbed: Counter[int] = Counter()
        """By number of the pair, for how many cases it was left out because a neighbour disturbed just one side."""
        self._pairs: dict[CaseKey, list[_Pair]] = {}
        self._left_out: dict[CaseKey, list[_Pair]] = {}
        self._proven: dict[CaseKey, Verdict] = {}
        self._spent = 0.0

    def add(self, base: Cases, new: Cases) -> None:
        """A run of each side, of one process or several. A pair is left out for a case if a neighbour disturbed just
        one side, or if it is of a smoke run."""
        self.count += 1
        conditions = Conditions(base, new)
        for key in new:
            if key in base:
                smoke = any(each.smoke for each in (*base[key], *new[key]))
                uneven = conditions.uneven(key, base, new)
                kept = self._left_out if smoke or uneven else self._pairs
                if uneven:
                    self.disturbed[self.count] += 1
                kept.setdefault(key, []).append(_Pair(*mean_times(base[key], new[key]), smoke))

    @property
    def cases(self) -> int:
        """How many cases any pair measured."""
        return len(self._pairs.keys() | self._left_out.keys())

    @property
    def due(self) -> bool:
        """Whether to judge now. A look that too few pairs are left for is skipped, and the next one spends its part."""
        pairs = max(map(len, self._pairs.values()), default=0)
        share = (self.count / self.most) ** 2 - self._spent
        return self.count in self.looks and pairs > 0 and pairs >= least_pairs(self.cases, share)

    def look(self, last: bool = False) -> list[Verdict]:
        """Judge the pairs so far. The ``last`` look, when time is up, spends all that is left of the level."""
        reached = 1.0 if last else min(1.0, self.count / self.most) ** 2
        share, self._spent, self.looked = reached - self._spent, reached, self.count
        changes = {key: [math.log(pair.new_s / pair.base_s) for pair in pairs] for key, pairs in self._pairs.items()}

        def adjusted(sign: int) -> list[float]:
            """p values to be held against the whole level, of which this look may spend a share."""
            ps = [statistics.signed_rank_p([sign * value for value in values]) for values in changes.values()]
            return [min(1.0, p / share) if share > 0 else 1.0 for p in statistics.benjamini_hochberg(ps)]

        slower, faster = adjusted(1), adjusted(-1)
        tails = [share * tail(ps, PAIRED_FALSE_DISCOVERIES) for ps in (slower, faster)] if changes else []
        verdicts = []
        for (key, values), slower_p, faster_p in zip(changes.items(), slower, faster, strict=True):
            verdict = self._judge(key, values, (slower_p, faster_p), share, tails)
            if verdict.verdict not in (SAME, INCONCLUSIVE):
                self._proven.setdefault(key, verdict)
            verdicts.append(self._proven.get(key, verdict))
        return [*verdicts, *(_unknown(key, pairs) for key, pairs in self._left_out.items() if key not in self._pairs)]

    def _judge(
        self, key: CaseKey, values: Sequence[float], ps: tuple[float, float], share: float, tails: Sequence[float]
    ) -> Verdict:
        ratio = statistics.paired_ratio(values, 0.025 * share, 0.025 * share)
        word = decide(ratio, *ps, self.threshold, PAIRED_FALSE_DISCOVERIES)
        if word != SAME:
            ratio = statistics.paired_ratio(values, *tails)
        words = self._explain(values, ratio) if word == INCONCLUSIVE else ()
        times, count = _median_times(self._pairs[key], ratio.value), len(values)
        return Verdict(key, word, ratio, *times, ps[0], (count, count), *words)

    def _explain(self, values: Sequence[float], ratio: Interval) -> tuple[str, str, int | None]:
        """Why a case is inconclusive; and how many more pairs would prove the change so far, or one that reaches the
        threshold if that is larger, from their spread: 1.4826 median absolute deviations, a robust standard deviation.
        """
        change = max(ratio.value, 1 / ratio.value, 1 + self.threshold)
        spread = 1.4826 * float(np.median(np.abs(np.asarray(values) - np.median(values))))
        level = PAIRED_FALSE_DISCOVERIES * (1 - LOOKS[-2] ** 2) / len(self._pairs)
        needed = statistics.needed_values(max(spread, 1e-6) / math.sqrt(2), change, level, most=MOST_NEEDED)
        least = least_pairs(self.cases)
        reason = f"too few pairs: less than {least}" if len(values) < least else _doubt(values, ratio, spread)
        small = change == 1 + self.threshold
        detected = f"would detect a change of {percent(self.threshold) if small else change_text(ratio.value)}"
        if needed is None:
            return reason, f"only more than {MOST_NEEDED} pairs {detected}: use a quieter machine", None
        more = max(1, max(needed, least) - len(values))
        return reason, f"about {counted(more, 'more pair')} {detected}", more


def _doubt(values: Sequence[float], ratio: Interval, spread: float) -> str:
    """Why so many pairs decide nothing: where they hardly vary it is their number, or a few that disagree."""
    change = math.log(ratio.value)
    opposite = sum(value * change < 0 for value in values)
    if not ratio.low <= 1 <= ratio.high or abs(change) < 2 * spread or 2 * opposite >= len(values):
        return doubt(ratio, spread, "pairs")
    others = f"{opposite} of {len(values)} say{'s' * (opposite == 1)} the opposite"
    return f"too few pairs: {others if opposite else f'{len(values)}, which all agree'}"


def _median_times(pairs: Sequence[_Pair], ratio: float) -> tuple[float, float]:
    """Seconds of base and new: the median pair's, split by the ratio. The means of the sides could contradict the
    ratio, since one delayed pair moves a mean but not the estimate."""
    middle = float(np.median([math.sqrt(pair.base_s * pair.new_s) for pair in pairs]))
    return middle / math.sqrt(ratio), middle * math.sqrt(ratio)


def _unknown(key: CaseKey, pairs: Sequence[_Pair]) -> Verdict:
    """Of a case all of whose pairs were left out."""
    ratio = Interval(float(np.median([pair.new_s / pair.base_s for pair in pairs])), 0.0, math.inf, statistics.SPREAD)
    busy = "other work disturbed one side of every pair: use fewer --threads, or a quieter machine"
    smoke = any(pair.smoke for pair in pairs)
    words = (SMOKE_RUN, TRIED_ONLY) if smoke else ("machine busy: on one side of every pair", busy)
    return Verdict(key, INCONCLUSIVE, ratio, *_median_times(pairs, ratio.value), None, (0, 0), *words)


def compare_in_turn(args: argparse.Namespace, pytest_options: Sequence[str]) -> Comparison:
    """Measure both environments until the verdicts are conclusive or the budget is spent. Raises UsageError for what
    can't be measured or written."""
    if len(args.base) > 1 or len(args.new) > 1:
        raise UsageError("--interleave takes one environment per side: a Python, or the folder of a checkout")
    if args.pairs < least_pairs(1) or not args.budget > 0:
        raise UsageError(f"--pairs must be {least_pairs(1)} or more and --budget above 0: fewer can't prove anything")
    sides = {name: getattr(args, name)[0] for name in ("base", "new")}
    before, after = (find_environment(name, side, args.paths, args.builtin) for name, side in sides.items())
    folder = _empty_folder(args.output)
    turns = Interleave(folder, before, after, pytest_options, TURN_DEADLINE_S, _say)
    _say(f"{_measuring(before, after, args.paths)}starting: each side imports and collects its benchmarks first")
    collected = turns.collect()
    judge = _Judge(args, (before, after))  # collecting takes none of the budget
    workloads = {side: [workload_of(name, shipped=True) for name in names] for side, names in collected.items()}
    if turns.interrupted:
        return judge.comparison(0, True)
    if not set.intersection(*map(set, workloads.values())):
        return Comparison(
            (), (), (), args.threshold, 0, contents=tuple(content_text(*entry) for entry in workloads.items())
        )
    pairs = turns.measure(args.pairs, args.budget, judge.enough)
    _say(f"{pairs} pairs in {time.monotonic() - judge.began:.0f} s; results files in {folder}/base and {folder}/new")
    return judge.comparison(pairs, turns.interrupted)


def _measuring(before: Environment, after: Environment, named: Sequence[str]) -> str:
    """What each side measures, where nobody names files."""
    both = [described(side.paths, side.source) for side in (before, after)]
    if named:
        return ""
    return f"both measure {both[0]}; " if both[0] == both[1] else f"base measures {both[0]}, new {both[1]}; "


class _Judge:
    """Reads each pair's results files, and judges when a look is due."""

    def __init__(self, args: argparse.Namespace, environments: tuple[Environment, Environment]) -> None:
        self._args, self._environments = args, environments
        self.began = time.monotonic()
        self._sequential = Sequential(args.pairs, args.threshold)
        self._sides = Side("base"), Side("new")
        self._verdicts: list[Verdict] = []

    def enough(self, base_file: Path, new_file: Path) -> bool:
        """Take a pair's run files; whether every verdict is conclusive."""
        pair = [read_side(side.name, [path]) for side, path in zip(self._sides, (base_file, new_file), strict=True)]
        for side, latest in zip(self._sides, pair, strict=True):
            merge_side(side, latest)
        self._sequential.add(pair[0].cases, pair[1].cases)
        count = self._sequential.count
        if count == 1:
            before, after = (each.interpreter.python for each in self._environments)
            _say(f"base measured with {before}, new with {after}")
        if any(run.preset == SMOKE for side in pair for run in side.runs):
            _say("smoke runs prove nothing: one pair shows that both sides can be measured")
            return True
        if not self._sequential.cases:
            return True
        self._require_enough_pairs()
        if left_out := self._sequential.disturbed[count]:
            benchmarks = counted(left_out, "benchmark")
            _say(f"pair {count} is left out for {benchmarks}: other work disturbed only one side of it")
        if not self._sequential.due:
            _say(f"pair {count} of at most {self._args.pairs}{self._how_long() if count == 1 else ''}")
            return False
        self._verdicts = self._sequential.look()
        cases, conclusive = len(self._verdicts), sum(each.verdict != INCONCLUSIVE for each in self._verdicts)
        _say(f"pair {count} of at most {self._args.pairs}: {conclusive} of {cases} benchmarks conclusive")
        return conclusive == cases

    def _how_long(self) -> str:
        """``, 12 s each: up to 4 min 00 s in all``, by the first pair."""
        pair_s = time.monotonic() - self.began
        total_s = max(pair_s, min(self._args.budget, pair_s * self._args.pairs))
        return f", {estimate_text(pair_s)} each: up to {estimate_text(total_s)} in all (--budget, --pairs)"

    def _require_enough_pairs(self) -> None:
        """Raise UsageError as soon as the budget allows too few pairs to prove anything."""
        cases, count = self._sequential.cases, self._sequential.count
        pair_s = (time.monotonic() - self.began) / count
        allowed, needed = min(self._args.pairs, max(count, int(self._args.budget / pair_s))), least_pairs(max(cases, 1))
        if cases and allowed < needed:
            advised_s = math.ceil(needed * pair_s * RESERVE)
            raise UsageError(
                f"--budget and --pairs allow about {counted(allowed, 'pair')} of {pair_s:.2g} s, but proving a change"
                f" takes {needed} with {counted(cases, 'benchmark')}: use --budget {advised_s}"
                f"{f' --pairs {needed}' * (needed > self._args.pairs)} or more, or choose fewer (-k, --paths)"
            )

    def comparison(self, pairs: int, interrupted: bool) -> Comparison:
        """The verdicts after so many ``pairs``."""
        if pairs and self._sequential.looked < self._sequential.count:
            self._verdicts = self._sequential.look(last=True)
        base, new = self._sides
        machine, software = machine_differences(base, new, (key.device for key in new.cases))
        notes = [f"other software: {text}" for text in software]
        notes += [f"measured with another configuration: {text}" for text in machine]
        notes += doubts(base, new)
        if numbers := ", ".join(map(str, self._sequential.disturbed)):
            notes.append(f"left out for some benchmarks, because other work disturbed only one side: pair {numbers}")
        if interrupted:
            notes.append("interrupted: judged by the pairs that were complete")
        judged = {each.key for each in self._verdicts}
        apart = [key for key in new.cases if key in base.cases and key not in judged] if pairs else []
        unjudged = tuple(Missing(key, NEW, "no pair measured it on both sides") for key in apart)
        missing = (*missing_cases(base, new), *unjudged)
        contents = contents_of(base, new)
        return Comparison(tuple(self._verdicts), missing, tuple(notes), self._args.threshold, pairs, contents=contents)


def _empty_folder(name: str | None) -> Path:
    """That folder, or the first of ``out-compare-1``, ``-2`` … that isn't there. Raises UsageError if it holds an
    earlier comparison, or can't be written."""
    numbered = (Path(f"out-compare-{number}") for number in itertools.count(1))
    folder = Path(name) if name else next(path for path in numbered if not path.exists())
    if (folder / "turns").exists() or any(any((folder / side).glob("*.json")) for side in ("base", "new")):
        raise UsageError(f"{folder}: holds an earlier comparison: choose another folder with -o")
    prepare_folder(folder)
    return folder.resolve()


def _say(text: str) -> None:
    print(f"gpubench compare: {text}", file=sys.stderr, flush=True)
