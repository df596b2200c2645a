"""Expressions as benchmarks: their names, the inputs that their setup makes, and the call that the fixture measures.

``a @ b`` with the setup ``a, b = randn(n, n), randn(n, n)`` becomes a function of ``a`` and ``b``: what the fixture
counts, checks and copies are its arguments. torch is imported when something is measured.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import keyword
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..devices.implementations import TORCH
from ..errors import Unrepeatable, UsageError, WrongAnswer

if TYPE_CHECKING:
    import torch

MAKERS = ("randn", "randint", "empty", "module")
"""What the fixture makes inputs with, by the names that it has there."""
KNOWN = ("torch", "nn", "F", "np", "device", "dtype", *MAKERS)
"""Names that every expression and its setup see."""
NUMPY = frozenset({"np", "numpy"})
_ON_CPU = "a tensor of this case is on cpu"


def parse(text: str, what: str) -> ast.Module:
    """The statements of ``what``. Raises :class:`UsageError` with the place of the error, and where there are none."""
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and "\n" in text.strip() else ""
        place = f"{line} at {error.text.strip()!r}" if isinstance(error, SyntaxError) and error.text else line
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"{what} is not Python: {reason}{place}") from None
    if not tree.body:
        raise UsageError(f"{what} is empty: write for example 'a @ b'")
    return tree


def used_names(tree: ast.AST) -> list[str]:
    """Names that the code reads, in the order of their first use."""
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.setdefault(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.setdefault(node.target.id)
    return list(names)


def made_names(tree: ast.AST) -> set[str]:
    """Names that the code makes: by assigning, importing, defining, or as a function's arguments."""
    names: set[str] = set()
    updated = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in updated:
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def unknown_names(texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names that no text makes, in the order of their first use; Python's own and :data:`KNOWN` are known too."""
    trees = [ast.parse(text.strip()) for text in texts]
    made = {*known, *KNOWN, *dir(builtins)}.union(*map(made_names, trees))
    return list(dict.fromkeys(name for tree in trees for name in used_names(tree) if name not in made))


def called_names(text: str) -> set[str]:
    """Names that the code calls as functions."""
    calls = (node.func for node in ast.walk(ast.parse(text.strip())) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def on_numpy(text: str) -> bool:
    """Whether an expression names NumPy, and so can run on the CPU alone."""
    return bool(NUMPY & set(used_names(parse(text, "the expression"))))


def brought(module: str) -> dict[str, Any]:
    """The module by its name, and its public names. Raises :class:`UsageError` where it can't be imported."""
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise UsageError(f"can't import {module}: {type(error).__name__}: {error}") from error
    public = getattr(imported, "__all__", [name for name in vars(imported) if not name.startswith("_")])
    root = module.partition(".")[0]
    return {name: getattr(imported, name) for name in public} | {root: importlib.import_module(root)}


class Fixture(Protocol):
    """What is asked of :class:`gpubench.measure.fixture.Gpubench`, with its :data:`MAKERS`."""

    implementation: str
    dtype: torch.dtype
    data: Any

    @property
    def device(self) -> torch.device:
        """Where to make tensors."""
        ...

    def array(self, tensor: torch.Tensor) -> Any:
        """The same values for the implementation."""
        ...

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Measure a call."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments, as the fixture takes them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def function_of(text: str, namespace: dict[str, Any]) -> Call:
    """The expression as a function of the values that it uses; modules, functions and classes stay global.

    ``out=c`` makes ``c`` the keyword argument ``out``, which the fixture counts as written and not as read. The
    function returns the last statement's value, or what that assigns to.
    """
    tree = parse(text, "the expression")
    names = [name for name in used_names(tree) if name in namespace and _is_data(namespace[name])]
    kwargs = {}
    if (target := _written(tree)) in names:
        names.remove(target)
        kwargs = {"out": namespace[target]}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == target:
                node.id = "out"
    parameters = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], defaults=[],
        kwonlyargs=[ast.arg("out")] * bool(kwargs), kw_defaults=[None] * bool(kwargs),
    )  # fmt: skip
    definition = ast.parse("def expression(): pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.args, definition.body = parameters, [*tree.body, *_result(tree.body[-1])]
    if isinstance(tree.body[-1], ast.Expr):
        del definition.body[-2]
    code = compile(ast.fix_missing_locations(ast.Module([definition], [])), "<expression>", "exec")
    made: dict[str, Any] = {}
    exec(code, namespace, made)
    return Call(made["expression"], tuple(namespace[name] for name in names), kwargs)


def _result(last: ast.stmt) -> list[ast.stmt]:
    """What returns the value of the last statement."""
    if isinstance(last, ast.Expr):
        return [ast.Return(last.value)]
    targets = last.targets if isinstance(last, ast.Assign) else [getattr(last, "target", None)]
    values: list[ast.expr] = [
        ast.Name(node.id, ast.Load())
        for target in targets
        if isinstance(target, ast.AST)
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    ]
    return [ast.Return(values[0] if len(values) == 1 else ast.Tuple(values, ast.Load()))] if values else []


def _written(tree: ast.AST) -> str | None:
    """The only name that is given as ``out=`` and used for nothing else."""
    targets = [
        each.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for each in node.keywords
        if each.arg == "out"
    ]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    uses = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    name = next(iter(names)) if len(names) == 1 else None
    free = name == "out" or "out" not in uses
    return name if name and free and uses.count(name) == len(targets) else None


def _is_data(value: Any) -> bool:
    """Whether it is a value to work on, and no module, function or class; a network is both and counts as data."""
    import torch

    if isinstance(value, torch.nn.Module):
        return True
    return not (isinstance(value, types.ModuleType | type) or callable(value))


@contextmanager
def _defaults(device: torch.device | str, dtype: torch.dtype) -> Iterator[None]:
    """Within: where and in which dtype torch's own factories make tensors."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def _maker(make: Callable[..., Any]) -> Callable[..., Any]:
    """One of the fixture's makers as it is without :func:`_defaults`: the same values on every device."""
    import torch

    def made(*args: Any, **kwargs: Any) -> Any:
        with _defaults("cpu", torch.float32):
            return make(*args, **kwargs)

    return made


@dataclass(frozen=True, slots=True)
class Snippet:
    """An expression with its setup, as a benchmark. ``names`` are further values that it sees, ``imports`` modules.

    A setup that is a function gets the sizes by name and returns the names that it makes.
    """

    text: str
    setup: str | Callable[..., Mapping[str, Any]] = ""
    imports: Sequence[str] = ()
    names: Mapping[str, Any] = field(default_factory=dict)
    check: bool = True

    def measure(self, bench: Fixture, sizes: Mapping[str, Any]) -> None:
        """Make the inputs and measure the call."""
        namespace = self._namespace(bench, sizes)
        if missing := unknown_names([self.text], namespace):  # known only now, where modules bring names
            made = f"{', '.join(missing)} = {', '.join(['randn(n, n)'] * len(missing))}"
            how = f"make them in the setup, for example {made!r} with the size n=256,1024,4096"
            raise UsageError(f"unknown names {', '.join(missing)}: {how}")
        if bench.implementation != TORCH:
            namespace |= {name: _arrays(bench, value) for name, value in namespace.items() if _is_data(value)}
        measure_call(bench, function_of(self.text, namespace), self.check)

    def _namespace(self, bench: Fixture, sizes: Mapping[str, Any]) -> dict[str, Any]:
        import numpy as np
        import torch
        from torch.nn import functional

        namespace: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": functional, "np": np, "numpy": np}
        namespace |= {"device": bench.device, "dtype": bench.dtype}
        namespace |= {name: _maker(getattr(bench, name)) for name in MAKERS}
        for module in self.imports:
            namespace |= brought(module)
        namespace |= {name: moved(value, bench) for name, value in self.names.items()} | dict(sizes)
        with fresh_inputs(bench):
            if isinstance(self.setup, str):
                exec(compile(self.setup.strip(), "<setup>", "exec"), namespace)
            else:
                namespace |= self.setup(**sizes)
        return namespace


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A function of this process with its arguments, as a benchmark; ``setup`` makes the arguments from the sizes."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[..., Any] | None = None
    check: bool = True

    def measure(self, bench: Fixture, sizes: Mapping[str, Any]) -> None:
        """Bring the arguments to the device and measure the call."""
        args = self.args
        if self.setup is not None:
            with fresh_inputs(bench):
                made = self.setup(**sizes)
            args = (*args, *(made if isinstance(made, tuple) else (made,)))
        function, args, kwargs = moved((self.function, args, dict(self.kwargs)), bench)
        measure_call(bench, Call(function, args, kwargs), self.check)


LIVE: dict[str, Snippet | LiveCall] = {}
"""What :func:`gpubench.time` measures in this process, by a name that its benchmark file knows it by."""


@contextmanager
def fresh_inputs(bench: Fixture) -> Iterator[None]:
    """Within: torch's factories make tensors on the benchmark's device, in its dtype, from the seed of the run."""
    import torch

    with torch.random.fork_rng(devices=[]), _defaults(bench.device, bench.dtype):
        torch.manual_seed(bench.data.seed)
        yield


def measure_call(bench: Fixture, call: Call, check: bool = True) -> None:
    """Measure it with the fixture. A call that can't be repeated in float64 is recorded as unchecked, with why."""
    try:
        bench(call.function, *call.args, check=check, **call.kwargs)
    except Unrepeatable as error:
        bench(call.function, *call.args, check=str(error).partition(": pass ")[0], **call.kwargs)
    except WrongAnswer as error:
        raise WrongAnswer(f"{error}; if the result is random, add --no-check (in Python: check=False)") from None
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
    """The value with its tensors and networks on the benchmark's device; copies, unless they are there already."""
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


def dtype_of(values: Any) -> str | None:
    """The name of the floating-point dtype that all tensors and networks among these values have, if it is one."""
    if "torch" not in sys.modules:  # so there is no tensor
        return None
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(values)
    held = [tensor for leaf in leaves if isinstance(leaf, torch.nn.Module) for tensor in leaf.parameters()]
    tensors = [leaf for leaf in [*leaves, *held] if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    names = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}
    return names.pop() if len(names) == 1 else None


def _arrays(bench: Fixture, value: Any) -> Any:
    """The value with arrays of the implementation in place of tensors."""
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(lambda leaf: bench.array(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def is_name(text: str) -> bool:
    """Whether it can be the name of a size."""
    return text.isidentifier() and not keyword.iskeyword(text) and text not in (*KNOWN, "gpubench", "request")
