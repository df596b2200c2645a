"""Timing from Python and from notebooks, in the process that asks: functions and values needn't be sent anywhere."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import options
from ..errors import GpubenchError, UsageError
from ..measure.expression import (
    LIVE,
    LiveCall,
    Snippet,
    brought,
    dtype_of,
    is_name,
    made_names,
    on_numpy,
    parse,
    used_names,
)
from ..runfile.folder import RUN_FILE
from ..supervise import process
from .time import FILE_NAME, BenchmarkFile, Size, name_of, parse_sizes, pytest_options, require_known

if TYPE_CHECKING:
    from ..report.results import Results

Sizes = str | Sequence[int] | Sequence[Mapping[str, int]] | Mapping[str, Sequence[int]]
"""``"n=64..8192"``, values of n, several that vary together, or by name, for all combinations."""
_QUIET = (
    "-p",
    "gpubench.plugin",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:faulthandler",
    "--import-mode=importlib",
    "-q",
    "-s",
)
_MEASURE = ("--benchmark-only", "--benchmark-quiet")
_USAGE = 4
"""pytest's exit code."""
_WORD = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^\s"'])+)""")
_QUOTED = r"""\"[^"]*"|'[^']*'"""
_SWITCHES = ("--no-check", "--no-ceilings")


def load(*paths: str | os.PathLike[str]) -> Results:
    """Results files, or folders of them, for a script or a notebook: see :class:`gpubench.report.results.Results`.

    torch isn't needed. Raises RunFileError for a file that can't be trusted.
    """
    from ..report.results import Results

    return Results.load(*paths)


def time(  # noqa: PLR0913 - what users write
    target: str | Sequence[str] | Callable[..., Any],
    /,
    *args: Any,
    setup: str | Callable[..., Any] | None = None,
    sizes: Sizes | None = None,
    devices: str | Sequence[str] | None = None,
    dtypes: str | Sequence[str] | None = None,
    variants: str | Sequence[str] | None = None,
    against: str | None = None,
    preset: str = "quick",
    check: bool = True,
    **kwargs: Any,
) -> Results:
    """Time a function call or an expression on the CPU and each GPU, and check its result, as the fixture does.

    - ``target``: ``"a @ b"``, which sees the caller's variables and what ``setup`` makes, or a function, which is
      called with ``args`` and ``kwargs``. Tensors and networks among them are copied to each device. Several
      expressions, in a list, are compared with each other.
    - ``setup``: Python that makes the inputs of an expression (``"a = randn(n, n)"``), or a function that gets the
      sizes and returns the arguments of ``target``: ``lambda n: (torch.randn(n, n), torch.randn(n, n))``.
    - ``sizes``: ``"n=64..8192"``, ``[64, 256]`` for n, ``{"n": [64, 256], "m": [1, 8]}`` for all combinations,
      ``[{"n": 64, "m": 1}, …]`` for some.
    - ``devices``, ``dtypes``, ``variants``, ``preset`` as for ``gpubench run``. ``against``: the same in NumPy.
    - ``check``: whether the result is compared with a float64 reference.

    Raises UsageError for what can't be measured at all; a size that fails has its reason in the result.
    """
    asked = {"device": devices, "dtype": dtypes, "variant": variants}
    words = [f"--gpubench-{name}={value}" for name, given in asked.items() for value in _several(given)]
    words += [f"--gpubench-require-device={name}" for name in _several(devices) if name not in options.OPTIONAL_DEVICES]
    wanted = BenchmarkFile({}, _sizes(sizes), dtypes=_several(dtypes), variants=_several(variants))
    texts = [target] if isinstance(target, str) else target
    if isinstance(texts, Sequence):
        if args or kwargs or callable(setup):
            raise UsageError("an expression takes no arguments: name them in it, and make them with setup='…'")
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        names = {**caller.f_globals, **caller.f_locals} if caller else {}
        return _expressions(texts, wanted, names, [*words, f"--gpubench-preset={preset}"], setup or "", against, check)
    if not callable(target):
        raise UsageError(f"expected an expression or a function, not {type(target).__name__}")
    if isinstance(setup, str) or against:
        raise UsageError("setup='…' and against='…' are for expressions; a function's setup is a function of the sizes")
    name = getattr(target, "__name__", type(target).__name__)
    live = {name.strip("<>"): LiveCall(target, args, kwargs, setup, check)}
    words += _dtype((target, args, kwargs), dtypes)
    return _measure(wanted, live, [*words, f"--gpubench-preset={preset}"])


def load_ipython_extension(shell: Any) -> None:
    """Add the magics ``%gpubench`` and ``%%gpubench``: called by ``%load_ext gpubench``."""

    def gpubench(line: str, cell: str | None = None) -> Results | None:
        """Time an expression on the CPU and each GPU: %gpubench [options] EXPRESSION.

        Of %%gpubench the cell is the expression, and what follows the options its setup. The options are those of
        ``gpubench time``: --size n=256,1024 --device --dtype --variant --against --import --no-check. In quotes the
        expression may stand in front of them, and there may be several, as in the shell.
        """
        try:
            return magic(line, cell, shell.user_ns)
        except GpubenchError as error:
            print(f"gpubench: {error}", file=sys.stderr)
        return None

    shell.register_magic_function(gpubench, "line_cell", "gpubench")


def magic(line: str, cell: str | None, names: Mapping[str, Any]) -> Results | None:
    """What the magics do; ``names`` are the notebook's variables. None where the options were refused, in a line."""
    from .cli import parser

    words, rest = split_options(line)
    text, setup = (rest, "") if cell is None else (cell, rest)
    if not text.strip():
        raise UsageError("nothing to time: %gpubench a @ b")
    try:
        words = shlex.split(line) if cell is None and _in_quotes(rest) else [*words, "--", text]
        args = parser("time").parse_args(words)
    except ValueError as error:
        raise UsageError(f"{line}: {error}") from None
    except SystemExit:  # it has said why
        return None
    if args.output or args.chart or args.kind or args.processes != 1:
        raise UsageError("-o, --chart and --processes are for the command; the result has .df, .chart() and .speedup")
    setup = "\n".join(filter(None, (args.setup, setup)))
    wanted = BenchmarkFile({}, parse_sizes(args.sizes or ()), dtypes=args.dtype or (), variants=args.variant or ())
    names = {**names, **_imported(args.imports)}
    return _expressions(args.expressions, wanted, names, options.passed_on(args), setup, args.against, args.check)


def split_options(line: str) -> tuple[list[str], str]:
    """The options that a line begins with, without their quotes, and the rest as it stands."""
    words: list[str] = []
    place, value = 0, False
    while match := _WORD.match(line, place):
        word = match[1]
        if not value and not word.startswith("--"):
            break
        value = not value and "=" not in word and word not in _SWITCHES
        words.append(re.sub(r"""(["'])(.*?)\1""", r"\2", word))
        place = match.end()
    return words, line[place:].strip()


def _in_quotes(text: str) -> bool:
    """Whether it is expressions in quotes, then perhaps options, as in the shell: not ``'a' + b``."""
    first, *rest = _WORD.findall(text)
    return all(re.fullmatch(_QUOTED, word) for word in (first, *itertools.takewhile(_no_option, rest)))


def _no_option(word: str) -> bool:
    return not word.startswith("--")


def _imported(modules: Iterable[str]) -> dict[str, Any]:
    return {name: value for module in modules for name, value in brought(module).items()}


def _expressions(
    texts: Sequence[str], wanted: BenchmarkFile, names: Mapping[str, Any], words: list[str], setup: str,
    against: str | None, check: bool,
) -> Results:  # fmt: skip
    """Measure expressions that see these names."""
    if against and len(texts) > 1:
        raise UsageError("against takes one expression; several are compared with each other without it")
    sizes = [name for group, _ in wanted.sizes for name in group]
    timed, texts = texts, [*texts, *filter(None, [against])]
    trees = [parse(text, f"expression {text!r}") for text in texts] + ([parse(setup, "setup")] if setup.strip() else [])
    used = {name for tree in trees for name in used_names(tree)}.difference(
        sizes, *map(made_names, trees[len(texts) :])
    )
    seen = {name: names[name] for name in used if name in names}
    for text in texts:
        require_known(text, setup, sizes, seen, _in_python)
    live = {name_of(text): Snippet(text, setup, (), seen, check) for text in texts}
    wanted = replace(wanted, in_numpy={name_of(text) for text in timed if on_numpy(text)})
    words = [*words, *_dtype(seen, wanted.dtypes)]
    return _measure(wanted, live, words, name_of(against) if against else None)


def _in_python(setup: str, size: str) -> str:
    words = [f"setup={setup!r}"] * bool(setup) + [f"sizes={size!r}"] * bool(size)
    return ", ".join(words)


def _measure(
    wanted: BenchmarkFile, live: Mapping[str, Snippet | LiveCall], words: Sequence[str], against: str | None = None
) -> Results:
    """Run the benchmarks in this process, with its settings as before afterwards."""
    import pytest

    from ..measure.state import State
    from ..report.results import Results

    codes = {name: f"LIVE[{name!r}]" for name in live}
    numpy = codes.pop(against) if against else None
    before, said = State(), io.StringIO()
    other = sys.modules.pop(Path(FILE_NAME).stem, None)  # pytest would take it for the file of that name
    LIVE.update(live)
    with tempfile.TemporaryDirectory(prefix="gpubench-time-", ignore_cleanup_errors=True) as folder:
        file = replace(wanted, benchmarks=codes, against=numpy).write(Path(folder))
        run_file = Path(folder) / RUN_FILE
        call = [
            *_QUIET,
            *_MEASURE,
            f"--benchmark-json={run_file}",
            *pytest_options(Path(folder)),
            *words,
        ]
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = pytest.main([*call, str(file)])
        finally:
            LIVE.clear()
            sys.modules.pop(file.stem, None)
            sys.modules.update({file.stem: other} if other else {})
            before.compare()
            before.restore()
        if run_file.exists():
            return Results.load(run_file)
    lines = process.log_lines(said.getvalue())
    raise UsageError(process.complaint(lines) if code == _USAGE else process.uncollected(lines))


def _several(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _sizes(given: Sizes | None) -> list[Size]:
    if given is None or isinstance(given, str):
        return parse_sizes([given] if given else [])
    columns: list[dict[str, list[Any]]] = []
    if isinstance(given, Mapping):
        columns = [{name: list(values)} for name, values in given.items()]
    elif together := [each for each in given if isinstance(each, Mapping)]:
        columns = [{name: [each[name] for each in together] for name in together[0]}]
    else:
        columns = [{"n": list(given)}]
    for name in (name for group in columns for name in group):
        if not is_name(name):
            raise UsageError(f"{name!r} can't be the name of a size")
    return [(tuple(group), tuple(zip(*group.values(), strict=True))) for group in columns if all(group.values())]


def _dtype(values: Any, given: str | Sequence[str] | None) -> list[str]:
    """The option that names the dtype of the tensors among these values, unless one is asked for."""
    dtype = None if given else dtype_of(values)
    return [f"--gpubench-dtype={dtype}"] if dtype in options.DTYPES else []
