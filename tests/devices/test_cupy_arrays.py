"""CuPy beside PyTorch, without a GPU: a pretend CuPy on a pretend accelerator."""

import json
import os
from pathlib import Path

import fake_backend
import forked
import pytest

pytestmark = [
    pytest.mark.skipif(bool(fake_backend.available()), reason=str(fake_backend.available())),
    pytest.mark.xdist_group("cupy"),  # two look at one run
]

ROOT = Path(__file__).parents[2]
FILES = [f"benchmarks/test_{name}.py" for name in ("elementwise", "matmul", "fft", "linear_algebra")]


def run(path, *words, cwd=ROOT, **variables):
    """pytest in another process, where torch knows the pretend GPU and ``import cupy`` gives the pretend CuPy."""
    options = ["-p", "fake_backend", "-p", "fake_cupy", "--gpubench-preset=smoke", "-q", "-rs", "--benchmark-quiet"]
    options += ["-p", "no:cacheprovider", "--gpubench-no-ceilings", "--gpubench-device=fake"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return forked.pytest(*options, f"--benchmark-json={path}", *words, cwd=cwd, PYTHONPATH=paths, **variables)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("cupy") / "run.json"
    done = run(path, *FILES, "--gpubench-implementation=cupy", "--gpubench-dtype=float32")
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads(path.read_text())


def records(data):
    return [benchmark["extra_info"]["gpubench"] for benchmark in data["benchmarks"]]


def test_every_case_is_checked_against_numpy_in_float64(measured):
    cases = records(measured)
    assert {case["implementation"] for case in cases} == {"cupy"}
    assert {case["check"]["status"] for case in cases} == {"passed"}
    workloads = {case["workload"] for case in cases}
    assert {"elementwise.multiply_add", "matmul.batched", "fft.rfft2", "linear_algebra.lstsq"} <= workloads
    assert measured["gpubench"]["unmeasured"] == []


def test_it_writes_into_arrays_and_what_is_not_known_of_it_stays_empty(measured):
    forms = {case["params"]["form"] for case in records(measured) if case["workload"] == "elementwise.add"}
    assert forms == {"allocating", "out", "inplace"}
    case = next(case for case in records(measured) if case["workload"] == "matmul.square")
    assert case["work"]["flops"] == 2 * 32**3
    assert case["memory_bytes"] is None  # torch's allocator knows nothing of it
    assert case["device_s"] is None
    assert case["device_reason"] == "CuPy queues its work on a stream of its own"


SUITE = """
import pytest
from fake_backend import VirtualClock, register
from fake_cupy import queue
from gpubench.devices import Device

backend = register(VirtualClock(tick_s=1e-7))
backend.launch_s = 1e-4  # or a round of calls that take no time would hold thousands
Device.now = staticmethod(backend.clock.now)

@pytest.mark.gpubench(implementations=["cupy"])
def test_add(gpubench):
    a = gpubench.array(gpubench.randn(8))
    queue.delay_s = 2e-3
    before, pooled = queue.synchronized, queue.freed
    gpubench(gpubench.xp.add, a, a)
    assert queue.synchronized > before
    queue.delay_s = 0.0

def test_torch(gpubench):
    before = queue.freed
    gpubench(lambda x: -x, gpubench.randn(8), check=False)
    assert queue.freed == before

@pytest.fixture
def pooled():
    return queue.freed

def test_next(pooled, gpubench):
    assert queue.freed == pooled + 1
    gpubench(lambda x: -x, gpubench.randn(8), check=False)
"""


def test_its_own_wait_is_within_the_time_and_its_pool_is_emptied_for_torch(tmp_path):
    (tmp_path / "test_own.py").write_text(SUITE)
    path = tmp_path / "run.json"
    done = run(path, "test_own.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    times = {each["name"]: each["stats"]["median"] for each in json.loads(path.read_text())["benchmarks"]}
    assert times["test_add[fake:0-float32-cupy]"] == pytest.approx(2e-3, rel=0.02)


WRONG = """
import pytest

def scaled(xp, x, factor):
    return xp.multiply(xp.exp(x), x)[: 3 if xp.__name__ == "cupy" else 4]

@pytest.mark.gpubench(implementations=["cupy"])
def test_scaled(gpubench):
    gpubench(scaled, gpubench.xp, gpubench.array(gpubench.randn(8)), 2)

@pytest.mark.gpubench(implementations=["cupy"])
def test_closure(gpubench):
    xp = gpubench.xp
    gpubench(lambda x: xp.exp(x), gpubench.array(gpubench.randn(8)))
"""


def test_a_wrong_answer_fails_and_a_closure_over_the_library_cannot_be_checked(tmp_path):
    (tmp_path / "test_own.py").write_text(WRONG)
    done = run(tmp_path / "run.json", "test_own.py", cwd=tmp_path)
    assert "2 failed" in done.stdout
    assert "WrongAnswer: wrong result: shape (3,), the reference has (4,)" in done.stdout
    assert "the call can't be repeated in float64 to check it (TypeError: Unsupported type" in done.stdout


def test_products_in_tf32_are_not_called_float32(tmp_path):
    words = ("benchmarks/test_matmul.py", "-k", "tall", "--gpubench-implementation=cupy", "--gpubench-dtype=float32")
    done = run(tmp_path / "run.json", *words, CUPY_TF32="1")
    assert "CUPY_TF32 is set, so CuPy's float32 products would be TF32: unset it" in done.stdout
