"""Shared by all tests: pytest in pytest, and a session with a virtual accelerator in it."""

from __future__ import annotations

import gc
import importlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import forked
import pytest
from inprocess import Ran

pytest_plugins = ["pytester"]

# Before torch is loaded: threads that wait for each other by spinning take the core that the other worker computes on.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# pytester forgets what a pytest run in this process has imported, and these can't be imported twice.
for name in ("torch", "torch._dynamo", "torch._inductor.test_operators", "torch.utils.flop_counter", "known_cpu"):
    importlib.import_module(name)

if path := os.environ.get("PYTHONPATH"):  # tests start processes in other folders, where a relative one leads nowhere
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))

VIRTUAL_CONFTEST = """
from gpubench import devices
from gpubench.devices.virtual import VirtualDevice
devices.register(VirtualDevice)
import pytest
@pytest.fixture
def machine(): return VirtualDevice.machine
"""


# A pytest that a test starts needs no plugin of these: loading the first two takes as long as torch does, and the third
# collects garbage of all that torch holds, at the end of each.
WITHOUT_PLUGINS = "-p no:hypothesispytest -p no:anyio -p no:unraisableexception"
os.environ["PYTEST_ADDOPTS"] = WITHOUT_PLUGINS

# A pytest that a test starts is no worker of pytest-xdist, even where this one is.
for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
    os.environ.pop(name, None)
os.environ.pop("COLUMNS", None)  # workers of pytest-xdist have it, and what a test starts would fold its lines


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests on a GPU run one after the other, in one worker of pytest-xdist: they time it."""
    if item.get_closest_marker("gpu"):
        item.add_marker(pytest.mark.xdist_group("gpu"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The notebook begins, or the other worker of pytest-xdist would wait for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_tutorial.py")


def pytest_collection_finish() -> None:
    """Imports stay: a failed benchmark collects garbage, and of all that would take a quarter of a second."""
    gc.freeze()


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """pytest's own, which takes the variable away."""
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_PLUGINS)
    return pytester


USUAL = ("--gpubench-preset=smoke", "--gpubench-no-ceilings", "--benchmark-json=run.json", "-rs")


@pytest.fixture
def bench(pytester):
    """Runs a file of benchmarks with the usual options and others: in this process, or ``apart`` in a forked one."""

    def run(source, *options, usual=USUAL, apart=False, name="test_it", **outcomes):
        pytester.makepyfile(**{name: source})
        device = () if any("-device" in str(option) for option in options) else ("--gpubench-device=cpu",)
        words = (*usual, *device, *options)
        with forked.instead(), warnings.catch_warnings():
            warnings.resetwarnings()  # as in a user's session: warnings are errors here alone
            result = pytester.runpytest_subprocess(*words) if apart else pytester.runpytest_inprocess(*words)
        if outcomes:
            result.assert_outcomes(**outcomes)
        ran = Ran(result.ret, result.stdout.str(), result.stderr.str(), pytester.path / "run.json")
        ran.result = result
        return ran

    return run


@pytest.fixture
def virtual(pytester, bench, monkeypatch):
    """A folder in which pytest knows the kind ``virtual`` with a fresh clock; runs it and gives the run file."""
    from gpubench.devices import base
    from gpubench.devices.virtual import VirtualDevice, VirtualMachine

    machine = VirtualMachine()
    monkeypatch.setitem(base.KINDS, VirtualDevice.kind, VirtualDevice)
    monkeypatch.setattr(VirtualDevice, "machine", machine)
    monkeypatch.setattr(VirtualDevice, "now", staticmethod(machine.now))
    pytester.makeconftest(VIRTUAL_CONFTEST)

    def run(source, *options, **wanted):
        words = ("--gpubench-device=virtual", *options)
        ran = bench(source, *words, usual=USUAL[1:3], name="test_virtual", **wanted)
        return ran.result, ran.data

    return run


@pytest.fixture
def save(tmp_path: Path):
    def save(name: str, data: Any) -> str:
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else json.dumps(getattr(data, "data", data)))
        return str(path)

    return save


@pytest.fixture
def one_thread():
    """With a busy neighbour several threads wait for each other far longer than they compute."""
    import torch

    from gpubench.measure import environment

    before = torch.get_num_threads()
    environment.set_threads(1)  # NumPy's too
    yield
    environment.set_threads(before)


@pytest.fixture
def no_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring processes leave out peaks, which take seconds."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p peakless")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
