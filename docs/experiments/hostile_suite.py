"""Benchmarks that do what none should, each one kind of harm, with a healthy one after each.

    gpubench run docs/experiments/hostile_suite.py --processes 1 --deadline 60 -o out

``python docs/experiments/attack.py hostile`` runs it and checks that every healthy case is measured and every hostile
one is a row with its reason.
"""

from __future__ import annotations

import asyncio
import builtins
import cProfile
import ctypes
import datetime
import decimal
import enum
import errno
import fractions
import gc
import json
import locale
import os
import pathlib
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

KINDS: dict[str, Callable[[Any, Any], object]] = {}
"""Functions that harm, by name: what a case does with the fixtures ``gpubench`` and ``request``."""
HEALTHY_N = 192


def measured(gpubench: Any, **declared: Any) -> object:
    """Time something small and harmless."""
    return gpubench(torch.add, gpubench.randn(100), 1.0, **declared)


def kind(name: str) -> Callable[[Callable[[Any, Any], object]], Callable[[Any, Any], object]]:
    """Register a function as one kind of harm."""

    def enter(function: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
        KINDS[name] = function
        return function

    return enter


# Parameters -----------------------------------------------------------------------------------------------------------


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    __hash__ = None  # type: ignore[assignment]


class Colour(enum.Enum):
    RED = float("nan")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "minus-inf": -float("inf"),
    "minus-zero": -0.0,
    "tiny": 5e-324,
    "digits": 10**4999,
    "int64": 2**63,
    "complex": 1j,
    "bytes": b"\xff\x00",
    "object": object(),
    "lambda": lambda: None,
    "no-repr": Unspeakable(),
    "no-eq": Incomparable(),
    "enum": Colour.RED,
    "circle": CIRCLE,
    "deep": nested(600),
    "numpy-scalar": np.float32(1.5),
    "numpy-nan": np.float64("nan"),
    "numpy-array": np.ones((3, 3)),
    "numpy-dtype": np.dtype("int8"),
    "tensor": torch.ones(3),
    "tensor-scalar": torch.tensor(2),
    "dtype": torch.float16,
    "device": torch.device("cpu"),
    "set": {3, 1, 2},
    "odd-keys": {(1, 2): 3, None: 4, 1.5: 5},
    "decimal": decimal.Decimal("NaN"),
    "fraction": fractions.Fraction(1, 3),
    "path": pathlib.Path("/etc/passwd"),
    "date": datetime.date(2026, 1, 31),
    "class": int,
    "surrogate": "\ud800",
    "escape": "\x1b[31mred\x1b[0m",
    "newline": "a\nb\r\n\tc",
    "nul": "a\x00b",
    "long": "x" * 20_000,
    "empty": "",
    "separator": "../../a::b[c]",
    "markup": "<script>alert(1)</script>",
    "formula": "=1+1",
    "rtl": "\u202egnp.exe",
    "none": None,
    "true": True,
    "range": range(3),
    "module": torch.nn.Linear(2, 2),
    "list-of-tensors": [torch.ones(2)],
}


def with_value(value: Any) -> Callable[[Any, Any], object]:
    def extra(gpubench: Any, request: Any) -> None:
        request.getfixturevalue("benchmark").extra_info["value"] = value
        measured(gpubench)

    return extra


def with_key(key: Any) -> Callable[[Any, Any], object]:
    def extra(gpubench: Any, request: Any) -> None:
        request.getfixturevalue("benchmark").extra_info[key] = 1
        measured(gpubench)

    return extra


for name in (
    "nan",
    "inf",
    "digits",
    "bytes",
    "object",
    "no-repr",
    "circle",
    "deep",
    "numpy-nan",
    "numpy-array",
    "tensor",
    "set",
    "odd-keys",
    "surrogate",
    "nul",
    "class",
):
    KINDS[f"extra-{name}"] = with_value(VALUES[name])
for name, key in {"tuple": (1, 2), "none": None, "gpubench": "gpubench", "surrogate": "\ud800", "bytes": b"a"}.items():
    KINDS[f"extra-key-{name}"] = with_key(key)

# Declarations ---------------------------------------------------------------------------------------------------------

DECLARED: dict[str, dict[str, Any]] = {
    "items-numpy": {"items": np.prod((10, 10))},
    "items-tensor": {"items": torch.tensor(100)},
    "items-zero": {"items": 0},
    "items-negative": {"items": -1},
    "items-half": {"items": 0.5},
    "items-nan": {"items": float("nan")},
    "items-inf": {"items": float("inf")},
    "items-text": {"items": "100"},
    "items-list": {"items": [100]},
    "items-huge": {"items": 10**400},
    "items-true": {"items": True},
    "items-array": {"items": np.ones(3)},
    "nbytes-negative": {"nbytes": -8},
    "nbytes-float32": {"nbytes": np.float32(800)},
    "nbytes-nan": {"nbytes": float("nan")},
    "nbytes-text": {"nbytes": "800"},
    "flops-zero": {"flops": 0},
    "flops-wrong": {"flops": 10**15},
    "flops-tensor": {"flops": torch.ones(2)},
    "unit-none": {"items": 1, "unit": None},
    "unit-number": {"items": 1, "unit": 3},
    "unit-escape": {"items": 1, "unit": "\x1b[31m\n"},
    "threads-zero": {"threads": 0},
    "threads-text": {"threads": "2"},
    "steps-zero": {"steps": 0},
    "steps-half": {"steps": 0.5},
    "check-number": {"check": 3},
    "devices-unknown": {"devices": ["cuda:99"]},
    "devices-number": {"devices": 3},
    "setup-number": {"setup": 7},
}
for name, declared in DECLARED.items():
    KINDS[name] = lambda gpubench, request, declared=declared: measured(gpubench, **declared)  # type: ignore[misc]

# Errors ---------------------------------------------------------------------------------------------------------------


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Stubborn(BaseException):
    pass


def circular() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


ERRORS: dict[str, Callable[[], BaseException]] = {
    "mute": Mute,
    "exiting": Exiting,
    "base": Stubborn,
    "interrupt": KeyboardInterrupt,
    "system-exit": lambda: SystemExit(0),
    "system-exit-text": lambda: SystemExit("bye"),
    "generator-exit": GeneratorExit,
    "stop-iteration": StopIteration,
    "recursion": RecursionError,
    "memory": MemoryError,
    "group": lambda: ExceptionGroup("g", [ValueError(1), Mute()]),
    "circular": circular,
    "surrogate": lambda: ValueError("\ud800"),
    "escape": lambda: ValueError("\x1b]0;title\x07\n\r"),
    "megabyte": lambda: ValueError("x" * 1_000_000),
    "no-space": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "broken-pipe": BrokenPipeError,
    "unittest-skip": lambda: unittest.SkipTest("not today"),
    "warning": lambda: UserWarning("w"),
    "numbers": lambda: ValueError(float("nan"), b"\xff", None),
    "deep": lambda: ValueError(nested(900)),
}


def raising(make: Callable[[], BaseException], *, inside: bool) -> Callable[[Any, Any], object]:
    def fail(*_: Any) -> None:
        raise make()

    return (lambda gpubench, request: gpubench(fail, gpubench.randn(3), check=False)) if inside else fail


for name, make in ERRORS.items():
    KINDS[f"raise-{name}"] = raising(make, inside=False)
for name in ("mute", "base", "interrupt", "system-exit", "generator-exit", "circular"):
    KINDS[f"call-raises-{name}"] = raising(ERRORS[name], inside=True)
KINDS["pytest-exit"] = lambda gpubench, request: pytest.exit("enough", returncode=0)
KINDS["pytest-fail"] = lambda gpubench, request: pytest.fail("\x1b[31mno")
KINDS["pytest-skip"] = lambda gpubench, request: pytest.skip("\ud800")
KINDS["pytest-xfail"] = lambda gpubench, request: pytest.xfail("known")
KINDS["session-should-stop"] = lambda gpubench, request: setattr(request.session, "shouldstop", "because")
KINDS["recurses"] = lambda gpubench, request: KINDS["recurses"](gpubench, request)

# The fixture misused --------------------------------------------------------------------------------------------------

KINDS["never-called"] = lambda gpubench, request: None
KINDS["called-twice"] = lambda gpubench, request: (measured(gpubench), measured(gpubench))
KINDS["no-function"] = lambda gpubench, request: gpubench(3)
KINDS["shapes"] = lambda gpubench, request: gpubench(torch.mm, gpubench.randn(2, 3), gpubench.randn(2, 3))
KINDS["random-answer"] = lambda gpubench, request: gpubench(lambda x: x + torch.rand(()), gpubench.randn(10))
KINDS["returns-text"] = lambda gpubench, request: gpubench(lambda x: "\x1b[31m", gpubench.randn(3))
KINDS["returns-circle"] = lambda gpubench, request: gpubench(lambda x: CIRCLE, gpubench.randn(3))
KINDS["too-large"] = lambda gpubench, request: measured(gpubench) if gpubench.randn(10**15) is None else None


@kind("coroutine")
def coroutine(gpubench: Any, request: Any) -> object:
    async def work(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x

    return gpubench(work, gpubench.randn(3), check=False)


@kind("frees-input")
def frees_input(gpubench: Any, request: Any) -> object:
    return gpubench(lambda x: x.resize_(0), gpubench.randn(10), check=False)


@kind("takes-memory")
def takes_memory(gpubench: Any, request: Any) -> object:
    return gpubench(lambda x: bytearray(2**62), gpubench.randn(3), check=False)


# Ends of the process --------------------------------------------------------------------------------------------------

SIGNALS = (
    "SIGKILL",
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGSEGV",
    "SIGBUS",
    "SIGFPE",
    "SIGILL",
    "SIGPIPE",
    "SIGUSR1",
    "SIGALRM",
    "SIGABRT",
    "SIGQUIT",
    "SIGXCPU",
    "SIGSTOP",
)
for name in SIGNALS:
    KINDS[f"signal-{name}"] = lambda gpubench, request, name=name: os.kill(os.getpid(), getattr(signal, name))  # type: ignore[misc]
for code in (0, 1, 5):
    KINDS[f"os-exit-{code}"] = lambda gpubench, request, code=code: os._exit(code)  # type: ignore[misc]
KINDS["null-pointer"] = lambda gpubench, request: ctypes.string_at(0)


@kind("endless")
def endless(gpubench: Any, request: Any) -> None:
    while True:
        pass


@kind("endless-deaf")
def endless_deaf(gpubench: Any, request: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


@kind("forks-and-returns")
def forks_and_returns(gpubench: Any, request: Any) -> object:
    os.fork()
    return measured(gpubench)


@kind("leaves-child")
def leaves_child(gpubench: Any, request: Any) -> object:
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    return measured(gpubench)


@kind("leaves-thread")
def leaves_thread(gpubench: Any, request: Any) -> object:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return measured(gpubench)


@kind("thread-raises")
def thread_raises(gpubench: Any, request: Any) -> object:
    threading.Thread(target=ERRORS["mute"]).start()
    thread = threading.Thread(target=raising(Stubborn, inside=False))
    thread.start()
    thread.join()
    return measured(gpubench)


# State left behind ----------------------------------------------------------------------------------------------------


def left(change: Callable[[], object]) -> Callable[[Any, Any], object]:
    """Return a case that measures, then changes the process's state and leaves it changed."""

    def leave(gpubench: Any, request: Any) -> None:
        measured(gpubench)
        change()

    return leave


def deleted_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


STATE: dict[str, Callable[[], object]] = {
    "threads": lambda: torch.set_num_threads(1),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "default-device": lambda: torch.set_default_device("meta"),
    "grad": lambda: torch.set_grad_enabled(False),
    "inference": lambda: torch.inference_mode().__enter__(),
    "autocast": lambda: torch.autocast("cpu").__enter__(),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "mkldnn": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "numpy-errors": lambda: np.seterr(all="raise"),
    "environment": os.environ.clear,
    "folder": lambda: os.chdir("/"),
    "folder-gone": deleted_folder,
    "warnings": lambda: warnings.simplefilter("error"),
    "clock": lambda: setattr(time, "perf_counter", lambda: 0.0),
    "sleep": lambda: setattr(time, "sleep", lambda seconds: None),
    "no-collector": gc.disable,
    "stdout-none": lambda: setattr(sys, "stdout", None),
    "stdout-closed": lambda: sys.stdout.close(),
    "fd-1": lambda: os.close(1),
    "fd-2": lambda: os.close(2),
    "path": sys.path.clear,
    "seed": lambda: random.seed(0),
    "torch-seed": lambda: torch.manual_seed(0),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "umask": lambda: os.umask(0o777),
    "files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 4096)),
    "one-core": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "nice": lambda: os.nice(5),
    "recursion": lambda: sys.setrecursionlimit(120),
    "print": lambda: setattr(builtins, "print", None),
    "json": lambda: setattr(json, "dumps", None),
    "add": lambda: setattr(torch, "add", None),
    "alarm": lambda: signal.alarm(1),
    "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3),
    "signal-handler": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "signal-mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
    "function-mode": lambda: TorchFunctionMode().__enter__(),
    "dispatch-mode": lambda: TorchDispatchMode().__enter__(),
    "fake-tensors": lambda: FakeTensorMode().__enter__(),
    "device-context": lambda: torch.device("meta").__enter__(),
    "func-level": lambda: torch._C._functorch._grad_increment_nesting(),
    "forward-ad": torch.autograd.forward_ad.enter_dual_level,
    "saved-tensors": lambda: torch.autograd.graph.saved_tensors_hooks(id, id).__enter__(),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "no-torch": lambda: sys.modules.pop("torch"),
    "no-modules": lambda: [sys.modules.pop(name) for name in ("numpy", "json", "torch.nn")],
    "profiler": lambda: cProfile.Profile().enable(),
    "tracer": lambda: sys.settrace(lambda *event: None),
    "gc-threshold": lambda: gc.set_threshold(1),
    "file-size": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1])),
}
for name, change in STATE.items():
    KINDS[f"leaves-{name}"] = left(change)

# Results spoilt -------------------------------------------------------------------------------------------------------


def spoilt(change: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    """Return a case that measures, then changes its result."""

    def spoil(gpubench: Any, request: Any) -> None:
        measured(gpubench)
        change(gpubench, request.getfixturevalue("benchmark"))

    return spoil


SPOILT: dict[str, Callable[[Any, Any], object]] = {
    "extra-none": lambda gpubench, benchmark: setattr(benchmark, "extra_info", None),
    "no-samples": lambda gpubench, benchmark: benchmark.stats.stats.data.clear(),
    "negative-sample": lambda gpubench, benchmark: benchmark.stats.stats.data.append(-5.0),
    "no-fixture": lambda gpubench, benchmark: gpubench.__dict__.clear(),
    "no-len": lambda gpubench, benchmark: setattr(builtins, "len", None),
}
for name, spoil in SPOILT.items():
    KINDS[f"spoils-{name}"] = spoilt(spoil)

# The tests ------------------------------------------------------------------------------------------------------------


def _healthy(gpubench: Any) -> None:
    a = gpubench.randn(HEALTHY_N, HEALTHY_N)
    gpubench(torch.mm, a, a)


@pytest.mark.parametrize("case", [case for name in KINDS for case in (f"healthy-after-{name}", name)])
def test_kind(gpubench: Any, request: Any, case: str) -> None:
    """A healthy case and one of KINDS, in turn."""
    if case.startswith("healthy-"):
        _healthy(gpubench)
    else:
        KINDS[case](gpubench, request)


@pytest.mark.parametrize("value", list(VALUES.values()), ids=list(VALUES))
def test_value(gpubench: Any, value: Any) -> None:
    """A harmless case with a parameter that JSON, a table or a name can't hold."""
    measured(gpubench)
