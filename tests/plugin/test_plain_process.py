"""A process that was forked before memory is kept makes a benchmark's calls as any program does."""

import os
import time
from types import SimpleNamespace as Made

import pytest
from inprocess import measure

from gpubench.devices import Device
from gpubench.measure import fixture
from gpubench.plugin import plain_process
from gpubench.plugin.plain_process import PlainProcess

BENCHMARKS = """
import time
from pathlib import Path
import torch
from gpubench.devices.cpu import keeps_memory
def copied(x):
    Path(f"copied-kept-{keeps_memory()}").touch()
    return x + 1
def small(x):
    Path(f"small-kept-{keeps_memory()}").touch()
    return x + 1
def slow(x):
    time.sleep(0.025)
    return copied(x)
def test_copied(gpubench): gpubench(copied, gpubench.randn(10**6))
def test_small(gpubench): gpubench(small, gpubench.randn(10))
def test_slow(gpubench): gpubench(slow, gpubench.randn(2 * 10**6))
"""


def test_a_call_that_makes_much_memory_is_timed_in_a_plain_process_too(tmp_path):
    ran = measure(tmp_path, BENCHMARKS, "--preset=glance", "--processes=1", "--device=cpu", "--threads=1")
    plain = {record["workload"]: record["plain_s"] for record in ran.records}
    assert plain["mine.copied"] > 0
    assert plain["mine.small"] is plain["mine.slow"] is None
    seen = {path.name for path in tmp_path.glob("*-kept-*")}
    assert seen == {"copied-kept-True", "copied-kept-False", "small-kept-True"}


def test_the_first_calls_of_a_process_whose_threads_share_a_core_are_no_times(monkeypatch):
    spent = [0.0]

    def call():
        spent.append(spent[-1] + (15e-3 if len(spent) < 8 else 1e-3))

    monkeypatch.setattr(Device, "now", staticmethod(lambda: spent[-1]))
    monkeypatch.setattr(fixture, "apply", lambda variant, function, home: function)
    session, library = Made(plain_s=None), Made(prepared=lambda function, args, kwargs: function)
    terms = {"case": Made(variant="eager"), "home": None, "arguments": lambda: ((), {})}
    fixture.time_plainly(Made(session=session, library=library, request=Made(function=call), **terms))
    assert session.plain_s == pytest.approx(1e-3)


def fails():
    raise ValueError


@pytest.mark.parametrize(
    "call", [fails, lambda: os._exit(3), lambda: time.sleep(20) or 1], ids=["raises", "dies", "hangs"]
)
def test_a_call_that_fails_in_a_plain_process_has_no_time_and_the_next_isnt_tried(call, monkeypatch):
    session = Made(plain_s=None, become_plain=lambda threads: None)

    def run(name):
        session.plain_s = {"good": lambda: 2e-3, "bad": call}[name]()

    monkeypatch.setattr(plain_process, "LONGEST_S", 1)
    process = PlainProcess(session, run)
    process._socket.settimeout(60)  # the call's own process ends it
    assert process.seconds("good", 1) == 2e-3
    assert process.seconds("bad", 1) is None
    assert process.seconds("good", 1) is None
    with pytest.raises(ProcessLookupError):
        os.kill(process._pid, 0)
