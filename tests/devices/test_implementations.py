"""Which libraries do the work: a test's own, the requested and the installed ones."""

import types

import numpy as np
import pytest
import torch

from gpubench.devices import CPU, implementations
from gpubench.devices.implementations import LIBRARIES, NumPy, find_implementation
from gpubench.devices.virtual import VirtualDevice
from gpubench.runfile.quality import library_label

FIFTH = """
import numpy
import pytest
from gpubench import Implementation, register_implementation
log = []
@register_implementation
class Doubling(Implementation):
    name, label, module = "doubling", "Doubling", "numpy"
    asynchronous = True
    writes = False
    @classmethod
    def why_not_on(cls, device): return None
    def open(self, threads): log.append(("open", threads))
    def close(self): log.append("close")
    def array(self, tensor): return tensor.numpy().copy()
    def prepared(self, function, args, kwargs):
        def call(*args, **kwargs):
            log.append("call")
            return function(*args, **kwargs)
        return call
    def wait(self): log.append("wait")
@pytest.fixture(scope="session")
def journal(): return log
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
NAMES = """
import pytest
@pytest.mark.gpubench(implementations=IMPLEMENTATIONS)
@pytest.mark.gpubench_sweep("n", smoke=[1, 2, 3], quick=[1])
def test_add(gpubench, n):
    a = gpubench.array(gpubench.randn(8))
    gpubench(gpubench.xp.add, a, a)
"""


@pytest.fixture
def kept(monkeypatch):
    """The libraries are as before again, afterwards."""
    before = dict(LIBRARIES)
    yield monkeypatch
    LIBRARIES.clear()
    LIBRARIES.update(before)


def test_a_library_of_ones_own_is_opened_waited_for_and_closed(bench, pytester, kept):
    pytester.makeconftest(FIFTH)
    ran = bench(TESTS, "--gpubench-threads=2", passed=4)
    assert [mark["name"] for mark in ran.marks] == [
        "test_add[cpu-float32-allocating]", "test_add[cpu-float32-out]", "test_add[cpu-float32-doubling-allocating]"
    ]  # fmt: skip
    case = ran.records[2]
    assert (case["implementation"], case["check"]["status"]) == ("doubling", "passed")


@pytest.mark.parametrize(
    ("asked", "measured"),
    [([], ["torch", "numpy", "doubling"]), (["numpy"], ["numpy"]), (["all"], ["torch", "numpy", "doubling"])],
)
def test_what_is_measured_is_the_tests_own_or_what_is_asked_for(bench, pytester, kept, asked, measured):
    pytester.makeconftest(FIFTH)
    source = NAMES.replace("IMPLEMENTATIONS", '["torch", "numpy", "doubling"]')
    ran = bench(source, *(f"--gpubench-implementation={name}" for name in asked))
    assert list(dict.fromkeys(record["implementation"] for record in ran.records)) == measured


MISSING = "Sixth is not installed"


@pytest.fixture
def absent(kept):
    """A registered library without its module."""
    terms = {"name": "sixth", "label": "Sixth", "module": "no_such_module_6"}
    implementations.register_implementation(type("Sixth", (NumPy,), terms))


def test_one_that_is_not_installed_is_a_line_and_not_a_row_a_case(bench, absent):
    ran = bench(NAMES.replace("IMPLEMENTATIONS", '["torch", "sixth"]'), passed=3)
    assert f"gpubench: measured without sixth: {MISSING}" in ran.lines
    (row,) = bench(NAMES.replace("IMPLEMENTATIONS", '["sixth"]'), skipped=1).rows
    assert row["reason"] == MISSING


UNKNOWN = "unknown implementation 'nmupy': choose from torch, numpy, sixth"


@pytest.mark.parametrize(("name", "complaint"), [("sixth", f"implementation sixth: {MISSING}"), ("nmupy", UNKNOWN)])
def test_asking_for_what_is_not_there_is_an_error(bench, absent, name, complaint):
    ran = bench(NAMES.replace("IMPLEMENTATIONS", '["torch"]'), f"--gpubench-implementation={name}")
    assert (ran.ret, ran.data) == (pytest.ExitCode.USAGE_ERROR, None)
    assert f"ERROR: gpubench: {complaint}" in ran.said


def test_a_marker_that_names_none_is_refused(bench, absent):
    assert f"test_it.py::test_add: {UNKNOWN}" in bench(NAMES.replace("IMPLEMENTATIONS", '["torch", "nmupy"]')).said


def test_labels_are_as_people_write_them_and_numpy_computes_on_the_cpu():
    names = "torch", "numpy", "tinygrad"
    assert [library_label(name) for name in names] == ["PyTorch", "NumPy", "tinygrad"]
    assert [LIBRARIES[name].label for name in names[:2]] == ["PyTorch", "NumPy"]
    reasons = [NumPy.why_not_on(device) for device in (CPU, VirtualDevice())]
    assert reasons == [None, "NumPy computes on the CPU only"]


SPACE = types.ModuleType("twins")
SPACE.plus, SPACE.add, SPACE.linalg = len, max, types.ModuleType("twins.linalg")
SPACE.linalg.solve, SPACE.fft = min, types.ModuleType("twins.fft")
SPACE.fft.rfft = sum


def test_functions_have_twins_in_numpy():
    twin = type("Twins", (NumPy,), {"xp": SPACE})(CPU, "float32").twin
    assert twin(SPACE) is np
    assert twin(SPACE.linalg) is np.linalg
    assert twin(max) is np.add
    assert (twin(min), twin(sum)) == (np.linalg.solve, np.fft.rfft)
    assert twin(len) is len  # of which NumPy has none
    assert twin(3) == 3


def test_torch_gets_its_own_tensors():
    tensor, library = torch.ones(2), find_implementation("torch")(CPU, "float32")
    assert library.array(tensor) is tensor
    assert library.xp is torch
