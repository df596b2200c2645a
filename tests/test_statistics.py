"""Intervals against known data and against simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gpubench.statistics import (
    INTERVAL,
    SPREAD,
    crossover,
    geometric_mean,
    mean_interval,
    ratio_interval,
    ratio_spread,
)


def test_interval_of_known_values() -> None:
    """ln of the values: 0, 1, 2; mean 1, standard error 1/sqrt(3), t(0.975, 2) = 4.302653 from a printed table."""
    estimate = mean_interval([1.0, math.e, math.e**2])
    half = 4.302653 / math.sqrt(3)
    assert estimate.kind == INTERVAL
    assert estimate.value == pytest.approx(math.e)
    assert estimate.low == pytest.approx(math.exp(1 - half), rel=1e-6)
    assert estimate.high == pytest.approx(math.exp(1 + half), rel=1e-6)


def test_ratio_interval_is_welchs() -> None:
    one, two = [10.0, 11.0, 10.5], [2.0, 2.6, 1.9, 2.2]
    estimate = ratio_interval(one, two)
    welch = scipy_stats.ttest_ind(np.log(one), np.log(two), equal_var=False).confidence_interval(0.95)
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(welch.low), math.exp(welch.high)))
    assert estimate.value == pytest.approx(geometric_mean(one) / geometric_mean(two))


def test_ratio_turned_round_is_its_inverse() -> None:
    one, two = [10.0, 11.0], [2.0, 2.6]
    there, back = ratio_interval(one, two), ratio_interval(two, one)
    assert there.low == pytest.approx(1 / back.high)
    assert there.high == pytest.approx(1 / back.low)


@pytest.mark.parametrize("spreads", [(0.03, 0.03), (0.22, 0.03), (0.22, 0.22), (0.2, 0.0)])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_coverage_of_a_ratio(spreads: tuple[float, float], count: int) -> None:
    """Of 1,500 intervals on simulated processes at least 93.5 % hold the true ratio of 3."""
    random = np.random.default_rng(count)
    trials = 1500
    tops = 3.0 * np.exp(random.normal(0, spreads[0], (trials, count)))
    bottoms = np.exp(random.normal(0, spreads[1], (trials, count)))
    found = [ratio_interval(top, bottom) for top, bottom in zip(tops, bottoms, strict=True)]
    assert sum(each.low <= 3.0 <= each.high for each in found) / trials >= 0.935


def test_coverage_of_a_mean() -> None:
    random = np.random.default_rng(7)
    samples = 5.0 * np.exp(random.normal(0, 0.22, (2000, 3)))
    covered = [estimate.low <= 5.0 <= estimate.high for estimate in map(mean_interval, samples)]
    assert 0.935 <= np.mean(covered) <= 0.965


def test_equal_values_give_an_interval_of_no_width() -> None:
    estimate = ratio_interval([2.0, 2.0], [1.0, 1.0])
    assert (estimate.low, estimate.value, estimate.high) == (2.0, 2.0, 2.0)


def test_absurd_values_stay_finite() -> None:
    estimate = ratio_interval([1e-15, 1e30], [1e30, 1e-15])
    assert all(map(math.isfinite, (estimate.low, estimate.value, estimate.high)))


def test_one_value_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two values"):
        mean_interval([1.0])
    with pytest.raises(ValueError, match="two values"):
        ratio_interval([1.0, 2.0], [1.0])


def test_spread() -> None:
    estimate = ratio_spread((9.0, 10.0, 12.0), (1.0, 2.0, 3.0))
    assert (estimate.value, estimate.low, estimate.high, estimate.kind) == (5.0, 3.0, 12.0, SPREAD)


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([10.0, 1000.0]) == pytest.approx(100.0)


def test_crossover_lies_between() -> None:
    found = crossover([100, 10_000], [0.1, 10.0])
    assert found.kind == "crosses"
    assert found.size == pytest.approx(1000)


def test_crossover_is_the_last_one() -> None:
    """Faster at 10 and 1000, slower at 100: it *stays* faster only after 100. Order of the points doesn't count."""
    found = crossover([1000, 10, 100], [2.0, 2.0, 0.5])
    assert found.size == pytest.approx(math.sqrt(100 * 1000))


def test_no_crossover() -> None:
    assert (crossover([1, 2], [2.0, 0.9]).kind, crossover([1, 2], [2.0, 0.9]).size) == ("below", None)
    assert (crossover([1, 2], [1.0, 3.0]).kind, crossover([1, 2], [1.0, 3.0]).size) == ("above", None)
    assert crossover([], []).kind == "below"


def test_crossover_on_a_point() -> None:
    assert crossover([1, 10, 100], [0.5, 1.0, 2.0]).size == pytest.approx(10)
