"""``gpubench compare --interleave``: screen all benchmarks in a few pairs, then confirm the suspects.

How many fresh pairs a suspect gets follows from the spread that screening showed, and it is judged once, when it has
them, on these alone (two-stage sampling: C. Stein, Ann. Math. Statist. 16 (1945) 243-258). So results aren't tested
repeatedly, and no benchmark is judged by the data that made it suspect (docs/ci.md has how often that was wrong). The
verdicts are from :func:`~.comparison.compare_sides` on the run files, which record the stage: comparing the files
again gives the same verdicts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError, clean
from ..report.output import prepare_folder
from ..runfile.naming import workload_of
from ..runfile.quantities import counted, estimate_text
from ..statistics import inference
from ..supervise.interleave import Interleave, OutOfTime, SameCode, find_environment
from ..supervise.process import on_signals
from ..supervise.project import described
from .comparison import Comparison, compare_sides, content_text, noise_of_runner
from .evidence import FALSE_DISCOVERIES, POWER, SUSPICION, Cause, Terms
from .samples import CONFIRM, SCREEN, SMOKE, CaseKey, Side, add_runs
from .verdict import INCONCLUSIVE, USUAL_SPREAD, Verdict

TURN_DEADLINE_S = 600.0
"""Seconds that one benchmark may take, the limit of `gpubench run PATH`: a call of ten seconds is called several
times."""
BUDGET_S, PAIRS = 900.0, 20  # if no option says otherwise
SCREENING_PAIRS, MOST_SCREENING = 3, 10
"""Screening pairs of every benchmark, and the most for benchmarks with more noise. Two would do, but on a busy
machine one process in eight is held up."""
LARGE = 2.0  # screening should detect a change of this many thresholds
LEAST_FRESH = 6  # fresh pairs of any suspect: with fewer, a single process that is held up leaves too little evidence
CONFIRMING_POWER = 0.9
REGRESSION = 0.5
"""The change that made a benchmark suspect is an overestimate: confirming should detect this share of its logarithm."""
MOST_TRIES = 3
"""Pairs in which other programs held a suspect up are replaced, until it was measured this many times as often as
planned."""
RESERVE = 1.5  # factor on the budget that an error message advises: other programs may slow the measurement


def planned_pairs(
    suspects: Sequence[Verdict], threshold: float, most: int, confirmed: Sequence[Verdict] = ()
) -> dict[CaseKey, int]:
    """Fresh pairs that confirm each suspect with a probability of 90 %, at most ``most``.

    ``confirmed`` are the verdicts on the fresh pairs so far: a suspect that turns out noisier than screening showed
    gets more pairs. Their number depends on its noise alone and so favours no verdict (an internal pilot: J. Wittes and
    E. Brittain, 1990, Statistics in Medicine 9:65).
    """
    noise = {each.key: each.spread for each in confirmed if min(each.processes) >= LEAST_FRESH and not each.suspect}
    planned = {}
    for each in suspects:
        change = max(math.log(1 + threshold), REGRESSION * abs(math.log(each.ratio.value)))
        spreads = [spread for spread in (each.spread, noise.get(each.key, math.nan)) if not math.isnan(spread)]
        spread, level = max(spreads, default=USUAL_SPREAD), FALSE_DISCOVERIES / len(suspects)
        needed = inference.needed_values(spread, math.exp(change), level, CONFIRMING_POWER, most)
        planned[each.key] = min(most, max(LEAST_FRESH, needed or most))
    return planned


def screening_pairs(verdicts: Sequence[Verdict], threshold: float) -> dict[CaseKey, int]:
    """Screening pairs of each benchmark that shows no sign of a change, so many that a change of two thresholds would
    have made it suspect. The number depends on the noise alone, so that a longer screening favours no verdict.
    Benchmarks that would need more than three times the most pairs get no more."""
    planned = {}
    for each in verdicts:
        if each.cause in (Cause.UNSEEN, Cause.HIDDEN) and not math.isnan(each.spread):
            wanted = 1 + LARGE * threshold
            if needed := inference.needed_values(each.spread, wanted, SUSPICION, POWER, 3 * MOST_SCREENING):
                planned[each.key] = min(needed, MOST_SCREENING)
    return planned


def compare_in_turn(args: argparse.Namespace, terms: Terms, pytest_options: Sequence[str]) -> Comparison:
    """Measure both environments until the verdicts are conclusive or the budget is spent. Raises UsageError for a side
    that can't be measured or written, KeyboardInterrupt if a signal ends it before the first pair is complete."""
    most = PAIRS if args.pairs is None else args.pairs
    if most < LEAST_FRESH:
        raise UsageError(f"--pairs must be {LEAST_FRESH} or more: fewer can't prove anything")
    before, after = (find_environment(side, getattr(args, side), args.paths) for side in ("base", "new"))
    if before.interpreter == after.interpreter and os.path.abspath(args.base) != os.path.abspath(args.new):
        both = f"{args.base} and {args.new} are the same folder"
        raise SameCode(f"{both}: give one of them twice to see what this machine can detect in unchanged code")
    turns = Interleave(_empty_folder(args.output), before, after, pytest_options, TURN_DEADLINE_S, _say)
    base, new = (described(side.paths, side.source) for side in (before, after))
    measuring = "" if args.paths else f"base measures {base}, new {new}; "
    _say(f"{measuring}starting: each side imports and collects its benchmarks first")
    with on_signals(turns.interrupt):
        turns.collect()
        parts = {side: [name.partition("::")[::2] for name in names] for side, names in turns.collected.items()}
        workloads = {
            side: [workload_of(file, test.partition("[")[0].split("::"), {}, shipped=True) for file, test in names]
            for side, names in parts.items()
        }
        if turns.interrupted:
            raise KeyboardInterrupt
        if not set.intersection(*map(set, workloads.values())):
            contents = tuple(content_text(*entry) for entry in workloads.items())
            return Comparison((), (), (), terms.threshold, 0, contents=contents)
        return _Session(args.budget or BUDGET_S, most, terms, turns).compare()


class _Session:
    """The pairs of one comparison, at ``most`` so many of a suspect; collecting doesn't count toward its budget.

    ``_ended`` is the reason why a side can't be measured any more, ``_enough_s`` the budget that would have sufficed
    for the suspects that are ``_lacking`` pairs.
    """

    def __init__(self, budget_s: float, most: int, terms: Terms, turns: Interleave) -> None:
        self._budget_s, self._most, self._terms, self._turns = budget_s, most, terms, turns
        self._sides = [Side("base"), Side("new")]
        self._began, self._pairs = turns.now(), 0
        turns.stop_at = self._began + budget_s
        self._notes: list[str] = []
        self._ended = ""
        self._lacking: set[CaseKey] = set()
        self._enough_s = 0

    def compare(self) -> Comparison:
        """Screen, confirm, judge."""
        turns = self._turns
        self._screen()
        if turns.interrupted and not self._pairs:
            raise KeyboardInterrupt
        self._screen_longer()
        comparison = self._judged()
        is_smoke = any(run.preset == SMOKE for side in self._sides for run in side.runs)
        suspects = [verdict for verdict in comparison.verdicts if verdict.suspect]
        if suspects and not (self._ended or turns.interrupted or is_smoke):
            comparison = self._confirm(suspects)
        notes = [*comparison.notes]
        undecided = any(verdict.verdict == INCONCLUSIVE for verdict in comparison.verdicts)
        if undecided and not (self._notes or turns.interrupted or is_smoke):
            # The number of pairs follows from the noise alone.
            left = estimate_text(max(0.0, self._budget_s - self._spent_s()))
            notes.append(f"stopped with {left} left: measuring until something is proven raises false alarms")
        notes += [note for words in turns.libraries if (note := f"other software: {words}") not in notes]
        comparison = replace(comparison, notes=tuple(notes))
        if (turns.base.interpreter, turns.base.paths) == (turns.new.interpreter, turns.new.paths):
            comparison = noise_of_runner(comparison)
        places = f"results files in {turns.folder}/base and {turns.folder}/new"
        _say(f"{counted(self._pairs, 'pair')} in {self._spent_s():.0f} s; {places}")
        return comparison

    def _judged(self) -> Comparison:
        base, new = self._sides
        comparison, interrupted = compare_sides(base, new, self._terms), self._turns.interrupted
        ending = ["interrupted: judged by the pairs that were complete"] * interrupted
        need = f"--budget {self._enough_s}"
        verdicts = tuple(
            replace(verdict, advice=f"run again with {need}", need=need, more=None)
            if verdict.key in self._lacking and verdict.verdict == INCONCLUSIVE
            else verdict
            for verdict in comparison.verdicts
        )
        notes = (*comparison.notes, *self._notes, *ending)
        return replace(
            comparison, verdicts=verdicts, notes=notes, pairs=self._pairs, ended=self._ended, interrupted=interrupted
        )

    def _spent_s(self) -> float:
        return self._turns.now() - self._began

    def _screen(self) -> None:
        if (SCREENING_PAIRS - 1) * self._turns.pair_s() > self._budget_s:  # an estimate, so the last pair is forgiven
            raise self._too_short()
        expected = f"about {estimate_text(SCREENING_PAIRS * self._turns.pair_s())} on idle cores"
        _say(f"screening: {SCREENING_PAIRS} pairs of all benchmarks, {expected}")
        while self._pairs < SCREENING_PAIRS and self._measure(SCREEN):
            if self._pairs > 1:
                continue
            pythons = [side.interpreter.python for side in (self._turns.base, self._turns.new)]
            _say(f"base measured with {pythons[0]}, new with {pythons[1]}")
            if any(run.preset == SMOKE for side in self._sides for run in side.runs):
                _say("smoke runs prove nothing: one pair shows that both sides can be measured")
                return
            if not set(self._sides[0].cases) & set(self._sides[1].cases):
                return
            if SCREENING_PAIRS * self._spent_s() > self._budget_s:
                raise self._too_short()
            took, left = estimate_text(self._spent_s()), estimate_text((SCREENING_PAIRS - 1) * self._spent_s())
            _say(f"pair 1 of {SCREENING_PAIRS} took {took}: {left} left")

    def _screen_longer(self) -> None:
        """Measure more pairs of benchmarks that vary much, if there is time."""
        if self._pairs < SCREENING_PAIRS:
            return
        planned = screening_pairs(self._judged().verdicts, self._terms.threshold)
        if rounds := _rounds(planned, SCREENING_PAIRS):
            total_s, most = estimate_text(sum(map(self._pair_s, rounds))), max(planned.values())
            _say(f"{counted(len(rounds[0]), 'benchmark')} too noisy for that: up to {most} pairs, about {total_s} more")
        until = (self._spent_s() + self._budget_s) / 2  # the other half is for confirming
        for keys in rounds:
            if self._spent_s() + self._pair_s(keys) > until or not self._measure(SCREEN, keys):
                return

    def _too_short(self) -> UsageError:
        """The error of a budget that is too small for screening."""
        pair_s = max(self._spent_s() / max(1, self._pairs), self._turns.pair_s())
        advised_s = math.ceil((SCREENING_PAIRS + LEAST_FRESH) * pair_s * RESERVE)
        return UsageError(
            f"--budget allows {self._budget_s / pair_s:.1f} pairs of {estimate_text(pair_s)}, but screening takes"
            f" {SCREENING_PAIRS} and confirming {LEAST_FRESH}: use --budget {advised_s} or more (their time and half as"
            " much again for a busy machine), or choose fewer benchmarks (-k, --paths)"
        )

    def _note(self, words: str) -> None:
        if words not in self._notes:
            self._notes.append(words)
            _say(words)

    def _measure(self, stage: str, keys: Sequence[CaseKey] | None = None) -> bool:
        """Measure a pair of all benchmarks, or of ``keys``. Return whether that was possible."""
        if self._ended:
            return False
        try:
            files = self._turns.pair(self._pairs, stage, None if keys is None else self._tests(keys))
        except OutOfTime:
            if self._pairs < SCREENING_PAIRS:
                raise self._too_short() from None
            self._note(f"the budget of {self._budget_s:g} s is spent")
            return False
        except UsageError as error:
            if not self._pairs or isinstance(error, SameCode):
                raise
            self._ended = str(error)
            self._note(f"{error}; judged by the {counted(self._pairs, 'complete pair')}")
            return False
        if files is None:
            return False
        self._pairs += 1
        for side, path in zip(self._sides, files, strict=True):
            add_runs(side, [path])
        return True

    def _tests(self, keys: Sequence[CaseKey]) -> dict[str, set[str]]:
        return {side.name: {side.fullnames[key] for key in keys} for side in self._sides}

    def _pair_s(self, keys: Sequence[CaseKey]) -> float:
        return self._turns.pair_s(self._tests(keys))

    def _confirm(self, suspects: Sequence[Verdict]) -> Comparison:
        """Measure each suspect until it has its pairs, or the time is up."""
        planned = planned_pairs(suspects, self._terms.threshold, self._most)
        total_s, left_s = sum(map(self._pair_s, _rounds(planned))), max(0.0, self._budget_s - self._spent_s())
        expected = f"{counted(len(_rounds(planned)), 'fresh pair')}, about {estimate_text(total_s)}"
        less = f"; the budget has {estimate_text(left_s)}: slowdowns first" if total_s > left_s else ""
        _say(f"{counted(len(suspects), 'suspect')} to confirm in up to {expected}{less}")
        tried, comparison = Counter[CaseKey](), self._judged()
        while todo := self._todo(comparison, planned, tried):
            chosen = self._affordable([suspect for suspect in suspects if suspect.key in todo], todo)
            if not chosen:
                self._note(f"the budget of {self._budget_s:g} s is spent")
                break
            if not self._measure(CONFIRM, chosen):
                break
            tried.update(chosen)
            comparison = self._judged()
            planned = planned_pairs(suspects, self._terms.threshold, self._most, comparison.verdicts)
        if todo and not self._ended and not self._turns.interrupted:
            whole_s = self._spent_s() + sum(map(self._pair_s, _rounds(todo)))
            self._lacking, self._enough_s = set(todo), math.ceil(RESERVE * whole_s)
        return self._judged()

    def _todo(
        self, comparison: Comparison, planned: Mapping[CaseKey, int], tried: Mapping[CaseKey, int]
    ) -> dict[CaseKey, int]:
        """The usable pairs that each suspect lacks, without suspects that were tried too often."""
        usable = {each.key: 0 if each.suspect or each.held_up else min(each.processes) for each in comparison.verdicts}
        lacking = {key: count - usable[key] for key, count in planned.items() if key in usable}
        return {key: count for key, count in lacking.items() if count > 0 and tried[key] < MOST_TRIES * planned[key]}

    def _affordable(self, suspects: Sequence[Verdict], todo: Mapping[CaseKey, int]) -> list[CaseKey]:
        """Suspects for which the time left suffices for all pairs that they lack, so that some are decided where there
        is no time for all. Slowdowns come first, since a gate waits for slowdowns, then suspects that lack the fewest
        pairs. At least one suspect is returned where there is time for a pair of it."""
        left_s = self._budget_s - self._spent_s()
        chosen: list[CaseKey] = []
        for each in sorted(suspects, key=lambda each: (each.ratio.value < 1, todo[each.key], -each.ratio.value)):
            wanted = {key: todo[key] for key in (*chosen, each.key)}
            if sum(map(self._pair_s, _rounds(wanted))) <= left_s or (not chosen and self._pair_s([each.key]) <= left_s):
                chosen.append(each.key)
        return chosen


def _rounds(planned: Mapping[CaseKey, int], done: int = 0) -> list[list[CaseKey]]:
    """The benchmarks that each pair measures, for the pairs after the first ``done``."""
    return [
        [key for key, count in planned.items() if count > number]
        for number in range(done, max(planned.values(), default=0))
    ]


def _empty_folder(name: str | None) -> Path:
    """Return the folder ``name``, or the first of ``out-compare-1``, ``-2`` … that doesn't exist. Raises UsageError if
    it holds an earlier comparison, or can't be written."""
    numbered = (Path(f"out-compare-{number}") for number in itertools.count(1))
    folder = Path(name) if name else next(path for path in numbered if not path.exists())
    if (folder / "turns").exists() or any(any((folder / side).glob("*.json")) for side in ("base", "new")):
        raise UsageError(f"{folder}: holds an earlier comparison: choose another folder with -o")
    prepare_folder(folder)
    for name in ("base", "new", "turns"):
        if (folder / name).is_symlink():
            raise UsageError(f"{folder / name} is a link: the sides' results need folders of their own")
    return folder.resolve()


def _say(text: str) -> None:
    print(clean(f"gpubench compare: {text}"), file=sys.stderr, flush=True)
