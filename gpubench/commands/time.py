"""``gpubench time``: an expression on CPU and GPU, as a benchmark file that is written, measured and removed."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import options
from ..errors import RunFileError, UsageError
from ..format import writable
from ..measure.expression import called_names, is_name, on_numpy, parse, unknown_names
from ..runfile.folder import RUN_FILE
from ..runfile.ledger import assemble
from ..runfile.schema import OK
from ..runfile.writer import Lock, write
from ..supervise import process
from ..supervise.progress import Progress
from ..supervise.supervisor import Supervisor, Unable
from .estimate import cards_named, show_estimates

if TYPE_CHECKING:
    from ..report.results import Results

_MEASURED, _INCOMPLETE = 0, 1
_USAGE = 4
"""pytest's exit code."""
_MOST_SIZES, _LONGEST_NAME = 200, 80
_ACCEPTABLE = (OK, "skipped")
KINDS_OVER_SIZE = ("expressions", "speedup", "time", "rate", "by-dtype", "first-call")
"""Pictures of expressions over their sizes, the first that can be made by default."""
FILE_NAME = "test_time.py"
"""So that the names of what is measured begin with ``time``."""
_DEADLINE_S = 120.0
_SOURCE = '''"""Written by gpubench time."""

import pytest

from gpubench.measure.expression import LIVE, Snippet  # noqa: F401


def benchmark(snippet, against=None):
    def test(gpubench{names}):
        chosen = against if against and gpubench.implementation == "numpy" else snippet
        chosen.measure(gpubench, {{{sizes}}})

    return test


pytestmark = [{marks}]
'''
_TEST = """
globals()[{name!r}] = pytest.mark.gpubench(implementations={implementations!r})(
    benchmark({benchmarks})
)
"""

Size = tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]
"""Names that vary together, and their values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    groups = {title: parser.add_argument_group(title) for title in options.GROUPS}
    what, care, output, _ = groups.values()
    text = "Python, for example 'a @ b'; several are compared with each other"
    what.add_argument("expressions", nargs="+", metavar="EXPRESSION", help=text)
    made = "makes the inputs, for example 'a, b = randn(n, n), randn(n, n)'; sees torch, nn, F, np, device, dtype,"
    made += " randn(*shape), randint(high, shape), empty(*shape), module(build)"
    what.add_argument("--setup", metavar="PYTHON", help=made)
    sizes = "n=256,1024 or n=64..8192, which doubles; repeat it for all combinations, or write 'n=64,128 m=1,2' to vary"
    what.add_argument("--size", dest="sizes", action="append", metavar="NAME=…", help=f"{sizes} both together")
    against = "the same in NumPy, on the CPU: it gets arrays where the expression gets tensors"
    what.add_argument("--against", metavar="EXPRESSION", help=against)
    module = "import this module and all its public names; repeatable"
    what.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=module)
    unchecked = "don't compare the result with a float64 reference (random results)"
    care.add_argument("--no-check", dest="check", action="store_false", help=unchecked)
    estimated = "estimate a GPU that isn't here from the CPU's time: L4, 'H100 SXM' …; repeatable"
    how_many = "processes to time in (default: 1); 2 or more give a 95%% confidence interval"
    care.add_argument("--processes", type=int, default=1, metavar="K", help=how_many)
    output.add_argument("-o", "--output", metavar="FILE", help="keep the results file, for report and compare")
    drawn = "draw this picture, .svg or .png; without --kind the expressions, the speedup or else the time, by size"
    output.add_argument("--chart", metavar="FILE", help=drawn)
    kinds = f"what --chart draws: {', '.join(KINDS_OVER_SIZE)}"
    output.add_argument("--kind", choices=KINDS_OVER_SIZE, metavar="KIND", help=kinds)
    what.add_argument("--gpu", dest="gpus", action="append", default=[], metavar="CARD", help=estimated)
    options.declare(groups)
    parser.epilog = "Example: gpubench time 'a @ b' --setup 'a, b = randn(n, n), randn(n, n)' --size n=256,1024,4096"


def main(args: argparse.Namespace) -> int:
    """Returns 0 when a benchmark was measured and none failed, 1 when one failed or was interrupted. Raises UsageError
    for what can't be measured at all, and where every benchmark was skipped."""
    wanted, cards = benchmark_file_of(args), cards_named(args.gpus)
    if args.processes < 1:
        raise UsageError(f"processes must be 1 or more, not {args.processes}")
    if args.kind and not args.chart:
        raise UsageError("--kind is for --chart FILE")
    for path in filter(None, (args.output, args.chart)):
        _require_writable(Path(path))
    with tempfile.TemporaryDirectory(prefix="gpubench-time-", ignore_cleanup_errors=True) as folder:
        results, failed = _measured(args, wanted, Path(folder))
    if results is None:
        return _INCOMPLETE
    print(writable(str(results), sys.stdout.encoding))
    if not failed and (why := _why_nothing(results)):
        raise UsageError(f"nothing was measured: {why}")
    if cards:
        show_estimates(results.runs[0], cards)
    if args.chart:
        _draw(results, Path(args.chart), args.kind)
    return _INCOMPLETE if failed else _MEASURED


def _why_nothing(results: Results) -> str:
    """Why every benchmark was skipped; empty where one wasn't."""
    rows = [result for run in results.runs for result in run.results]
    reasons = dict.fromkeys(str(result.reason) for result in rows if result.status == "skipped")
    return "; ".join(reasons) if all(result.status == "skipped" for result in rows) else ""


def _measured(args: argparse.Namespace, wanted: BenchmarkFile, folder: Path) -> tuple[Results | None, bool]:
    """Measure in child processes; what came of it, and whether a benchmark failed or the run was interrupted."""
    progress = Progress()
    paths, passed = [str(wanted.write(folder))], [*options.passed_on(args), *pytest_options(folder)]
    supervisor = Supervisor(folder, paths, passed, args.processes, _DEADLINE_S, progress.note, lock=Lock(folder))
    supervisor.log.touch()
    supervisor.begin()
    progress.expect(args.processes, supervisor.events)
    # What shows the results is imported while the child imports torch: a second that nobody waits for.
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
    statuses = {event["status"] for event in supervisor.events if event["event"] == "end"}
    if not statuses:
        print("gpubench time: stopped before anything was measured", file=sys.stderr)
        return None, True
    path = Path(args.output) if args.output else folder / RUN_FILE
    write(path, assemble(supervisor.events))
    from ..report.results import Results

    return Results.load(path), supervisor.interrupted or not statuses <= set(_ACCEPTABLE)


def _require_writable(path: Path) -> None:
    """Before anything is measured. An earlier results file or picture is replaced, and nothing else."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no such folder")
    if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"{path}: can't be written")
    if path.exists() and path.suffix not in (".svg", ".png"):
        from ..runfile.reader import read

        with contextlib.suppress(RunFileError):
            read(path)
            return
        raise UsageError(f"{path}: is no results file and would be replaced: choose another name")


def _draw(results: Results, path: Path, kind: str | None) -> None:
    """Said where there is too little to draw: what was measured is worth more than its picture."""
    try:
        results.chart(kind).save(path)
    except UsageError as error:
        print(f"gpubench time: {error}", file=sys.stderr)
    else:
        print(path)


# What is to be timed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """``benchmarks`` are Python texts that make what is measured, by name; ``against`` is one in NumPy. Those of
    ``in_numpy`` run on arrays only. ``dtypes`` and ``variants`` are those asked for."""

    benchmarks: Mapping[str, str]
    sizes: Sequence[Size] = ()
    against: str | None = None
    in_numpy: Collection[str] = ()
    dtypes: Sequence[str] = ()
    variants: Sequence[str] = ()

    def write(self, folder: Path) -> Path:
        """Write the benchmark file."""
        names = [name for group, _ in self.sizes for name in group]
        kinds = {"dtypes": tuple(self.dtypes), "variants": tuple(self.variants)}
        terms = {name: values for name, values in kinds.items() if values} | ({"size": names[0]} if names else {})
        marks = [f"pytest.mark.gpubench({', '.join(f'{name}={value!r}' for name, value in terms.items())})"]
        for group, rows in reversed(self.sizes):  # the last mark varies slowest
            values = [row[0] if len(group) == 1 else row for row in rows]
            marks.append(f"pytest.mark.parametrize({','.join(group)!r}, {values!r})")
        sizes = ", ".join(f"{name!r}: {name}" for name in names)
        source = _SOURCE.format(names="".join(f", {name}" for name in names), sizes=sizes, marks=", ".join(marks))
        for name, code in self.benchmarks.items():
            known = ("numpy",) if name in self.in_numpy else ("torch", "numpy") if self.against else ("torch",)
            code = ", ".join(filter(None, (code, self.against)))
            source += _TEST.format(name=f"test_{name}", implementations=known, benchmarks=code)
        path = folder / FILE_NAME
        path.write_text(source, encoding="utf-8")
        return path


def benchmark_file_of(args: argparse.Namespace) -> BenchmarkFile:
    """What the command line asks for. Raises UsageError for what is no Python or has names that nothing makes."""
    setup, sizes = args.setup or "", parse_sizes(args.sizes or ())
    if args.setup is not None:
        parse(setup, "--setup")
    for module in args.imports:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"--import {module!r}: expected the name of a module")
    codes = {}
    for text in (*args.expressions, *filter(None, [args.against])):
        parse(text, f"expression {text!r}")
        if not args.imports:  # what they bring isn't known here
            require_known(text, setup, [name for group, _ in sizes for name in group])
        codes[name_of(text)] = f"Snippet({text!r}, {setup!r}, {tuple(args.imports)!r}, check={args.check})"
    if args.against and len(args.expressions) > 1:
        raise UsageError("--against takes one expression; several are compared with each other without it")
    if len(codes) < len(args.expressions) + bool(args.against):
        raise UsageError("an expression is given twice")
    against = codes.pop(name_of(args.against)) if args.against else None
    in_numpy = {name_of(text) for text in args.expressions if on_numpy(text)}
    return BenchmarkFile(codes, sizes, against, in_numpy, tuple(args.dtype or ()), tuple(args.variant or ()))


def pytest_options(folder: Path) -> list[str]:
    """Somebody's configuration and plugins aren't meant for this, nothing is left where it runs, and peaks are
    measured quickly."""
    options = ["-c", os.devnull, f"--rootdir={folder}", f"--benchmark-storage=file://{folder}", "--gpubench-brief"]
    if tuple(map(int, version("pytest").split(".")[:2])) >= (8, 4):  # others' plugins take half a second
        options += ["--disable-plugin-autoload", "-p", "pytest_benchmark.plugin"]
    return options


def name_of(text: str) -> str:
    """The expression in one line, as tables name it."""
    name = " ".join(text.split())
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _on_the_command_line(setup: str, size: str) -> str:
    words = [f"--setup {setup!r}"] * bool(setup) + [f"--size {size}"] * bool(size)
    return " ".join(words)


def require_known(
    text: str, setup: str, sizes: Sequence[str], known: Collection[str] = (),
    example: Callable[[str, str], str] = _on_the_command_line,
) -> None:  # fmt: skip
    """Raise UsageError for names that nothing makes, with an ``example`` of a setup and sizes that would."""
    for texts in ([setup], [setup, text]):
        missing = unknown_names(texts, [*sizes, *known])
        called = [name for name in missing if name in called_names(texts[-1])]
        if called:
            how = f"write torch.{called[0]} or F.{called[0]}, or import it"
            raise UsageError(f"unknown function {called[0]!r}: {how}")
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
    """``n=256,1024``, ``n=64..8192`` (doubling) or ``n=64,128 m=1,2`` (together). Raises UsageError."""
    sizes: list[Size] = []
    for text in texts:
        columns = dict(map(_values, text.replace(";", " ").split()))
        if not columns:
            raise UsageError(f"size {text!r}: write n=256,1024,4096 or n=64..8192")
        longest = max(map(len, columns.values()))
        for name, values in columns.items():
            if len(values) not in (1, longest):
                raise UsageError(f"sizes that vary together need as many values each: {name} has {len(values)}")
        varied = zip(*(values * (longest if len(values) == 1 else 1) for values in columns.values()), strict=True)
        sizes.append((tuple(columns), tuple(varied)))
    names = [name for group, _ in sizes for name in group]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"size {repeated[0]} is given twice: write {repeated[0]}=256,1024,4096")
    count = 1
    for _, rows in sizes:
        count *= len(rows)
    if count > _MOST_SIZES:
        raise UsageError(f"{count} sizes: at most {_MOST_SIZES} are measured at once")
    return sizes


def _values(part: str) -> tuple[str, list[float]]:
    """``n=1,2`` as a name and its values; numbers alone are those of n."""
    name, _, text = part.rpartition("=")
    name = name or "n"
    if not is_name(name):
        raise UsageError(f"size {part!r}: {name!r} can't be the name of a size; write n=256,1024,4096")
    first, dots, last = text.partition("..")
    if not dots:
        return name, list(dict.fromkeys(_number(word, part) for word in text.split(",")))
    value, end = _number(first, part), _number(last, part)
    if end < value:
        raise UsageError(f"size {part!r}: the first must not be above the last")
    return name, [value * 2**i for i in itertools.takewhile(lambda i: value * 2**i <= end, itertools.count())]


def _number(word: str, part: str) -> float:
    try:
        value = float(word.replace("_", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e15:
        raise UsageError(f"size {part!r}: {word!r} is no number above 0; write n=256,1024,4096 or n=64..8192")
    return int(value) if value == int(value) else value
