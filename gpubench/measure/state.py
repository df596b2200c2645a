"""Settings that a benchmark may leave changed in its process: recorded before it, restored after it, and reported."""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import locale
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ..devices.lazy import torch
from ..runfile.flags import Flag
from .precision import float32_state, set_float32_state

AUTOCAST_KINDS = ("cpu", "cuda")
OF_LIBRARIES = ("PYTEST_", "TORCHINDUCTOR_", "TRITON_", "KINETO_", "CUDA_MODULE_LOADING")
"""Prefixes of environment variables that pytest and torch set by themselves."""

MOST_TOOLS = 6
"""The number of tools that ``sys.monitoring`` allows, by its documentation."""
_FUNCTIONS = "functions of "
_OF_TORCH = ("torch", "torch.nn.functional", "Tensor")
_IMPORTED = {"warnings filters", "signal handlers", *(_FUNCTIONS + name for name in _OF_TORCH)}
"""Settings that modules change when they are imported; torch's compiler wraps functions too."""
_MISSING = object()
_UNREADABLE = "unreadable"
"""The value of a setting that can't be read in the process's present state; it differs from whatever the value was
before."""
_USUAL = {"INT", "TERM", "HUP", "QUIT", "CHLD", "PIPE", "ALRM", "VTALRM", "PROF", "USR1", "USR2", "XCPU"}
_HANDLED = [each for each in signal.Signals if each.name.removeprefix("SIG") in _USUAL]
"""Signals that programs usually handle; asking for all signals takes as long as reading all other settings."""
_FOLLOWERS = ("tracer", "profiler")

_COMPILER = "torch._inductor.compile_fx"
_COMPILED = "torch._inductor.runtime.compile_tasks"
"""Modules that the compiler creates, and removes when its cache is cleared."""
_COMPILER_DEPTH = 2000
"""The recursion limit to which torch's compiler raises a lower one for deep models, and where it leaves it."""

_LOCALE = functools.partial(locale.setlocale, locale.LC_ALL)
"""Sets the locale; without an argument, returns its present name."""

_modules: dict[str, ModuleType] = {}
"""The imported modules, as of the latest :class:`State`."""
_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]


class State:
    """The settings of this process before a test's body, except those that its fixtures make and undo."""

    def __init__(self) -> None:
        if len(_modules) != len(sys.modules) or _replaced():  # copying them takes as long as half of the settings
            _modules.clear()
            _modules.update(sys.modules)
        self._settings, self._modules = _settings("torch" in sys.modules), len(_modules)
        self._before = self._read()
        self._changed: dict[str, Any] = {}
        self._lost: list[str] = []  # removed modules

    def compare(self) -> None:
        """Note what has changed, right after the body: a teardown may still restore settings, which is no fault.
        Modules that are missing or replaced are restored here, because code that needs one from now on would import it
        a second time, which torch doesn't survive, or get a test's mock."""
        grown = len(sys.modules) > self._modules
        if lost := _replaced():
            self._lost = [name for name in lost if not name.startswith(_COMPILED)]
            sys.modules.update({name: _modules[name] for name in self._lost})
        after = self._read()
        names = {name for name in self._before | after if self._before.get(name) != after.get(name)}
        names -= {name for name in _FOLLOWERS if self._before[name] is not None}  # a debugger's may change by itself
        if grown:
            names -= _IMPORTED
        before, now = (each["recursion limit"] for each in (self._before, after))
        if before < now == _COMPILER_DEPTH and _COMPILER in sys.modules:
            names.discard("recursion limit")
            sys.setrecursionlimit(before)
        self._changed = {name: after.get(name) for name in names}

    def restore(self) -> tuple[Flag | None, list[str]]:
        """Restore what is still changed; return the flag that names it, and the names of what can't be restored."""
        now = self._read() if self._changed else {}
        left = {name: self._before.get(name) for name in sorted(self._changed) if now.get(name) == self._changed[name]}
        if not left and not self._lost:
            return None, []
        for name, before in left.items():
            with contextlib.suppress(Exception):  # what can't be written is noticed below
                self._write(name, before)
        texts = [f"{name} ({was} → {now[name]})" if isinstance(was, bool | int) else name for name, was in left.items()]
        texts += [f"module {', '.join(self._lost[:3])} (taken away or replaced)"] if self._lost else []
        again = self._read()
        stuck = [name for name, before in left.items() if again.get(name) != before]
        return Flag("altered", f"left changed: {', '.join(texts)}"), stuck

    def _read(self) -> dict[str, Any]:
        """All settings by name; the names of environment variables begin with a dollar sign."""
        known = os.environ.items()
        variables = {f"${name}": value for name, value in known if not name.lstrip("_").startswith(OF_LIBRARIES)}
        with _bare():
            return {name: _value(read) for name, (read, _) in self._settings.items()} | variables

    def _write(self, name: str, value: Any) -> None:
        if not name.startswith("$"):
            with _bare():
                self._settings[name][1](value)
        elif value is None:
            del os.environ[name[1:]]
        else:
            os.environ[name[1:]] = value


def _replaced() -> list[str]:
    """The names of modules that are missing, or have another module in their place."""
    if _modules.items() <= sys.modules.items():
        return []
    return sorted(name for name, module in _modules.items() if sys.modules.get(name, _MISSING) is not module)


def _value(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # a benchmark may have left a mode of torch or a replaced function
        return _UNREADABLE


def _bare() -> contextlib.AbstractContextManager[Any]:
    """A context in which no function mode sees the calls of torch: a benchmark may have left one."""
    torch = sys.modules.get("torch")
    return torch._C.DisableTorchFunction() if torch else contextlib.nullcontext()


@functools.cache
def _settings(with_torch: bool) -> dict[str, _Setting]:
    from pytest_benchmark.fixture import BenchmarkFixture
    from pytest_benchmark.stats import Stats

    settings: dict[str, _Setting] = {
        "working folder": (os.getcwd, os.chdir),
        "warnings filters": (lambda: tuple(warnings.filters), _set_filters),
        "import finders": (_finders, _set_finders),
        "garbage collector": (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
        "gc thresholds": (gc.get_threshold, lambda counts: gc.set_threshold(*counts)),
        "gc callbacks": (lambda: tuple(gc.callbacks), lambda each: gc.callbacks.__setitem__(slice(None), each)),
        "switch interval": (sys.getswitchinterval, sys.setswitchinterval),
        "tracer": (sys.gettrace, sys.settrace),
        "profiler": (sys.getprofile, sys.setprofile),
        "signal handlers": (lambda: {number: signal.getsignal(number) for number in _HANDLED}, _set_handlers),
        "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
        "locale": (_LOCALE, _LOCALE),
        "umask": (_umask, lambda bits: os.umask(int(bits, 8))),
    }
    package = [module for name, module in list(sys.modules.items()) if name.startswith("gpubench.")]
    held = [each for module in package for each in list(vars(module).values())]
    used = {id(each): each for each in held if isinstance(each, ModuleType)}
    others = [module for module in used.values() if module not in package]
    owners: list[ModuleType | type] = [builtins, *others, BenchmarkFixture, Stats]
    settings |= dict(_of_system()) | dict(map(_functions, owners))
    return settings | dict(_of_torch()) if with_torch else settings


def _of_system() -> Iterator[tuple[str, _Setting]]:
    if hasattr(os, "sched_getaffinity"):
        yield "cores", (lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores))
    if sys.platform != "win32":
        import resource

        for name in filter(re.compile("RLIMIT_").match, dir(resource)):
            kind = getattr(resource, name)
            yield name, (functools.partial(resource.getrlimit, kind), functools.partial(resource.setrlimit, kind))
        who = os.PRIO_PROCESS, 0
        yield "priority", (lambda: os.getpriority(*who), lambda priority: os.setpriority(*who, priority))
        mask = signal.pthread_sigmask
        yield "blocked signals", (lambda: mask(signal.SIG_BLOCK, ()), functools.partial(mask, signal.SIG_SETMASK))
        for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
            yield f"pending {name}", _timer(getattr(signal, name))


def _set_handlers(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None:  # None: it was not installed from Python
            signal.signal(number, handler)


def _timer(which: int) -> _Setting:
    """Whether a timer will send a signal; its remaining time changes, and when a stopped one was due is unknown."""
    return lambda: signal.getitimer(which)[0] > 0, lambda pending: pending or signal.setitimer(which, 0)


def _finders() -> tuple[tuple[Any, ...], ...]:
    """What finds modules, without what a module that was imported since has added."""
    lists = (sys.meta_path, sys.path_hooks)
    return tuple(tuple(each for each in found if getattr(each, "__module__", "") in _modules) for found in lists)


def _set_finders(finders: tuple[tuple[Any, ...], ...]) -> None:
    sys.meta_path[:], sys.path_hooks[:] = finders
    sys.path_importer_cache.clear()


def _functions(owner: ModuleType | type) -> tuple[str, _Setting]:
    """The setting of all callables of a module or a class, inherited ones too, some of which a benchmark may have
    replaced; hooks such as ``sys.excepthook``, which torch.distributed replaces too, measure nothing."""
    found = dir(owner) if isinstance(owner, type) else list(vars(owner))
    names = [name for name in found if callable(getattr(owner, name, None)) and not name.endswith("hook")]

    def write(values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            if vars(owner).get(name) is not value:
                delattr(owner, name) if value is None else setattr(owner, name, value)  # None: it is inherited

    return f"{_FUNCTIONS}{owner.__name__}", (lambda: tuple(map(vars(owner).get, names)), write)


def _of_torch() -> Iterator[tuple[str, _Setting]]:
    """Yield the settings of torch, and of NumPy, which torch needs."""
    import numpy
    import threadpoolctl
    import torch

    owners: list[ModuleType | type] = [torch, torch.nn.functional, torch.Tensor, numpy]
    yield from map(_functions, owners)
    for number, pool in enumerate(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers):
        yield f"threads of {pool.internal_api} {number}", (pool.get_num_threads, pool.set_num_threads)
    yield "NumPy's error state", (numpy.geterr, lambda value: numpy.seterr(**value))
    yield "torch threads", (torch.get_num_threads, torch.set_num_threads)
    yield "torch inter-op threads", (torch.get_num_interop_threads, torch.set_num_interop_threads)
    yield "default dtype", (torch.get_default_dtype, torch.set_default_dtype)
    yield "default device", (_default_device, _set_default_device)
    yield "inference mode", (torch.is_inference_mode_enabled, lambda value: None)  # only its context can end it
    yield "grad mode", (torch.is_grad_enabled, torch.set_grad_enabled)
    yield "autocast", (_autocast, _set_autocast)
    yield "float32 precision", (float32_state, set_float32_state)
    yield "deterministic mode", (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode)
    yield "anomaly mode", (torch.is_anomaly_enabled, torch.set_anomaly_enabled)
    yield from _of_contexts(torch)
    yield "mkldnn.enabled", _attribute(torch.backends.mkldnn, "enabled")
    for name in ("enabled", "benchmark", "deterministic"):
        yield f"cudnn.{name}", _attribute(torch.backends.cudnn, name)
    matmul = torch.backends.cuda.matmul
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        yield name, _reduction(matmul, name)
    if hasattr(torch._C, "_set_cublas_allow_fp16_accumulation"):
        yield "allow_fp16_accumulation", _attribute(matmul, "allow_fp16_accumulation")


def _of_contexts(torch: Any) -> Iterator[tuple[str, _Setting]]:
    """Yield torch's contexts that a benchmark may not have left, by private names: torch has no public way to ask."""
    from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

    yield "function modes of torch", _modes(_get_current_function_mode_stack, TorchFunctionMode)
    yield "dispatch modes of torch", _modes(_get_current_dispatch_mode_stack, TorchDispatchMode)
    graph, functorch = torch._C._autograd, getattr(torch._C, "_functorch", None)
    if top := getattr(graph, "_top_saved_tensors_default_hooks", None):
        pop = graph._pop_saved_tensors_default_hooks
        yield "saved tensors' hooks", (lambda: top(False), lambda hooks: top(False) == hooks or pop())
    if level := getattr(functorch, "maybe_current_level", None):
        yield "torch.func's level", (level, lambda before: None)
    yield "forward AD's level", (lambda: torch.autograd.forward_ad._current_level, lambda before: None)


def _modes(stack: Callable[[], list[Any]], kind: Any) -> _Setting:
    """The setting of a stack of modes, compared by ``id``. The default device is a mode too, but a separate setting."""

    def read() -> tuple[int, ...]:
        return tuple(id(mode) for mode in stack() if not _is_device(mode))

    def write(before: tuple[int, ...]) -> None:
        for mode in reversed(stack()):
            if id(mode) in before or _is_device(mode):
                break
            kind.__exit__(mode, None, None, None)  # not the mode's own method, which may do anything

    return read, write


def _reduction(owner: Any, name: str) -> _Setting:
    """The setting of reduced-precision sums, with whether these may be split, which newer torch would reset."""
    split = f"{name}_split_k"

    def read() -> Any:
        try:
            return getattr(owner, name), getattr(owner, split)
        except AttributeError:
            return getattr(owner, name, None)

    return read, functools.partial(setattr, owner, name)


def _attribute(owner: Any, name: str) -> _Setting:
    return functools.partial(getattr, owner, name, None), functools.partial(setattr, owner, name)


def _umask() -> str:
    bits = os.umask(0o077)  # it can only be read by setting it; what another thread creates meanwhile is private
    os.umask(bits)
    return f"{bits:03o}"


def _set_filters(filters: tuple[Any, ...]) -> None:
    warnings.simplefilter("default")  # tells the module that they changed
    warnings.filters[:] = filters  # type: ignore[index]


def _default_device() -> str:
    """Return the default device; ``torch.get_default_device`` makes a tensor, and modes are off here."""
    from torch import overrides

    modes: list[Any] = overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return next((str(mode.device) for mode in modes if _is_device(mode)), "cpu")


def _is_device(mode: Any) -> bool:
    return type(mode).__name__ == "DeviceContext"


def _set_default_device(name: str) -> None:
    torch.set_default_device(None if name == "cpu" else name)  # the CPU, once set, slows every call of torch


def _autocast() -> tuple[Any, ...]:
    """Return how deep autocast is nested, whether casts are cached, and whether each kind is on, with its dtype."""
    torch.autocast_increment_nesting()
    kinds = ((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in AUTOCAST_KINDS)
    return torch.autocast_decrement_nesting(), torch.is_autocast_cache_enabled(), *kinds


def _set_autocast(value: tuple[Any, ...]) -> None:
    depth, keep, *kinds = value
    while _autocast()[0] > depth:
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(keep)
    for kind, (enabled, dtype) in zip(AUTOCAST_KINDS, kinds, strict=True):
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)


# Tracers --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """A context in which nothing traces this thread's Python code: neither ``sys.settrace`` and ``sys.setprofile`` nor
    a tool of ``sys.monitoring``. Coverage makes a call of Python code several times as slow. What can't be called, such
    as ``cProfile``'s object up to Python 3.11, ends.
    """
    followers: list[tuple[Any, Any]] = [(sys.settrace, sys.gettrace()), (sys.setprofile, sys.getprofile())]
    with contextlib.ExitStack() as resumed:
        for install, follower in followers:
            resumed.callback(install, follower if callable(follower) else None)
            install(None)
        _pause_monitors(resumed)
        yield


def _pause_monitors(resumed: contextlib.ExitStack) -> None:
    """Remove the events and callbacks of all tools (Python 3.12 and newer) until they are ``resumed``."""
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in range(MOST_TOOLS) if monitoring else ():
        if monitoring.get_tool(tool) is None:
            continue
        resumed.callback(monitoring.set_events, tool, monitoring.get_events(tool))
        monitoring.set_events(tool, 0)
        for event in vars(monitoring.events).values():
            if isinstance(event, int) and event.bit_count() == 1:
                callback = monitoring.register_callback(tool, event, None)
                resumed.callback(monitoring.register_callback, tool, event, callback)
