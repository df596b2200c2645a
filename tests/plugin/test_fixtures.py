"""Benchmarks of others, with pytest-benchmark's own fixture, under ``gpubench run``."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_backend
import forked
import pytest
from inprocess import gpubench, measure

from gpubench.runfile.runs import read

pytestmark = [
    pytest.mark.usefixtures("no_ceilings"),
    pytest.mark.skipif(bool(fake_backend.available()), reason=str(fake_backend.available())),
    pytest.mark.xdist_group("plain benchmarks"),  # most look at one run
]

SUITE = """
import pytest, torch
from fake_backend import VirtualClock, backend, register
from gpubench.devices import Device
virtual = VirtualClock(tick_s=1e-7)
Device.now = staticmethod(register(virtual).clock.now)
def neg(x):
    virtual.sleep(1e-5)
    return -x
class Shape:
    def __init__(self, n): self.n = n
@pytest.fixture(autouse=True)
def slow_queue():
    backend.delay_s = 2e-3
    yield
    backend.delay_s = 0.0
@pytest.mark.parametrize("n", [8, 16])
@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_neg(benchmark, device, n):
    x = torch.ones(n, device=device)
    benchmark(neg, x)
@pytest.mark.skip(reason="not today")
def test_skipped(benchmark): benchmark(neg, 1)
def test_unnamed(benchmark): benchmark.pedantic(neg, (torch.ones(8, device="fake:1"),), rounds=5)
def test_nothing(benchmark): benchmark(neg, 1)
compiled = set()
def compile_and_neg(x):
    virtual.sleep(1e-3 if x in compiled else 1.0)
    compiled.add(x)
    return -x
@pytest.mark.benchmark(max_time=0.2)
def test_compiled(benchmark): benchmark(compile_and_neg, 1)
@pytest.mark.benchmark(max_time=0.2, warmup=False)
def test_compiled_cold(benchmark): benchmark(compile_and_neg, 2)
@pytest.mark.parametrize("limit", [float("inf"), float("nan"), None, "", "größer", [1] * 900, Shape(3), torch.float32])
def test_odd(benchmark, limit): benchmark(neg, 1)
"""


@contextlib.contextmanager
def backend_and_suite(folder: Path, *plugins: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("PYTEST_PLUGINS", ",".join(["fake_backend", *plugins]))
        for path in (Path(__file__).parents[1], folder):
            changed.setenv("PYTHONPATH", str(path), prepend=os.pathsep)
        yield


def run(folder: Path, *options: str) -> Any:
    """The measurements of the suite."""
    with backend_and_suite(folder):
        return measure(folder, SUITE, *options).run


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of two processes' measurements."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "cupy.py").write_text("")
    (folder / "conftest.py").write_text("import cupy\n")
    run(folder, "--processes=2")
    return folder / "out"


@pytest.fixture(scope="module")
def results(measured):
    return {each.fullname.partition("::")[2]: each for each in read(measured / "run.json").results if each.times}


def test_work_on_an_accelerator_is_waited_for(results):
    neg, single = results["test_neg[fake-8]"].times, results["test_unnamed"].times
    assert neg.median_s == pytest.approx(2e-3, rel=0.02)
    assert single.median_s >= 2e-3
    assert neg.timer == single.timer == "timer"


def test_what_float32_means_by_default_has_a_row_where_the_device_has_it(tmp_path):
    """PyTorch's convolutions use TF32 unless a program says otherwise."""
    (tmp_path / "ampere.py").write_text("from gpubench.devices.base import Device; Device.lacks = lambda *_: None")
    words = ["--builtin", "--list", "--preset=quick", "--device=fake", "-k", "conv2d or cifar or gpt2 or elementwise"]
    with backend_and_suite(tmp_path, "ampere"):
        done = gpubench("run", *words, cwd=tmp_path)
    named = {line.partition("[")[0] for line in done.stdout.splitlines() if "[tf32" in line}
    wanted = {"convolution.conv2d", "models.cifar", "models.gpt2", "training.cifar", "training.gpt2"}
    assert named >= wanted, done.stderr
    assert not any(name.startswith("elementwise") for name in named)


FILLING = """attention.causal[float32-length=4096 fft.complex[float32-batch=1024-n=16384 matmul.square[float32-n=2048
    matmul.tall_skinny[float32-rows=1000000 models.resnet50[float32-batch=128 training.resnet50[float32-batch=32
    classic.step[float32-form=one irregular.sort[float32-n=1000000 science.option_price[float32-n=10000000"""


def test_the_preset_quick_has_a_size_of_each_kind_that_fills_a_large_gpu(tmp_path):
    done = gpubench("run", "--builtin", "--list", "--preset=quick", "--device=cpu", cwd=tmp_path)
    names = [line.split()[0] for line in done.stdout.splitlines() if "[" in line]
    assert [wanted for wanted in FILLING.split() if not any(name.startswith(wanted) for name in names)] == []


def test_the_timer_waits_in_a_session_of_pytest_too(tmp_path):
    (tmp_path / "test_mine.py").write_text(SUITE, encoding="utf-8")
    words = ["--benchmark-timer=gpubench.timer", "--benchmark-json=plain.json", "--benchmark-max-time=0.1", "-k", "neg"]
    with backend_and_suite(tmp_path):
        done = forked.pytest("-q", "-p", "no:cacheprovider", "test_mine.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    results = read(tmp_path / "plain.json").results
    found = [result.times.median_s for result in results if "neg[fake" in result.fullname]
    assert found == pytest.approx([2e-3, 2e-3], rel=0.02)


def test_a_first_call_that_compiles_takes_no_rounds_from_the_others(results):
    compiled, cold = (results[name].times for name in ("test_compiled", "test_compiled_cold"))
    assert [compiled.median_s, cold.median_s] == pytest.approx([1e-3, 1e-3], rel=0.01)
    assert compiled.rounds == 2 * 100
    assert cold.rounds == 2 * 2  # the preset's fewest


def test_a_run_that_wants_no_warm_up_has_none(tmp_path):
    read_run = run(tmp_path, "-k", "test_compiled", "--processes=1", "--", "--benchmark-warmup=off")
    assert [result.times.rounds for result in read_run.results] == [3, 3]


def test_a_device_is_that_of_a_parameter_or_of_memory_or_unknown(results):
    devices = {"test_neg[cpu-8]": "cpu", "test_neg[fake-16]": "fake:0", "test_unnamed": "fake:1", "test_nothing": ""}
    assert {name: results[name].device for name in devices} == devices


def test_rows_that_differ_in_their_device_are_a_speedup(measured, results):
    assert results["test_neg[cpu-8]"].case.id == results["test_neg[fake-8]"].case.id == "test_mine.py::test_neg[n=8]"
    lines = (measured / "speedup.csv").read_text().splitlines()
    assert len(lines) == 3
    assert all("test_mine.py::test_neg" in line for line in lines[1:])
    assert "param_device" not in (measured / "results.csv").read_text()


def test_every_parameter_has_a_readable_name_of_its_own(results):
    odd = [result for name, result in results.items() if name.startswith("test_odd")]
    names = [result.case.id for result in odd]
    assert len(set(names)) == len(odd) == 8
    assert names[:5] == [f"test_mine.py::test_odd[limit={word}]" for word in ("inf", "nan", "None", "", "größer")]
    assert odd[5].params == {"id": "limit5"}
    assert odd[6].params == {"id": "limit6"}
    assert (odd[7].params, odd[7].dtype) == ({}, "float32")


def test_samples_keep_their_process(results):
    assert {tuple(process.index for process in result.times.processes) for result in results.values()} == {(0, 1)}


def test_a_plan_calls_no_test_and_sets_up_nothing(tmp_path):
    tests = """
import pytest
@pytest.fixture
def costly(): raise RuntimeError("set up")
def test_called(benchmark, costly): benchmark(len, [])
@pytest.mark.skipif(True, reason="needs a GPU")
class TestElsewhere:
    def test_it(self, benchmark, costly): benchmark(len, [])
"""
    (tmp_path / "test_mine.py").write_text(tests)
    elsewhere = "import pytest\npytestmark = pytest.mark.skip('all of it')\n"
    (tmp_path / "test_elsewhere.py").write_text(elsewhere + "def test_all(benchmark): benchmark(len, [])\n")
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "--gpubench-preset=smoke"]
    done = forked.pytest(*options, f"--gpubench-plan={tmp_path / 'plan.json'}", ".", cwd=tmp_path)
    assert "no tests ran" in done.stdout, done.stdout
    plan = json.loads((tmp_path / "plan.json").read_text())["cases"]
    assert {case["fullname"].partition("::")[2]: case["skip"] for case in plan} == {
        "test_called": None,
        "TestElsewhere::test_it": "needs a GPU",
        "test_all": "all of it",
    }


def test_what_the_timer_cannot_wait_for_is_flagged(results):
    flags = {flag.seen for result in results.values() for flag in result.flags if flag.name == "unwaited"}
    assert flags == {"CuPy was loaded"}


def test_a_wait_of_ones_own_is_called_and_lifts_the_flag(tmp_path):
    (tmp_path / "cupy.py").write_text("")
    wait = "lambda: __import__('test_mine').virtual.sleep(0.005)"
    (tmp_path / "conftest.py").write_text(f"import cupy, gpubench\ngpubench.add_wait({wait})\n")
    (result,) = run(tmp_path, "-k", "unnamed").results
    assert "unwaited" not in [flag.name for flag in result.flags]
    assert result.times.median_s >= 5e-3


def test_calls_that_only_begin_or_change_their_input_are_flagged(tmp_path):
    tests = """
import pytest, random, time
def rows(): yield 1
def test_lazy(benchmark): benchmark(rows)
def test_emptied(benchmark): benchmark(sum, iter(range(1000)))
def test_sorted(benchmark): benchmark.pedantic([random.random() for _ in range(1000)].sort, rounds=3)
def test_fresh(benchmark): benchmark.pedantic(list.sort, setup=lambda: (([2, 1],), {}), rounds=3)
def test_sound(benchmark): benchmark(sorted, [2, 1])
@pytest.mark.benchmark(max_time=0.25, min_time=0.002)
def test_cliff(benchmark):
    calls = []
    benchmark(lambda: calls.append(1) or len(calls) > 50 and time.sleep(0.02))
@pytest.mark.benchmark(max_time=0.25)
def test_slower(benchmark):
    calls = []
    benchmark(lambda: calls.append(1) or time.sleep(0.05 if len(calls) > 300 else 1e-4))
"""
    results = {each.workload.rpartition("::test_")[2]: each for each in measure(tmp_path, tests).run.results}
    seen = {name: {flag.name for flag in each.flags} & {"unwaited", "altered"} for name, each in results.items()}
    altered = {name: {"altered"} for name in ("emptied", "sorted", "slower", "cliff")}
    assert seen == {"lazy": {"unwaited"}, **altered, "fresh": set(), "sound": set()}
    slower = results["slower"].times
    assert slower.rounds * slower.median_s < 5  # 65 by the first calls
    # Not the 100 that were tried, which took more than all rounds may.
    assert results["cliff"].times.iterations < 50


def test_a_parameter_of_a_dtype_without_peaks_loses_no_run(tmp_path):
    dtypes = "[torch.int32, torch.bool, torch.complex64]"
    test = f"@pytest.mark.parametrize('dtype', {dtypes})\ndef test_x(gpubench, dtype):\n"
    text = f"import pytest, torch\n{test}    gpubench(torch.logical_not, torch.ones(9, dtype=dtype))\n"
    measure(tmp_path, text, "--device=cpu")
    assert len((tmp_path / "out/results.csv").read_text().splitlines()) == 4
