"""What is flagged, and what isn't: from rounds, from the process, from ceilings, and by cases broken on purpose."""

import json
import math
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from gpubench.measure import ceilings, disturbance
from gpubench.measure.disturbance import canary, slow_threads
from gpubench.runfile.flags import ADVICE
from gpubench.runfile.schema import Bandwidth, CanaryTimes, Ceilings, Work

RANDOM = np.random.default_rng(0)
STEADY = list(1e-3 * (1 + 0.01 * RANDOM.standard_normal(60)))


def names(found):
    found = list(found)
    assert all(flag.name in ADVICE and flag.seen for flag in found)
    return [flag.name for flag in found]


def test_steady_rounds_raise_nothing():
    assert names(disturbance.uneven(STEADY)) == []


def test_spread_rounds_are_noisy():
    spread = [value * factor for value, factor in zip(STEADY, [1, 1.4] * 30, strict=True)]
    assert names(disturbance.uneven(spread)) == ["noisy"]


def test_slow_first_rounds_are_cold():
    assert names(disturbance.uneven([2e-3] * 6 + STEADY[:54])) == ["cold"]
    assert names(disturbance.uneven([2e-3, *STEADY[:6]])) == ["cold"]
    assert names(disturbance.uneven([STEADY[0], 2e-3, *STEADY[:5]])) == []


def test_rounds_that_get_slower_are_drifting():
    assert names(disturbance.uneven([value * (1 + i / 300) for i, value in enumerate(STEADY)])) == ["drifting"]
    assert names(disturbance.uneven([value * (1.2 - i / 300) for i, value in enumerate(STEADY)])) == ["drifting"]


def test_a_round_must_outlast_the_clock_and_the_wait():
    assert names(disturbance.short(2e-6, 0.0)) == ["too-short"]
    assert names(disturbance.short(2e-5, 0.0)) == []
    assert names(disturbance.short(1e-4, 8e-6)) == ["too-short"]
    assert names(disturbance.short(1e-3, 8e-6)) == []


def moment(**changed):
    values = {"wall_s": 0.0, "own_s": 0.0, "switches": 0, "busy_s": 0.0, "stolen_s": 0.0, "clocks": {}, "slowed": ()}
    values["slowed_s"] = {"cuda:0: power limit": 1.0}
    return disturbance.Moment(**{**values, "neighbours": 0, **changed})


@pytest.mark.parametrize(
    ("after", "raised"),
    [
        ({"wall_s": 1.0, "own_s": 2.0, "busy_s": 2.1, "switches": 30}, []),
        ({"wall_s": 1.0, "own_s": 1.0, "busy_s": 2.0}, ["contended"]),
        ({"wall_s": 1.0, "switches": 5000}, ["contended"]),
        ({"wall_s": 1.0, "stolen_s": 0.8}, ["contended"]),
        ({"wall_s": 0.01, "switches": 5000, "busy_s": 1.0}, []),  # too short a look to say
        ({"neighbours": 1}, ["contended"]),
        ({"slowed": ("cuda:0: heat",)}, ["throttled"]),
        ({"clocks": {"cuda:0": 1.2e9}}, ["throttled"]),
        ({"wall_s": 0.5, "slowed_s": {"cuda:0: power limit": 1.1}}, ["throttled"]),
        ({"wall_s": 0.5, "slowed_s": {"cuda:0: power limit": 1.001}}, []),
        ({"clocks": {"cuda:0": 1.9e9}}, []),
        ({"wall_s": 1.0, "own_s": 1.0, "busy_s": None, "stolen_s": None}, []),
    ],
)
def test_what_disturbs(after, raised):
    assert names(disturbance.disturbed(moment(clocks={"cuda:0": 1.98e9}), moment(**after), cores=2)) == raised


CEILINGS = Ceilings(
    (Bandwidth("copy", 1e6, 2e11, "l2"), Bandwidth("copy", 1e9, 3e10, "memory")), {"float32": 2e11}, 1e-6
)


@pytest.mark.parametrize(
    ("work", "seconds", "raised"),
    [
        (Work(flops=2e9), 1e-2, []),
        (Work(flops=2e9), 7e-3, ["implausible"]),
        (Work(bytes=3e9), 0.09, []),
        (Work(bytes=3e9), 0.07, ["implausible"]),
        (Work(bytes=3e6), 1.6e-5, []),  # fits the cache
        (Work(bytes=8), 5e-7, ["implausible"]),  # below the launch floor
        (Work(bytes=8), 9e-7, []),
    ],
)
def test_faster_than_the_ceiling_is_implausible(work, seconds, raised):
    assert names(disturbance.impossible(work, seconds, "float32", CEILINGS, True, 0.0)) == raised


def test_convolutions_may_do_fewer_multiplications_than_are_counted():
    assert names(disturbance.impossible(Work(flops=2e9), 5e-3, "float32", CEILINGS, True, 1.0)) == []
    assert names(disturbance.impossible(Work(flops=2e9), 3e-3, "float32", CEILINGS, True, 1.0)) == ["implausible"]


def test_more_threads_that_are_slower_are_contended():
    assert names(slow_threads(CanaryTimes(2, 1e-4, 6e-5))) == []
    assert names(slow_threads(CanaryTimes(2, 1e-4, 5e-3))) == ["contended"]
    assert canary(1) is None


def test_a_canary_leaves_the_threads_as_they_were():
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        seen = canary(2)
        assert torch.get_num_threads() == 2
        assert seen.one_s > 0
        assert seen.all_s > 0
    finally:
        torch.set_num_threads(before)


# Broken on purpose ---------------------------------------------------------------------------------------------------

NO_WAIT = """
import threading, torch
def test_no_wait(gpubench):
    a = torch.randn(1024, 1024)
    def start(n):
        if not threads or not threads[0].is_alive():
            threads[:] = [threading.Thread(target=torch.mm, args=(a, a))]
            threads[0].start()
    threads = []
    gpubench(start, 1024, flops=2 * 1024**3, check=False)
    threads[0].join()
"""
NEVER_WRITTEN = """
import torch
def test_never_written(gpubench):
    gpubench(torch.empty_like, gpubench.randn(100))
"""
HALF_WRITTEN = """
import torch
def write(x, out):
    out[: len(x) // 2].copy_(x[: len(x) // 2])
    return out
def test_half_written(gpubench):
    x = gpubench.randn(100)
    gpubench(write, x, out=torch.zeros(100), check=lambda x, out: x)
"""
NEGLIGENT = """
import torch
def test_neg(gpubench):
    x, y = gpubench.randn(3_000_000), gpubench.empty(3_000_000)
    gpubench(torch.neg, x, out=y)
"""


@pytest.fixture
def measured(pytester):
    def run(source, *options):
        pytester.makepyfile(test_it=source)
        pytester.runpytest_inprocess("--gpubench-device=cpu", "--benchmark-json=run.json", *options)
        return json.loads((pytester.path / "run.json").read_text())

    return run


def raised(run):
    (bench,) = run["benchmarks"]
    return {flag["flag"]: flag["seen"] for flag in bench["extra_info"]["gpubench"]["processes"][0]["flags"]}


def test_a_missing_wait_is_implausible(measured, monkeypatch):
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda wanted, preset: {"cpu": CEILINGS})
    seen = raised(measured(NO_WAIT, "--gpubench-threads=1"))
    assert "times the measured peak (float32 matmul)" in seen["implausible"]


@pytest.mark.parametrize("source", [NEVER_WRITTEN, HALF_WRITTEN])
def test_an_output_never_written_fails_its_check(measured, source):
    run = measured(source, "--gpubench-no-ceilings")
    assert not run["benchmarks"]
    (row,) = run["gpubench"]["unmeasured"]
    assert row["status"] == "error"
    assert "wrong answer: an output is not finite or was never written" in row["reason"]


@pytest.mark.parametrize(("busy", "contended"), [(2.0, True), (0.0, False)])
def test_a_busy_neighbour_is_contended(measured, monkeypatch, busy, contended):
    """Other processes keep so many cores busy, or none, all the time that the case is measured."""
    monkeypatch.setattr(disturbance, "SWITCHES_PER_S", math.inf)
    monkeypatch.setattr(disturbance, "core_seconds", lambda: (busy * time.perf_counter() + sum(os.times()[:2]), 0.0))
    seen = raised(measured(NEGLIGENT, "--gpubench-no-ceilings", "--gpubench-threads=2"))
    assert ("other processes used" in seen.get("contended", "")) == contended


def test_what_its_children_use_is_not_others_doing():
    """The ranks of a case are the processes that it started."""
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    busy_s = disturbance.look(()).busy_s
    child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    if busy_s is not None:  # its cores were busy meanwhile, at least for the child's half second
        assert disturbance.look(()).busy_s - busy_s > 0.4
    family, alone = disturbance.look((), family=True).own_s, disturbance.look(()).own_s
    child.communicate(b"\n")
    assert family - alone > 0.4


@pytest.mark.parametrize("count", [30, 60, 120])
def test_a_clock_of_few_steps_is_no_drift(count):
    """Rounds of two times in random order: equal values must not count as rising because they follow one another."""
    draw = random.Random(count).choice
    series = ([draw([1.0, 1.2]) for _ in range(count)] for _ in range(500))
    assert sum("drifting" in names(disturbance.uneven(times)) for times in series) == 0
    rising = [1.0] * (count // 2) + [1.2] * (count - count // 2)
    assert "drifting" in names(disturbance.uneven(rising))
