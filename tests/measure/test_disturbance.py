"""Flags, and cases without one: from rounds, from the process and from ceilings."""

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from gpubench.devices.virtual import VirtualDevice
from gpubench.measure import disturbance
from gpubench.measure.disturbance import canary
from gpubench.measure.fixture import MOST_REMEASURED, implausible_flags
from gpubench.measure.session import Session, Settings
from gpubench.runfile.flags import ADVICE
from gpubench.runfile.schema import Bandwidth, CanaryTimes, Case, Ceilings, Work

RANDOM = np.random.default_rng(0)
STEADY = list(1e-3 * (1 + 0.01 * RANDOM.standard_normal(60)))


def names(found):
    found = list(found)
    assert all(flag.name in ADVICE and flag.seen for flag in found)
    return [flag.name for flag in found]


def reasons(times):
    """How each reason for ``noisy`` begins."""
    seen = "; ".join(flag.seen for flag in disturbance.noise_flags(times))
    return [" ".join(reason.split()[:2]) for reason in seen.split("; ") if reason]


@pytest.mark.parametrize(
    ("times", "raised"),
    [
        (STEADY, []),
        ([value * factor for value, factor in zip(STEADY, [1, 1.4] * 30, strict=True)], ["half of"]),
        ([2e-3] * 6 + STEADY[:54], ["the first"]),
        ([2e-3, *STEADY[:6]], ["the first"]),
        ([STEADY[0], 2e-3, *STEADY[:5]], []),
        ([value * (1 + i / 300) for i, value in enumerate(STEADY)], ["the last"]),
        ([value * (1.2 - i / 300) for i, value in enumerate(STEADY)], ["the last"]),
    ],
)
def test_rounds_that_spread_start_slowly_or_drift(times, raised):
    assert reasons(times) == raised


@pytest.mark.parametrize(
    ("round_s", "call_s", "wait_s", "raised"),
    [
        (2e-6, 1e-6, 0.0, ["too-short"]), (2e-5, 2e-5, 0.0, []), (1e-4, 1e-4, 8e-6, ["too-short"]),
        (1e-3, 1e-3, 8e-6, []), (1e-3, 7e-8, 0.0, ["too-short"]), (1e-3, 5e-7, 0.0, []),
    ],
)  # fmt: skip
def test_a_round_must_outlast_the_clock_the_wait_and_the_calling(monkeypatch, round_s, call_s, wait_s, raised):
    monkeypatch.setattr(disturbance, "calling_s", lambda: 4e-8)
    found = list(disturbance.too_short_flags(round_s, call_s, wait_s))
    assert names(found) == raised
    if call_s == 7e-8:
        assert found[0].seen == "a call took 70.0 ns, and calling a function that does nothing takes 40.0 ns of it"


def test_the_calling_is_the_shortest_of_several_loops(monkeypatch):
    monkeypatch.setattr(disturbance, "repeat", lambda call, clock, *, calls, **terms: [calls * 6e-8, calls * 4e-8])
    assert disturbance.calling_s.__wrapped__() == pytest.approx(4e-8)


def moment(**changed):
    values = {"wall_s": 0.0, "own_s": 0.0, "busy_s": 0.0, "stolen_s": 0.0, "clocks": {}, "slowed": ()}
    values["slowed_s"] = {"cuda:0: power limit": 1.0}
    return disturbance.Counters(**{**values, "neighbours": 0, **changed})


@pytest.mark.parametrize(
    ("after", "raised"),
    [
        ({"wall_s": 1.0, "own_s": 2.0, "busy_s": 2.1}, []),
        ({"wall_s": 1.0, "own_s": 1.0, "busy_s": 2.0}, ["contended"]),
        ({"wall_s": 1.0, "stolen_s": 0.8}, ["contended"]),
        ({"wall_s": 0.01, "busy_s": 1.0}, []),  # too short a look to say
        ({"neighbours": 1}, ["contended"]),
        ({"slowed": ("cuda:0: heat",)}, ["throttled"]),
        ({"clocks": {"cuda:0": 1.2e9}}, ["throttled"]),
        ({"wall_s": 0.5, "slowed_s": {"cuda:0: power limit": 1.1}}, ["power-limited"]),
        ({"slowed": ("cuda:0: power limit of 700 W",), "clocks": {"cuda:0": 1.2e9}}, ["power-limited"]),
        ({"slowed": ("cuda:0: power limit", "cuda:0: heat")}, ["throttled", "power-limited"]),
        ({"wall_s": 0.5, "slowed_s": {"cuda:0: power limit": 1.001}}, []),
        ({"clocks": {"cuda:0": 1.9e9}}, []),
        ({"wall_s": 1.0, "own_s": 1.0, "busy_s": None, "stolen_s": None}, []),
        # One thread of 64 cores: a foreign second on another core slows nothing.
        ({"cores": 64, "wall_s": 1.0, "own_s": 1.0, "busy_s": 2.0}, []),
        ({"cores": 64, "wall_s": 1.0, "own_s": 1.0, "busy_s": 13.0}, ["contended"]),
        ({"cores": 64, "wall_s": 1.0, "own_s": 1.0, "busy_s": 1.0, "stolen_s": 0.6}, []),
    ],
)
def test_what_disturbs(monkeypatch, after, raised):
    cores, after = after.get("cores", 2), {name: value for name, value in after.items() if name != "cores"}
    monkeypatch.setattr(disturbance, "affinity", lambda: range(cores))
    assert names(disturbance.disturbed(moment(clocks={"cuda:0": 1.98e9}), moment(**after))) == raised


def test_a_power_limit_is_named_with_its_watts():
    told = {"throttle_reasons": ("power limit", "heat"), "details": {"power_limit_w": 72.0}}
    methods = {name: lambda self, answer=answer: answer for name, answer in told.items()}
    limited = type("Limited", (VirtualDevice,), methods)()
    assert disturbance.read_counters([limited]).slowed == ("virtual:0: power limit of 72 W", "virtual:0: heat")


CEILINGS = Ceilings(
    (Bandwidth("copy", 1e6, 2e11, "l2"), Bandwidth("copy", 1e9, 3e10, "memory")), {"float32": 2e11}, 1e-6
)


@pytest.mark.parametrize(
    ("work", "seconds", "convolutions", "raised"),
    [
        (Work(flops=2e9), 1e-2, 0.0, []),
        (Work(flops=2e9), 7e-3, 0.0, ["implausible"]),
        (Work(bytes=3e9), 0.09, 0.0, []),
        (Work(bytes=3e9), 0.07, 0.0, ["implausible"]),
        (Work(bytes=3e6), 1.6e-5, 0.0, []),  # fits the cache
        (Work(bytes=8), 5e-7, 0.0, ["implausible"]),  # below the launch floor
        (Work(bytes=8), 9e-7, 0.0, []),
        (Work(flops=2e9), 5e-3, 1.0, []),  # may do fewer multiplications than are counted
        (Work(flops=2e9), 3e-3, 1.0, ["implausible"]),
    ],
)
def test_faster_than_the_ceiling_is_implausible(work, seconds, convolutions, raised):
    assert names(disturbance.impossible(work, seconds, "float32", CEILINGS, True, convolutions)) == raised


@pytest.mark.parametrize(
    ("variant", "canary", "doubted"),
    [("eager", None, ["implausible"]), ("autocast", None, []), ("eager", CanaryTimes(2, 1e-3, 2e-3), [])],
)
def test_a_result_is_judged_by_the_peak_of_the_dtype_that_computed_it_unless_threads_waited(variant, canary, doubted):
    session = Session(Settings(devices=("cpu",)), remeasured=MOST_REMEASURED)
    session.self_check = disturbance.SelfCheck(canary)
    session.peaks = {"cpu": Ceilings(throughput={"float32": 1e9, "bfloat16": 1e10})}
    case = Case("a.b", "cpu", "float32", variant=variant, devices=("cpu",))
    assert names(implausible_flags(session, case, Work(flops=5e9), 1.0)) == doubted


@pytest.mark.usefixtures("one_thread")
def test_a_canary_leaves_the_threads_as_they_were():
    assert canary(1) is None
    torch.set_num_threads(2)
    seen = canary(2)
    assert torch.get_num_threads() == 2
    assert min(seen.one_s, seen.all_s) > 0


# Threads that wait for each other -------------------------------------------------------------------------------------

SLOWER = "Other programs use the cores: with 2 threads a test took {} times as long as with 1. Measuring with 1 thread"
TAKEN = "Other programs use 1.0 of the 2 cores, so threads may wait for each other. Measuring with 1 thread"


@pytest.mark.parametrize(
    ("all_s", "others", "said"),
    [
        ([8e-2, 8e-2], 0.0, SLOWER.format(80)),
        ([0.1, 0.123], 0.0, SLOWER.format(123)),
        ([2e-3, 2e-3], 0.0, SLOWER.format(2.0)),
        ([8e-2, 6e-4], 0.0, ""),  # for a moment
        ([6e-4], 0.0, ""),
        ([6e-4], 1.0, TAKEN),  # two threads were twice as fast as one for some seconds, and 36 times slower in others
        ([6e-4], 0.5, ""),
    ],
)
def test_threads_that_wait_for_each_other_are_given_up(monkeypatch, all_s, others, said):
    """The canary takes 1 ms on one thread and these seconds on all, while others use so many of two cores."""
    seen, moments = iter(all_s), iter([moment(), moment(wall_s=1.0, busy_s=1.0 + others, own_s=1.0)])
    monkeypatch.setattr(disturbance, "canary", lambda threads: CanaryTimes(threads, 1e-3, next(seen)))
    monkeypatch.setattr(disturbance, "read_counters", lambda devices: next(moments))
    monkeypatch.setattr(disturbance, "affinity", lambda: (0, 1))
    check = disturbance.SelfCheck.of(2, "--threads")
    assert check.canary.all_s == all_s[-1]
    assert check.notice == (f"{said} (--threads 2 to insist)" if said else "")
    assert bool(check.flags) == (all_s[-1] > 1e-3 or others > 0)


NEG = """
import torch
def test_neg(gpubench):
    x, y = gpubench.randn(3_000_000), gpubench.empty(3_000_000)
    gpubench(torch.neg, x, out=y)
"""


@pytest.mark.parametrize(("busy", "contended"), [(2.0, True), (0.0, False)])
def test_a_busy_neighbour_is_contended(bench, monkeypatch, busy, contended):
    """Other processes keep so many cores busy, or none, all the time that the case is measured."""
    monkeypatch.setattr(disturbance, "core_seconds", lambda: (busy * time.perf_counter() + sum(os.times()[:2]), 0.0))
    ran = bench(NEG, "--gpubench-threads=2", usual=["--benchmark-json=run.json", "--gpubench-no-ceilings"])
    seen = {flag["flag"]: flag["seen"] for flag in ran.records[0]["processes"][0]["flags"]}
    assert ("other processes used" in seen.get("contended", "")) == contended


def test_a_quota_names_no_cores_with_a_time_of_their_own(monkeypatch):
    monkeypatch.setattr(disturbance, "cgroup_cores", lambda: 1.5)
    assert disturbance.core_seconds() == (None, None)


def test_what_its_children_use_is_not_others_doing():
    """The ranks of a case are the processes that it started."""
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    busy_s = disturbance.read_counters(()).busy_s
    child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    if busy_s is not None:  # its cores were busy meanwhile, at least for the child's half second
        assert disturbance.read_counters(()).busy_s - busy_s > 0.4
    family, alone = disturbance.read_counters((), family=True).own_s, disturbance.read_counters(()).own_s
    child.communicate(b"\n")
    assert family - alone > 0.4


@pytest.mark.parametrize("count", [30, 60, 120])
def test_a_clock_of_few_steps_is_no_drift(count):
    """Rounds of two times in random order: equal values must not count as rising because they follow one another."""
    draw = random.Random(count).choice
    series = ([draw([1.0, 1.2]) for _ in range(count)] for _ in range(500))
    assert sum("the last" in reasons(times) for times in series) == 0
    rising = [1.0] * (count // 2) + [1.2] * (count - count // 2)
    assert "the last" in reasons(rising)
