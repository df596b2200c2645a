"""A setting that a benchmark leaves changed is named, put back, or ends its process."""

import contextlib
import gc
import json
import os
import signal
import sys
import tracemalloc
import types
from functools import partial
from pathlib import Path

import numpy
import pytest
import torch
from inprocess import gpubench
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench.measure.state import State, untraced
from gpubench.runfile.flags import ADVICE

pytestmark = pytest.mark.usefixtures("no_ceilings")

BACKENDS, MATMUL, SUMS = torch.backends, torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"


def attribute(owner, name, left):
    return lambda: getattr(owner, name), partial(setattr, owner, name), left


def default_device():
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return None
    with torch._C.DisableTorchFunction():
        return torch._C._get_default_device(), torch.empty(0).device


def variable(name, left):
    def write(value):
        os.environ.update({name: value} if value else {}), value or os.environ.pop(name, None)

    return partial(os.environ.get, name), write, left


def flushes_denormals():
    return sys.float_info.min / len("two") == 0


SETTINGS = {
    "torch threads": (torch.get_num_threads, torch.set_num_threads, 7),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": (default_device, lambda left: torch.set_default_device(left if left == "meta" else None), "meta"),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "deterministic mode": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "anomaly mode": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "denormal numbers": (flushes_denormals, torch.set_flush_denormal, True),
    "checks of sparse tensors": (torch._C._check_sparse_tensor_invariants,
                                 torch._C._set_check_sparse_tensor_invariants, True),
    "float32 precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "mkldnn_enabled": attribute(BACKENDS.mkldnn, "enabled", False),
    "mkldnn_deterministic": attribute(BACKENDS.mkldnn, "deterministic", True),
    "cudnn_benchmark": attribute(BACKENDS.cudnn, "benchmark", True),
    "cublas_allow_fp16_accumulation": attribute(MATMUL, "allow_fp16_accumulation", True),
    f"cublas_{SUMS}": (lambda: (getattr(MATMUL, SUMS), getattr(MATMUL, f"{SUMS}_split_k")),
                       partial(setattr, MATMUL, SUMS), (False, False)),
    "sdp_use_flash": (BACKENDS.cuda.flash_sdp_enabled, BACKENDS.cuda.enable_flash_sdp, False),
    "sdp_use_math": (BACKENDS.cuda.math_sdp_enabled, BACKENDS.cuda.enable_math_sdp, False),
    "sdp_use_mem_efficient": (BACKENDS.cuda.mem_efficient_sdp_enabled, BACKENDS.cuda.enable_mem_efficient_sdp, False),
    "qengine": attribute(BACKENDS.quantized, "engine", BACKENDS.quantized.supported_engines[0]),
    "opt_einsum.enabled": attribute(BACKENDS.opt_einsum, "enabled", not BACKENDS.opt_einsum.enabled),
    "mha._is_fastpath_enabled": (BACKENDS.mha.get_fastpath_enabled, BACKENDS.mha.set_fastpath_enabled, False),
    "nnpack_enabled": (torch._C._get_nnpack_enabled, BACKENDS.nnpack.set_flags, False),
    "multithreading_enabled": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled, False),
    "$LEFT_BEHIND": variable("LEFT_BEHIND", "1"),
    "$TO_REMOVE": variable("TO_REMOVE", None),
    "working folder": (Path.cwd, os.chdir, "/"),
    "garbage collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable(), False),
    "gc thresholds": (gc.get_threshold, lambda counts: gc.set_threshold(*counts), (1,)),
    "functions torch.neg": attribute(torch, "neg", torch.abs),
    "functions numpy.sort": attribute(numpy, "sort", len),
    "signal.setitimer ITIMER_REAL": (lambda: any(signal.getitimer(signal.ITIMER_REAL)),
                                     lambda on: signal.setitimer(signal.ITIMER_REAL, 600 * on), True),
    "switch interval": (sys.getswitchinterval, sys.setswitchinterval, 1.0),
    "priority": (partial(os.getpriority, 0, 0), partial(os.setpriority, 0, 0), 1),
    "tracemalloc": (tracemalloc.is_tracing, lambda on: tracemalloc.start() if on else tracemalloc.stop(), True),
    "cores": (lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores),
              {min(os.sched_getaffinity(0))}),
}  # fmt: skip
"""Settings that can be left changed: reading and writing without the code under test, and the value left."""


def global_hooks():
    return dict(torch.nn.modules.module._global_forward_hooks)


def forget_json_decoder():
    del sys.modules["json.decoder"]


ENTERED = {
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), torch.autocast("cpu", dtype=torch.bfloat16).__enter__),
    "function modes of torch": (torch._C._len_torch_function_stack, TorchFunctionMode().__enter__),
    "dispatch modes of torch": (torch._C._len_torch_dispatch_stack, TorchDispatchMode().__enter__),
    "_global_forward_hooks": (global_hooks, lambda: torch.nn.modules.module.register_module_forward_hook(print)),
    "torch's profiler": (torch._C._autograd._profiler_enabled, lambda: torch.profiler.profile().__enter__()),
    "stance of the compiler": (lambda: torch._dynamo.eval_frame._stance.stance,
                               lambda: torch.compiler.set_stance("force_eager")),
    "module json.decoder": (lambda: sys.modules.get("json.decoder"), forget_json_decoder),
}  # fmt: skip
"""Settings that only their owner can undo: reading, and a benchmark that leaves them changed."""


def values():
    return {name: read() for name, (read, *_) in (SETTINGS | ENTERED).items()}


@pytest.fixture
def around(monkeypatch):
    """Whatever a broken restore leaves is undone by hand."""
    State()
    torch.use_deterministic_algorithms(False)  # it imports what sets a variable
    monkeypatch.setenv("TO_REMOVE", "1")
    kept = values()
    yield
    for name, (_, write, _) in reversed(SETTINGS.items()):
        write(kept[name])


def left_changed(state):
    """The flag for it, and the settings that could not be put back."""
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


def test_what_the_compiler_takes_away_again_is_no_replaced_function():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpubench.measure.precision.__compiled_fn_3_bb1a2ec0", len, raising=False)
        state = State()
    assert left_changed(state) == (None, [])


@pytest.mark.parametrize("deed", [lambda: sys.modules.pop("torch"), lambda: sys.modules.update(torch=object())])
def test_a_module_taken_away_or_replaced_is_there_again_at_once(around, deed):
    """The next user would import it for a second time, which torch doesn't survive, or get a mock."""
    state, taken = State(), sys.modules["torch"]
    deed()
    state.compare()
    assert sys.modules["torch"] is taken
    flag, stuck = state.restore()
    assert (flag.seen, stuck) == ("left changed: module torch (taken away or replaced)", [])


def test_what_can_be_read_no_more_ends_the_process(around):
    state = State()
    state._settings = state._settings | {"cores": (lambda: 1 / 0, lambda value: None)}
    flag, stuck = left_changed(state)
    assert (flag.seen, stuck) == ("left changed: cores", ["cores"])


def test_nested_autocast_is_left_by_as_many_contexts(around):
    state = State()
    for _ in range(2):
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    left_changed(state)
    torch.autocast_increment_nesting()
    assert torch.autocast_decrement_nesting() == 0


def test_what_is_put_back_meanwhile_and_what_torch_and_pytest_set_by_themselves_is_no_fault(around, monkeypatch):
    state = State()
    torch.set_default_dtype(torch.float64)
    for name in ("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST"):
        monkeypatch.setenv(name, "new")
    state.compare()
    torch.set_default_dtype(torch.float32)  # by a teardown
    assert state.restore() == (None, [])


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
    assert calls < 2_000  # a third of a millisecond


CASES = """
import os, pytest, torch
entered = []
@pytest.fixture(autouse=True)
def clean():
    assert torch.get_num_threads() == 2
    assert not torch.is_inference_mode_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    assert not torch._C._autograd._profiler_enabled()
    assert "LEFT_BEHIND" not in os.environ
def test_threads(benchmark):
    benchmark(sum, [1])
    torch.set_num_threads(1)
def test_attention(benchmark):
    benchmark(sum, [1])
    torch.backends.cuda.enable_flash_sdp(False)
def test_profiles(gpubench):
    gpubench(torch.neg, gpubench.randn(8))
    entered.append(torch.profiler.profile())
    entered[-1].__enter__()
def test_fails(gpubench):
    os.environ["LEFT_BEHIND"] = "secret"
    raise ValueError("mine")
def test_patches(gpubench, monkeypatch):
    monkeypatch.setenv("MINE", "1")
    gpubench(torch.neg, gpubench.randn(8))
def test_inference(gpubench):
    entered.append(torch.inference_mode())
    entered[-1].__enter__()
    gpubench(torch.neg, gpubench.randn(8))
@pytest.mark.parametrize("n", range(4))
def test_follows(gpubench, n): gpubench(torch.neg, gpubench.randn(8))
"""
LEFT = {
    "bench/test_it.py::test_threads": "left changed: torch threads (2 → 1)",
    "bench/test_it.py::test_attention": "left changed: sdp_use_flash (True → False)",
    "it.profiles": "left changed: torch's profiler (False → True)",
    "it.inference": "left changed: fwd_grad_enabled (True → False), grad mode (True → False),"
    " inference mode (False → True), multithreading_enabled (True → False)",
}


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
    assert len(run["benchmarks"]) == 9
    assert seen == LEFT


# Tracers --------------------------------------------------------------------------------------------------------------


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
def followers(): return sys.gettrace(), sys.getprofile()
def test_ours(gpubench):
    traced, before = [], followers()
    gpubench.declare(check=False)(lambda: traced.append(followers()))
    assert {*traced} == {(None, None)} != {followers()} == {before}
def test_plain(benchmark):
    traced = []
    benchmark(lambda: traced.append(followers()))
    assert {*traced} == {(None, None)}
"""


def test_a_benchmark_is_timed_untraced(bench, pytester):
    """Also a plain one beside it; pytest-benchmark itself pauses tracers in its rounds only."""
    pytester.makeconftest("import sys\nsys.settrace(lambda *event: None)\nsys.setprofile(lambda *event: None)\n")
    bench(UNTRACED, apart=True, passed=2)
