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
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from inprocess import gpubench
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench.measure import state as state_module
from gpubench.measure.state import State, untraced
from gpubench.runfile.flags import ADVICE

LEAKS = {
    "torch threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "grad mode": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
    "deterministic mode": lambda: torch.use_deterministic_algorithms(True),
    "mkldnn.enabled": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "float32 precision": lambda: torch.set_float32_matmul_precision("medium"),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "NumPy's error state": lambda: np.seterr(all="raise"),
    "$LEFT_BEHIND": lambda: os.environ.update(LEFT_BEHIND="1"),
    "$TO_REMOVE": lambda: os.environ.pop("TO_REMOVE"),
    "working folder": lambda: os.chdir("/"),
    "warnings filters": lambda: warnings.simplefilter("error"),
    "time.perf_counter": lambda: setattr(time, "perf_counter", lambda: 0.0),
    "garbage collector": gc.disable,
    "recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "umask": lambda: os.umask(0o777),
    "cores": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "RLIMIT_NOFILE": lambda: resource.setrlimit(FILES, (resource.getrlimit(FILES)[0] - 1, HARD)),
    "functions of builtins": lambda: setattr(builtins, "print", None),
    "functions of json": lambda: setattr(json, "dumps", None),
    "functions of time": lambda: setattr(time, "sleep", lambda seconds: None),
    "functions of torch": lambda: setattr(torch, "add", None),
    "pending ITIMER_REAL": lambda: signal.setitimer(signal.ITIMER_REAL, 3600, 3600),
    "pending ITIMER_PROF": lambda: signal.setitimer(signal.ITIMER_PROF, 3600),
    "signal handlers": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
    "function modes of torch": lambda: TorchFunctionMode().__enter__(),
    "dispatch modes of torch": lambda: TorchDispatchMode().__enter__(),
    "saved tensors' hooks": lambda: torch.autograd.graph.saved_tensors_hooks(id, id).__enter__(),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "module json.decoder": lambda: sys.modules.pop("json.decoder"),
    "gc thresholds": lambda: gc.set_threshold(1),
    "gc callbacks": lambda: gc.callbacks.append(print),
    "switch interval": lambda: sys.setswitchinterval(1.0),
    "tracer": lambda: sys.settrace(lambda *event: None),
    "profiler": lambda: cProfile.Profile().enable(),
}
FILES = resource.RLIMIT_NOFILE
FUNCTIONS = print, json.dumps, time.sleep, torch.add
HARD = resource.getrlimit(FILES)[1]


def values():
    """All that :data:`LEAKS` change, read without the code under test."""
    cuda, cpu = torch.backends.cudnn.benchmark, torch.is_autocast_enabled("cpu")
    modes = torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), torch.backends.mkldnn.enabled
    torch_values = torch.get_num_threads(), torch.get_default_dtype(), torch.get_float32_matmul_precision()
    rest = np.geterr(), dict(os.environ), Path.cwd(), list(warnings.filters), time.perf_counter
    process = gc.isenabled(), sys.getrecursionlimit(), os.sched_getaffinity(0), resource.getrlimit(FILES)
    created = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask"))
    functions = locale.setlocale(locale.LC_ALL), created, print, json.dumps, time.sleep, torch.add
    torch_modes = [torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()]
    hooks, graph = torch._C._autograd._top_saved_tensors_default_hooks(False), torch.is_anomaly_enabled()
    signals = signal.getitimer(signal.ITIMER_REAL)[1], signal.getitimer(signal.ITIMER_PROF)[0] > 0
    handled = signal.getsignal(signal.SIGTERM), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    python = sys.modules.get("json.decoder"), gc.get_threshold(), len(gc.callbacks), sys.getswitchinterval()
    further = (*torch_modes, hooks, graph, *signals, *handled, *python, sys.gettrace(), sys.getprofile())
    with torch._C.DisableTorchFunction():
        default = torch._C._get_default_device(), torch.empty(0).device if not any(torch_modes) else None
    return (cuda, cpu, default, *modes, *torch_values, *rest, *process, *functions, *further)


@pytest.fixture
def around(monkeypatch):
    """Whatever a broken restore leaves is undone by hand."""
    State()
    torch.use_deterministic_algorithms(False)  # both import what adds a filter or a variable
    monkeypatch.setenv("TO_REMOVE", "1")
    threads, folder, filters, clock = torch.get_num_threads(), Path.cwd(), warnings.filters[:], time.perf_counter
    cores, depth, files, functions = (
        os.sched_getaffinity(0),
        sys.getrecursionlimit(),
        resource.getrlimit(FILES),
        FUNCTIONS,
    )
    names, bits = locale.setlocale(locale.LC_ALL), os.umask(0o022)
    os.umask(bits)
    tracer, term, often, switch = sys.gettrace(), signal.getsignal(signal.SIGTERM), gc.get_threshold(), 0.005
    yield
    sys.setprofile(None)
    sys.settrace(tracer)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    signal.signal(signal.SIGTERM, term)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    gc.set_threshold(*often)
    gc.callbacks[:] = [each for each in gc.callbacks if each is not print]
    sys.setswitchinterval(switch)
    locale.setlocale(locale.LC_ALL, names)
    os.umask(bits)
    time.perf_counter, warnings.filters[:] = clock, filters
    builtins.print, json.dumps, time.sleep, torch.add = functions
    gc.enable()
    sys.setrecursionlimit(depth)
    os.sched_setaffinity(0, cores)
    resource.setrlimit(FILES, files)
    os.chdir(folder)
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.use_deterministic_algorithms(False)
    torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark = True, False
    torch.set_float32_matmul_precision("highest")
    np.seterr(all="warn", under="ignore")
    os.environ.pop("LEFT_BEHIND", None)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process can't be kept to some cores")
@pytest.mark.parametrize("name", LEAKS)
def test_a_setting_left_changed_is_named_and_put_back(around, name):
    before, state = values(), State()
    LEAKS[name]()
    assert values() != before
    state.compare()
    flag, stuck = state.restore()
    assert flag.name in ADVICE
    assert name in flag.seen
    assert "LEFT_BEHIND=" not in flag.seen
    assert stuck == []
    assert values() == before


def test_a_module_taken_away_is_there_again_at_once(around):
    """What needs it next would import it for a second time, which torch doesn't survive."""
    state, taken = State(), sys.modules["torch"]
    del sys.modules["torch"]
    state.compare()
    assert sys.modules["torch"] is taken
    flag, stuck = state.restore()
    assert (flag.seen, stuck) == ("left changed: module torch (taken away)", [])


@pytest.mark.parametrize("name", ["forward AD's level", "torch.func's level"])
def test_a_level_that_only_its_context_can_leave_ends_the_process(around, name):
    state = State()
    if name == "forward AD's level":
        torch.autograd.forward_ad.enter_dual_level()
    else:
        torch._C._functorch._grad_increment_nesting()
    try:
        state.compare()
        flag, stuck = state.restore()
    finally:
        if name == "forward AD's level":
            torch.autograd.forward_ad.exit_dual_level()
        else:
            torch._C._functorch._grad_decrement_nesting()
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


def test_what_is_put_back_meanwhile_is_no_fault(around):
    state = State()
    np.seterr(all="raise")
    state.compare()
    np.seterr(all="warn", under="ignore")  # by a teardown
    assert state.restore() == (None, [])


def test_what_torch_and_pytest_set_by_themselves_is_no_fault(monkeypatch):
    state = State()
    for name in ("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST"):
        monkeypatch.setenv(name, "new")
    state.compare()
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

def test_threads(gpubench):
    torch.set_num_threads(1)
    gpubench(torch.neg, gpubench.randn(8))

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
    options = ["--preset=smoke", "--processes=1", "--device=cpu", "--threads=2", "--no-ceilings"]
    gpubench("run", "bench", "-o", "out", *options, cwd=tmp_path)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    (failed,) = run["gpubench"]["unmeasured"]
    assert failed["reason"] == "ValueError: mine (left changed: $LEFT_BEHIND)"
    seen = {}
    for bench in run["benchmarks"]:
        (process,) = bench["extra_info"]["gpubench"]["processes"]
        for flag in process["flags"]:
            if flag["flag"] == "altered":
                seen[bench["extra_info"]["gpubench"]["workload"]] = flag["seen"]
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


class Native:
    """As a profiler written in C, which ``sys.setprofile`` can't call; with or without what ends and resumes it."""

    def __init__(self):
        self.on = True


class Resumable(Native):
    def enable(self):
        self.on = True

    def disable(self):
        self.on = False


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on it is a tool of sys.monitoring")
def test_a_profile_goes_on_after_what_is_timed():
    """As under ``python -m cProfile -m pytest``: its object can't be called."""
    before, profile = sys.getprofile(), cProfile.Profile()
    profile.enable()
    try:
        with untraced():
            assert sys.getprofile() is None
            followed()
        assert sys.getprofile() is profile
        followed()
    finally:
        profile.disable()
        sys.setprofile(before)
    (entry,) = [entry for entry in profile.getstats() if getattr(entry.code, "co_name", "") == "followed"]
    assert entry.callcount == 1


def test_a_profiler_of_c_is_ended_by_its_own_methods_or_for_good():
    installed, follower = [], Resumable()
    resume = state_module._end(follower, installed.append)
    assert (follower.on, installed) == (False, [None])
    resume()
    assert (follower.on, installed) == (True, [None])
    with pytest.warns(RuntimeWarning, match="^Native can't be paused"):
        resume = state_module._end(Native(), installed.append)
    resume()
    assert installed == [None] * 3


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


@pytest.mark.parametrize("test", ["gpubench", "benchmark"])
def test_a_benchmark_is_timed_untraced(pytester, forking, test):
    """Also a plain one, if it is recorded; pytest-benchmark itself pauses tracers in its rounds only."""
    pytester.makepyfile(
        f"""
        import sys

        class Work:
            traced = []
            def __call__(self, *inputs):
                self.traced.append(sys.gettrace() is not None)
                return inputs

        def test_a({test}):
            work = Work()
            {test}(work, *([] if "{test}" == "benchmark" else [gpubench.randn(4)]))
            assert work.traced
            assert not any(work.traced)
        """
    )
    pytester.makeconftest("import sys\nsys.settrace(lambda *event: None)\n")
    options = ["-p", "gpubench.plugin", "--gpubench-preset=smoke", "--gpubench-no-ceilings", "--gpubench-device=cpu"]
    result = pytester.runpytest_subprocess(*options, f"--gpubench-ledger={pytester.path / 'journal'}")
    result.assert_outcomes(passed=1)
