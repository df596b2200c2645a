"""``gpubench compare --interleave``: measure in turn, judge as the pairs come in."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..supervise.interleave import Interleave, environment
from . import samples
from .comparison import NEW, Comparison, Missing, missing_cases
from .samples import SMOKE, Side, merged, read_side
from .sequential import Sequential, least_pairs
from .verdict import AMBIGUOUS, Verdict

DEADLINE_S = 120.0


def measure(args: argparse.Namespace, pytest_options: Sequence[str]) -> Comparison:
    """Measure in alternation until it is enough. Raises UsageError for what can't be measured or written."""
    if len(args.base) > 1 or len(args.new) > 1:
        raise UsageError("--interleave takes one environment a side: a Python, or the folder of a checkout")
    if args.pairs < least_pairs(1) or not args.budget > 0:
        raise UsageError(f"--pairs must be {least_pairs(1)} or more and --budget above 0: fewer can't prove anything")
    before, after = (environment(name, getattr(args, name)[0], args.paths) for name in ("base", "new"))
    folder = _folder(Path(args.output)) if args.output else _fresh(Path("out"))
    turns = Interleave(folder, before, after, pytest_options, DEADLINE_S, _say)
    seen = Sequential(args.pairs, args.threshold)
    base, new = Side("base"), Side("new")
    verdicts: list[Verdict] = []
    notes: list[str] = []

    def enough(base_file: Path, new_file: Path) -> bool:
        nonlocal verdicts
        pair = [read_side(side.name, [path]) for side, path in ((base, base_file), (new, new_file))]
        for side, own in zip((base, new), pair, strict=True):
            merged(side, own)
        seen.add(pair[0].cases, pair[1].cases)
        if seen.count == 1:
            _say(f"base measured with {before.place.python}, new with {after.place.python}")
        if any(run.preset == SMOKE for side in pair for run in side.runs):
            _say("a smoke run proves nothing: one pair shows that both sides can be measured")
            return True
        if seen.count == 1 and seen.cases:
            allowed = min(args.pairs, max(1, int(args.budget / (time.monotonic() - began))))
            if allowed < least_pairs(seen.cases):
                _say(_too_few(allowed, seen.cases))
                if args.format != "table" or args.github_summary:  # else it would stand twice in one terminal
                    notes.append(_too_few(allowed, seen.cases))
        if not seen.due:
            _say(f"pair {seen.count} of at most {args.pairs}")
            return False
        verdicts = seen.look()
        left = sum(each.verdict == AMBIGUOUS for each in verdicts)
        _say(f"pair {seen.count} of at most {args.pairs}: {len(verdicts) - left} of {len(verdicts)} cases settled")
        return not left

    began = time.monotonic()
    pairs = turns.measure(args.pairs, args.budget, enough)
    if pairs and seen.looked < seen.count:
        verdicts = seen.look(last=True)
    found = samples.differences(base, new, (key.device for key in new.cases))
    notes += [f"other software: {text}" for text in found.software]
    notes += [f"measured on other terms: {text}" for text in found.machine]
    notes += samples.doubts(base, new)
    if turns.interrupted:
        notes.append("interrupted: judged by the pairs that were complete")
    _say(f"{pairs} pairs in {time.monotonic() - began:.0f} s; run files in {folder}/base and {folder}/new")
    judged = {each.key for each in verdicts}
    apart = [key for key in new.cases if key in base.cases and key not in judged] if pairs else []
    missing = (*missing_cases(base, new), *(Missing(key, NEW, "measured in no pair on both sides") for key in apart))
    return Comparison(tuple(verdicts), missing, tuple(notes), args.threshold, pairs)


def _too_few(allowed: int, cases: int) -> str:
    return (
        f"--budget and --pairs allow some {allowed} pairs, and to prove a change in one of {cases} cases takes"
        f" {least_pairs(cases)}: allow more, or choose cases (-k, --paths)"
    )


def _fresh(folder: Path) -> Path:
    """The first of ``compare-1``, ``compare-2`` … that isn't there."""
    number = next(n for n in itertools.count(1) if not (folder / f"compare-{n}").exists())
    return _folder(folder / f"compare-{number}")


def _folder(folder: Path) -> Path:
    """Empty of earlier turns: theirs would be taken for these."""
    for name in ("base", "new"):
        if any((folder / name).glob("*.json")):
            raise UsageError(f"{folder}: holds the turns of an earlier comparison: choose another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: can't write there: {error.strerror or error}") from None
    return folder.resolve()


def _say(text: str) -> None:
    print(f"gpubench compare: {text}", file=sys.stderr, flush=True)
