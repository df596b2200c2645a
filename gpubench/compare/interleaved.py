"""``gpubench compare --interleave``: alternate base and new, judge as the pairs come in."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..supervise.interleave import Environment, Interleave, find_environment
from .comparison import NEW, Comparison, Missing, missing_cases
from .samples import SMOKE, Side, doubts, machine_differences, merge_side, read_side
from .sequential import Sequential, least_pairs
from .verdict import INCONCLUSIVE, Verdict

TURN_DEADLINE_S = 120.0


def compare_in_turn(args: argparse.Namespace, pytest_options: Sequence[str]) -> Comparison:
    """Measure both environments until the verdicts are conclusive or the budget is spent. Raises UsageError for what
    can't be measured or written."""
    if len(args.base) > 1 or len(args.new) > 1:
        raise UsageError("--interleave takes one environment per side: a Python, or the folder of a checkout")
    if args.pairs < least_pairs(1) or not args.budget > 0:
        raise UsageError(f"--pairs must be {least_pairs(1)} or more and --budget above 0: fewer can't prove anything")
    before, after = (find_environment(name, getattr(args, name)[0], args.paths) for name in ("base", "new"))
    folder = _empty(Path(args.output)) if args.output else _numbered(Path("out"))
    turns = Interleave(folder, before, after, pytest_options, TURN_DEADLINE_S, _say)
    judge = _Judge(args, (before, after))
    _say("starting: each side imports PyTorch and collects its benchmarks first")
    pairs = turns.measure(args.pairs, args.budget, judge.enough)
    _say(f"{pairs} pairs in {judge.elapsed_s():.0f} s; results files in {folder}/base and {folder}/new")
    return judge.comparison(pairs, turns.interrupted)


class _Judge:
    """Reads each pair's results files, and judges when a look is due."""

    def __init__(self, args: argparse.Namespace, environments: tuple[Environment, Environment]) -> None:
        self._args, self._environments = args, environments
        self._began = time.monotonic()
        self._sequential = Sequential(args.pairs, args.threshold)
        self._sides = Side("base"), Side("new")
        self._verdicts: list[Verdict] = []
        self._notes: list[str] = []

    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

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
        if count == 1:
            self._warn_of_few_pairs()
        if not self._sequential.due:
            _say(f"pair {count} of at most {self._args.pairs}")
            return False
        self._verdicts = self._sequential.look()
        cases, conclusive = len(self._verdicts), sum(each.verdict != INCONCLUSIVE for each in self._verdicts)
        _say(f"pair {count} of at most {self._args.pairs}: {conclusive} of {cases} benchmarks conclusive")
        return conclusive == cases

    def _warn_of_few_pairs(self) -> None:
        """Say so after the first pair if the budget allows too few of them to prove anything."""
        cases = self._sequential.cases
        allowed = min(self._args.pairs, max(1, int(self._args.budget / self.elapsed_s())))
        if not cases or allowed >= least_pairs(cases):
            return
        warning = (
            f"--budget and --pairs allow about {allowed} pairs, but proving a change in one of {cases} benchmarks takes"
            f" {least_pairs(cases)}: allow more, or choose fewer benchmarks (-k, --paths)"
        )
        _say(warning)
        if self._args.format != "table" or self._args.github_summary:  # the terminal shows it already
            self._notes.append(warning)

    def comparison(self, pairs: int, interrupted: bool) -> Comparison:
        """The verdicts after so many ``pairs``."""
        if pairs and self._sequential.looked < self._sequential.count:
            self._verdicts = self._sequential.look(last=True)
        base, new = self._sides
        different = machine_differences(base, new, (key.device for key in new.cases))
        notes = [*self._notes, *(f"other software: {text}" for text in different.software)]
        notes += [f"measured with another configuration: {text}" for text in different.machine]
        notes += doubts(base, new)
        if interrupted:
            notes.append("interrupted: judged by the pairs that were complete")
        judged = {each.key for each in self._verdicts}
        apart = [key for key in new.cases if key in base.cases and key not in judged] if pairs else []
        missing = (
            *missing_cases(base, new),
            *(Missing(key, NEW, "no pair measured it on both sides") for key in apart),
        )
        return Comparison(tuple(self._verdicts), missing, tuple(notes), self._args.threshold, pairs)


def _numbered(folder: Path) -> Path:
    """The first of ``compare-1``, ``compare-2`` … that isn't there."""
    number = next(n for n in itertools.count(1) if not (folder / f"compare-{n}").exists())
    return _empty(folder / f"compare-{number}")


def _empty(folder: Path) -> Path:
    """Make the folder. Raises UsageError if it holds an earlier comparison, or can't be written."""
    for name in ("base", "new"):
        if any((folder / name).glob("*.json")):
            raise UsageError(f"{folder}: holds an earlier comparison: choose another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: can't write there: {error.strerror or error}") from None
    return folder.resolve()


def _say(text: str) -> None:
    print(f"gpubench compare: {text}", file=sys.stderr, flush=True)
