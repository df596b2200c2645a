"""Parts of steps, marks, intervals and bounds, by scripted clocks and simulated times."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from gpubench.profiling import profile
from gpubench.profiling.tracing import DISPATCH_S, split_host

TRAIN = frozenset({"train"})


def notes(*each):
    """``1 + data`` opens a region at second 1; the key of data is train unless a fourth word names another one."""
    words = [note.split() for note in each]
    return [(float(w[0]), w[1], w[2], w[3] if len(w) > 3 else "train" if w[2] == "data" else None) for w in words]


def test_each_instant_belongs_to_the_innermost_region():
    step = notes("1 + data", "3 - data", "4 + optimizer", "5 + backward", "5.5 + forward", "6 - forward",
                 "7 - backward", "9 - optimizer")  # fmt: skip
    parts = profile.parts_of(step, 0.0, 10.0, TRAIN)
    assert parts.pop("evaluation") == 0
    assert parts == {"data": 2, "python": 3, "host": 0, "forward": 0.5, "backward": 1.5, "optimizer": 3}


def test_parts_sum_to_the_step_of_torn_notes_too():
    chance = random.Random(1)
    for _ in range(2000):
        moments = sorted(chance.uniform(-1, 11) for _ in range(chance.randint(0, 20)))
        regions = [profile.DATA, profile.FORWARD, "backward", "optimizer"]
        torn = [(at, chance.choice("+-"), chance.choice(regions), chance.choice(["train", "other"])) for at in moments]
        by_rule = chance.random() < 0.5
        parts = profile.parts_of(torn, 0.0, 10.0, TRAIN, by_rule)
        assert math.isclose(sum(parts.values()), 10.0, rel_tol=1e-12)
        assert min(parts.values()) >= 0
        stretches = list(profile.segments(torn, 0.0, 10.0, TRAIN, by_rule))
        assert all(a[1] == b[0] for a, b in pairwise(stretches))


def test_another_dataset_is_an_evaluation_until_the_next_batch_or_backward_pass():
    step = notes("1 + data held", "2 - data held", "3 + forward", "5 - forward", "6 + data", "7 - data")
    parts = profile.parts_of(step, 0.0, 10.0, TRAIN)
    assert (parts["evaluation"], parts["data"], parts["python"]) == (5, 1, 4)
    assert profile.train_keys([step, notes("1 + data")]) == {"train", "held"}
    assert profile.train_keys([step, notes("1 + data"), notes("1 + data")]) == {"train"}


def test_forward_of_a_compiled_network_lasts_from_the_batch_to_the_backward_pass():
    step = notes("1 + data", "2 - data", "5 + backward", "6 - backward", "7 + optimizer", "8 - optimizer")
    parts = profile.parts_of(step, 0.0, 10.0, TRAIN, True)
    assert (parts["forward"], parts["python"]) == (3, 4)


@pytest.mark.parametrize("critics", range(1, 8))
def test_rarest_regular_optimizer_marks_a_step(critics):
    cycle = ["critic"] * critics + ["net"]
    assert profile.mark_of(cycle * 5) == "net"
    assert profile.mark_of([*(cycle * 5), "critic"]) == "net"
    assert profile.mark_of(["rare", *["net"] * 20]) == "net"
    assert profile.mark_of(["critic", "net", "net", "critic", "net"]) == "net"  # a scaler skipped a step
    assert profile.mark_of(["train"] * 5 + ["held"] * 3, rarest=False) == "train"


def coverage(make, mean, cycle, times=600):
    """Return the share of intervals that hold the mean, and their mean half width relative to it."""
    intervals = [profile.mean_interval(make(), cycle) for _ in range(times)]
    held = sum(each.low <= mean <= each.high for each in intervals) / times
    return held, sum(each.high - each.low for each in intervals) / times / 2 / mean


def test_interval_holds_the_mean_of_dependent_steps():
    chance = random.Random(2)

    def dependent(count=24, share=0.5):
        now, steps = chance.gauss(0, 1), []
        for _ in range(count):
            steps.append(1 + 0.1 * now)
            now = share * now + math.sqrt(1 - share**2) * chance.gauss(0, 1)
        return steps

    def workers(count=40, workers=4):
        return [(3.0 if i % workers == 0 else 1.0) * (1 + chance.gauss(0, 0.02)) for i in range(count)]

    for count in range(2, 100):
        steps, cycle = [chance.random() + i % 7 for i in range(count)], chance.randint(1, 8)
        interval = profile.mean_interval(steps, cycle)
        assert interval.low <= sum(steps) / count <= interval.high
    assert coverage(dependent, 1.0, 1)[0] >= 0.88
    assert coverage(lambda: dependent(40, 0.8), 1.0, 1)[0] >= 0.84  # blocks alone hold 0.75
    held, half = coverage(workers, 1.5, 4)
    assert held >= 0.92
    assert half <= 0.03


def test_bound_isnt_exceeded_by_any_gpu():
    chance = random.Random(3)
    for _ in range(10_000):
        data_s, own_s, host_s, gpu_s, alone_s = (chance.expovariate(1) for _ in range(5))
        workers = chance.randint(0, 8)
        parts = dict.fromkeys(profile.PARTS, 0.0) | {profile.DATA: data_s, profile.PYTHON: own_s, "host": host_s}
        if workers:
            step_s = max(alone_s, own_s + max(0.6 * host_s, gpu_s))
        else:
            alone_s = data_s
            step_s = data_s + own_s + max(0.6 * host_s, gpu_s)
        assert profile.least_s(parts, alone_s, workers) <= step_s * (1 + 1e-12)
    assert profile.least_s(parts | {profile.DATA: 1.0, profile.PYTHON: 0.0, "host": 0.0}, None, 0) == 1.0
    assert profile.least_s(dict.fromkeys(parts, 0.0) | {profile.DATA: 1.0}, 0.5, 0) == 0.5


def test_host_time_is_that_between_operators_without_the_profilers_cost():
    plain = dict.fromkeys(profile.PARTS, 0.0) | {profile.FORWARD: 4.0, "backward": 6.0}
    step = notes("0 + forward", "4 - forward", "4 + backward", "10 - backward")
    parts = split_host(plain, 4, [(0.0, 10.0, step)], ([(1.0, 2.0), (3.0, 5.0), (6.0, 7.0)], 3), TRAIN)
    assert parts["host"] == pytest.approx(2.0 + 4.0 + 3 * DISPATCH_S)
    assert (parts[profile.FORWARD], parts["backward"]) == pytest.approx((2.0 - 2 * DISPATCH_S, 2.0 - DISPATCH_S))
    shorter = plain | {"backward": 6.0 - 6e-6}  # the profiler took 2 µs an event
    parts = split_host(shorter, 4, [(0.0, 10.0, step)], ([(1.0, 2.0), (3.0, 5.0), (6.0, 7.0)], 3), TRAIN)
    assert parts["host"] == pytest.approx(2.0 + 4.0 + 3 * (DISPATCH_S - 2e-6), abs=1e-9)


def test_host_time_of_a_traced_step_of_half_the_length_counts_twice():
    plain = dict.fromkeys(profile.PARTS, 0.0) | {profile.PYTHON: 12.0, profile.FORWARD: 8.0}
    step = notes("0 + forward", "4 - forward")
    parts = split_host(plain, 4, [(0.0, 10.0, step)], ([(1.0, 2.0), (6.0, 9.0)], 0), TRAIN)
    assert parts["host"] == pytest.approx(2 * (3.0 + DISPATCH_S))
    assert parts[profile.PYTHON] == pytest.approx(12.0 - 2 * 3.0)
