"""Intervals against known data and against simulated truth."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gpubench.statistics import (
    INTERVAL,
    SPREAD,
    benjamini_hochberg,
    crossover,
    geometric_mean,
    larger_p,
    mean_interval,
    needed_values,
    paired_ratio,
    pooled_ratio,
    pooled_spread,
    ratio_interval,
    ratio_spread,
    signed_rank_p,
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


def test_pooled_test_is_students() -> None:
    one, two = [10.0, 11.0, 10.5], [9.0, 9.6, 8.9, 9.2]
    student = scipy_stats.ttest_ind(np.log(one), np.log(two), alternative="greater")
    assert larger_p(one, two) == pytest.approx(student.pvalue)
    assert larger_p(two, one) == pytest.approx(1 - student.pvalue)
    both = scipy_stats.ttest_ind(np.log(one), np.log(two)).confidence_interval(0.95)
    estimate = pooled_ratio(one, two)
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(both.low), math.exp(both.high)))


def test_pooled_test_without_scatter() -> None:
    assert larger_p([2.0, 2.0], [1.0, 1.0]) == 0.0
    assert larger_p([1.0, 1.0], [2.0, 2.0]) == 1.0
    assert larger_p([1.0, 1.0], [1.0, 1.0]) == 0.5
    assert larger_p([2.0, 2.0], [1.0, 1.0], least=1.0) > 0.1
    assert math.isnan(pooled_spread([1.0], [2.0]))
    with pytest.raises(ValueError, match="three in all"):
        pooled_ratio([1.0], [2.0])


def test_benjamini_hochberg_is_scipys() -> None:
    values = [0.04, 0.001, 0.9, 0.03, 0.03, 0.5]
    assert benjamini_hochberg(values) == pytest.approx(scipy_stats.false_discovery_control(values))
    assert benjamini_hochberg([]) == []


@pytest.mark.parametrize(
    "values", [[1.0, 2.0, 3.0, -0.5], [0.3, -0.1, 0.4, 0.9, 1.3, -0.2, 0.7], [-1.0, -2.0], [1.0] * 3]
)
def test_signed_rank_counts_every_choice_of_signs(values: list[float]) -> None:
    ranks = scipy_stats.rankdata(np.abs(values))
    seen = sum(rank for rank, value in zip(ranks, values, strict=True) if value > 0)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(ranks))
    ]
    assert signed_rank_p(values) == pytest.approx(sum(each >= seen for each in sums) / len(sums))


def test_signed_rank_drops_zeros() -> None:
    assert signed_rank_p([0.0, 0.0]) == 1.0
    assert signed_rank_p([0.0, 1.0]) == 0.5


def test_paired_interval_covers_the_truth_and_is_endless_for_few() -> None:
    random = np.random.default_rng(11)
    found = [paired_ratio(random.standard_t(2, 12) * 0.1 + math.log(1.1)) for _ in range(500)]
    assert sum(each.low <= 1.1 <= each.high for each in found) / 500 >= 0.94
    few = paired_ratio([0.1, 0.2, 0.3])
    assert (few.low, few.high) == (0.0, math.inf)
    assert few.value == pytest.approx(math.exp(0.2))


@pytest.mark.parametrize(("spread", "ratio"), [(0.03, 1.05), (0.1, 1.2)])
def test_needed_values_give_the_power_that_was_asked_for(spread: float, ratio: float) -> None:
    count = needed_values(spread, ratio, 0.025)
    assert count is not None
    random = np.random.default_rng(2)
    tops, bottoms = np.exp(random.normal(0, spread, (2, 400, count)))
    seen = sum(larger_p(top * ratio, bottom) <= 0.025 for top, bottom in zip(tops, bottoms, strict=True))
    assert 0.74 <= seen / 400 <= 0.9
    assert needed_values(3.0, 1.01, 0.025) is None
