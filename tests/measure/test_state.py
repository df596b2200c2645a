"""What a benchmark leaves changed is named, put back, or ends its process."""

import builtins
import contextlib
import cProfile
import gc
import json
import locale
import os
import resource
import signal
import statistics
import sys
import time
import types
import warnings
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from inprocess import gpubench
from pytest_benchmark.stats import Stats
from torch._functorch.eager_transforms import grad_increment_nesting
from torch.autograd.forward_ad import dual_level
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from vendors import raising

from gpubench.measure.state import State, untraced
from gpubench.runfile.flags import ADVICE

pytestmark = pytest.mark.usefixtures("no_ceilings")

FILES, REAL, PROF, TERM = resource.RLIMIT_NOFILE, signal.ITIMER_REAL, signal.ITIMER_PROF, {signal.SIGTERM}
MATMUL, SUMS = torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"


def attribute(owner, name, left):
    return lambda: getattr(owner, name), partial(setattr, owner, name), left


def listed(owner, name, *left):
    return lambda: [*getattr(owner, name)], lambda kept: getattr(owner, name).__setitem__(slice(None), kept), left


def default_device():
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return None
    with torch._C.DisableTorchFunction():
        return torch._C._get_default_device(), torch.empty(0).device


def umask():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask")).split()[1], 8)


def variable(name, left):
    def write(value):
        os.environ.update({name: value} if value else {}), value or os.environ.pop(name, None)

    return partial(os.environ.get, name), write, left


SETTINGS = {
    "torch threads": (torch.get_num_threads, torch.set_num_threads, 7),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": (default_device, lambda left: torch.set_default_device(left if left == "meta" else None), "meta"),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "deterministic mode": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "anomaly mode": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "mkldnn.enabled": attribute(torch.backends.mkldnn, "enabled", False),
    "float32 precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "allow_fp16_accumulation": attribute(MATMUL, "allow_fp16_accumulation", True),
    SUMS: (lambda: (getattr(MATMUL, SUMS), getattr(MATMUL, f"{SUMS}_split_k")), partial(setattr, MATMUL, SUMS),
           (False, False)),
    "cudnn.benchmark": attribute(torch.backends.cudnn, "benchmark", True),
    "NumPy's error state": (np.geterr, lambda kept: np.seterr(**kept), {"all": "raise"}),
    "$LEFT_BEHIND": variable("LEFT_BEHIND", "1"),
    "$TO_REMOVE": variable("TO_REMOVE", None),
    "working folder": (Path.cwd, os.chdir, "/"),
    "warnings filters": listed(warnings, "filters"),
    "garbage collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable(), False),
    "gc thresholds": (gc.get_threshold, lambda counts: gc.set_threshold(*counts), (1,)),
    "gc callbacks": listed(gc, "callbacks", print),
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit, 3456),
    "switch interval": (sys.getswitchinterval, sys.setswitchinterval, 1.0),
    "tracer": (sys.gettrace, sys.settrace, lambda *event: None),
    "profiler": (sys.getprofile, lambda left: left.enable() if left else sys.setprofile(None), cProfile.Profile()),
    "locale": (partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL), "C.UTF-8"),
    "umask": (umask, os.umask, 0o777),
    "cores": (lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores),
              {min(os.sched_getaffinity(0))}),
    "RLIMIT_NOFILE": (lambda: resource.getrlimit(FILES), partial(resource.setrlimit, FILES),
                      (500, resource.getrlimit(FILES)[1])),
    "functions of builtins": attribute(builtins, "print", None),
    "functions of json": attribute(json, "dumps", None),
    "functions of time": attribute(time, "sleep", lambda seconds: None),
    "functions of torch": attribute(torch, "add", None),
    "functions of msgspec": attribute(msgspec, "convert", None),
    "functions of os": attribute(os, "fsync", None),
    "pending ITIMER_REAL": (lambda: signal.getitimer(REAL)[1], lambda left: signal.setitimer(REAL, left, left), 3600),
    "pending ITIMER_PROF": (lambda: signal.getitimer(PROF)[0] > 0, partial(signal.setitimer, PROF), 3600),
    "signal handlers": (partial(signal.getsignal, *TERM), partial(signal.signal, *TERM), signal.SIG_IGN),
    "blocked signals": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
                        partial(signal.pthread_sigmask, signal.SIG_SETMASK), TERM),
}  # fmt: skip
"""What can be left changed: how it is read and written without the code under test, and what a benchmark leaves."""

ENTERED = {
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), torch.autocast("cpu", dtype=torch.bfloat16).__enter__),
    "function modes of torch": (torch._C._len_torch_function_stack, TorchFunctionMode().__enter__),
    "dispatch modes of torch": (torch._C._len_torch_dispatch_stack, TorchDispatchMode().__enter__),
    "saved tensors' hooks": (lambda: torch._C._autograd._top_saved_tensors_default_hooks(False),
                             torch.autograd.graph.saved_tensors_hooks(id, id).__enter__),
    "functions of Tensor": (lambda: vars(torch.Tensor).get("cpu"), lambda: setattr(torch.Tensor, "cpu", len)),
    "module json.decoder": (lambda: sys.modules.get("json.decoder"), lambda: sys.modules.pop("json.decoder")),
}  # fmt: skip
"""What only its owner can undo: how it is read, and how a benchmark leaves it changed."""


def values():
    return {name: read() for name, (read, *_) in (SETTINGS | ENTERED).items()}


@pytest.fixture
def around(monkeypatch):
    """Whatever a broken restore leaves is undone by hand."""
    State()
    torch.use_deterministic_algorithms(False)  # both import what adds a filter or a variable
    monkeypatch.setenv("TO_REMOVE", "1")
    kept = values()
    yield
    for name, (_, write, _) in reversed(SETTINGS.items()):
        write(kept[name])


def left_changed(state):
    """The flag for it, and what could not be put back."""
    state.compare()
    return state.restore()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process can't be kept to some cores")
@pytest.mark.parametrize("name", SETTINGS | ENTERED)
def test_a_setting_left_changed_is_named_and_put_back(around, name):
    before, state = values(), State()
    _, change, *left = (SETTINGS | ENTERED)[name]
    change(*left)
    assert values() != before
    flag, stuck = left_changed(state)
    assert flag.name in ADVICE
    assert name in flag.seen
    assert "LEFT_BEHIND=" not in flag.seen
    assert stuck == []
    assert values() == before


@pytest.mark.parametrize("deed", [lambda: sys.modules.pop("torch"), lambda: sys.modules.update(torch=object())])
def test_a_module_taken_away_or_replaced_is_there_again_at_once(around, deed):
    """What needs it next would import it for a second time, which torch doesn't survive, or get a mock."""
    state, taken = State(), sys.modules["torch"]
    deed()
    state.compare()
    assert sys.modules["torch"] is taken
    flag, stuck = state.restore()
    assert (flag.seen, stuck) == ("left changed: module torch (taken away or replaced)", [])


def test_finders_and_functions_that_everything_needs_are_put_back(around):
    state, finders, hooks, median = State(), [*sys.meta_path], [*sys.path_hooks], statistics.median
    sys.meta_path.insert(0, types.SimpleNamespace(find_spec=raising(ImportError)))
    sys.path_hooks.clear()
    statistics.median, Stats.update = (lambda *_: 1e-9), (lambda *_: None)
    flag, stuck = left_changed(state)
    assert (sys.meta_path, sys.path_hooks, statistics.median, stuck) == (finders, hooks, median, [])
    assert Stats.update.__module__ == Stats.__module__
    assert "import finders" in flag.seen


@pytest.mark.parametrize(
    ("name", "level"), [("forward AD's level", dual_level), ("torch.func's level", grad_increment_nesting)]
)
def test_a_level_that_only_its_context_can_leave_ends_the_process(around, name, level):
    state = State()
    with level():
        flag, stuck = left_changed(state)
    assert name in flag.seen
    assert stuck == [name]


def test_what_can_be_read_no_more_ends_the_process(around):
    state = State()
    state._settings = state._settings | {"umask": (lambda: 1 / 0, lambda value: None)}
    flag, stuck = left_changed(state)
    assert (flag.seen, stuck) == ("left changed: umask", ["umask"])


def test_nested_autocast_is_left_by_as_many_contexts(around):
    state = State()
    for _ in range(2):
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    left_changed(state)
    torch.autocast_increment_nesting()
    assert torch.autocast_decrement_nesting() == 0


def test_what_a_new_module_replaces_is_no_fault(around, tmp_path, monkeypatch):
    (tmp_path / "wraps_a_function.py").write_text("import torch\ntorch.add = lambda *tensors: None\n")
    monkeypatch.syspath_prepend(tmp_path)
    state = State()
    import wraps_a_function  # noqa: F401

    assert left_changed(state) == (None, [])


def test_what_is_put_back_meanwhile_and_what_torch_and_pytest_set_by_themselves_is_no_fault(around, monkeypatch):
    state = State()
    np.seterr(all="raise")
    for name in ("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST"):
        monkeypatch.setenv(name, "new")
    state.compare()
    np.seterr(all="warn", under="ignore")  # by a teardown
    assert state.restore() == (None, [])


@pytest.mark.parametrize(
    ("old", "new", "compiles", "named"),
    [(1000, 2000, True, False), (1000, 2000, False, True), (1000, 2001, True, True), (3000, 2000, True, True)],
)
def test_the_recursion_limit_of_torchs_compiler_is_put_back_and_no_fault(
    around, monkeypatch, old, new, compiles, named
):
    compiler = "torch._inductor.compile_fx"
    monkeypatch.delitem(sys.modules, compiler, raising=False)
    if compiles:
        monkeypatch.setitem(sys.modules, compiler, sys)
    sys.setrecursionlimit(old)
    state = State()
    sys.setrecursionlimit(new)
    flag, stuck = left_changed(state)
    assert (flag is not None, stuck, sys.getrecursionlimit()) == (named, [], old)


def test_a_benchmark_that_changes_nothing_costs_few_calls(monkeypatch):
    for name in os.environ.keys() - {"PATH", "HOME"}:  # each takes some
        monkeypatch.delenv(name)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    State().restore()  # the first imports
    sys.setprofile(count)
    try:
        left = left_changed(State())
    finally:
        sys.setprofile(None)
    assert left == (None, [])
    assert calls < 2_000  # some 900 of them, half a millisecond


CASES = """
import os, pytest, torch

entered = []

@pytest.fixture(autouse=True)
def clean():
    assert torch.get_num_threads() == 2
    assert not torch.is_inference_mode_enabled()
    assert "LEFT_BEHIND" not in os.environ

def test_threads(benchmark):
    benchmark(sum, [1])
    torch.set_num_threads(1)

def test_fails(gpubench):
    os.environ["LEFT_BEHIND"] = "secret"
    raise ValueError("mine")

def test_patches(gpubench, monkeypatch):
    monkeypatch.setenv("MINE", "1")
    gpubench(torch.neg, gpubench.randn(8))

def test_inference(gpubench):
    entered.append(torch.inference_mode())
    entered[0].__enter__()
    gpubench(torch.neg, gpubench.randn(8))

@pytest.mark.parametrize("n", range(4))
def test_follows(gpubench, n):
    gpubench(torch.neg, gpubench.randn(8))
"""


def test_a_run_names_each_and_measures_the_rest_in_another_process(tmp_path):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "test_it.py").write_text(CASES)
    options = ["--preset=smoke", "--processes=1", "--device=cpu", "--threads=2"]
    gpubench("run", "bench", "-o", "out", *options, cwd=tmp_path)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    (failed,) = run["gpubench"]["unmeasured"]
    assert failed["reason"] == "ValueError: mine (left changed: $LEFT_BEHIND)"
    records = [bench["extra_info"]["gpubench"] for bench in run["benchmarks"]]
    seen = {
        record["workload"]: flag["seen"]
        for record in records
        for process in record["processes"]
        for flag in process["flags"]
        if flag["flag"] == "altered"
    }
    assert len(run["benchmarks"]) == 7
    assert seen == {
        "it.threads": "left changed: torch threads (2 → 1)",
        "it.inference": "left changed: grad mode (True → False), inference mode (False → True)",
    }


# Tracers --------------------------------------------------------------------------------------------------------------


def test_no_tracer_or_profiler_follows_what_is_timed(around):
    calls: list[str] = []

    def follow(frame, event, arg):
        calls.append(event)
        return follow

    sys.settrace(follow)
    sys.setprofile(follow)
    with untraced():
        calls.clear()
        umask()
        assert calls == []
    assert (sys.gettrace(), sys.getprofile()) == (follow, follow)


def test_no_tool_of_monitoring_follows_what_is_timed(monkeypatch):
    """As of Python 3.12, with one tool."""
    states, callbacks = {1: 3}, {(1, 1): "start", (1, 2): "line"}

    def register(tool, event, callback):
        before, callbacks[tool, event] = callbacks.get((tool, event)), callback
        return before

    monitoring = types.SimpleNamespace(
        events=types.SimpleNamespace(NO_EVENTS=0, PY_START=1, LINE=2, BRANCH=4 + 8), get_tool={1: "coverage"}.get,
        get_events=states.get, set_events=states.__setitem__, register_callback=register,
    )  # fmt: skip
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    with contextlib.suppress(ValueError), untraced():
        assert states == {1: 0}
        assert set(callbacks.values()) == {None}
        raise ValueError
    assert states == {1: 3}
    assert callbacks == {(1, 1): "start", (1, 2): "line"}


UNTRACED = """
import sys

def test_ours(gpubench):
    traced = []
    gpubench.declare(check=False)(lambda: traced.append(sys.gettrace() is not None))
    assert {*traced} == {False}

def test_plain(benchmark):
    traced = []
    benchmark(lambda: traced.append(sys.gettrace() is not None))
    assert {*traced} == {False}
"""


def test_a_benchmark_is_timed_untraced(bench, pytester):
    """Also a plain one beside it; pytest-benchmark itself pauses tracers in its rounds only."""
    pytester.makeconftest("import sys\nsys.settrace(lambda *event: None)\n")
    bench(UNTRACED, apart=True, passed=2)
