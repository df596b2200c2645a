"""Expressions as benchmarks: code is read, or refused with a remedy, before torch is imported, and becomes a function
of its inputs, which the setup makes, because the fixture counts, checks and copies the arguments of a call."""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import copy
import difflib
import dis
import functools
import importlib.machinery
import importlib.util
import inspect
import itertools
import keyword
import math
import os
import re
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..devices import CPU
from ..devices.implementations import TORCH
from ..devices.lazy import np, psutil, pytree, torch
from ..errors import GpubenchError, TooLarge, UsageError
from ..runfile import quantities
from ..runfile.options import DTYPES
from .copies import CallCopy, copy_call, restored_random_streams
from .data import MEMORY_SHARE, factory_defaults, uncompiled
from .outputs import Output, error_of, outputs, pairs

if TYPE_CHECKING:
    from .clock import Bound
    from .fixture import Gpubench

_MAKERS = ("randn", "rand", "randint", "empty", "module")  # Methods of the fixture, which expressions use by name
_KNOWN = ("torch", "nn", "F", "np", "device", "dtype", *_MAKERS)  # Names of every expression and its setup
_MOST_CHARACTERS, _MOST_SIZES = 1000, 200  # of an expression, whose whole text is its name
_LONGEST_COMPARED_S = 1.0  # Longest seconds of a call, to compare its result with another expression's
_AWAITING = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_IN_SHELL, _IN_PYTHON = (
    ("--setup {!r}", "--size {}", " ", "write 'import {module} as {name}' in --setup", "--dtype {}"),
    ("setup={!r}", "sizes={!r}", ", ", "import {module} as {name}", "dtypes={!r}"),
)
"""How messages write the setup, sizes, their separator, the import of a module, and the request of a dtype."""
_ELSEWHERE = re.compile("not compiled with|no NVIDIA driver|No CUDA GPUs|not linked with|on the same device")
"""How torch says that a tensor is asked for on another device, or lies on one."""
_loop = functools.cache(asyncio.new_event_loop)  # in which setup and calls await: starting one takes long
Size = tuple[str, tuple[float, ...]]  # A name and its values


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
    in one line. ``values`` are the caller's variables, None in a shell. Raises :class:`UsageError` for text that is no
    Python, is given twice, too long for a name, or has names that nothing makes."""
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
    for a function that is made and never called: its time would be read as a call's."""
    text = text.strip()
    try:
        tree = ast.parse(text)
        compile(text, what, "exec", _AWAITING)  # refuses more than ast.parse: a return, a break
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
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return bool(ast.parse(text.strip()).body)
    return False


def hints(texts: Iterable[str]) -> Iterator[str]:
    """Return sentences about expressions that compute nothing, or print."""
    for text in texts:
        match ast.parse(text.strip()).body[-1]:
            case ast.Expr(ast.Name() | ast.Constant()):
                yield f"{text} computes nothing: its time is that of an empty call"
            case ast.Expr(ast.Call(ast.Name("print"))):
                yield f"the time of {text} includes printing, whose text isn't shown"


def names_in(text: str) -> tuple[list[str], set[str]]:
    """Return the global names that the code reads, in the order of their first use, and the names that it assigns."""
    read: dict[str, None] = {}
    made: set[str] = set()
    codes = [compile(text.strip(), "<expression>", "exec", _AWAITING)]
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
    known = {*sizes, *values, *_KNOWN, *dir(builtins)}
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
        meant = f"did you mean {near[0]}, {own}? Else" if near else f"write {own}, or"
        return f"function {name!r}: {meant} make it in the setup"
    return ""


def parse_sizes(texts: Iterable[str]) -> list[Size]:
    """Return the names and values of sizes such as ``n=256,1024``. A name must be free: neither a fixture nor one that
    expressions use. Raises UsageError."""
    sizes: dict[str, tuple[float, ...]] = {}
    for part in texts:
        name, equals, text = part.strip().partition("=")
        taken = name.startswith(("gpubench", "benchmark")) or name in (*_KNOWN, "request") or keyword.iskeyword(name)
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
        if name in sizes:
            raise UsageError(f"size {name} is given twice: write {name}=256,1024,4096")
        sizes[name] = tuple(values)
    if (count := math.prod(map(len, sizes.values()))) > _MOST_SIZES:
        raise UsageError(f"{count} sizes: at most {_MOST_SIZES} are measured at once")
    return [*sizes.items()]


def bound_call(
    timing: Timing, name: str, sizes: Mapping[str, Any], bench: Gpubench
) -> tuple[Bound, Sequence[CallCopy]]:
    """Return a call with its inputs, which are made now, declared to the fixture; and copies of the call and of the
    first expression's, to compare their results."""
    target, fresh = timing.calls[name], None
    compared: list[CallCopy] = []
    if isinstance(target, str):
        namespace, before = _namespace(timing, sizes, bench), partial(_execute, timing.each, "<each>")
        before(namespace)
        function, names, out = function_of(target, namespace)

        def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
            before(namespace)
            return _arguments(namespace, names, out)

        last: Any = parse(target, "the expression").body[-1]
        is_name = isinstance(last, ast.Expr) and isinstance(last.value, ast.Name | ast.Attribute)
        if is_name and callable(function(*arguments()[0])):
            raise UsageError(f"{target} names a function and doesn't call it: write '{target}(…)'")
        compared = _copies(timing, target, namespace) if timing.check and bench.first and bench.home == CPU else []
        args, kwargs, fresh = ((), {}, arguments) if timing.each else (*arguments(), None)
    else:
        made: Any = ()
        if callable(timing.setup):
            with _inputs(bench):
                made = timing.setup(**sizes)
        args = (*timing.args, *(made if isinstance(made, tuple) else (made,)))
        function, args, kwargs = _moved((target, args, dict(timing.kwargs)), bench)
    bench.declare(check=timing.check, setup=fresh)
    return (function, args, kwargs), compared


def _arguments(namespace: Mapping[str, Any], names: Sequence[str], out: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(namespace[name] for name in names), {"out": namespace[out]} if out else {}


def _copies(timing: Timing, source: str, namespace: dict[str, Any]) -> list[CallCopy]:
    """Return copies of the call and of the first expression's with the same inputs, if both can be copied."""
    first, *others = map(str, timing.calls.values())
    memory, copied = CPU.memory(), []
    with contextlib.suppress(Exception):  # a user's object can raise anything
        for text in (source, first) if source in others else ():
            own = namespace
            if on_numpy(text) != on_numpy(source):  # tensors as arrays, or arrays as tensors
                to_array = lambda tensor: tensor.detach().numpy()  # noqa: E731
                of, to = (np.ndarray, torch.as_tensor) if on_numpy(source) else (torch.Tensor, to_array)
                data = {key: value for key, value in own.items() if not key.startswith("_") and _is_data(value)}
                own = own | pytree.tree_map_only(of, to, data)
            function, names, out = function_of(text, own)
            copied.append(copy_call(function, *_arguments(own, names, out), limit_bytes=memory.free // 8))
    return copied


def _namespace(timing: Timing, sizes: Mapping[str, Any], bench: Gpubench) -> dict[str, Any]:
    """Return the names that an expression sees, after its setup."""
    import numpy as np
    import torch
    from torch.nn import functional

    namespace: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": functional, "np": np, "numpy": np}
    namespace |= {"device": bench.device, "dtype": bench.dtype} | {name: getattr(bench, name) for name in _MAKERS}
    with _inputs(bench):
        namespace |= _moved(dict(timing.values), bench) | dict(sizes)
        try:
            _execute(str(timing.setup), "<setup>", namespace)
        except Exception as error:
            error.add_note("in the setup")
            raise
    if bench.implementation != TORCH:
        data = {name: value for name, value in namespace.items() if _is_data(value)}
        namespace |= pytree.tree_map_only(torch.Tensor, bench.array, data)
    return namespace


@contextlib.contextmanager
def advising() -> Iterator[None]:
    """A context that raises :class:`UsageError`, with advice, if torch has no such device, or finds a tensor on another
    one, and if an array has no such method."""
    try:
        yield
    except AttributeError as error:
        if not (isinstance(error.obj, np.ndarray) and hasattr(torch.Tensor, str(error.name))):
            raise
        advice = f"an expression with np gets NumPy arrays, so leave out .{error.name}(), or np"
        raise UsageError(f"{error}: {advice}") from None
    except (AssertionError, RuntimeError) as error:
        if not _ELSEWHERE.search(str(error)) or isinstance(error, GpubenchError):
            raise
        advice = "leave out device=, .cuda() and .to(…): inputs are made on each device, and gpubench env lists them"
        raise UsageError(f"{' '.join(str(error).split())[:150]}: {advice}") from None


def difference_of(calls: Sequence[Callable[[], Any]], other: str) -> str:
    """Make two calls, and return how the first one's result differs in shape or values from the ``other``'s; empty if
    it doesn't, or can't be compared."""
    results: list[list[Output]] = []
    with contextlib.suppress(Exception), uncompiled():  # the result of a call can raise anything
        for call in calls:
            with restored_random_streams():
                torch.manual_seed(0)
                began_s = time.perf_counter()
                result = call()
            if time.perf_counter() - began_s > _LONGEST_COMPARED_S:
                return ""
            results.append(outputs(result))
        if len({len(found) for found in results}) > 1 and all(results):
            count = quantities.counted(len(results[0]), "part")
            return f"the result has {count}, that of {other} has {len(results[1])}"
        return next(filter(None, itertools.starmap(partial(_difference, other), pairs(*results))), "")
    return ""


def _difference(other: str, found: torch.Tensor, expected: torch.Tensor) -> str:
    """Return how the numbers differ beyond the square root of their dtype's precision; empty if they don't."""
    if found.shape != expected.shape:
        return f"the result has the shape {tuple(found.shape)}, that of {other} {tuple(expected.shape)}"
    floats = [each.dtype for each in (found, expected) if each.is_floating_point()]
    error = error_of(found, expected)
    if error <= max((torch.finfo(dtype).eps ** 0.5 for dtype in floats), default=0.0):
        return ""
    return f"the result differs from that of {other}: relative error {error:.2g}"


def function_of(text: str, namespace: dict[str, Any]) -> tuple[Callable[..., Any], list[str], str]:
    """Return the expression as a function of the values that it uses, with their names; modules, functions and classes
    stay global. The function returns the value of the last statement, or the target that it assigns to. The last name
    is of a value passed as ``out=``: the function has a keyword ``out`` for it, which counts as written."""
    body = parse(text, "the expression").body
    names = [name for name in names_in(text)[0] if name in namespace and _is_data(namespace[name])]
    out = target if (target := _written(body)) in names else ""
    names = [name for name in names if name != out]
    awaits = bool(compile(text.strip(), "<expression>", "exec", _AWAITING).co_flags & inspect.CO_COROUTINE)
    head = f"{'async ' * awaits}def expression({', '.join([*names, *(['*', 'out'] if out else [])])}): "
    definition: Any = ast.parse(head + (f"{out} = out" if out else "pass")).body[0]
    definition.body += _returning(body)
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([definition], [])), "<expression>", "exec"), namespace, made)
    function: Any = made["expression"]
    loop: Any = _loop() if awaits else None

    def run_to_its_end(*args: Any, **kwargs: Any) -> Any:
        return loop.run_until_complete(function(*args, **kwargs))

    return run_to_its_end if awaits else function, names, out


def _returning(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements that return the value of the last one, or the target that it assigns to."""
    match body[-1]:
        case ast.Expr(value):
            return [*body[:-1], ast.Return(value)]
        case ast.Assign(targets=[last, *_]) | ast.AugAssign(last) | ast.AnnAssign(last):
            return [*body, *ast.parse(f"return {ast.unparse(last)}").body]
        case ast.With() | ast.AsyncWith() as block:
            block.body = _returning(block.body)
    return body


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Execute statements, which may await, in an asynchronous comprehension too."""
    code = compile(source.strip(), name, "exec", _AWAITING)
    if code.co_flags & inspect.CO_COROUTINE:
        _loop().run_until_complete(eval(code, namespace))
    else:
        exec(code, namespace)


@contextlib.contextmanager
def pausing_loop() -> Iterator[None]:
    """A context in which the thread's running event loop, such as a notebook's, is put aside, so that
    calls can await in another one. The other loop has no thread of its own, because autocast and the modes that count
    operators hold for one thread. asyncio documents these functions for other loops and tasks ("Extending")."""
    running = asyncio._get_running_loop()
    task = asyncio.current_task(running) if running else None
    if running and task:
        asyncio.tasks._leave_task(running, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        if running and task:
            asyncio.tasks._enter_task(running, task)


def _written(body: list[ast.stmt]) -> str:
    """Return the only name that is passed as ``out=`` and used for nothing else; empty if there is none."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    given = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "out"]
    names = Counter(value.id for value in given if isinstance(value, ast.Name))
    uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    name = next(iter(names), "")
    return name if len(names) == 1 and uses[name] == names[name] and (name == "out" or not uses["out"]) else ""


def _is_data(value: Any) -> bool:
    """Whether a value is data rather than a module, function or class; a network is both and counts as data."""
    return isinstance(value, torch.nn.Module) or not (isinstance(value, types.ModuleType | type) or callable(value))


@contextlib.contextmanager
def _memory_limit(bench: Gpubench) -> Iterator[None]:
    """A context that limits the memory of the process, on a CPU under Linux: an allocation beyond the free memory is
    refused before it is filled, when the system would kill the process. Raises :class:`TooLarge`."""
    memory = CPU.memory()
    if bench.device.type != "cpu" or memory is None or sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(psutil.Process().memory_info().data + MEMORY_SHARE * memory.free)
    allowed = [limit for limit in (most, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(allowed), before[1]))
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        asked = re.search(r"allocate (\d+) bytes|allocate ([\d.]+ \w+)", str(error))
        size = quantities.text(int(asked[1]), "B") if asked and asked[1] else asked[2] if asked else "the memory"
        raise TooLarge(f"needs {size} more on cpu, {quantities.text(memory.free, 'B')} are free") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextlib.contextmanager
def _inputs(bench: Gpubench) -> Iterator[None]:
    """A context in which torch's factories make tensors on the benchmark's device, in its dtype, from the run's seed,
    within the free memory."""
    with _memory_limit(bench), torch.random.fork_rng(devices=[]), factory_defaults(bench.device, bench.dtype):
        torch.manual_seed(bench.data.seed)
        yield


def _moved(value: Any, bench: Gpubench) -> Any:
    """Return the value with its tensors and networks on the benchmark's device."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            there = leaf.detach().to(bench.device)
            return leaf if there.device == leaf.device else there.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.nn.Module):
            state = next(iter((*leaf.parameters(), *leaf.buffers())), None)
            return leaf if state is None or state.device == bench.device else copy.deepcopy(leaf).to(bench.device)
        return leaf

    return pytree.tree_map(move, value)
