"""Expressions as benchmarks: their names, the inputs that their setup makes, and the call that the fixture measures.

``a @ b`` with the setup ``a, b = randn(n, n), randn(n, n)`` becomes a function of ``a`` and ``b``, because the fixture
counts, checks and copies the arguments of a call. torch is imported only when something is measured.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import dis
import functools
import inspect
import keyword
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..devices import CPU
from ..devices.implementations import TORCH
from ..errors import TooLarge, UsageError
from ..runfile.quantities import bytes_text
from ..runfile.schema import Work
from .data import MEMORY_SHARE
from .work import Request, declared

if TYPE_CHECKING:
    import torch

MAKERS = ("randn", "randint", "empty", "module")
"""Methods of the fixture that make inputs; expressions use them by the same names."""
KNOWN = ("torch", "nn", "F", "np", "device", "dtype", *MAKERS)
"""Names that every expression and its setup can use."""
NUMPY = frozenset({"np", "numpy"})
ALIASES = {"pandas": "pd"}
"""Customary names of imported modules."""
MOST_CHARACTERS = 1000
"""Most characters of an expression, whose whole text is its name."""
Size = tuple[str, tuple[float, ...]]
"""A name and its values."""
_AWAITING = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_ON_CPU = "a tensor of this case is on cpu"


def parse(text: str, what: str) -> ast.Module:
    """Return the statements of ``what``. Raises :class:`UsageError` with the place of the error, if there are none, and
    for a function that is made and never called: its time would be read as that of a call."""
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
            told = ast.get_source_segment(text, body)
            raise UsageError(f"{what} makes a function and doesn't call it: write {told!r}")
    return tree


def names_in(text: str) -> tuple[list[str], set[str]]:
    """Return the global names that the code reads, in the order of their first use, and those that it assigns."""
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


def unknown_names(texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the names that no text assigns, in the order of their first use, except Python's own and :data:`KNOWN`."""
    pairs = [names_in(text) for text in texts]
    made = {*known, *KNOWN, *dir(builtins)}.union(*(made for _, made in pairs))
    return list(dict.fromkeys(name for read, _ in pairs for name in read if name not in made))


def on_numpy(text: str) -> bool:
    """Whether an expression uses NumPy by name, and so can run on the CPU alone."""
    return not NUMPY.isdisjoint(names_in(text)[0])


class Fixture(Protocol):
    """The part of :class:`gpubench.measure.fixture.Gpubench` that is used here; it also has the :data:`MAKERS`."""

    implementation: str
    dtype: torch.dtype
    data: Any

    @property
    def device(self) -> torch.device:
        """The torch device on which to make tensors."""
        ...

    def array(self, tensor: torch.Tensor) -> Any:
        """Return the tensor's values as an array of the implementation."""
        ...

    def measure_in_turn(self, name: str, others: Mapping[str, Callable[[Any], Any]], shares: dict[str, Any]) -> None:
        """Time the call's rounds in turn with those of other calls."""
        ...

    def measure(self, request: Request) -> Any:
        """Measure a call."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments in the form that the fixture takes."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def function_of(text: str, namespace: dict[str, Any]) -> Call:
    """Return the expression as a function of the values that it uses; modules, functions and classes stay global.

    ``out=c`` makes ``c`` the keyword argument ``out``, which the fixture counts as written and not as read. The
    function returns the value of the last statement, or the target that it assigns to.
    """
    body = parse(text, "the expression").body
    target = _written(body)
    names = [name for name in names_in(text)[0] if name in namespace and _is_data(namespace[name])]
    kwargs = {"out": namespace[target]} if target in names else {}
    names = [name for name in names if not kwargs or name != target]
    awaits = any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in ast.walk(ast.Module(body, [])))
    head = f"{'async ' * awaits}def expression({', '.join([*names, *(['*', 'out'] if kwargs else [])])}): "
    definition = ast.parse(head + (f"{target} = out" if kwargs else "pass")).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    definition.body += _returning(body)
    code = compile(ast.fix_missing_locations(ast.Module([definition], [])), "<expression>", "exec")
    made: dict[str, Any] = {}
    exec(code, namespace, made)
    function = _run_to_its_end(made["expression"]) if awaits else made["expression"]
    return Call(function, tuple(namespace[name] for name in names), kwargs)


def _run_to_its_end(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a coroutine function in an event loop which is kept: starting one takes longer than
    most calls."""
    loop = asyncio.new_event_loop()

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return loop.run_until_complete(function(*args, **kwargs))

    del run.__wrapped__  # type: ignore[attr-defined]  # this isn't a coroutine function
    return run


def _returning(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements with a ``return`` of the last one's value."""
    match body[-1]:
        case ast.Expr(value):
            return [*body[:-1], ast.Return(value)]
        case ast.Assign(targets=[target, *_]) | ast.AugAssign(target) | ast.AnnAssign(target):
            return [*body, *ast.parse(f"return {ast.unparse(target)}").body]
    return body


def _written(body: list[ast.stmt]) -> str | None:
    """Return the only name that is passed as ``out=`` and used for nothing else; ``None`` if there is none."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    given = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "out"]
    names = Counter(value.id for value in given if isinstance(value, ast.Name))
    uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    name = next(iter(names), "")
    return name if len(names) == 1 and uses[name] == names[name] and (name == "out" or not uses["out"]) else None


def _is_data(value: Any) -> bool:
    """Whether a value is data rather than a module, function or class; a network is both and counts as data."""
    import torch

    if isinstance(value, torch.nn.Module):
        return True
    return not (isinstance(value, types.ModuleType | type) or callable(value))


@contextmanager
def _defaults(device: torch.device | str, dtype: torch.dtype) -> Iterator[None]:
    """A context in which torch's own factories make tensors on this device and in this dtype."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def _maker(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap one of the fixture's makers so that :func:`_defaults` doesn't affect it: it makes the same values on every
    device."""
    import torch

    def made(*args: Any, **kwargs: Any) -> Any:
        with _defaults("cpu", torch.float32):
            return make(*args, **kwargs)

    return made


@dataclass(frozen=True, slots=True)
class Snippet:
    """An expression with its setup, as a benchmark. ``each`` runs before each call, untimed.

    ``names`` are further values that it can use.
    """

    text: str
    setup: str = ""
    each: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)
    check: bool = True

    def measure(self, bench: Fixture, sizes: Mapping[str, Any]) -> None:
        """Make the inputs and measure the call."""
        with _memory_limit(bench):
            namespace = self._namespace(bench, sizes)
        if bench.implementation != TORCH:
            namespace |= {name: _arrays(bench, value) for name, value in namespace.items() if _is_data(value)}
        if not self.each:
            measure_call(bench, function_of(self.text, namespace), self.check)
            return
        before = compile(self.each.strip(), "<each>", "exec")
        exec(before, namespace)
        call = function_of(self.text, namespace)
        names = [name for name in inspect.signature(call.function).parameters if name not in call.kwargs]

        def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
            exec(before, namespace)
            return tuple(namespace[name] for name in names), dict(call.kwargs)

        measure_call(bench, replace(call, args=(), kwargs={}), self.check, fresh)

    def _namespace(self, bench: Fixture, sizes: Mapping[str, Any]) -> dict[str, Any]:
        import numpy as np
        import torch
        from torch.nn import functional

        namespace: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": functional, "np": np, "numpy": np}
        namespace |= {"device": bench.device, "dtype": bench.dtype}
        namespace |= {name: _maker(getattr(bench, name)) for name in MAKERS}
        namespace |= {name: moved(value, bench) for name, value in self.names.items()} | dict(sizes)
        with fresh_inputs(bench):
            exec(compile(self.setup.strip(), "<setup>", "exec"), namespace)
        return namespace


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A function of this process with its arguments, as a benchmark; ``setup`` makes arguments from the sizes."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[..., Any] | None = None
    check: bool = True

    def measure(self, bench: Fixture, sizes: Mapping[str, Any]) -> None:
        """Bring the arguments to the device and measure the call."""
        args = self.args
        if self.setup is not None:
            with _memory_limit(bench), fresh_inputs(bench):
                made = self.setup(**sizes)
            args = (*args, *(made if isinstance(made, tuple) else (made,)))
        function, args, kwargs = moved((self.function, args, dict(self.kwargs)), bench)
        measure_call(bench, Call(function, args, kwargs), self.check)


LIVE: dict[str, Snippet | LiveCall] = {}
"""What :func:`gpubench.time` measures in this process, by the name under which its benchmark file finds it."""


def define(
    module: dict[str, Any], benchmarks: Mapping[str, Snippet | LiveCall], sizes: Sequence[Size], *,
    in_numpy: Collection[str] = (), **terms: Any,
) -> None:  # fmt: skip
    """Add a test of each benchmark to a module.

    The benchmarks of ``in_numpy`` are measured in NumPy. ``terms`` are arguments of the mark ``gpubench``. Those on
    one device with the same sizes, dtype and variant are timed in turn.
    """
    import pytest

    names = [name for name, _ in sizes]
    libraries = {name: "numpy" if name in in_numpy else TORCH for name in benchmarks}
    contenders = {f"{name} in {libraries[name]}": snippet for name, snippet in benchmarks.items()}
    shares: dict[Any, dict[str, Any]] = {}
    kind = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in ("gpubench", *names)])

    def test_of(name: str) -> Callable[..., None]:
        def test(**given: Any) -> None:
            bench = given.pop("gpubench")
            own = f"{name} in {bench.implementation}"
            others = {each: partial(_measured, contenders[each], given) for each in contenders if each != own}
            if others:
                case = bench.case
                key = case.device, case.dtype, case.variant, case.cache, *given.values()
                bench.measure_in_turn(own, others, shares.setdefault(key, {}))
            contenders[own].measure(bench, given)

        test.__signature__ = signature  # type: ignore[attr-defined]
        marked: Callable[..., None] = pytest.mark.gpubench(implementations=[libraries[name]])(test)
        return marked

    module["pytestmark"] = [pytest.mark.gpubench(**terms | ({"size": names[0]} if names else {}))]
    for name, values in reversed(sizes):  # the last mark varies slowest
        module["pytestmark"].append(pytest.mark.parametrize(name, list(values)))
    for name in benchmarks:
        module[f"test_{name}"] = test_of(name)


def _measured(snippet: Snippet | LiveCall, sizes: Mapping[str, Any], bench: Fixture) -> None:
    """Measure a benchmark without its check, which its own test does."""
    replace(snippet, check=False).measure(bench, sizes)


@contextmanager
def _memory_limit(bench: Fixture) -> Iterator[None]:
    """A context that limits the memory of the process, on a CPU under Linux: an allocation beyond the free memory is
    refused before it is filled, when the system would kill the process. Raises :class:`TooLarge`."""
    memory = CPU.memory()
    if bench.device.type != "cpu" or memory is None or sys.platform != "linux":
        yield
        return
    import resource

    import psutil

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
        size = bytes_text(int(asked[1])) if asked and asked[1] else asked[2] if asked else "the memory"
        raise TooLarge(f"needs {size} more on cpu, {bytes_text(memory.free)} are free") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def fresh_inputs(bench: Fixture) -> Iterator[None]:
    """A context in which torch's factories make tensors on the benchmark's device, in its dtype, from the run's
    seed."""
    import torch

    with torch.random.fork_rng(devices=[]), _defaults(bench.device, bench.dtype):
        torch.manual_seed(bench.data.seed)
        yield


def measure_call(bench: Fixture, call: Call, check: bool = True, setup: Callable[[], Any] | None = None) -> None:
    """Measure a call with the fixture. Raises :class:`UsageError` if a tensor is on another device."""
    try:
        bench.measure(Request(call.function, call.args, call.kwargs, declared(Work()), check, setup, ()))
    except AssertionError as error:
        if "not compiled with" not in str(error):
            raise
        advice = "leave out .cuda() and .to(device): inputs are made on each device, and gpubench env lists them"
        raise UsageError(f"{error}: {advice}") from None
    except UsageError as error:
        if not str(error).startswith(_ON_CPU):
            raise
        advice = "make all tensors in the setup, or with device=device"
        raise UsageError(f"a tensor is made on the CPU, not on {bench.device}: {advice}") from None


def moved(value: Any, bench: Fixture) -> Any:
    """Return the value with its tensors and networks on the benchmark's device, copied unless they are there
    already."""
    import copy

    import torch
    from torch.utils import _pytree

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            there = leaf.detach().to(bench.device)
            return leaf if there.device == leaf.device else there.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.nn.Module):
            state = next(iter((*leaf.parameters(), *leaf.buffers())), None)
            return leaf if state is None or state.device == bench.device else copy.deepcopy(leaf).to(bench.device)
        return leaf

    return _pytree.tree_map(move, value)


def _arrays(bench: Fixture, value: Any) -> Any:
    """Return the value with arrays of the implementation in place of tensors."""
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(lambda leaf: bench.array(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def is_name(text: str) -> bool:
    """Whether a text can name a size: an identifier that is neither a fixture nor a name that expressions use."""
    free = not text.startswith(("gpubench", "benchmark")) and text not in (*KNOWN, "request")
    return free and text.isidentifier() and not keyword.iskeyword(text)
