"""The search for a crossing on scripted times with a known crossing."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy.special import stdtrit

from gpubench.statistics.crossing import MOST, WIDTH, Point, crossing, grid, next_size

FIRST, LAST, ROUNDS = 10**3, 10**7, 5
FIXED = math.log(LAST / FIRST) / math.log(WIDTH**2)
"""Sizes of a fixed grid with intervals as narrow."""


def searched(gain, noise, seed=0):
    """The answer, and how many sizes were measured; ``gain`` is the logarithm of the speedup at a size."""
    draws, points, sizes = random.Random(seed), [], grid(FIRST, LAST)
    for size in itertools.chain(sizes, iter(lambda: next_size(points), None)):
        rounds = [gain(size) + draws.gauss(0, noise) for _ in range(ROUNDS)]
        error = float(np.std(rounds, ddof=1) / math.sqrt(ROUNDS) * stdtrit(ROUNDS - 1, 0.975) / 1.96)
        points.append(Point(size, float(np.mean(rounds)), error))
    return crossing(points), len(points)


def launches(where, power, peak):
    """A GPU with a launch as long as the CPU's time at ``where``, and that is ``peak`` times as fast at the end."""
    cpu_s, launch_s = 2e-6, 1e-5
    each_s = (launch_s - cpu_s) / (where**power * (1 - 1 / peak))
    return lambda n: math.log((cpu_s + each_s * n**power) / (launch_s + each_s / peak * n**power))


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
def test_the_interval_holds_the_crossing_with_half_the_measurements_of_a_fixed_grid(noise):
    held, answers, counts = 0, 0, []
    for seed in range(500):
        where = math.exp(random.Random(seed).uniform(math.log(2 * FIRST), math.log(LAST / 2)))
        found, count = searched(launches(where, *((1, 20), (3, 5))[seed % 2]), noise, seed)
        counts.append(count)
        if found.answer == "from":
            answers += 1
            held += found.low <= where <= found.high
            assert found.size / WIDTH <= found.low <= found.size <= found.high <= found.size * WIDTH
    assert held >= 0.93 * answers
    assert answers >= 0.9 * 500
    assert np.mean(counts) <= FIXED / 2


@pytest.mark.parametrize(("gain", "answer"), [(-0.5, "never"), (0.5, "always")])
def test_the_same_side_is_faster_at_all_sizes(gain, answer):
    found, count = searched(lambda n: gain, 0.02)
    assert (found.answer, count) == (answer, len(grid(FIRST, LAST)))


def test_of_several_crossings_the_last_one_counts():
    def gain(n):
        return 1.0 if 8e3 < n < 2e5 else math.log(n / 1e6)

    found, _ = searched(gain, 0.02)
    assert found.answer == "from"
    assert found.low <= 1e6 <= found.high


@pytest.mark.parametrize("gain", [lambda n: 0.0, lambda n: 1.0 if n < 5e5 else -1.0])
def test_what_cant_be_told_ends_unsure_and_soon(gain):
    found, count = searched(gain, 0.05)
    assert found.answer == "unsure"
    assert count <= MOST


def test_the_sizes_begin_with_the_smallest_and_lie_in_the_range():
    assert grid(1, 3) == [1, 2, 3]
    assert grid(FIRST, LAST) == [1000, 10**4, 10**5, 10**6, LAST]
    points = [Point(size, math.log(size / 3e4), 0.01) for size in grid(FIRST, LAST)]
    assert next_size(points) == pytest.approx(3e4, rel=0.2)
    assert next_size([*points, Point(next_size(points), 0.0, 1.0)]) not in {point.size for point in points}
