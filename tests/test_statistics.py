"""Intervals against known data and against simulated truth."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.special import stdtrit

from gpubench.statistics import inference, intervals


def test_students_quantiles_are_scipys():
    """Quantiles of 1 to 4 degrees of freedom are a table, so that a time is shown without SciPy."""
    for freedom in (*range(1, 35), 1.5, 29.9, 30.1):
        assert intervals.quantile(freedom) == pytest.approx(stdtrit(freedom, 0.975), rel=1e-12), freedom


def test_one_process_that_waited_carries_no_median_away():
    """Three processes of 7996, 32.0 and 32.5 µs gave 200 µs, a time that none of them measured."""
    estimate = intervals.median_interval([7996e-6, 32.0e-6, 32.5e-6])
    assert (estimate.value, estimate.kind) == (32.5e-6, intervals.INTERVAL)
    assert estimate.low < 32e-6
    assert estimate.high > 7996e-6
    assert intervals.median([1.0, 4.0]) == pytest.approx(2.0)
    assert intervals.median([0.1]) == 0.1


def test_two_values_are_compared_as_their_means_are():
    """The median of two is their mean: Student's interval of one side, Welch's of two."""
    one, two = [10.0, 11.0], [2.0, 2.6]
    for estimate, known in (
        (intervals.median_interval(one), scipy_stats.ttest_1samp(np.log(one), 0.0)),
        (intervals.ratio_interval(one, two), scipy_stats.ttest_ind(np.log(one), np.log(two), equal_var=False)),
    ):
        interval = known.confidence_interval(0.95)
        assert (estimate.low, estimate.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 10])
@pytest.mark.parametrize("outliers", [0.0, 0.1], ids=["normal", "one in ten waited"])
def test_a_median_interval_covers(count, outliers):
    random = np.random.default_rng(count)

    def drawn(rows):
        waited = (random.random((rows, count)) < outliers) * random.exponential(0.5, (rows, count))
        return 5.0 * np.exp(random.normal(0, 0.02, (rows, count)) + waited)

    truth = float(np.median(drawn(200_000)))
    found = [intervals.median_interval(values) for values in drawn(2000)]
    covered = sum(each.low <= truth <= each.high for each in found) / len(found)
    assert covered > 0.935
    assert covered < 0.965 or outliers or count > 5


@pytest.mark.parametrize("spreads", [(0.03, 0.03), (0.22, 0.03), (0.2, 0.0)])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_coverage_of_a_ratio(spreads, count):
    """Of 1,500 intervals on simulated processes at least 93.5 % hold the true ratio of 3."""
    random = np.random.default_rng(count)
    trials = 1500
    tops = 3.0 * np.exp(random.normal(0, spreads[0], (trials, count)))
    bottoms = np.exp(random.normal(0, spreads[1], (trials, count)))
    found = [intervals.ratio_interval(top, bottom) for top, bottom in zip(tops, bottoms, strict=True)]
    assert sum(each.low <= 3.0 <= each.high for each in found) / trials >= 0.935


def test_ratios_of_equal_and_of_absurd_values():
    estimate = intervals.ratio_interval([2.0, 2.0], [1.0, 1.0])
    assert (estimate.low, estimate.value, estimate.high) == (2.0, 2.0, 2.0)
    estimate = intervals.ratio_interval([1e-15, 1e30], [1e30, 1e-15])
    assert all(map(math.isfinite, (estimate.low, estimate.value, estimate.high)))


@pytest.mark.parametrize(
    ("call", "needs"),
    [
        (lambda: intervals.median_interval([1.0]), "two values"),
        (lambda: intervals.ratio_interval([1.0, 2.0], [1.0]), "two values"),
    ],
)
def test_too_few_values_have_no_interval(call, needs):
    with pytest.raises(ValueError, match=needs):
        call()


def test_spread():
    estimate = intervals.ratio_spread((9.0, 10.0, 12.0), (1.0, 2.0, 3.0))
    assert (estimate.value, estimate.low, estimate.high, estimate.kind) == (5.0, 3.0, 12.0, intervals.SPREAD)


@pytest.mark.parametrize(
    ("sizes", "ratios", "kind", "size"),
    [
        ([100, 10_000], [0.1, 10.0], "crosses", 1000),
        # Faster at 10 and 1000, slower at 100: it *stays* faster only after 100. Order of the points doesn't count.
        ([1000, 10, 100], [2.0, 2.0, 0.5], "crosses", math.sqrt(100 * 1000)),
        ([1, 10, 100], [0.5, 1.0, 2.0], "crosses", 10),
        ([1, 2], [1.0, 3.0], "always", None),
        ([1, 2], [0.5, 0.4], "never", None),
        ([1, 2], [0.5, 0.5], "never", None),
        ([1, 2], [0.4, 0.5], "not in this range", None),
        ([1, 2], [2.0, 0.9], "not in this range", None),
        ([1], [0.5], "not in this range", None),
    ],
)
def test_crossover(sizes, ratios, kind, size):
    found = inference.crossover(sizes, ratios)
    assert found.kind == kind
    assert found.size == (size and pytest.approx(size))


SIZES = [1e3, 1e4, 1e5, 1e6]


def sides(random: np.random.Generator, count: int, shared: float, own: float) -> tuple[np.ndarray, np.ndarray]:
    """A CPU at 1 ns an element, a device at 10 µs and 0.1 ns; each process has a speed of its own on either."""
    cpu = np.array([1e-9 * size for size in SIZES])
    device = np.array([1e-5 + 1e-10 * size for size in SIZES])
    times = []
    for truth in (cpu, device):
        noise = random.normal(0, shared, (1, count)) + random.normal(0, own, (len(SIZES), count))
        times.append(truth[:, np.newaxis] * np.exp(noise))
    return times[0], times[1]


TRUTH = inference.crossover(SIZES, [1e-9 * size / (1e-5 + 1e-10 * size) for size in SIZES]).size or 0.0


def test_crossover_interval_of_known_values():
    """Two processes, ratios 0.5 → 2 and 0.25 → 1: of four resamples one has the one, one the other twice.

    The means are √⅛ and √2, so it crosses three quarters of the way. Widened by t/z·√2 = 12.7062/1.9600·1.4142 =
    9.168, the resamples lie a factor of √2 to the 9.168 higher and lower: above 1 everywhere, below 1 everywhere.
    """
    found = inference.crossover_interval([10, 1000], [[0.5, 0.25], [2.0, 1.0]], [[1.0, 1.0]] * 2, paired=True)
    assert found.size == pytest.approx(10 * 100**0.75)
    assert (found.kind, found.low, found.high) == ("crosses", 0.0, math.inf)
    near = 2 ** (1 / 9.168)
    tops = [[0.5, 0.5 / near], [2.0, 2.0 / near]]
    found = inference.crossover_interval([10, 1000], tops, [[1.0, 1.0]] * 2, paired=True)
    half = 10 * 100 ** (0.5 + math.log(near) / 2 / math.log(4))
    spread = 100 ** (0.5 * math.log(2) / math.log(4))
    assert found.size == pytest.approx(half)
    assert (found.low, found.high) == pytest.approx((half / spread, half * spread), rel=1e-3)


def test_what_a_process_does_to_both_sides_cancels():
    """A process that is slow at everything says nothing against the ratio, if the sides are paired."""
    speed = np.array([1.0, 1.3, 0.8])
    tops = np.outer([1e-6, 1e-4], speed)
    bottoms = np.outer([1e-5, 1e-5], speed)
    paired = inference.crossover_interval([1, 100], tops, bottoms, paired=True)
    apart = inference.crossover_interval([1, 100], tops, bottoms, paired=False)
    assert (paired.low, paired.high) == pytest.approx((10.0, 10.0))
    assert apart.low is not None
    assert apart.high is not None
    assert apart.low < 8 < 12 < apart.high
    assert inference.crossover_interval([1, 100], tops, bottoms, paired=True) == paired


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize(("paired", "shared", "own"), [(True, 0.2, 0.05), (False, 0.03, 0.03)])
def test_coverage_of_a_crossover(count, paired, shared, own):
    """Of 400 intervals on simulated processes 91 to 99 % hold the true crossover; of two a side nearly all."""
    random = np.random.default_rng(count)
    covered = 0
    for _ in range(400):
        found = inference.crossover_interval(SIZES, *sides(random, count, shared, own), paired=paired)
        covered += (found.low or 0.0) <= TRUTH <= (found.high or 0.0)
    assert 0.91 <= covered / 400 <= (0.99 if count > 2 else 1.0)


def student_p(one: list[float], two: list[float]) -> float:
    """By our parts: one-sided, that the first is no larger."""
    variance, freedom = inference.pooled_variance(one, two)
    error = math.sqrt(variance * (1 / len(one) + 1 / len(two)))
    return inference.Change(sum(one) / len(one) - sum(two) / len(two), error, freedom).larger_p()


def test_pooled_test_is_students():
    one, two = [10.0, 11.0, 10.5], [9.0, 9.6, 8.9, 9.2]
    student = scipy_stats.ttest_ind(one, two, alternative="greater")
    assert student_p(one, two) == pytest.approx(student.pvalue)
    assert student_p(two, one) == pytest.approx(1 - student.pvalue)
    both = scipy_stats.ttest_ind(np.log(one), np.log(two)).confidence_interval(0.95)
    variance, freedom = inference.pooled_variance(list(np.log(one)), list(np.log(two)))
    ratio = inference.Change(
        np.log(one).mean() - np.log(two).mean(), math.sqrt(variance * (1 / 3 + 1 / 4)), freedom
    ).interval()
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(both.low), math.exp(both.high)))


@pytest.mark.parametrize(("prior", "scale", "own"), [(4.0, 0.01, 4), (20.0, 1.0, 8), (2.0, 1e-4, 2)])
def test_what_variances_share_is_recovered(prior, scale, own):
    """Variances from the model: scaled inverse chi-square, seen through a chi-square. t is then distributed as t."""
    random = np.random.default_rng(4)
    true = prior * scale / random.chisquare(prior, 4000)
    seen = true * random.chisquare(own, 4000) / own
    shrunk, freedom = inference.moderated(list(seen), [own] * 4000)
    assert freedom == pytest.approx(prior, rel=0.25)
    assert shrunk[0] == pytest.approx((prior * scale + own * seen[0]) / (prior + own), rel=0.1)
    t = random.normal(0, np.sqrt(true)) / np.sqrt(shrunk)
    assert scipy_stats.kstest(t, "t", args=(freedom + own,)).pvalue > 0.01
    alarms = (t > scipy_stats.t.isf(0.025, freedom + own)).mean()
    assert 0.018 <= alarms <= 0.032


def test_few_variances_stay_and_equal_ones_are_as_good_as_known():
    assert inference.moderated([1.0, 2.0, 3.0, 4.0], [4] * 4) == ([1.0, 2.0, 3.0, 4.0], 0.0)
    shrunk, freedom = inference.moderated([1.0] * 10, [4] * 10)
    assert freedom >= 1e5
    assert len(set(shrunk)) == 1


def test_a_detectable_change_is_found_with_its_power():
    least = inference.detectable(inference.Change(0.0, 0.1, 6), 0.1, 0.8)
    random = np.random.default_rng(4)
    errors = 0.1 * np.sqrt(random.chisquare(6, 4000) / 6)
    found = random.normal(least, 0.1, 4000) / errors > scipy_stats.t.isf(0.1, 6)
    assert found.mean() == pytest.approx(0.8, abs=0.03)


def test_benjamini_hochberg_is_scipys():
    values = [0.04, 0.001, 0.9, 0.03, 0.03, 0.5]
    assert inference.benjamini_hochberg(values) == pytest.approx(scipy_stats.false_discovery_control(values))
    assert inference.benjamini_hochberg([]) == []


@pytest.mark.parametrize(("spread", "ratio"), [(0.03, 1.05), (0.1, 1.2)])
def test_needed_values_give_the_power_that_was_asked_for(spread, ratio):
    count = inference.needed_values(spread, ratio, 0.025)
    assert count is not None
    random = np.random.default_rng(2)
    tops, bottoms = random.normal(0, spread, (2, 400, count))
    change = math.log(ratio)
    seen = sum(student_p(list(top + change), list(bottom)) <= 0.025 for top, bottom in zip(tops, bottoms, strict=True))
    assert 0.74 <= seen / 400 <= 0.9
    assert inference.needed_values(3.0, 1.01, 0.025) is None


def test_a_median_interval_of_very_many_values():
    """Exact binomials took the cube of their number."""
    interval = intervals.median_interval(list(range(1, 30_002)))
    assert (interval.value, interval.low + interval.high) == (15_001, 30_002)
    assert interval.high - interval.low == pytest.approx(1.96 * math.sqrt(30_001), rel=0.02)
