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
import warnings
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from inprocess import gpubench
from pytest_benchmark.stats import Stats
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench.measure.state import State, untraced
from gpubench.runfile.flags import ADVICE

pytestmark = pytest.mark.usefixtures("no_ceilings")

FILES, REAL, PROF, TERM = resource.RLIMIT_NOFILE, signal.ITIMER_REAL, signal.ITIMER_PROF, signal.SIGTERM


def attribute(owner, name, left):
    return lambda: setattr(owner, name, left), lambda: getattr(owner, name), lambda kept: setattr(owner, name, kept)


def into(group):
    def fill(kept):
        group[:] = kept

    return fill


def default_device():
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return None
    with torch._C.DisableTorchFunction():
        return torch._C._get_default_device(), torch.empty(0).device


def umask():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask")).split()[1], 8)


def undone(_):
    """By what restores it, or else by nobody."""


HOOKS = torch.autograd.graph.saved_tensors_hooks
MATMUL, SUMS = torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"


def reduced_sums():
    return getattr(MATMUL, SUMS), getattr(MATMUL, f"{SUMS}_split_k")


LEAKS = {
    "torch threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads,
                      torch.set_num_threads),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype, torch.set_default_dtype),
    "default device": (lambda: torch.set_default_device("meta"), default_device,
                       lambda _: torch.set_default_device(None)),
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast": (lambda: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
                 lambda: torch.is_autocast_enabled("cpu"), lambda kept: torch.set_autocast_enabled("cpu", kept)),
    "deterministic mode": (lambda: torch.use_deterministic_algorithms(True),
                           torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "mkldnn.enabled": attribute(torch.backends.mkldnn, "enabled", False),
    "float32 precision": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision,
                          torch.set_float32_matmul_precision),
    "allow_fp16_accumulation": attribute(torch.backends.cuda.matmul, "allow_fp16_accumulation", True),
    "allow_bf16_reduced_precision_reduction": (lambda: setattr(MATMUL, SUMS, (False, False)), lambda: reduced_sums(),
                                               lambda kept: setattr(MATMUL, SUMS, kept)),
    "cudnn.benchmark": attribute(torch.backends.cudnn, "benchmark", True),
    "NumPy's error state": (lambda: np.seterr(all="raise"), np.geterr, lambda kept: np.seterr(**kept)),
    "$LEFT_BEHIND": (lambda: os.environ.update(LEFT_BEHIND="1"), lambda: dict(os.environ),
                     lambda _: os.environ.pop("LEFT_BEHIND", None)),
    "$TO_REMOVE": (lambda: os.environ.pop("TO_REMOVE"), lambda: os.environ.get("TO_REMOVE"), undone),
    "working folder": (lambda: os.chdir("/"), Path.cwd, os.chdir),
    "warnings filters": (lambda: warnings.simplefilter("error"), lambda: warnings.filters[:], into(warnings.filters)),
    "garbage collector": (gc.disable, gc.isenabled, lambda _: gc.enable()),
    "recursion limit": (lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1), sys.getrecursionlimit,
                        sys.setrecursionlimit),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"), lambda: locale.setlocale(locale.LC_ALL),
               lambda kept: locale.setlocale(locale.LC_ALL, kept)),
    "umask": (lambda: os.umask(0o777), umask, os.umask),
    "cores": (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), lambda: os.sched_getaffinity(0),
              lambda kept: os.sched_setaffinity(0, kept)),
    "RLIMIT_NOFILE": (lambda: resource.setrlimit(FILES, (resource.getrlimit(FILES)[0] - 1,
                                                         resource.getrlimit(FILES)[1])),
                      lambda: resource.getrlimit(FILES), lambda kept: resource.setrlimit(FILES, kept)),
    "functions of builtins": attribute(builtins, "print", None),
    "functions of json": attribute(json, "dumps", None),
    "functions of time": attribute(time, "sleep", lambda seconds: None),
    "functions of torch": attribute(torch, "add", None),
    "functions of Tensor": (lambda: setattr(torch.Tensor, "cpu", len), lambda: vars(torch.Tensor).get("cpu"), undone),
    "functions of msgspec": attribute(msgspec, "convert", None),
    "functions of os": attribute(os, "fsync", None),
    "pending ITIMER_REAL": (lambda: signal.setitimer(REAL, 3600, 3600), lambda: signal.getitimer(REAL)[1],
                            lambda _: signal.setitimer(REAL, 0)),
    "pending ITIMER_PROF": (lambda: signal.setitimer(PROF, 3600), lambda: signal.getitimer(PROF)[0] > 0,
                            lambda _: signal.setitimer(PROF, 0)),
    "signal handlers": (lambda: signal.signal(TERM, signal.SIG_IGN), lambda: signal.getsignal(TERM),
                        lambda kept: signal.signal(TERM, kept)),
    "blocked signals": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [TERM]),
                        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
                        lambda kept: signal.pthread_sigmask(signal.SIG_SETMASK, kept)),
    "function modes of torch": (lambda: TorchFunctionMode().__enter__(), torch._C._len_torch_function_stack, undone),
    "dispatch modes of torch": (lambda: TorchDispatchMode().__enter__(), torch._C._len_torch_dispatch_stack, undone),
    "saved tensors' hooks": (lambda: HOOKS(id, id).__enter__(),
                             lambda: torch._C._autograd._top_saved_tensors_default_hooks(False), undone),
    "anomaly mode": (lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled, undone),
    "module json.decoder": (lambda: sys.modules.pop("json.decoder"), lambda: sys.modules.get("json.decoder"), undone),
    "gc thresholds": (lambda: gc.set_threshold(1), gc.get_threshold, lambda kept: gc.set_threshold(*kept)),
    "gc callbacks": (lambda: gc.callbacks.append(print), lambda: gc.callbacks[:], into(gc.callbacks)),
    "switch interval": (lambda: sys.setswitchinterval(1.0), sys.getswitchinterval, sys.setswitchinterval),
    "tracer": (lambda: sys.settrace(lambda *event: None), sys.gettrace, sys.settrace),
    "profiler": (lambda: cProfile.Profile().enable(), sys.getprofile, lambda _: sys.setprofile(None)),
}  # fmt: skip
"""What can be left changed: how a benchmark does it, how it is read without the code under test, and undone by hand."""


def values():
    return {name: read() for name, (_, read, _) in LEAKS.items()}


@pytest.fixture
def around(monkeypatch):
    """Whatever a broken restore leaves is undone by hand."""
    State()
    torch.use_deterministic_algorithms(False)  # both import what adds a filter or a variable
    monkeypatch.setenv("TO_REMOVE", "1")
    kept = values()
    yield
    for name, (_, _, undo) in reversed(LEAKS.items()):
        undo(kept[name])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process can't be kept to some cores")
@pytest.mark.parametrize("name", LEAKS)
def test_a_setting_left_changed_is_named_and_put_back(around, name):
    before, state = values(), State()
    LEAKS[name][0]()
    assert values() != before
    state.compare()
    flag, stuck = state.restore()
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


def test_finders_and_functions_that_everything_needs_are_put_back(around, monkeypatch):
    class Blocked:
        def find_spec(self, *_):
            raise ImportError("blocked")

    state, finders, hooks, median = State(), [*sys.meta_path], [*sys.path_hooks], statistics.median
    sys.meta_path.insert(0, Blocked())
    sys.path_hooks.clear()
    statistics.median, Stats.update = (lambda *_: 1e-9), (lambda *_: None)
    state.compare()
    flag, stuck = state.restore()
    assert (sys.meta_path, sys.path_hooks, statistics.median, stuck) == (finders, hooks, median, [])
    assert Stats.update.__module__ == Stats.__module__
    assert "import finders" in flag.seen


@pytest.mark.parametrize(
    ("name", "enter", "leave"),
    [
        ("forward AD's level", torch.autograd.forward_ad.enter_dual_level, torch.autograd.forward_ad.exit_dual_level),
        (
            "torch.func's level",
            torch._C._functorch._grad_increment_nesting,
            torch._C._functorch._grad_decrement_nesting,
        ),
    ],
)
def test_a_level_that_only_its_context_can_leave_ends_the_process(around, name, enter, leave):
    state = State()
    enter()
    try:
        state.compare()
        flag, stuck = state.restore()
    finally:
        leave()
    assert name in flag.seen
    assert stuck == [name]


def test_what_can_be_read_no_more_ends_the_process(around):
    state = State()
    state._settings = state._settings | {"umask": (lambda: 1 / 0, lambda value: None)}
    state.compare()
    flag, stuck = state.restore()
    assert (flag.seen, stuck) == ("left changed: umask", ["umask"])


def test_nested_autocast_is_left_by_as_many_contexts(around):
    state = State()
    for _ in range(2):
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    state.compare()
    state.restore()
    torch.autocast_increment_nesting()
    assert torch.autocast_decrement_nesting() == 0


def test_what_a_new_module_replaces_is_no_fault(around, tmp_path, monkeypatch):
    (tmp_path / "wraps_a_function.py").write_text("import torch\ntorch.add = lambda *tensors: None\n")
    monkeypatch.syspath_prepend(tmp_path)
    state = State()
    import wraps_a_function  # noqa: F401

    state.compare()
    assert state.restore() == (None, [])


def test_what_is_put_back_meanwhile_and_what_torch_and_pytest_set_by_themselves_is_no_fault(around, monkeypatch):
    state = State()
    np.seterr(all="raise")
    for name in ("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST"):
        monkeypatch.setenv(name, "new")
    state.compare()
    np.seterr(all="warn", under="ignore")  # by a teardown
    assert state.restore() == (None, [])


@pytest.mark.parametrize(
    ("before", "after", "compiles", "named"),
    [(1000, 2000, True, False), (1000, 2000, False, True), (1000, 2001, True, True), (3000, 2000, True, True)],
)
def test_the_recursion_limit_of_torchs_compiler_is_put_back_and_no_fault(
    around, monkeypatch, before, after, compiles, named
):
    compiler = "torch._inductor.compile_fx"
    if compiles:
        monkeypatch.setitem(sys.modules, compiler, sys)
    else:
        monkeypatch.delitem(sys.modules, compiler, raising=False)
    sys.setrecursionlimit(before)
    state = State()
    sys.setrecursionlimit(after)
    state.compare()
    flag, stuck = state.restore()
    assert (flag is not None, stuck) == (named, [])
    assert sys.getrecursionlimit() == before


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
        state = State()
        state.compare()
        left = state.restore()
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


def followed() -> int:
    return sum(range(3))


def test_no_tracer_or_profiler_follows_what_is_timed():
    calls: list[str] = []

    def follow(frame, event, arg):
        calls.append(frame.f_code.co_name)
        return follow

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(follow)
    sys.setprofile(follow)
    try:
        with untraced():
            calls.clear()
            followed()
            assert calls == []
        assert (sys.gettrace(), sys.getprofile()) == (follow, follow)
        followed()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    assert "followed" in calls


class Monitoring:
    """As ``sys.monitoring`` of Python 3.12, with one tool."""

    class events:
        NO_EVENTS, PY_START, LINE, BRANCH = 0, 1, 2, 4 + 8

    def __init__(self):
        self.state = {1: 3}
        self.callbacks = {(1, 1): "start", (1, 2): "line"}

    def get_tool(self, tool):
        return "coverage" if tool == 1 else None

    def get_events(self, tool):
        return self.state[tool]

    def set_events(self, tool, events):
        self.state[tool] = events

    def register_callback(self, tool, event, callback):
        before = self.callbacks.get((tool, event))
        self.callbacks[tool, event] = callback
        return before


def test_no_tool_of_monitoring_follows_what_is_timed(monkeypatch):
    monitoring = Monitoring()
    monkeypatch.setattr(sys, "monitoring", monitoring, raising=False)
    with contextlib.suppress(ValueError), untraced():
        assert monitoring.state == {1: 0}
        assert set(monitoring.callbacks.values()) == {None}
        raise ValueError
    assert monitoring.state == {1: 3}
    assert monitoring.callbacks == {(1, 1): "start", (1, 2): "line"}


UNTRACED = """
import sys

class Work:
    def __init__(self):
        self.traced = []

    def __call__(self, *inputs):
        self.traced.append(sys.gettrace() is not None)
        return inputs

def test_ours(gpubench):
    work = Work()
    gpubench(work, gpubench.randn(4))
    assert {*work.traced} == {False}

def test_plain(benchmark):
    work = Work()
    benchmark(work)
    assert {*work.traced} == {False}
"""


def test_a_benchmark_is_timed_untraced(bench, pytester):
    """Also a plain one beside it; pytest-benchmark itself pauses tracers in its rounds only."""
    pytester.makeconftest("import sys\nsys.settrace(lambda *event: None)\n")
    bench(UNTRACED, apart=True, passed=2)
