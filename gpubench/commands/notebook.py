"""Timing from Python and from notebooks, in the calling process: functions and values needn't be sent anywhere."""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import GpubenchError, UsageError
from ..measure.expression import Timing, expressions, parse_sizes, pausing_loop
from ..runfile import options
from ..runfile.ledger import LEDGER, RUN_FILE, assemble, recorded
from ..runfile.writer import scratch, write
from .time import FOLDER, timing_of

if TYPE_CHECKING:
    from ..report.results import Results

Sizes = str | Sequence[str] | Mapping[str, Sequence[int]]
"""Sizes as ``"n=64,256"``, or values by name; all combinations are timed."""
_AS_IN_THE_SHELL = {
    **{name: f"write {name}s=…" for name in ("device", "size", "dtype", "variant")},
    "processes": "it measures in this process; the command gpubench time has --processes",
}
"""Options that people spell as the command's, with the remedy."""
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)


class _Word(str):
    """A word as the shell reads it, with its ``place`` in the line."""

    place: slice


def load(*paths: str | os.PathLike[str], k: str | None = None) -> Results:
    """Read results files, or folders of them, for a script or a notebook: see :class:`gpubench.Results`.

    ``k`` chooses benchmarks, as ``-k`` does: by any name that is shown. torch isn't needed. Raises RunFileError for a
    file that can't be trusted, and UsageError where ``k`` chooses nothing.
    """
    from ..report.results import Results

    return Results.load(*paths, k=k)


def time(  # noqa: PLR0913 - what users write
    target: str | Sequence[str] | Callable[..., Any],
    /,
    *args: Any,
    setup: str | Callable[..., Any] | None = None,
    sizes: Sizes | None = None,
    devices: str | Sequence[str] | None = None,
    dtypes: str | Sequence[str] | None = None,
    variants: str | Sequence[str] | None = None,
    preset: str = "quick",
    each: str = "",
    check: bool = True,
    threads: int | None = None,
    **kwargs: Any,
) -> Results:
    """Time a function call or an expression on the CPU and each GPU, and check its result, as the fixture does.

    - ``target``: ``"a @ b"``, which sees the caller's variables and the names of ``setup``, or a function, which is
      called with ``args`` and ``kwargs``. Tensors and networks among them are copied to each device. Several
      expressions, in a list, are compared with each other.
    - ``setup``: Python that makes the inputs of an expression (``"a = randn(n, n)"``), or a function that gets the
      sizes and returns the arguments of ``target``: ``lambda n: (torch.randn(n, n), torch.randn(n, n))``.
    - ``each``: Python that runs before each call of an expression, untimed, where the call changes its input.
    - ``sizes``: ``"n=64,256"``, or ``{"n": [64, 256], "m": [1, 8]}`` for all combinations.
    - ``devices``, ``dtypes``, ``variants``, ``preset`` as for ``gpubench run``.
    - ``check``: whether the result is compared with a float64 reference. ``threads`` of the CPU: default all cores, or
      one where other programs make more of them slower.

    All other keywords go to ``target``; for one that has the name of an option write ``functools.partial``. Raises
    UsageError for a call that can't be measured at all; a size that fails has its reason in the result.
    """
    asked = argparse.Namespace(device=_several(devices), dtype=_several(dtypes), variant=_several(variants))
    vars(asked).update(preset=preset, threads=threads)
    if isinstance(sizes, Mapping):
        sizes = [f"{name}={','.join(map(str, values))}" for name, values in sizes.items()]
    terms = {"sizes": parse_sizes(_several(sizes)), "dtypes": asked.dtype, "variants": asked.variant, "check": check}
    if not callable(target):
        if not isinstance(target, Sequence) or not all(isinstance(each, str) for each in target):
            several = isinstance(target, Iterable) and any(map(callable, target))
            advice = ": a list is for expressions: ['f(x)', 'g(x)']" if several else f", not {target!r:.60}"
            raise UsageError(f"expected a function, an expression or a list of expressions{advice}")
        for name in kwargs.keys() & _AS_IN_THE_SHELL.keys():
            raise UsageError(f"no option {name}: {_AS_IN_THE_SHELL[name]}")
        if args or kwargs or callable(setup):
            raise UsageError("an expression takes no arguments: name them in it, and make them with setup='…'")
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        values = {**caller.f_globals, **caller.f_locals} if caller else {}
        return _measure(expressions(_several(target), setup or "", each, values=values, **terms), asked)
    if isinstance(setup, str):
        raise UsageError("setup='…' is for expressions; a function's setup is a function of the sizes")
    name = getattr(target, "__name__", type(target).__name__).strip("<>")
    return _measure(Timing({name: target}, setup or "", args=args, kwargs=kwargs, **terms), asked)


def load_ipython_extension(shell: Any) -> None:
    """Add the magics ``%gpubench`` and ``%%gpubench``: called by ``%load_ext gpubench``."""
    from IPython.core.magic import no_var_expand

    @no_var_expand  # else IPython evaluates f-strings and sets before they are timed
    def gpubench(line: str, cell: str | None = None) -> Results | None:
        """Time an expression on the CPU and each GPU: %gpubench EXPRESSION.

        A line that begins with a quote or an option is read as in the shell: 'a @ b' --setup '…' --size n=256,1024, and
        further options of ``gpubench time``. Of %%gpubench the cell is the expression, and any other line the setup.
        """
        try:
            return magic(line, cell, shell.user_ns)
        except GpubenchError as error:
            print(f"gpubench: {error}", file=sys.stderr)
        return None

    shell.register_magic_function(gpubench, "line_cell", "gpubench")


def magic(line: str, cell: str | None, names: Mapping[str, Any]) -> Results | None:
    """Time the expression of a magic with the ``names`` of a notebook. Return None if the options were refused, in a
    line."""
    from .cli import parser

    plain = not line.startswith(("'", '"', "-")) or _computes_with_text(line)
    expression = line if plain and cell is None else cell
    known = parser("time")
    option = re.search(r"\s(--[\w-]+)", line) if plain else None
    if option and option[1] in known.format_help().split():
        written = f"'{line[: option.start()]}'{line[option.start() :]}"
        raise UsageError(f"with options, the expression needs quotes: %gpubench {written}")
    try:
        words = ([f"--setup={line}"] if cell else []) if plain else _shell_words(line)
        args = known.parse_args([*words, *(["--", expression] if expression else [])])
    except ValueError as error:
        raise UsageError(f"{line}: {error}") from None
    except SystemExit:  # argparse has printed the reason
        return None
    if args.output or args.chart or args.processes != 1:
        raise UsageError("-o, --chart and --processes are for the command; the result has .df, .chart() and .speedup")
    typed = [word.place for word in args.expressions if isinstance(word, _Word)]
    if typed and _computes_with_text(whole := line[typed[0].start : typed[-1].stop]):
        args.expressions = [whole]
    return _measure(timing_of(args, names), args)


def _shell_words(line: str) -> Sequence[str]:
    """The words of a line as the shell reads them. Raises ValueError for a quotation without an end."""
    words = [_Word(word) for word in shlex.split(line)]
    for word, found in zip(words, _SHELL_WORD.finditer(line), strict=True):
        word.place = slice(*found.span())
    return words


def _computes_with_text(line: str) -> bool:
    """Whether a line that begins with a quote is an expression, such as ``"a b".split()``, and isn't quoted as in the
    shell: ``'a @ b' -v`` would subtract from a text."""
    try:
        tree = ast.parse(line, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    less = [node.left for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)]
    return line[:1] != "-" and tree.body not in texts and not any(left in texts for left in less)


def _measure(timing: Timing, asked: argparse.Namespace) -> Results:
    """Measure in this process, with its settings as before afterwards; ``asked`` are options of a run."""
    from ..measure.data import dtypes_of
    from ..measure.session import Mode, Session, Settings
    from ..measure.state import State
    from ..plugin.expressions import Expressions
    from ..report.results import Results

    found = dtypes_of((timing.calls, timing.values, timing.args, timing.kwargs)).intersection(options.DTYPES)
    if not timing.dtypes and len(found) == 1:  # the dtype of the caller's tensors
        asked.dtype = list(found)
    session = Session(Settings(**options.values(asked), brief=True), Mode.IN_PYTEST)
    before, said = State(), io.StringIO()
    with scratch(FOLDER) as folder:
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pausing_loop():
                Expressions(timing, session).run(folder / LEDGER)
        finally:
            before.compare()
            before.restore()
        for notice in session.notices:  # for example that threads wait here, so one is used
            print(notice, file=sys.stderr)
        write(folder / RUN_FILE, assemble(recorded(folder / LEDGER)))
        return Results.load(folder / RUN_FILE)


def _several(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())
