"""``gpubench time``: an expression on CPU and GPU, as a benchmark file that is written, measured and removed."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import importlib.util
import itertools
import math
import os
import re
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import errors
from ..errors import UsageError
from ..measure.expression import ALIASES, MOST_CHARACTERS, Size, Snippet, is_name, on_numpy, parse, unknown_names
from ..runfile import options
from ..runfile.flags import judge
from ..runfile.folder import RUN_FILE
from ..runfile.ledger import Event, assemble
from ..runfile.matching import shown_name
from ..runfile.reader import clean
from ..runfile.schema import OK, Case, Result
from ..runfile.writer import picture_format, require_new, scratch, write
from ..supervise import process
from ..supervise.progress import Progress
from ..supervise.supervisor import Supervisor, Unable
from .estimate import cards_named, show_estimates

if TYPE_CHECKING:
    from ..report.results import Results

_MEASURED, _INCOMPLETE = 0, 1
_USAGE = 4
"""pytest's exit code."""
_MOST_SIZES = 200
_ACCEPTABLE = (OK, "skipped")
FILE_NAME = "test_time.py"
"""The file's name, chosen so that the names of benchmarks begin with ``time``."""
FOLDER = "gpubench-time-"
"""Prefix of the names of temporary folders."""
_NOT_HERE = ("implementation", "require-device")
"""Options of a run that don't apply to an expression: it names its library, and a device that is named is required."""
_DEADLINE_S = 120.0
_LONG_S = 10.0
"""Seconds after which a line is printed about a benchmark that is still being measured."""
_SOURCE = """from gpubench.measure.expression import LIVE, Snippet, define

define(globals(), {{{benchmarks}}}, {sizes!r}, {further})
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    groups = {title: parser.add_argument_group(title) for title in options.GROUPS}
    what, care, output, _ = groups.values()
    text = "Python, for example 'a @ b'; several are compared with each other"
    what.add_argument("expressions", nargs="+", metavar="EXPRESSION", help=text)
    made = "makes the inputs, for example 'a, b = randn(n, n), randn(n, n)'; sees torch, nn, F, np, device, dtype,"
    made += " randn(*shape), randint(high, shape), empty(*shape), module(build)"
    what.add_argument("--setup", metavar="PYTHON", help=made)
    each = "runs before each call, untimed, for example 'b = a.clone()' where the call changes b"
    what.add_argument("--each", metavar="PYTHON", help=each)
    sizes = "n=256,1024,4096; repeat it for a second name: all combinations are timed"
    what.add_argument("--size", dest="sizes", action="append", metavar="NAME=…", help=sizes)
    estimated = "estimate a GPU that isn't here from the CPU's time: L4, 'H100 SXM' …; repeatable"
    how_many = "processes to time in (default: 1); 2 or more give a 95%% confidence interval"
    care.add_argument("--processes", type=int, default=1, metavar="K", help=how_many)
    all_of_it = "also without --size: progress, machine, throughput, measured peaks, and all that was noticed"
    output.add_argument("-v", "--verbose", action="store_true", help=all_of_it)
    output.add_argument("-o", "--output", metavar="FILE", help="keep the results file, for report and compare")
    drawn = "draw the expressions, the speedup or else the time by size, .svg or .png"
    output.add_argument("--chart", metavar="FILE", help=drawn)
    what.add_argument("--gpu", dest="gpus", action="append", default=[], metavar="CARD", help=estimated)
    options.declare(groups, without=_NOT_HERE)
    parser.epilog = "Example: gpubench time 'a @ b' --setup 'a, b = randn(n, n), randn(n, n)' --size n=256,1024,4096"


def main(args: argparse.Namespace) -> int:
    """Returns 0 when a benchmark was measured and none failed, 1 when one failed or was interrupted. Raises UsageError
    where nothing can be measured, and for a file that can't be written."""
    wanted, cards = benchmark_file_of(args), cards_named(args.gpus)
    _require_writable(args)
    with scratch(FOLDER) as folder:
        supervisor = _measured(args, wanted, folder)
        statuses = {event["status"] for event in supervisor.events if event["event"] == "end"}
        if not statuses:
            print("gpubench time: stopped before anything was measured", file=sys.stderr)
            return _INCOMPLETE
        run = assemble(supervisor.events)
        write(folder / RUN_FILE, run)
        from ..report.results import Results

        results = Results.load(folder / RUN_FILE)
    if OK in statuses or supervisor.interrupted:
        print(_ending(results, wanted.plain and not args.verbose), flush=True)
    if cards and OK in statuses:
        show_estimates(results.runs[0], cards)
    if args.output:
        write(Path(args.output), run)
    if OK not in statuses and not supervisor.interrupted:
        raise UsageError(_why_nothing([result for run in results.runs for result in run.results]))
    if args.chart:
        _draw(results, Path(args.chart))
    return _INCOMPLETE if supervisor.interrupted or not statuses <= set(_ACCEPTABLE) else _MEASURED


def _require_writable(args: argparse.Namespace) -> None:
    """Raise UsageError before minutes of measuring, for what could not be done or written after them."""
    if args.processes < 1:
        raise UsageError(f"processes must be 1 or more, not {args.processes}")
    for path in filter(None, (args.output, args.chart)):
        require_new(path)
    if args.chart:
        picture_format(args.chart)


def _measured(args: argparse.Namespace, wanted: BenchmarkFile, folder: Path) -> Supervisor:
    """Measure in child processes. Raises UsageError where nothing can be measured."""
    brief = wanted.plain and not args.verbose
    progress, patience = Progress(), _Patience(len(wanted.benchmarks))
    words = [*options.passed_on(args), *pytest_options(folder)]
    words += ["--gpubench-no-ceilings"] * (brief and not args.output)  # the brief output shows no peaks

    def note(event: Event) -> None:
        patience.note(event)
        for notice in (event.get("notices") or ()) if brief else ():  # such as that one thread is measured
            print(clean(str(notice)), file=sys.stderr, flush=True)
        if not brief and (event["event"] != "end" or event["status"] in _ACCEPTABLE):  # failures are printed at the end
            progress.note(event if args.dtype else _without_dtype(event))

    supervisor = Supervisor(folder, [str(wanted.write(folder))], words, args.processes, _DEADLINE_S, note)
    supervisor.log.touch()
    supervisor.begin()
    progress.expect(args.processes, supervisor.events)
    # What shows the results is imported while the child imports torch: this saves a second.
    threading.Thread(target=importlib.import_module, args=("gpubench.report.results",), daemon=True).start()
    try:
        supervisor.measure()
    except Unable as error:
        lines = process.log_lines(supervisor.log)
        if error.code == _USAGE:
            raise UsageError(process.complaint(lines)) from None
        if not any(event["event"] == "end" for event in supervisor.events):
            raise UsageError(process.uncollected(lines) if lines else str(error)) from None
        print(f"gpubench time: {error}", file=sys.stderr)
    finally:
        patience.stop()
    return supervisor


def _without_dtype(event: Event) -> Event:
    """The event with names of benchmarks before their data is there: which dtype that has is known only then."""
    known = {name: Case(case["workload"], case["device"], params=case["params"], variant=case["variant"]).id
             for name, case in (event.get("identities") or {}).items()}  # fmt: skip
    return event | {"identities": {name: {"id": text} for name, text in known.items()}} if known else event


class _Patience:
    """Prints a line about a benchmark that takes long, while it is being measured."""

    def __init__(self, expressions: int) -> None:
        self._expressions = expressions
        self._timer: threading.Timer | None = None

    def note(self, event: Event) -> None:
        """Restart or stop the timer when a benchmark begins or ends."""
        if event["event"] in ("start", "end"):
            self.stop()
        if event["event"] == "start":
            name = clean(shown_name(str(event["case"].get("workload", event["name"]))))
            ways = f"after {_DEADLINE_S:g} s it is ended, and Ctrl-C ends it now"
            name += f", in turn with {self._expressions - 1} more," * (self._expressions > 1)
            line = f"gpubench time: {name} has taken {_LONG_S:g} s so far, preparing included: {ways}"
            self._timer = threading.Timer(_LONG_S, print, (line,), {"file": sys.stderr, "flush": True})
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Stop the timer, as nothing is being measured."""
        if self._timer is not None:
            self._timer.cancel()


def _draw(results: Results, path: Path) -> None:
    """Draw the chart. Where there is too little to draw, print the reason instead of failing, as the results count
    more."""
    try:
        results.chart().save(path)
    except UsageError as error:
        print(f"gpubench time: {error}", file=sys.stderr)
    else:
        print(path)


# What is printed at the end -------------------------------------------------------------------------------------------


def _ending(results: Results, brief: bool) -> str:
    """The results as text: the times alone if ``brief`` and all were measured, else everything."""
    measured = [result for run in results.runs for result in run.results]
    return _brief(results) if brief and all(result.times for result in measured) else str(results)


def _brief(results: Results) -> str:
    """``a @ b 102 ms* ±2%``, and what the star means; for two devices both times and the speedup."""
    from ..report import words

    study = results.study
    several = len(study.measured) > 1
    cells = [words.name(study.measured[0].result)]
    for row in study.measured:
        cells.append(f"{study.names.of(row)} " * several + words.time_and_spread(row))
    cells += [words.speedup(pair) for pair in study.device_pairs[:1]]
    flags = [flag for row in study.measured for flag in row.result.flags]
    flags.sort(key=lambda flag: not any(reason.interval for reason in judge([flag.name]).why))
    return "\n".join(["  ".join(cells), *(f"* {flag.name}: {flag.seen}" for flag in flags[:1])])


_OURS = re.compile(f"({'|'.join(kind for kind, value in vars(errors).items() if isinstance(value, type))}): ")


def _why_nothing(results: Sequence[Result]) -> str:
    """Why no benchmark has a time: the first reason of each expression."""
    reasons: dict[str, str] = {}
    for result in results:
        reasons.setdefault(shown_name(result.workload), _OURS.sub("", result.reason or result.status, count=1))
    named = len(set(reasons.values())) > 1
    return "; ".join(dict.fromkeys(f"{name}: {why}" if named else why for name, why in reasons.items()))


# What is to be timed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """``benchmarks`` are Python texts that make what is measured, by name. Those named in ``in_numpy`` run on arrays
    only. ``dtypes`` and ``variants`` are the requested ones."""

    benchmarks: Mapping[str, str] = field(default_factory=dict)
    sizes: Sequence[Size] = ()
    in_numpy: Collection[str] = ()
    dtypes: Sequence[str] = ()
    variants: Sequence[str] = ()

    @property
    def plain(self) -> bool:
        """Whether it asks for one time on each device."""
        several = len(self.benchmarks) > 1 or len(self.dtypes) > 1 or len(self.variants) > 1
        return not (self.sizes or several)

    def write(self, folder: Path) -> Path:
        """Write the benchmark file."""
        terms = {"in_numpy": sorted(self.in_numpy), "dtypes": tuple(self.dtypes), "variants": tuple(self.variants)}
        texts = [f"{name}={values!r}" for name, values in terms.items() if values]
        benchmarks = ", ".join(f"{name!r}: {code}" for name, code in self.benchmarks.items())
        path = folder / FILE_NAME
        source = _SOURCE.format(benchmarks=benchmarks, sizes=list(self.sizes), further=", ".join(texts))
        path.write_text(source, encoding="utf-8")
        return path


def benchmark_file_of(args: argparse.Namespace) -> BenchmarkFile:
    """What the command line asks for. Raises UsageError for what is no Python or has names that nothing makes."""
    setup, sizes = args.setup or "", parse_sizes(args.sizes or ())
    each = args.each or ""
    named = require_expressions(args.expressions, setup, each)
    for text in named.values():
        require_known(text, f"{setup}\n{each}".strip(), [name for name, _ in sizes])
    codes = {name: repr(Snippet(text, setup, each)) for name, text in named.items()}
    in_numpy = {name for name in codes if on_numpy(named[name])}
    return BenchmarkFile(codes, sizes, in_numpy, tuple(args.dtype or ()), tuple(args.variant or ()))


def require_expressions(texts: Sequence[str], *setups: str) -> dict[str, str]:
    """Expressions by their names in tables, which are their whole text in one line. Raises UsageError for what is no
    Python, given twice or too long for a name."""
    for setup in filter(str.strip, setups):
        parse(setup, "the setup")
    texts = [text.strip() for text in texts]
    for text in texts:
        if len(text) > MOST_CHARACTERS:
            raise UsageError(
                f"an expression has {MOST_CHARACTERS} characters at most, not {len(text)}: call a function"
            )
        parse(text, f"expression {text!r}")
    if len(set(texts)) < len(texts):
        raise UsageError("an expression is given twice")
    named: dict[str, str] = {}
    for text in texts:
        line = " ".join(text.split())
        names = itertools.chain([line], (f"{line} ({number})" for number in itertools.count(2)))
        named[next(name for name in names if name not in named)] = text
    return named


def pytest_options(folder: Path) -> list[str]:
    """Options that ignore the user's configuration and plugins of pytest, leave no files behind and measure peaks
    quickly."""
    options = ["-c", os.devnull, f"--rootdir={folder}", f"--benchmark-storage=file://{folder}", "--gpubench-brief"]
    if tuple(map(int, version("pytest").split(".")[:2])) >= (8, 4):  # others' plugins take half a second
        options += ["--disable-plugin-autoload", "-p", "pytest_benchmark.plugin"]
    return options


def _is_module(name: str) -> bool:
    """Whether a measuring process, which looks into the working folder too, can import a module of that name."""
    with contextlib.suppress(ImportError, ValueError):
        if importlib.util.find_spec(name):
            return True
    return importlib.machinery.PathFinder.find_spec(name, [os.getcwd()]) is not None


IN_SHELL, IN_PYTHON = (
    ("--setup {!r}", "--size {}", " ", "write 'import {module} as {name}' in --setup"),
    ("setup={!r}", "sizes={!r}", ", ", "import {module} as {name}"),
)
"""How the setup and sizes are written in messages, what separates them, and how a module is imported."""


def require_known(
    text: str, setup: str, sizes: Sequence[str], known: Collection[str] = (), written: Sequence[str] = IN_SHELL
) -> None:
    """Raise UsageError for undefined names, with the remedy, as it is ``written``."""
    setting, sizing, between, bring = written

    def example(setup: str, size: str) -> str:
        return between.join([setting.format(setup)] * bool(setup) + [sizing.format(size)] * bool(size))

    for texts in ([setup], [setup, text]):
        missing = unknown_names(texts, [*sizes, *known])
        for name in missing:
            if texts[-1].strip() == name and _is_module(name):
                raise UsageError(f"{name} is a module: write what to call, such as 'np.sort(a)' or 'torch.sort(a)'")
            module = next((module for module, alias in ALIASES.items() if alias == name), name)
            if re.search(rf"\b{name}\.", texts[-1]) and (module != name or _is_module(name)):
                how = bring.format(module=module, name=name).replace(f" as {module}", "")
                raise UsageError(f"unknown name {name!r}: {how}")
            if re.search(rf"\b{name}\s*\(", texts[-1]):
                how = f"write torch.{name} or F.{name}, or import it"
                raise UsageError(f"unknown function {name!r}: {how}")
        if missing and len(texts) == 1:
            how = example("", f"{missing[0]}=256,1024,4096")
            raise UsageError(f"unknown name {missing[0]!r} in the setup: if it is a size, add {how}")
    if missing:
        size = sizes[0] if sizes else "n"
        made = f"{', '.join(missing)} = {', '.join([f'randn({size}, {size})'] * len(missing))}"
        how = example("; ".join(filter(None, (setup.strip(), made))), "" if sizes else f"{size}=256,1024,4096")
        names = f"name{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise UsageError(f"unknown {names}: make {'them' if len(missing) > 1 else 'it'} with {how}")


def parse_sizes(texts: Iterable[str]) -> list[Size]:
    """``n=256,1024`` for each size. Raises UsageError."""
    sizes = list(map(_values, texts))
    names = [name for name, _ in sizes]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"size {repeated[0]} is given twice: write {repeated[0]}=256,1024,4096")
    if (count := math.prod(len(values) for _, values in sizes)) > _MOST_SIZES:
        raise UsageError(f"{count} sizes: at most {_MOST_SIZES} are measured at once")
    return sizes


def _values(part: str) -> Size:
    """``n=1,2`` as a name and its values."""
    name, equals, text = part.strip().partition("=")
    if not equals or not is_name(name):
        raise UsageError(f"size {part!r}: write n=256,1024,4096")
    return name, tuple(dict.fromkeys(_number(word, part) for word in text.split(",")))


def _number(word: str, part: str) -> float:
    try:
        value = float(word.replace("_", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e15:
        raise UsageError(f"size {part!r}: {word!r} is no number above 0; write n=256,1024,4096")
    return int(value) if value == int(value) else value
