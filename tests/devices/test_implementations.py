"""Which libraries do the work: those that a test names, that are asked for, and that are there."""

import functools
import json
import sys
import types

import numpy as np
import pytest
import torch

from gpubench.devices import CPU, implementations
from gpubench.devices.cupy_arrays import CuPy
from gpubench.devices.implementations import LIBRARIES, Implementation, NumPy, find_implementation, implementation_label
from gpubench.devices.jax_arrays import Jax
from gpubench.errors import UsageError
from gpubench.testing import VirtualDevice

FIFTH = """
import numpy
import pytest
from gpubench import Implementation, register_implementation

class Calls(list):
    ...

log = Calls()

@register_implementation
class Doubling(Implementation):
    name, label, module = "doubling", "Doubling", "numpy"
    asynchronous = True
    writes = False

    @classmethod
    def why_not_on(cls, device):
        return None

    def open(self, threads):
        log.append(("open", threads))

    def close(self):
        log.append("close")

    def array(self, tensor):
        return tensor.numpy().copy()

    def prepared(self, function, args, kwargs):
        def call(*args, **kwargs):
            log.append("call")
            return function(*args, **kwargs)
        return call

    def wait(self):
        log.append("wait")

@pytest.fixture(scope="session")
def journal():
    return log
"""
TESTS = """
import pytest
pytestmark = pytest.mark.gpubench(implementations=["torch", "doubling"], writing={"form": ["out"]})

@pytest.mark.parametrize("form", ["allocating", "out"])
def test_add(gpubench, form):
    a = gpubench.array(gpubench.randn(8))
    gpubench(gpubench.xp.add, a, a)

def test_order(journal):
    assert journal[0] == ("open", 2)
    assert journal[-1] == "close"
    calls = "".join(str(entry)[0] for entry in journal[1:-1])
    assert calls.startswith("wcw")  # the first call, between two readings of the clock
    assert "c" in calls.rstrip("w")
"""


def run(pytester, *words):
    path = pytester.path / "run.json"
    result = pytester.runpytest_inprocess(
        "--gpubench-preset=smoke", "--gpubench-device=cpu", "--gpubench-no-ceilings", "--gpubench-threads=2",
        f"--benchmark-json={path}", "-rs", *words,
    )  # fmt: skip
    return result, json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def kept(monkeypatch):
    """The libraries are those of before again, afterwards."""
    before = dict(LIBRARIES)
    yield monkeypatch
    LIBRARIES.clear()
    LIBRARIES.update(before)


def names(data):
    return [benchmark["name"] for benchmark in data["benchmarks"]]


def test_a_library_of_ones_own_is_opened_waited_for_and_closed(pytester, kept):
    pytester.makeconftest(FIFTH)
    pytester.makepyfile(test_it=TESTS)
    result, data = run(pytester)
    result.assert_outcomes(passed=4)
    assert names(data) == [
        "test_add[cpu-float32-allocating]", "test_add[cpu-float32-out]", "test_add[cpu-float32-doubling-allocating]"
    ]  # fmt: skip
    case = data["benchmarks"][2]["extra_info"]["gpubench"]
    assert (case["implementation"], case["check"]["status"]) == ("doubling", "passed")


@pytest.mark.parametrize(
    ("asked", "measured"),
    [([], ["torch", "numpy"]), (["numpy"], ["numpy"]), (["all"], ["torch", "numpy", "doubling"])],
)
def test_what_is_measured_is_the_tests_own_or_what_is_asked_for(pytester, kept, asked, measured):
    pytester.makeconftest(FIFTH)
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.gpubench(implementations=["torch", "numpy"], full_implementations=["doubling"])
        def test_add(gpubench):
            a = gpubench.array(gpubench.randn(8))
            gpubench(gpubench.xp.add, a, a)
        """
    )
    _, data = run(pytester, *(f"--gpubench-implementation={name}" for name in asked))
    assert [each["extra_info"]["gpubench"]["implementation"] for each in data["benchmarks"]] == measured
    _, data = run(pytester, "--gpubench-preset=full", "--benchmark-max-time=0.01", "--benchmark-min-rounds=3")
    assert len(data["benchmarks"]) == 3


@pytest.fixture
def no_jax(kept):
    kept.setitem(sys.modules, "jax", None)


NAMES_JAX = """
import pytest
@pytest.mark.gpubench(implementations=IMPLEMENTATIONS)
@pytest.mark.gpubench_sweep("n", smoke=[1, 2, 3], quick=[1])
def test_add(gpubench, n):
    a = gpubench.array(gpubench.randn(8))
    gpubench(gpubench.xp.add, a, a)
"""
MISSING = "JAX is not installed: pip install 'pytest-gpubench[jax]'"


def test_one_that_is_not_installed_is_a_line_and_not_a_row_a_case(pytester, no_jax):
    pytester.makepyfile(test_it=NAMES_JAX.replace("IMPLEMENTATIONS", '["torch", "jax"]'))
    result, _ = run(pytester)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([f"gpubench: measured without jax: {MISSING.replace('[', '[[]')}"])


def test_a_test_of_nothing_else_is_one_row(pytester, no_jax):
    pytester.makepyfile(test_it=NAMES_JAX.replace("IMPLEMENTATIONS", '["jax"]'))
    result, data = run(pytester)
    result.assert_outcomes(skipped=1)
    (row,) = data["gpubench"]["unmeasured"]
    assert row["reason"] == MISSING


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("jax", f"gpubench: implementation jax: {MISSING}"),
        ("cupy", "gpubench: implementation cupy: CuPy is not installed: *"),
        ("nmupy", "gpubench: unknown implementation 'nmupy': choose from torch, numpy, cupy, jax*"),
    ],
)
def test_asking_for_what_is_not_there_is_an_error(pytester, no_jax, monkeypatch, name, complaint):
    monkeypatch.setitem(sys.modules, "cupy", None)
    pytester.makepyfile(test_it=NAMES_JAX.replace("IMPLEMENTATIONS", '["torch"]'))
    result, data = run(pytester, f"--gpubench-implementation={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {complaint.replace('[', '[[]')}"])
    assert data is None


def test_asking_for_one_that_computes_elsewhere_is_an_error(pytester, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    pytester.makepyfile(test_it=NAMES_JAX.replace("IMPLEMENTATIONS", '["torch"]'))
    result, _ = run(pytester, "--gpubench-implementation=cupy")
    result.stderr.fnmatch_lines(["ERROR: gpubench: implementation cupy: CuPy computes on CUDA and ROCm GPUs only"])


def test_a_marker_that_names_none_is_refused(pytester):
    pytester.makepyfile(test_it=NAMES_JAX.replace("IMPLEMENTATIONS", '["torch", "nmupy"]'))
    result, _ = run(pytester)
    result.stdout.fnmatch_lines(["*test_it.py::test_add: unknown implementation 'nmupy': choose from torch, *"])


def test_an_entry_point_adds_one_without_an_import_of_it_before(kept):
    entry = types.SimpleNamespace(name="other", load=lambda: type("Other", (NumPy,), {"name": "other", "label": "Ö"}))
    kept.setattr(implementations.importlib.metadata, "entry_points", lambda group: [entry])
    implementations._load_entry_points.cache_clear()
    assert implementation_label("other") == "Ö"
    implementations._load_entry_points.cache_clear()


def test_labels_are_as_people_write_them():
    assert [implementation_label(name) for name in ("torch", "numpy", "cupy", "jax", "tinygrad")] == [
        "PyTorch", "NumPy", "CuPy", "JAX", "tinygrad"
    ]  # fmt: skip
    with pytest.raises(UsageError, match="unknown implementation 'tinygrad': choose from torch"):
        find_implementation("tinygrad")


def test_where_each_computes():
    gpu = type("Gpu", (VirtualDevice,), {"kind": "cuda"})()
    assert NumPy.why_not_on(CPU) is None
    assert NumPy.why_not_on(gpu) == "NumPy computes on the CPU only"
    assert CuPy.why_not_on(gpu) is None
    assert CuPy.why_not_on(CPU) == "CuPy computes on CUDA and ROCm GPUs only"
    assert Jax.why_not_on(CPU) is None


@pytest.mark.parametrize(("plugins", "can"), [([], False), (["xla_cuda12"], True), (["rocm"], True), (["tpu"], False)])
def test_jax_computes_on_a_gpu_where_its_plugin_is_installed(monkeypatch, plugins, can):
    entries = [types.SimpleNamespace(name=name) for name in plugins]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)
    gpu = type("Gpu", (VirtualDevice,), {"kind": "cuda"})()
    assert (Jax.why_not_on(gpu) is None) is can


class Twins(Implementation):
    name, label, module = "twins", "Twins", "twins"

    @classmethod
    def why_not_on(cls, device):
        return None

    def array(self, tensor):
        return tensor

    @property
    def xp(self):
        return SPACE


SPACE = types.ModuleType("twins")
SPACE.plus, SPACE.add, SPACE.linalg = len, max, types.ModuleType("twins.linalg")
SPACE.linalg.solve = min


def test_functions_have_twins_in_numpy():
    twin = Twins(CPU, "float32").twin
    assert twin(SPACE) is np
    assert twin(SPACE.linalg) is np.linalg
    assert twin(max) is np.add
    assert twin(min) is np.linalg.solve
    made = twin(functools.partial(isinstance, SPACE.linalg, axis=max))
    assert (made.func, made.args, made.keywords) == (isinstance, (np.linalg,), {"axis": np.add})
    assert twin(len) is len  # of which NumPy has none
    assert twin(3) == 3


def test_torch_gets_its_own_tensors():
    tensor = torch.ones(2)
    library = find_implementation("torch")(CPU, "float32")
    assert library.array(tensor) is tensor
    assert library.xp is torch
