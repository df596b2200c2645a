"""``gpubench time``: an expression on CPU and GPU."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import os
import re
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from ..errors import UsageError, clean
from ..measure.expression import Timing, expressions, hints, is_python, parse_sizes
from ..runfile import options
from ..runfile.facts import plain_memory_note
from ..runfile.flags import judge
from ..runfile.ledger import RUN_FILE, Event, assemble
from ..runfile.matching import shown_name
from ..runfile.schema import ACCEPTABLE, OK, Result
from ..runfile.thresholds import keep_threshold, require_hardware
from ..runfile.version import __version__
from ..runfile.writer import picture_format, require_new, scratch, write
from ..supervise import process
from ..supervise.progress import Progress
from ..supervise.supervisor import Supervisor, Unable
from .reading import cards_named, estimates_of, show_estimates

if TYPE_CHECKING:
    from ..report.results import Results
    from ..report.study import Pair
    from ..statistics.crossing import Point

_MEASURED, _INCOMPLETE = 0, 1
FOLDER = "gpubench-time-"
"""Prefix of the names of temporary folders."""
_NOT_HERE = ("implementation", "require-device")
"""Options of a run that don't apply to an expression: it names its library, and a device that is named is required."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    groups = {title: parser.add_argument_group(title) for title in options.GROUPS}
    what, care, output, advanced = groups.values()
    text = "Python, for example 'a @ b'; several are compared with each other"
    what.add_argument("expressions", nargs="+", metavar="EXPRESSION", help=text)
    made = "makes the inputs, for example 'a, b = randn(n, n), randn(n, n)'; sees torch, nn, F, np, device, dtype,"
    made += " randn(n, n), rand(n), randint(high, (n,)), empty(n), module(lambda: nn.Linear(8, 8))"
    what.add_argument("--setup", default="", metavar="PYTHON", help=made)
    each = "runs before each call, untimed, for example 'b = a.clone()' where the call changes b"
    what.add_argument("--each", default="", metavar="PYTHON", help=each)
    sizes = "n=256,1024,4096; repeat it for a second name: all combinations are timed. n=1e3..1e7 chooses sizes until"
    sizes += " it is known from which one on the GPU is faster"
    what.add_argument("--size", dest="sizes", action="append", default=[], metavar="NAME=…", help=sizes)
    estimated = "estimate a GPU that isn't here from the CPU's time: L4, 'H100 SXM' …; repeatable"
    how_many = "processes to time in (default: 1); 2 or more give a 95%% confidence interval"
    care.add_argument("--processes", type=int, default=1, metavar="K", help=how_many)
    all_of_it = "progress, machine, throughput, measured peaks and flags, also without --size"
    output.add_argument("-v", "--verbose", action="store_true", help=all_of_it)
    output.add_argument("-o", "--output", metavar="FILE", help="keep the results file, for report and compare")
    kept = "keep the size that a range finds, by CPU and GPU, for gpubench.threshold(…)"
    output.add_argument("--threshold", metavar="FILE", help=kept)
    drawn = "draw the speedup by size, without a GPU the time; of several expressions their times; .svg or .png"
    output.add_argument("--chart", metavar="FILE", help=drawn)
    what.add_argument("--gpu", dest="gpus", action="append", default=[], metavar="CARD", help=estimated)
    longest = "stop an expression that takes longer, in seconds (default: 120; with --preset full, 600)"
    advanced.add_argument("--deadline", type=options.reader("deadline"), metavar="S", help=longest)
    options.declare(groups, without=_NOT_HERE)
    parser.epilog = "Example: gpubench time 'a @ b' --setup 'a, b = randn(n, n), randn(n, n)' --size n=256,1024,4096"


def main(args: argparse.Namespace) -> int:
    """Returns 0 when a benchmark was measured and none failed, 1 when one failed or was interrupted. Raises UsageError
    where nothing can be measured, which writes no file, and for a file that can't be written."""
    span = span_of(args.sizes, args.processes)
    if span:
        args.sizes = [span.text]
    elif args.threshold:
        raise UsageError("--threshold keeps the size that a range finds: --size n=1e3..1e7")
    timing = dataclasses.replace(timing_of(args), ascending=bool(span))
    cards = cards_named(args.gpus)  # an unknown card is refused before anything is measured
    for hint in hints(args.expressions):
        _say(hint)
    brief = timing.single and not args.verbose
    _require_writable(args)
    with scratch(FOLDER) as folder:
        supervisor = _measured(args, timing, brief, folder)
        events = supervisor.events
        statuses = {event["status"] for event in events if event["event"] == "end"}
        if not statuses:
            _say("stopped before anything was measured")
            return _INCOMPLETE
        run, results = _results(events, folder)
        while span and not supervisor.interrupted and (size := further_size(results)):
            more = dataclasses.replace(timing, sizes=[(span.name, (size,))])
            supervisor = _measured(args, more, True, folder)
            events = [*events, *supervisor.events]
            run, results = _results(events, folder)
    if OK not in statuses and not supervisor.interrupted:
        longer = f"; --deadline {supervisor.deadline_s * 5:g} waits longer" if "timeout" in statuses else ""
        raise UsageError(_why_nothing(results.runs[0].results) + longer)
    whole = all(result.times for result in results.runs[0].results)
    print(_times_alone(results) if brief and whole else results, flush=True)
    if OK in statuses:
        _keep(args, run, results, span, cards)
    return _INCOMPLETE if supervisor.interrupted or not statuses <= set(ACCEPTABLE) else _MEASURED


def _keep(args: argparse.Namespace, run: dict[str, Any], results: Results, span: Span | None, cards: Any) -> None:
    """Print and write the rest of the answer: the crossing, estimates, files."""
    if span and (line := said(results, span)):
        print(line)
    if args.threshold:
        print(keep(results, args.threshold))
    if cards:
        print()
        show_estimates(results.study, estimates_of(results.study, cards))
    if args.output:
        write(Path(args.output), run)
    if args.chart:
        try:
            results.chart().save(args.chart)
        except UsageError as error:  # too little to draw: the results count more
            _say(str(error))
        else:
            print(args.chart)


def _results(events: Sequence[Event], folder: Path) -> tuple[dict[str, Any], Results]:
    """Return the results file of these events, and its results."""
    from ..report.results import Results

    write(folder / RUN_FILE, run := assemble(events))
    return run, Results.load(folder / RUN_FILE)


def _require_writable(args: argparse.Namespace) -> None:
    """Raise UsageError before minutes of measuring, for files that could not be written after them."""
    if args.processes < 1:
        raise UsageError(f"processes must be 1 or more, not {args.processes}")
    if args.gpus and args.device and not {*options.OPTIONAL_DEVICES}.intersection(args.device):
        raise UsageError("--gpu is estimated from the CPU's time: add --device cpu")
    for path in filter(None, (args.output, args.chart)):
        require_new(path)
    if args.threshold:
        try:
            require_hardware()
        except ValueError as error:
            raise UsageError(f"{args.threshold} can't be written: {error}") from None
    if args.chart:
        picture_format(args.chart)


def _measured(args: argparse.Namespace, timing: Timing, brief: bool, folder: Path) -> Supervisor:
    """Measure in child processes. Raises UsageError where nothing can be measured."""
    unseen = brief and not args.output and not args.gpus  # the brief output shows no peaks, an estimate does
    asked = {"timing": dataclasses.asdict(timing), "settings": options.values(args) | {"ceilings": not unseen}}
    folder = Path(tempfile.mkdtemp(dir=folder))
    file, progress = folder / "expressions.json", _Progress(brief)
    file.write_text(json.dumps(asked), encoding="utf-8")
    deadline_s = float(args.deadline or (600.0 if args.preset == "full" else 120.0))
    terms = [str(file)], (), args.processes, deadline_s, progress.note
    supervisor = Supervisor(folder, *terms, command=_command)
    supervisor.log.touch()
    supervisor.begin()
    progress.expect(supervisor.processes, supervisor.events, deadline_s)
    # The report is imported while the child imports torch: this saves a second.
    threading.Thread(target=importlib.import_module, args=("gpubench.report.results",), daemon=True).start()
    try:
        supervisor.measure()
    except Unable as error:
        if error.code == process.USAGE or not any(event["event"] == "end" for event in supervisor.events):
            raise UsageError(error.failure or str(error)) from None
        _say(str(error))
    finally:
        progress.stop()
    return supervisor


def _command(paths: Sequence[str], options: Sequence[str], python: str) -> list[str]:
    return [python, "-P", "-m", "gpubench.plugin.expressions", *options, *paths]


class _Progress(Progress):
    """Prints the progress, or if ``brief`` only notices; failures are printed at the end."""

    def __init__(self, brief: bool) -> None:
        super().__init__("gpubench time")
        self._brief = brief

    def note(self, event: Event) -> None:
        """Print an event of the journal."""
        if not self._brief and event.get("status", OK) in ACCEPTABLE:
            super().note(event)
            return
        self.watch(event)
        for notice in event.get("notices") or ():  # such as that one thread is measured
            print(clean(str(notice)), file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"gpubench time: {text}", file=sys.stderr, flush=True)


def _times_alone(results: Results) -> str:
    """Return ``a @ b 102 ms* ±2%``, and the meaning of the star; for two devices both times and the speedup."""
    from ..report import words

    study, rows = results.study, results.study.measured
    named = [f"{study.names.of(row)} " * (len(rows) > 1) + f"{row.accurate_time}" for row in rows]
    lines = ["  ".join([words.name(rows[0].result), *named, *(str(pair.ratio) for pair in study.device_pairs[:1])])]
    flags = [flag for row in rows for flag in row.result.flags]
    flags.sort(key=lambda flag: not any(reason.interval for reason in judge([flag.name]).why))
    lines += [f"{judge([flag.name]).star} {flag.name}: {flag.seen}".strip() for flag in flags[:1]]
    reasons = [process.unplaced for row in rows for process in row.times.processes if process.unplaced]
    lines += [f"~ is of data at one place in memory, so the next run may differ by more: {why}" for why in reasons[:1]]
    note = plain_memory_note(row.result for row in rows)
    return "\n".join([*lines, *[f"Note: {note}"] * bool(note)])


_OURS = re.compile(f"({'|'.join(kind for kind, value in vars(errors).items() if isinstance(value, type))}): ")


def _why_nothing(results: Sequence[Result]) -> str:
    """Return why no benchmark has a time: the first reason of each expression, with its name and size unless it is
    ours."""
    first: dict[str, Result] = {}
    for result in results:
        first.setdefault(shown_name(result.workload), result)
    why = {name: _OURS.sub("", each.reason or each.status, count=1) for name, each in first.items()}
    foreign = any(each.status == "error" and not _OURS.match(each.reason or "") for each in first.values())
    if len(set(why.values())) == 1 and not foreign and not any(result.params for result in first.values()):
        return next(iter(why.values()))
    sizes = {name: "".join(f", {size}={n}" for size, n in each.params.items()) for name, each in first.items()}
    return "; ".join(f"{name}{sizes[name]}: {reason}" for name, reason in why.items())


def timing_of(args: argparse.Namespace, values: Mapping[str, Any] | None = None) -> Timing:
    """Return the expressions of the command line; ``values`` as for :func:`.expressions`, which raises UsageError."""
    terms, sizes = {"dtypes": args.dtype or (), "variants": args.variant or ()}, parse_sizes(args.sizes)
    for text in args.expressions:
        if sizes and re.fullmatch(r"[\d._e]+", text.strip()):
            raise UsageError(f"--size takes one word: write --size {args.sizes[0]},{text}")
    try:
        return expressions(args.expressions, args.setup, args.each, sizes=sizes, values=values, **terms)
    except UsageError:
        if remedy := _quoting(args.expressions):
            raise UsageError(remedy) from None
        raise


def _quoting(texts: Sequence[str]) -> str:
    """Return the remedy for missing and misplaced quotes in the shell; empty if the words don't show any."""
    for text in texts:
        if option := re.search(r"\s(--[a-z][\w-]*)", text):
            first, rest = text[: option.start()], text[option.start() :].strip()
            return f"close the quote before {option[1]}: '{first}' {rest}"
    joined = " ".join(texts)
    if len(texts) > 1 and not all(map(is_python, texts)) and is_python(joined):
        return f"put the expression in quotes: {joined!r}"
    if len(texts) > 2 and any(map(os.path.exists, texts)):
        return "put the expression in quotes: the shell replaces * by names of files"
    return ""


# ``--size n=1e3..1e7``: the sizes at which the GPU's advantage begins -------------------------------------------------


class Span(NamedTuple):
    """A size and the range in which the crossing is looked for."""

    name: str
    first: int
    last: int

    @property
    def text(self) -> str:
        """The sizes to begin with, as ``--size`` takes them."""
        from ..statistics.crossing import grid  # here and below, as it needs NumPy and SciPy

        return f"{self.name}={','.join(map(str, grid(self.first, self.last)))}"


def span_of(sizes: Sequence[str], processes: int) -> Span | None:
    """Return the range among the sizes. Raises UsageError for one that is no range of whole numbers, or not alone."""
    ranged = next((text for text in sizes if ".." in text), None)
    if ranged is None:
        return None
    name, _, ends = ranged.partition("=")
    try:
        first, last = (int(float(end)) for end in ends.split(".."))
    except (ValueError, OverflowError):
        first, last = 0, 0
    if not 0 < first < last:
        raise UsageError(f"size {ranged!r}: write {name or 'n'}=1e3..1e7 for a range of whole numbers")
    if len(sizes) > 1 or processes > 1:
        raise UsageError("a range of sizes stands alone, and is measured by one process")
    return Span(name.strip(), first, last)


def further_size(results: Results) -> int | None:
    """Return the size to measure next; None once it is known from which size on the GPU is faster, or there is none."""
    from ..statistics.crossing import next_size

    points = _pairs(results)[1]
    return next_size(points) if points else None


def said(results: Results, span: Span) -> str:
    """Return from which size the GPU is faster, in a sentence; empty without a GPU."""
    from ..statistics.crossing import crossing

    pairs, points = _pairs(results)
    if not pairs:
        return ""
    answer, *sizes = crossing(points)
    name, gpu = span.name, results.study.names.subject(pairs[-1])
    if answer == "from":
        size, low, high = (f"{_rounded(each):,}" for each in sizes)
        return f"{gpu} is faster from {name} = {size} ({low} to {high}), by {len(pairs)} sizes."
    if answer == "unsure":
        return f"It is unsure from which {name} {gpu} is faster, after {len(pairs)} sizes."
    return f"{gpu} is {answer} faster, from {name} = {sizes[1]:,.0f} to {sizes[2]:,.0f}."


def keep(results: Results, path: str) -> str:
    """Write the size into a file for :func:`gpubench.threshold`, and return a sentence about it. Raises UsageError
    where the file or the hardware doesn't allow it."""
    from ..statistics.crossing import crossing

    pairs, points = _pairs(results)
    if not pairs:
        raise UsageError(f"{path} isn't written: no GPU was measured")
    answer, *sizes = crossing(points)
    first, limits, size = pairs[0].other, dict[str, int](), answer  # type: tuple[Any, dict[str, int], int | str]
    if answer == "from":
        size, *ends = map(_rounded, sizes)
        limits = dict(zip(("low", "high"), ends, strict=True))
    name = first.result.workload.partition(".")[2]
    try:
        where = keep_threshold(path, name, size, **limits, torch=first.run.machine.torch, gpubench=__version__)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} isn't written: {error}") from None
    return f'{path}: "{name}": {size} for {where}; elsewhere the default'


def _pairs(results: Results) -> tuple[list[Pair], list[Point]]:
    """Return the pairs of the first expression on the first GPU, by size, and the logarithms of their speedups."""
    from ..statistics.crossing import Point

    pairs, points = sorted(results.study.device_pairs, key=lambda pair: pair.other.numbers), list[Point]()
    sides = [(pair.other.result.device, pair.other.result.workload) for pair in pairs]
    pairs = [pair for pair, side in zip(pairs, sides, strict=True) if side == min(sides)]
    for pair in pairs:
        value, low, high = pair.values
        error = (math.log(high) - math.log(low)) / 2 if 0 < low < high < math.inf else 1.0
        points.append(Point(float(pair.other.numbers[0]), math.log(value), max(error, 0.005)))
    return pairs, points


def _rounded(size: float) -> int:
    """Return a size with two digits."""
    return int(float(f"{size:.2g}"))
