"""Settings of a process that change times: each is recorded before a benchmark, and restored and reported if the
benchmark leaves it changed."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from ..devices.lazy import threadpoolctl, torch
from ..runfile.flags import Flag
from .precision import float32_state, set_float32_state

AUTOCAST_KINDS = ("cpu", "cuda")
OF_LIBRARIES = ("PYTEST_", "TORCHINDUCTOR_", "TRITON_", "KINETO_", "CUDA_MODULE_LOADING")
"""Prefixes of environment variables that pytest and torch set by themselves."""
MOST_TOOLS = 6  # that sys.monitoring allows, by its documentation
_UNREADABLE = "unreadable"
"""The value of a setting that can't be read in the process's present state; it differs from all earlier values."""
_COMPILED = "torch._inductor.runtime.compile_tasks"
"""Modules that torch's compiler creates, and removes when its cache is cleared."""
_SEPARATE = re.compile("tf32|float32|fp32|deterministic_algorithms|trac|thread_name|function|mode$")
"""Switches of torch's C++ code that are part of another setting, or describe the moment."""
_WITH_CLASSES = frozenset({"gpubench", "json", "pathlib", "psutil"})
_MODULES = frozenset(
    {"builtins", "contextlib", "functools", "io", "math", "msgspec", "msgspec.json", "os", "pathlib", "psutil", "re"}
    | {"scipy.special", "statistics", "subprocess", "threadpoolctl", "time", "torch.utils._pytree"}
    | {"numpy", "numpy.fft", "numpy.linalg", "torch", "torch.fft", "torch.linalg", "torch.nn.functional"}
)
"""Modules, beside the whole of gpubench and json, with functions that gpubench or other tests call: one that a test has
replaced would fail all later tests, or be timed. Of the packages with classes, their methods count too."""
_OF_THE_COMPILER = "manual_seed", "__compiled_fn", "__resume_at"
"""Begins of names that torch's compiler wraps once it is loaded, or puts into modules and takes away again."""
_IMMUTABLE = 1 << 8  # Python's flag of a class in C with attributes that can't be set

_modules: dict[str, ModuleType] = {}
_namespaces: dict[str, tuple[Any, Any]] = {}
"""The imported modules, and the modules and classes with such functions and their attributes, as of the latest
:class:`State`."""
_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]  # The functions that read and write a setting


def _differ(before: Any, now: Any) -> bool:
    """Whether two mappings differ. Python compares the values by identity first, without a call."""
    try:
        return bool(before != now)
    except Exception:  # an array, replaced by another one
        return True


class State:
    """The settings of this process before a test's body, except changes by fixtures, which undo them."""

    def __init__(self) -> None:
        self._settings = _settings("torch" in sys.modules)  # its imports are over before the modules are noted
        if len(_modules) != len(sys.modules) or _lost_modules():  # copying them takes as long as half of the settings
            _modules.clear()
            _modules.update(sys.modules)
            _namespaces.clear()
            _namespaces.update(_find_namespaces())
        self._before, self._changed, self._lost = self._read(), dict[str, Any](), list[str]()
        self._functions = [(place, *found, found[1].copy()) for place, found in _namespaces.items()]
        self._replaced: list[tuple[str, Any, str, Any, Any, Any]] = []

    def compare(self, differ: Any = _differ, is_function: Any = callable) -> None:
        """Note the changes right after the body: a teardown may still restore settings, which is no fault. Lost modules
        are restored here: importing one a second time is fatal for torch, and others would get a test's mock. The
        defaults are the real functions, because a test may have replaced any, in this module too."""
        self._replaced = [
            (place, owner, name, attributes, function, attributes.get(name))
            for place, owner, attributes, before in self._functions
            if differ(before, attributes)
            for name, function in before.items()
            if attributes.get(name) is not function and is_function(function) and not name.startswith(_OF_THE_COMPILER)
        ]
        if lost := _lost_modules():
            self._lost = [name for name in lost if not name.startswith(_COMPILED)]
            sys.modules.update({name: _modules[name] for name in self._lost})
        after, before = self._read(), self._before
        self._changed = {name: after.get(name) for name in before | after if before.get(name) != after.get(name)}

    def restore(self) -> tuple[Flag | None, list[str]]:
        """Restore the settings that are still changed; return the flag that names them, and the names of the settings
        that can't be restored."""
        replaced = self._restore_functions()
        now = self._read() if self._changed else {}
        left = {name: self._before.get(name) for name in sorted(self._changed) if now.get(name) == self._changed[name]}
        if not left and not self._lost and not replaced:
            return None, []
        for name, before in left.items():
            with contextlib.suppress(Exception):  # a setting that can't be written is noticed below
                self._write(name, before)
        texts = [f"{name} ({was} → {now[name]})" if isinstance(was, bool | int) else name for name, was in left.items()]
        texts += [f"module {', '.join(self._lost[:3])} (taken away or replaced)"] if self._lost else []
        texts += [f"functions {', '.join(replaced[:3])}"] if replaced else []
        again = self._read()
        stuck = [name for name, before in left.items() if again.get(name) != before]
        return Flag("altered", f"left changed: {', '.join(texts)}"), stuck

    def _restore_functions(self, set_attribute: Any = type.__setattr__) -> list[str]:
        """Restore the functions that are still replaced, without a call of any of them; return their names."""
        left = []
        for place, owner, name, attributes, before, after in self._replaced:
            if attributes.get(name) is after:
                left += [f"{place}.{name}"]
                if owner is None:
                    attributes[name] = before
                else:
                    set_attribute(owner, name, before)
        return left

    def _read(self) -> dict[str, Any]:
        """Return all settings by name; the names of environment variables begin with a dollar sign."""
        known = os.environ.items()
        variables = {f"${name}": value for name, value in known if not name.lstrip("_").startswith(OF_LIBRARIES)}
        with _without_modes():
            return {name: _value(read) for name, (read, _) in self._settings.items()} | variables

    def _write(self, name: str, value: Any) -> None:
        if not name.startswith("$"):
            with _without_modes():
                self._settings[name][1](value)
        elif value is None:
            del os.environ[name[1:]]
        else:
            os.environ[name[1:]] = value


def _find_namespaces() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield modules and classes with functions that gpubench calls, by name, with the class and the attributes."""
    for place, module in list(sys.modules.items()):
        package = place.partition(".")[0]
        if not (place in _MODULES or package in ("gpubench", "json")) or not isinstance(module, ModuleType):
            continue
        yield place, (None, vars(module))
        for value in list(vars(module).values()) if package in _WITH_CLASSES else ():
            own = isinstance(value, type) and value.__module__.partition(".")[0] == package
            if own and not value.__flags__ & _IMMUTABLE:
                yield f"{value.__module__}.{value.__qualname__}", (value, vars(value))


def _lost_modules() -> list[str]:
    if _modules.items() <= sys.modules.items():
        return []
    return sorted(name for name, module in _modules.items() if sys.modules.get(name) is not module)


def _value(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # a benchmark may have left a mode of torch
        return _UNREADABLE


def _without_modes() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which no function mode sees the calls of torch: a benchmark may have left one."""
    return torch._C.DisableTorchFunction() if "torch" in sys.modules else contextlib.nullcontext()


@functools.cache
def _settings(with_torch: bool) -> dict[str, _Setting]:
    settings: dict[str, _Setting] = {
        "working folder": (os.getcwd, os.chdir),
        "garbage collector": (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
        "gc thresholds": (gc.get_threshold, lambda counts: gc.set_threshold(*counts)),
        "tracemalloc": (tracemalloc.is_tracing, lambda tracing: tracemalloc.start() if tracing else tracemalloc.stop()),
    }
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):  # its signal would end the process in a later test
        if (timer := getattr(signal, name, None)) is not None:
            settings[f"signal.setitimer {name}"] = _timer(timer)
    settings["switch interval of threads"] = (sys.getswitchinterval, sys.setswitchinterval)
    if hasattr(os, "setpriority"):
        own = os.PRIO_PROCESS, 0
        settings["priority"] = partial(os.getpriority, *own), partial(os.setpriority, *own)
    if hasattr(os, "sched_getaffinity"):
        settings["cores"] = (lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores))
    return settings | dict(_of_torch()) | dict(_of_native()) | dict(_of_modules()) if with_torch else settings


def _timer(timer: int) -> _Setting:
    return lambda: any(signal.getitimer(timer)), lambda running: running or signal.setitimer(timer, 0)


def _of_torch() -> Iterator[tuple[str, _Setting]]:
    """Yield the settings of torch, and of NumPy's thread pools, that have functions of their own."""
    from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

    def default_device() -> str:  # torch.get_default_device makes a tensor, and modes are off here
        return str(getattr(getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), "device", "cpu"))

    def set_default_device(name: str) -> None:
        torch.set_default_device(None if name == "cpu" else name)  # the CPU, once set, slows every call of torch

    def stance() -> str:  # "default" until the compiler is loaded
        loaded = sys.modules.get("torch._dynamo.eval_frame")
        return str(getattr(getattr(loaded, "_stance", None), "stance", "default"))

    for number, pool in enumerate(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers):
        yield f"threads of {pool.internal_api} {number}", (pool.get_num_threads, pool.set_num_threads)
    yield "torch threads", (torch.get_num_threads, torch.set_num_threads)
    yield "torch inter-op threads", (torch.get_num_interop_threads, torch.set_num_interop_threads)
    yield "default dtype", (torch.get_default_dtype, torch.set_default_dtype)
    yield "default device", (default_device, set_default_device)
    yield "inference mode", (torch.is_inference_mode_enabled, lambda value: None)  # only its context can end it
    yield "grad mode", (torch.is_grad_enabled, torch.set_grad_enabled)
    yield "anomaly mode", (torch.is_anomaly_enabled, torch.set_anomaly_enabled)
    yield "autocast", (_autocast, _set_autocast)
    yield "float32 precision", (float32_state, set_float32_state)
    yield "deterministic mode", (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode)
    yield "denormal numbers", (lambda: 5e-324 * len("1") > 0, lambda kept: torch.set_flush_denormal(not kept))
    checks = torch._C._check_sparse_tensor_invariants, torch._C._set_check_sparse_tensor_invariants
    yield "checks of sparse tensors", checks
    graph = torch._C._autograd
    yield "torch's profiler", (graph._profiler_enabled, lambda running: running or graph._disable_profiler())
    yield "function modes of torch", _modes(_get_current_function_mode_stack, TorchFunctionMode)
    yield "dispatch modes of torch", _modes(_get_current_dispatch_mode_stack, TorchDispatchMode)
    yield "stance of the compiler", (stance, lambda stance: torch.compiler.set_stance(stance))


def _modes(stack: Callable[[], list[Any]], kind: Any) -> _Setting:
    def leave(depth: int) -> None:
        for mode in reversed(stack()[depth:]):
            kind.__exit__(mode, None, None, None)  # not the mode's own method, which may do anything

    return lambda: len(stack()), leave


def _of_native() -> Iterator[tuple[str, _Setting]]:
    """Yield the switches of torch's C++ code that ``torch.backends`` and others set: pairs of functions, by name."""
    native = torch._C

    def write(setter: Callable[..., Any], value: Any) -> None:
        setter(*value) if isinstance(value, tuple) else setter(value)

    for setter in (name for name in dir(native) if name.startswith("_set_") and not _SEPARATE.search(name)):
        name = setter.removeprefix("_set_")
        readers = (f"_get_{name}", f"_is_{name}", f"_get_{name.removeprefix('sdp_use_')}_sdp_enabled")
        read = next(filter(None, (getattr(native, reader, None) for reader in readers)), None)
        if read and _value(read) is not _UNREADABLE:  # others need arguments
            yield name, (read, partial(write, getattr(native, setter)))


def _of_modules() -> Iterator[tuple[str, _Setting]]:
    """Yield the switches of ``torch.backends`` that are plain values, and the hooks of all modules and optimizers."""

    def refill(hooks: dict[Any, Any], items: tuple[tuple[Any, Any], ...]) -> None:
        hooks.clear()
        hooks.update(items)

    for module in [module for place, module in sys.modules.items() if place.startswith("torch.backends.")]:
        for name, value in vars(getattr(module, "m", module)).items():  # torch puts objects in some modules' places
            if isinstance(value, bool | str) and not name.startswith("__"):
                yield f"{module.__name__}.{name}", (partial(getattr, module, name), partial(setattr, module, name))
    for place in ("torch.nn.modules.module", "torch.optim.optimizer"):
        for name, hooks in vars(sys.modules[place]).items():
            if name.startswith("_global_") and isinstance(hooks, dict):
                yield f"{place}.{name}", (partial(tuple, hooks.items()), partial(refill, hooks))


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


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """A context in which nothing traces this thread's Python code, which coverage makes several times as slow: neither
    ``sys.settrace`` and ``sys.setprofile`` nor a tool of ``sys.monitoring`` (Python 3.12 and newer). A tracer that
    can't be called, such as ``cProfile``'s object up to Python 3.11, ends."""
    followers: list[tuple[Any, Any]] = [(sys.settrace, sys.gettrace()), (sys.setprofile, sys.getprofile())]
    monitoring: Any = getattr(sys, "monitoring", None)
    with contextlib.ExitStack() as resumed:
        for install, follower in followers:
            resumed.callback(install, follower if callable(follower) else None)
            install(None)
        for tool in range(MOST_TOOLS) if monitoring else ():
            if monitoring.get_tool(tool) is None:
                continue
            resumed.callback(monitoring.set_events, tool, monitoring.get_events(tool))
            monitoring.set_events(tool, 0)
            for event in vars(monitoring.events).values():
                if isinstance(event, int) and event.bit_count() == 1:
                    callback = monitoring.register_callback(tool, event, None)
                    resumed.callback(monitoring.register_callback, tool, event, callback)
        yield
