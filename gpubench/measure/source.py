"""The source of expressions: what users write is read, and refused with a remedy, before torch is imported."""

from __future__ import annotations

import ast
import builtins
import contextlib
import difflib
import dis
import importlib.machinery
import importlib.util
import itertools
import keyword
import math
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError
from ..runfile.options import DTYPES

MAKERS = ("randn", "rand", "randint", "empty", "module")
"""Methods of the fixture that make inputs; expressions use them by the same names."""
KNOWN = ("torch", "nn", "F", "np", "device", "dtype", *MAKERS)
"""Names that every expression and its setup can use."""
_MOST_CHARACTERS, _MOST_SIZES = 1000, 200
"""Most characters of an expression, whose whole text is its name, and most sizes."""
Size = tuple[str, tuple[float, ...]]
"""A name and its values."""
AWAITING = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
"""Lets code await outside of functions."""
_IN_SHELL, _IN_PYTHON = (
    ("--setup {!r}", "--size {}", " ", "write 'import {module} as {name}' in --setup", "--dtype {}"),
    ("setup={!r}", "sizes={!r}", ", ", "import {module} as {name}", "dtypes={!r}"),
)
"""How messages write the setup, sizes, their separator, the import of a module, and the request of a dtype."""


@dataclass(frozen=True, slots=True)
class Timing:
    """``calls`` to time are expressions or functions by their names in tables, which share everything else.

    ``setup`` makes the inputs: Python for expressions; for a function a function of the sizes, which returns further
    arguments. ``each`` runs before each call, untimed. ``values`` are further names that expressions can use, ``args``
    and ``kwargs`` the arguments of a function. ``dtypes`` and ``variants`` are the requested ones. ``check`` as for
    :meth:`.Gpubench.declare`. ``ascending``: sizes are measured from small to large, as far as time and memory suffice.
    """

    calls: Mapping[str, str | Callable[..., Any]]
    setup: str | Callable[..., Any] = ""
    each: str = ""
    sizes: Sequence[Size] = ()
    dtypes: Sequence[str] = ()
    variants: Sequence[str] = ()
    check: bool = True
    values: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ascending: bool = False

    @property
    def single(self) -> bool:
        """Whether one time is wanted on each device."""
        return not self.sizes and max(len(self.calls), len(self.dtypes), len(self.variants)) == 1


def expressions(
    texts: Sequence[str], setup: str = "", each: str = "", *, sizes: Sequence[Size] = (),
    values: Mapping[str, Any] | None = None, **terms: Any,
) -> Timing:  # fmt: skip
    """Return the timing of expressions, with further ``terms`` of :class:`Timing`; the name of each is its whole text
    in one line. ``values`` are the caller's variables, None in a shell.

    Raises :class:`UsageError` for what is no Python, is given twice, too long for a name, or has names that nothing
    makes.
    """
    for text in filter(str.strip, (setup, each)):
        parse(text, "the setup")
    named: dict[str, str] = {}
    for text in map(str.strip, texts):
        if len(text) > _MOST_CHARACTERS:
            how = f"at most, not {len(text)}: call a function"
            raise UsageError(f"an expression has {_MOST_CHARACTERS} characters {how}")
        tree = parse(text, f"expression {text!r}")
        if text in named.values():
            raise UsageError("an expression is given twice")
        several = "\n" in text  # and a comment would end the name's one line
        line = "; ".join(map(ast.unparse, tree.body)) if several else " ".join(text.split())
        names = itertools.chain([line], (f"{line} ({number})" for number in itertools.count(2)))
        named[next(name for name in names if name not in named)] = text
    before, known = f"{setup}\n{each}".strip(), [name for name, _ in sizes]
    used, made = names_in("\n".join([before, *named.values()]))[0], names_in(before)[1]
    seen = {name: values[name] for name in used if values and name in values and name not in {*known, *made}}
    for text in named.values():
        _require_known(text, before, known, seen, _IN_SHELL if values is None else _IN_PYTHON)
    return Timing(named, setup, each, sizes, values=seen, **terms)


def parse(text: str, what: str) -> ast.Module:
    """Return the statements of ``what``. Raises :class:`UsageError` with the place of the error, if there are none, and
    for a function that is made and never called: its time would be read as that of a call."""
    text = text.strip()
    try:
        tree = ast.parse(text)
        compile(text, what, "exec", AWAITING)  # refuses more than ast.parse: a return, a break
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and "\n" in text else ""
        place = f"{line} at {error.text.strip()!r}" if isinstance(error, SyntaxError) and error.text else line
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"{what} is not Python: {reason}{place}") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{what} is nested too deeply: make a part of it in the setup") from None
    if not tree.body:
        raise UsageError(f"{what} is empty: write for example 'a @ b'")
    match tree.body[-1]:
        case ast.Expr(ast.Lambda(body=body)):
            called = ast.get_source_segment(text, body)
            raise UsageError(f"{what} makes a function and doesn't call it: write {called!r}")
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Assign(value=ast.Lambda()) if not what.endswith("setup"):
            raise UsageError(f"{what} makes a function and doesn't call it: move it to the setup, and call it")
    return tree


def is_python(text: str) -> bool:
    """Whether the text has statements of Python."""
    try:
        return bool(ast.parse(text.strip()).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def hints(texts: Iterable[str]) -> Iterator[str]:
    """Return sentences about expressions that compute nothing, or print."""
    for text in texts:
        match ast.parse(text.strip()).body[-1]:
            case ast.Expr(ast.Name() | ast.Constant()):
                yield f"{text} computes nothing: its time is that of an empty call"
            case ast.Expr(ast.Call(ast.Name("print"))):
                yield f"the time of {text} includes printing, whose text isn't shown"


def is_name(text: str) -> bool:
    """Whether it ends with a name alone: ``torch.sin``, ``x.numpy().tolist``."""
    last = ast.parse(text.strip()).body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Name | ast.Attribute)


def names_in(text: str) -> tuple[list[str], set[str]]:
    """Return the global names that the code reads, in the order of their first use, and those that it assigns."""
    read: dict[str, None] = {}
    made: set[str] = set()
    codes = [compile(text.strip(), "<expression>", "exec", AWAITING)]
    for code in codes:
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                read.setdefault(step.argval)
            elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                made.add(step.argval)
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [name for name in read if not name.startswith("__")], made


def on_numpy(target: str | Callable[..., Any]) -> bool:
    """Whether an expression uses NumPy by name, and so can run on the CPU alone."""
    return isinstance(target, str) and not {"np", "numpy"}.isdisjoint(names_in(target)[0])


def _is_module(name: str) -> bool:
    """Whether a measuring process, which looks into the working folder too, can import a module of that name."""
    with contextlib.suppress(ImportError, ValueError):
        if importlib.util.find_spec(name):
            return True
    return importlib.machinery.PathFinder.find_spec(name, [os.getcwd()]) is not None


def _require_known(text: str, setup: str, sizes: Sequence[str], values: Iterable[str], written: Sequence[str]) -> None:
    """Raise UsageError for undefined names, with the remedy, as it is ``written``."""
    setting, sizing, between, bring, typing = written
    known = {*sizes, *values, *KNOWN, *dir(builtins)}
    for place, code in ((" in the setup", setup), ("", text)):
        read, made = names_in(code)
        known |= made
        missing = [name for name in read if name not in known]
        for name in missing:
            if code.strip() == name and _is_module(name):
                raise UsageError(f"{name} is a module: write what to call, such as 'np.sort(a)' or 'torch.sort(a)'")
            if how := _remedy(name, code, known, bring, typing):
                raise UsageError(f"unknown {how}")
        if missing and place:
            how = sizing.format(f"{missing[0]}=256,1024,4096")
            raise UsageError(f"unknown name {missing[0]!r}{place}: if it is a size, add {how}")
    if missing:
        size, several = sizes[0] if sizes else "n", len(missing) > 1
        made_so = f"{', '.join(missing)} = {', '.join([f'randn({size}, {size})'] * len(missing))}"
        parts = [setting.format("; ".join(filter(None, (setup.strip(), made_so))))]
        parts += [] if sizes else [sizing.format(f"{size}=256,1024,4096")]
        names = f"name{'s' * several} {', '.join(missing)}"
        raise UsageError(f"unknown {names}: make {'them' if several else 'it'} with {between.join(parts)}")


def _remedy(name: str, code: str, known: Iterable[str], bring: str, typing: str) -> str:
    """Return an undefined name with its remedy: an import, a dtype, or a function of a like name; else nothing."""
    module = "pandas" if name == "pd" else name
    if re.search(rf"\b{name}\.", code) and (module != name or _is_module(name)):
        return f"name {name!r}: {bring.format(module=module, name=name).replace(f' as {module}', '')}"
    if name in DTYPES:
        return f"name {name!r}: write torch.{name}, or ask for {typing.format(name)}"
    if re.search(rf"\b{name}\s*\(", code):
        near, own = difflib.get_close_matches(name, known, 1, 0.7), f"torch.{name} or F.{name}"
        return f"function {name!r}: " + (f"did you mean {near[0]}, {own}?" if near else f"write {own}, or import it")
    return ""


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
    """``n=1,2`` as a name and its values. The name must be free: neither a fixture nor one that expressions use."""
    name, equals, text = part.strip().partition("=")
    taken = name.startswith(("gpubench", "benchmark")) or name in (*KNOWN, "request") or keyword.iskeyword(name)
    if not equals or taken or not name.isidentifier():
        raise UsageError(f"size {part!r}: write n=256,1024,4096")
    values: dict[float, None] = {}
    for word in text.split(","):
        try:
            value = float(word.replace("_", ""))
        except ValueError:
            value = 0.0
        if not 0 < value < 1e15:
            raise UsageError(f"size {part!r}: {word!r} is no number above 0; write n=256,1024,4096")
        values[int(value) if value == int(value) else value] = None
    return name, tuple(values)
