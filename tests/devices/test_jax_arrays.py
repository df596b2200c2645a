"""JAX beside PyTorch, for real, on the CPU: ``tox -e jax`` installs it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gpubench.devices import CPU
from gpubench.devices.jax_arrays import Jax
from gpubench.measure.clock import DeviceClock
from gpubench.measure.data import as_tensor

jax = pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]
FILES = [f"benchmarks/test_{name}.py" for name in ("elementwise", "matmul", "fft", "linear_algebra")]


def run(path, *words, cwd=ROOT):
    command = [sys.executable, "-m", "pytest", "--gpubench-preset=smoke", "--gpubench-device=cpu", "-q", "-rs"]
    command += ["--benchmark-quiet", "-p", "no:cacheprovider", "--gpubench-no-ceilings", f"--benchmark-json={path}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([*command, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("jax") / "run.json"
    words = ("--gpubench-implementation=jax", "--gpubench-dtype=float32", "--gpubench-dtype=float64")
    done = run(path, *FILES, *words)
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads(path.read_text())


def records(data):
    return [benchmark["extra_info"]["gpubench"] for benchmark in data["benchmarks"]]


def test_every_case_of_smoke_is_checked_in_float64(measured):
    cases = records(measured)
    assert {case["implementation"] for case in cases} == {"jax"}
    assert {case["check"]["status"] for case in cases} == {"passed"}
    assert len({case["workload"] for case in cases}) == 5 + 3 + 2 + 6
    assert {case["dtype"] for case in cases} == {"float32", "float64"}
    assert measured["gpubench"]["unmeasured"] == []
    flags = {flag["flag"] for case in cases for process in case["processes"] for flag in process["flags"]}
    assert flags <= {"contended"}  # the machine may be busy; nothing was left changed


def test_it_has_no_case_that_writes_into_an_array(measured):
    assert {case["params"]["form"] for case in records(measured) if "form" in case["params"]} == {"allocating"}


def test_doubles_are_doubles(measured):
    errors = {
        case["dtype"]: case["check"]["error"] for case in records(measured) if case["workload"] == "matmul.square"
    }
    assert errors["float64"] < 1e-14 < errors["float32"] < 1e-5


def test_the_first_call_has_the_compilation(measured):
    (case,) = [
        case
        for case in records(measured)
        if (case["workload"], case["dtype"], case["params"])
        == ("elementwise.exp", "float32", {"form": "allocating", "n": 1000})
    ]
    (benchmark,) = [b for b in measured["benchmarks"] if b["extra_info"]["gpubench"] is case]
    assert case["first_call_s"] > 10 * benchmark["stats"]["median"]


def test_its_version_is_a_fact_of_the_machine(measured):
    assert measured["machine_info"]["gpubench"]["libraries"]["jax"] == jax.__version__


@pytest.fixture
def library():
    made = Jax(CPU, "float32")
    made.open(2)
    yield made
    made.close()


def test_the_clock_waits_for_work_that_is_queued(library):
    clock = DeviceClock([CPU])
    clock.wait_by(CPU, library.wait)
    a = library.array(torch.randn(1500, 1500))
    product = library.prepared(library.xp.matmul, (a, a), {})
    product(a, a)
    clock()
    start = time.perf_counter()
    results = [product(a, a) for _ in range(20)]
    queued_s = time.perf_counter() - start
    assert not results[-1].is_ready()  # else the test shows nothing
    clock()
    assert all(result.is_ready() for result in results)
    assert time.perf_counter() - start > 2 * queued_s


def test_precision_is_set_for_a_case_and_put_back():
    names = ("jax_enable_x64", "jax_default_matmul_precision")
    before = [getattr(jax.config, name) for name in names]
    library = Jax(CPU, "float64")
    library.open(2)
    assert library.array(torch.ones(2, dtype=torch.float64)).dtype == "float64"
    assert [getattr(jax.config, name) for name in names] == [True, "highest"]
    library.close()
    assert [getattr(jax.config, name) for name in names] == before


def test_a_tensor_becomes_an_array_and_back(library):
    tensor = torch.randn(64, 2).T
    assert torch.equal(as_tensor(library.array(tensor)), tensor)
    halves = torch.randn(5).bfloat16()
    assert torch.equal(as_tensor(library.array(halves)), halves)


def test_functions_have_twins_in_numpy(library):
    jnp = jax.numpy
    assert library.twin(jnp) is np
    assert [library.twin(each) for each in (jnp.add, jnp.linalg.svd, jnp.fft)] == [np.add, np.linalg.svd, np.fft]


def test_constants_stay_out_of_the_compiled_arguments(library):
    def power(xp, x, exponent, *, axis, keepdims):
        assert isinstance(exponent, int)
        return xp.sum(x**exponent, axis=axis, keepdims=keepdims)

    x = library.array(torch.arange(6.0).reshape(2, 3))
    call = library.prepared(power, (library.xp, x, 2), {"axis": 0, "keepdims": True})
    assert call(library.xp, x, 2, axis=0, keepdims=True).tolist() == [[9.0, 17.0, 29.0]]


def test_a_function_that_takes_variants_itself_is_not_compiled(library):
    def first(x):
        return float(x[0])

    x = library.array(torch.ones(2))
    with pytest.raises(jax.errors.ConcretizationTypeError):
        library.prepared(first, (x,), {})(x)
    first.applies_variant = True
    assert library.prepared(first, (x,), {})(x) == 1.0


WRONG = """
import jax.numpy as jnp
import pytest

def off(xp, x):
    return xp.exp(x) * (1.001 if xp is jnp else 1)

@pytest.mark.gpubench(implementations=["jax"])
def test_off(gpubench):
    gpubench(off, gpubench.xp, gpubench.array(gpubench.randn(8)))

@pytest.mark.gpubench(implementations=["jax"])
def test_right(gpubench):
    gpubench(lambda x: jnp.exp(x), gpubench.array(gpubench.randn(8)))
"""


def test_a_wrong_answer_fails(tmp_path):
    (tmp_path / "test_own.py").write_text(WRONG)
    done = run(tmp_path / "run.json", "test_own.py", cwd=tmp_path)
    assert "WrongAnswer: wrong result: relative error 0.001" in done.stdout
    (right,) = [
        each for each in records(json.loads((tmp_path / "run.json").read_text())) if "right" in each["workload"]
    ]
    assert 0 < right["check"]["error"] < 1e-6


THREADS = """
import os, sys
from pathlib import Path
from gpubench.devices import CPU
from gpubench.devices.jax_arrays import Jax
before = dict(os.environ)
Jax(CPU, "float32").open(int(sys.argv[1]))
import jax
jax.numpy.ones((512, 512)).dot(jax.numpy.ones((512, 512))).block_until_ready()
names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
print(sum("XLAEigen" in name for name in names), {name for name in os.environ if name not in before})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are named in /proc on Linux alone")
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_are_those_of_the_run_and_the_environment_stays(threads):
    words = [sys.executable, "-c", THREADS, str(threads)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1)[0] == str(threads)
    assert "NPROC" not in done.stdout


def test_a_gpus_memory_is_left_to_torch(monkeypatch):
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Jax, "_started", False)
    seen = []
    monkeypatch.setattr(jax, "devices", lambda: seen.append(os.environ[name]))
    Jax(CPU, "float32")._start(2)
    assert seen == ["false"]
    assert name not in os.environ
