"""Expressions as benchmarks: ``a @ b`` becomes a function of ``a`` and ``b``, which the setup makes, because the
fixture counts, checks and copies the arguments of a call. torch is imported only when something is measured."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import copy
import functools
import inspect
import math
import re
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..devices import CPU
from ..devices.implementations import TORCH
from ..devices.lazy import np, psutil, pytree, torch
from ..errors import GpubenchError, TooLarge, UsageError
from ..runfile import quantities
from ..runfile.quantities import counted
from .copies import CallCopy, copy_call, restored_random_streams
from .data import MEMORY_SHARE, as_tensor, factory_defaults, uncompiled
from .rounds import Bound
from .source import AWAITING, MAKERS, Timing, is_name, names_in, on_numpy, parse

if TYPE_CHECKING:
    from .fixture import Gpubench

_LONGEST_COMPARED_S, _MOST_COMPARED = 1.0, 100
"""Longest seconds of a call whose result is compared with another expression's, and most tensors and numbers of it."""
_ELSEWHERE = re.compile("not compiled with|no NVIDIA driver|No CUDA GPUs|not linked with|on the same device")
"""How torch says that a tensor is asked for on another device, or lies on one."""


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

        if is_name(target) and callable(function(*arguments()[0])):
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


def _copies(timing: Timing, source: str, namespace: dict[str, Any]) -> list[CallCopy]:
    """Return copies of the call and of the first expression's with the same inputs, if both can be copied."""
    first, *others = map(str, timing.calls.values())
    memory, copied = CPU.memory(), []
    with contextlib.suppress(Exception):  # a user's object can raise anything
        for text in (source, first) if source in others else ():
            own = namespace
            if on_numpy(text) != on_numpy(source):  # tensors as arrays, or arrays as tensors
                of, to = (torch.Tensor, _array_of) if on_numpy(text) else (np.ndarray, torch.as_tensor)
                data = {key: value for key, value in own.items() if not key.startswith("_") and _is_data(value)}
                own = own | pytree.tree_map_only(of, to, data)
            function, names, out = function_of(text, own)
            copied.append(copy_call(function, *_arguments(own, names, out), limit_bytes=memory.free // 8))
    return copied


def _array_of(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy()


def _namespace(timing: Timing, sizes: Mapping[str, Any], bench: Gpubench) -> dict[str, Any]:
    """Return the names that an expression sees, after its setup."""
    import numpy as np
    import torch
    from torch.nn import functional

    namespace: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": functional, "np": np, "numpy": np}
    namespace |= {"device": bench.device, "dtype": bench.dtype} | {name: getattr(bench, name) for name in MAKERS}
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
    """A context that raises :class:`UsageError`, with advice, where torch has no such device, or finds a tensor on
    another one, and where an array has no such method."""
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


def _arguments(namespace: Mapping[str, Any], names: Sequence[str], out: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(namespace[name] for name in names), {"out": namespace[out]} if out else {}


def difference_of(calls: Sequence[Callable[[], Any]], other: str) -> str:
    """Make two calls, and return how the first one's result differs in shape or values from that of the ``other``;
    empty if it doesn't, or can't be compared."""
    results: list[list[torch.Tensor]] = []
    with contextlib.suppress(Exception), uncompiled():  # the result of a call can raise anything
        for call in calls:
            with restored_random_streams():
                torch.manual_seed(0)
                began_s = time.perf_counter()
                leaves = pytree.tree_leaves(call())
            if time.perf_counter() - began_s > _LONGEST_COMPARED_S or len(leaves) > _MOST_COMPARED:
                return ""
            results.append([as_tensor(leaf).detach().to_dense() for leaf in leaves])
        if len({len(leaves) for leaves in results}) > 1:
            return f"the result has {counted(len(results[0]), 'part')}, that of {other} has {len(results[1])}"
        return next(filter(None, map(partial(_difference, other), *results)), "") if results else ""
    return ""


def _difference(other: str, found: torch.Tensor, expected: torch.Tensor) -> str:
    """Return how the tensors differ beyond the square root of their dtype's precision; empty if they don't."""
    if found.shape != expected.shape:
        return f"the result has the shape {tuple(found.shape)}, that of {other} {tuple(expected.shape)}"
    dtypes = [each.dtype for each in (found, expected) if each.is_floating_point() or each.is_complex()]
    share = max((torch.finfo(dtype).eps ** 0.5 for dtype in dtypes), default=0.0)
    a, b = (each.to(torch.complex128 if each.is_complex() else torch.float64) for each in (found, expected))
    largest = float(b.abs().nan_to_num(0.0, 0.0).max()) if b.numel() else 0.0
    if torch.isclose(a, b, rtol=share, atol=share * largest, equal_nan=True).all():
        return ""
    off = float((a - b).abs().nan_to_num(math.inf).max())
    return f"the result differs from that of {other} by up to {off:.2g}, of values up to {largest:.2g}"


def function_of(text: str, namespace: dict[str, Any]) -> tuple[Callable[..., Any], list[str], str]:
    """Return the expression as a function of the values that it uses, with their names; modules, functions and classes
    stay global. The function returns the value of the last statement, or the target that it assigns to.

    The last name is that of a value which is passed as ``out=``: the function has a keyword ``out`` for it, which the
    fixture counts as written and not as read.
    """
    body = parse(text, "the expression").body
    names = [name for name in names_in(text)[0] if name in namespace and _is_data(namespace[name])]
    out = target if (target := _written(body)) in names else ""
    names = [name for name in names if name != out]
    match body[-1]:
        case ast.Expr(value):
            body = [*body[:-1], ast.Return(value)]
        case ast.Assign(targets=[last, *_]) | ast.AugAssign(last) | ast.AnnAssign(last):
            body = [*body, *ast.parse(f"return {ast.unparse(last)}").body]
    awaits = bool(compile(text.strip(), "<expression>", "exec", AWAITING).co_flags & inspect.CO_COROUTINE)
    head = f"{'async ' * awaits}def expression({', '.join([*names, *(['*', 'out'] if out else [])])}): "
    definition: Any = ast.parse(head + (f"{out} = out" if out else "pass")).body[0]
    definition.body += body
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([definition], [])), "<expression>", "exec"), namespace, made)
    return _run_to_its_end(made["expression"]) if awaits else made["expression"], names, out


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the process's own event loop, in which setup and calls await: starting one takes long."""
    return asyncio.new_event_loop()


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Execute statements, which may await, in an asynchronous comprehension too."""
    code = compile(source.strip(), name, "exec", AWAITING)
    if code.co_flags & inspect.CO_COROUTINE:
        _loop().run_until_complete(eval(code, namespace))
    else:
        exec(code, namespace)


def _run_to_its_end(function: Callable[..., Any]) -> Callable[..., Any]:
    loop = _loop()

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return loop.run_until_complete(function(*args, **kwargs))

    del run.__wrapped__  # type: ignore[attr-defined]  # this isn't a coroutine function
    return run


@contextlib.contextmanager
def pausing_loop() -> Iterator[None]:
    """A context in which the thread's running event loop, such as that of a notebook's cells, is put aside, so that
    calls can await in another one.

    It isn't another thread's, because autocast and the modes that count operators hold for one thread. asyncio
    documents these functions for other loops and tasks ("Extending").
    """
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
