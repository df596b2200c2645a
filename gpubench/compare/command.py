"""``gpubench compare``: read both sides, judge, tell, and end with a code that can block a merge."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

from ..errors import GpubenchError, UsageError
from . import ceilings, document, facts, words
from .conditions import Conditions
from .document import NOTHING, UNUSABLE, Comparison
from .sides import Key, Side, read_side
from .verdict import judge


def main(args: argparse.Namespace) -> int:
    """Returns 0 without a proven slowdown, 1 with one, 2 for input that can't be used, 3 for nothing to compare."""
    try:
        _require_writable(args)
        if args.interleave:
            from . import turns

            comparison = turns.measure(args)
        else:
            comparison = _read_and_compare(args)
        return _tell(replace(comparison, fail_missing=args.fail_missing), args)
    except GpubenchError as error:
        print(f"gpubench compare: {error}", file=sys.stderr)
        return UNUSABLE


def compare(
    base: Side, new: Side, threshold: float, across_machines: bool = False, normalise: bool = False
) -> Comparison:
    """Raises UsageError where the sides' machines differ and that wasn't asked for."""
    common = [key for key in new.cases if key in base.cases]
    found = facts.differences(base, new, (key.device for key in common))
    notes = [*base.notes, *new.notes]
    if common and found.machine and not across_machines:
        raise UsageError(
            f"the machines differ: {'; '.join(found.machine)} (--across-machines compares them all the same)"
        )
    notes += [f"another machine: {text}" for text in found.machine]
    notes += [f"other software: {text}" for text in found.software]
    notes += filter(None, [facts.presets(base, new)])
    notes += facts.doubts(base, new)
    both = [path for content, path in new.contents.items() if content in base.contents]
    notes += [f"on both sides: {path}: a run compared with itself says nothing of noise" for path in both]
    scale: dict[Key, float] = {}
    if normalise:
        scale, unknown = ceilings.scale(base, new, common)
        notes += ["ratios are of times in units of what each machine's own measured ceilings allow"]
        notes += [f"not normalised, since its work or a ceiling is unknown: {key}" for key in unknown]
        common = [key for key in common if key in scale]
    per_run = min(side.processes() for side in (base, new))
    cases = {key: [one.scaled(scale.get(key, 1.0)) for one in new.cases[key]] for key in common}
    conditions = Conditions(base.cases, cases, moved=across_machines)
    if abs(conditions.shared) >= math.log(1 + threshold):
        alike = words.change_text(math.exp(conditions.shared))
        notes.append(f"all cases alike: {alike}, as machines do from run to run; --interleave would tell")
    verdicts = judge(base.cases, cases, threshold, per_run, conditions)
    verdicts = [replace(each, new_s=each.new_s / scale.get(each.key, 1.0)) for each in verdicts]
    return Comparison(tuple(verdicts), document.missing_cases(base, new), tuple(notes), threshold)


def _read_and_compare(args: argparse.Namespace) -> Comparison:
    if args.normalise and not args.across_machines:
        raise UsageError("--normalise is for --across-machines: on one machine there is nothing to normalise")
    if args.pytest or args.paths or args.expression:
        raise UsageError("--paths, -k and what follows -- are for --interleave")
    base, new = read_side("base", args.base), read_side("new", args.new)
    return compare(base, new, args.threshold, args.across_machines, args.normalise)


def _require_writable(args: argparse.Namespace) -> None:
    """Before anything is measured: what is asked for beside the verdict can be written."""
    if args.github_summary:
        words.step_summary()
    if args.svg:
        path = Path(args.svg)
        if path.suffix.lower() not in (".svg", ".png"):
            raise UsageError(f"{path}: a picture is .svg or .png")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"{path}: can't be written there")


def _tell(comparison: Comparison, args: argparse.Namespace) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without … is no reason to fail
    if args.format == "json":
        sys.stdout.write(document.to_json(comparison))
    elif args.format == "md":
        sys.stdout.write(words.markdown(comparison))
    else:
        words.show_table(comparison)
    if comparison.exit_code == NOTHING:
        print(f"gpubench compare: {comparison.line}", file=sys.stderr)
    sys.stdout.flush()
    if args.svg and comparison.verdicts:
        from .picture import save

        save(comparison, Path(args.svg))
    if args.github_summary:
        words.append_step_summary(words.markdown(comparison))
    return comparison.exit_code
