"""Verdicts on simulated processes: false alarms counted, slowdowns found, and what each word takes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpubench.compare.comparison import change_text
from gpubench.compare.interleaved import Sequential, least_pairs
from gpubench.compare.samples import LEAST_PAIRS, CaseKey, Observation
from gpubench.compare.verdict import FASTER, INCONCLUSIVE, SAME, SLOWER, Conditions, judge, overall

CASES = [CaseKey(f"a.b[n={n}]", "cpu", "torch") for n in range(10)]


def observed(times, fast=0.97, late=0.0):
    """A run of one process for each time."""
    return [Observation(time, time * fast, time * fast * 0.99, late, (i, 0)) for i, time in enumerate(times)]


def side(random, processes, spread=0.03, slower=None, factor=1.0, keys=CASES):
    return {
        key: observed((factor if key == slower else 1.0) * np.exp(random.normal(0, spread, processes))) for key in keys
    }


def words(verdicts):
    return {each.key: each.verdict for each in verdicts}


@pytest.mark.parametrize("processes", [2, 3, 9])
def test_unchanged_code_is_called_slower_in_at_most_one_comparison_of_forty(processes):
    random = np.random.default_rng(processes)
    alarms = sum(
        SLOWER in words(judge(side(random, processes, 0.1), side(random, processes, 0.1))).values() for _ in range(200)
    )
    assert alarms <= 8  # of 5 expected at most


@pytest.mark.parametrize(("processes", "factor"), [(5, 1.2), (9, 1.1)])
def test_a_slowdown_is_found_and_no_other_case_accused(processes, factor):
    random = np.random.default_rng(5)
    found = [
        words(judge(side(random, processes), side(random, processes, slower=CASES[3], factor=factor)))
        for _ in range(100)
    ]
    assert sum(each[CASES[3]] == SLOWER for each in found) >= 85
    assert sum(list(each.values()).count(SLOWER) > (each[CASES[3]] == SLOWER) for each in found) <= 3


def test_each_word():
    base = {key: observed([1.0, 1.01, 0.99]) for key in CASES[:4]}
    new = {
        CASES[0]: observed([1.3, 1.31, 1.29]),
        CASES[1]: observed([0.7, 0.71, 0.69]),
        CASES[2]: observed([1.0, 1.005, 0.995]),
        CASES[3]: observed([0.9, 1.4, 1.1]),
    }
    found = judge(base, new)
    assert list(words(found).values()) == [SLOWER, FASTER, SAME, INCONCLUSIVE]
    assert found[0].ratio.value == pytest.approx(1.3, rel=1e-3)
    assert found[0].ratio.low < 1.3 < found[0].ratio.high
    assert "quieter machine" in found[3].advice
    assert overall(found) == SLOWER
    assert overall(found[1:]) == INCONCLUSIVE
    assert overall(found[1:3]) == FASTER
    assert overall(found[2:3]) == SAME


def test_a_proven_slowdown_below_the_threshold_fails_nothing():
    base = {CASES[0]: observed([1.0, 1.001, 0.999] * 3)}
    new = {CASES[0]: observed([1.04, 1.041, 1.039] * 3)}
    assert words(judge(base, new))[CASES[0]] == SAME
    assert words(judge(base, new, threshold=0.03))[CASES[0]] == SLOWER


def test_the_threshold_itself_is_reached():
    base, new = {CASES[0]: observed([1.0, 1.001, 0.999])}, {CASES[0]: observed([1.05, 1.05105, 1.04895])}
    assert words(judge(base, new))[CASES[0]] == SLOWER


def test_a_neighbour_that_leaves_the_fastest_rounds_alone_is_no_slowdown():
    base = {CASES[0]: observed([1.0, 1.01, 0.99])}
    disturbed = {CASES[0]: [Observation(time, 0.97, 0.96) for time in (3.0, 3.1, 2.9)]}
    assert words(judge(base, disturbed))[CASES[0]] == INCONCLUSIVE


def test_one_process_a_side_proves_nothing_short_of_a_multiple():
    base = {key: observed([1.0]) for key in CASES}
    (first, *_) = judge(base, {key: observed([1.5 if key == CASES[0] else 1.0]) for key in CASES})
    assert first.verdict == INCONCLUSIVE
    assert first.p is None
    assert "more runs per side would detect a change of 5 %" in first.advice
    assert not math.isfinite(first.ratio.high)
    (first, *_) = judge(base, {key: observed([5.0 if key == CASES[0] else 1.0]) for key in CASES})
    assert first.verdict == SLOWER
    (first, *_) = judge({key: observed([5.0]) for key in CASES[:1]}, {key: observed([1.0]) for key in CASES[:1]})
    assert first.verdict == FASTER


def test_one_process_whose_fastest_round_is_undisturbed_proves_nothing_however_slow():
    base = {CASES[0]: observed([1.0])}
    assert words(judge(base, {CASES[0]: [Observation(500.0, 2.0, 1.0)]}))[CASES[0]] == INCONCLUSIVE


def test_a_process_that_was_held_up_in_its_other_cases_is_no_evidence():
    """A neighbour may double all rounds of a case; that other cases have late rounds gives it away."""
    random = np.random.default_rng(8)
    base, busy = side(random, 3, 0.01), side(random, 3, 0.01, slower=CASES[0], factor=2.0)
    assert words(judge(base, busy))[CASES[0]] == SLOWER
    late = {key: [replace(one, late=0.3) for one in seen] for key, seen in busy.items()}
    (first, *_) = judge(base, late)
    assert (first.verdict, first.p) == (INCONCLUSIVE, None)
    assert "machine was busy" in first.advice
    some = {key: [*seen[:2], replace(seen[2], late=0.3, median_s=9.0)] for key, seen in busy.items()}
    (first, *_) = judge(base, some)
    assert first.verdict == SLOWER
    assert first.processes == (3, 2)
    assert first.ratio.value == pytest.approx(2.0, rel=0.05)


def test_a_case_that_became_bimodal_does_not_count_as_a_busy_machine():
    random = np.random.default_rng(8)
    new = side(random, 3, 0.01, slower=CASES[0], factor=1.5)
    new[CASES[0]] = [replace(one, late=0.9) for one in new[CASES[0]]]
    assert words(judge(side(random, 3, 0.01), new))[CASES[0]] == SLOWER


def test_a_machine_that_was_slower_for_a_while_proves_nothing_but_a_case_that_stands_out_does():
    random = np.random.default_rng(9)
    base, later = side(random, 3, 0.01), side(random, 3, 0.01, slower=CASES[2], factor=1.3)
    drifted = {key: [replace(one, median_s=one.median_s * 1.12, fast_s=one.fast_s * 1.12) for one in seen]
               for key, seen in later.items()}  # fmt: skip
    found = words(judge(base, drifted))
    assert [key for key, word in found.items() if word == SLOWER] == [CASES[2]]


def mixed(random, slower=None):
    """Five cases that wait, and five that follow a machine whose speed changes from process to process and run."""
    speeds = np.exp(random.normal(0, 0.05) + random.normal(0, 0.1, 3))
    sides = {key: np.exp(random.normal(0, 0.002, 3)) for key in CASES[:5]}
    sides |= {key: speeds * np.exp(random.normal(0, 0.05, 3)) for key in CASES[5:]}
    times = {key: observed((1.2 if key == slower else 1.0) * each) for key, each in sides.items()}
    return {key: [replace(one, process=(0, i)) for i, one in enumerate(each)] for key, each in times.items()}


def test_what_waits_does_not_drift_with_what_computes():
    random = np.random.default_rng(15)
    found = [words(judge(mixed(random), mixed(random, slower=CASES[0]))) for _ in range(100)]
    assert sum(each[CASES[0]] == SLOWER for each in found) >= 95  # 47 of them if all drift alike
    assert sum(each[key] != SAME for each in found for key in CASES[1:5]) <= 4
    alarms = sum(SLOWER in words(judge(mixed(random), mixed(random))).values() for _ in range(200))
    assert alarms <= 10  # of 5 expected at most


def drifting(random, keys, runs=1, processes=3, drift=0.05, factor=1.0):
    """Runs of several processes, each run faster or slower than the last as a whole."""
    found = {key: [] for key in keys}
    for run in range(runs):
        speed = factor * np.exp(random.normal(0, drift))
        for key in keys:
            for i, one in enumerate(observed(speed * np.exp(random.normal(0, 0.01, processes)))):
                found[key].append(replace(one, process=(run, i)))
    return found


@pytest.mark.parametrize("cases", [1, 4])
@pytest.mark.parametrize("runs", [1, 3])
def test_a_drift_that_few_cases_cannot_show_raises_no_false_alarms(cases, runs):
    random = np.random.default_rng(cases)
    keys = CASES[:cases]
    alarms = sum(
        SLOWER in words(judge(drifting(random, keys, runs), drifting(random, keys, runs))).values() for _ in range(200)
    )
    assert alarms <= 10  # of 5 expected at most


def test_where_runs_drift_more_processes_do_not_help_but_runs_do():
    random = np.random.default_rng(2)
    (only,) = judge(drifting(random, CASES[:1], 4), drifting(random, CASES[:1], 4, factor=1.3))
    assert only.verdict == SLOWER
    (only,) = judge(drifting(random, CASES[:1]), drifting(random, CASES[:1], drift=0))
    assert only.verdict == INCONCLUSIVE
    assert 10 < only.more < 30
    assert only.reason == "too noisy: that whole runs drifted by about 5 % can't be ruled out"
    assert "more runs per side would detect a change of 5 %" in only.advice


def test_between_machines_what_all_cases_share_is_no_drift_to_be_taken_off():
    random = np.random.default_rng(2)
    base, new = drifting(random, CASES, 2, drift=0), drifting(random, CASES, 2, drift=0, factor=1.15)
    here, moved = (judge(base, new, conditions=Conditions(base, new, moved)) for moved in (False, True))
    assert SLOWER not in words(here).values()
    assert set(words(moved).values()) == {SLOWER}


def test_where_the_drift_gate_decides_more_runs_are_not_what_would_tell():
    random = np.random.default_rng(2)
    base, new = drifting(random, CASES, drift=0), drifting(random, CASES, drift=0, factor=1.15)
    found = judge(base, new)
    assert {each.verdict for each in found} == {INCONCLUSIVE}
    assert all("use --interleave" in each.advice and each.more is None for each in found)


def test_what_slows_all_cases_by_more_than_a_machine_drifts_is_a_slowdown():
    random = np.random.default_rng(9)
    base, new = side(random, 3, 0.01), side(random, 3, 0.01)
    slower = {key: [replace(one, median_s=one.median_s * 1.4, fast_s=one.fast_s * 1.4) for one in seen]
              for key, seen in new.items()}  # fmt: skip
    assert set(words(judge(base, slower)).values()) == {SLOWER}


def test_identical_values_are_no_proof_of_perfect_repeatability():
    base, new = {CASES[0]: observed([1.0] * 2)}, {CASES[0]: observed([1.0001] * 2)}
    (only,) = judge(base, new)
    assert only.verdict == SAME
    assert only.p > 0.1


def test_a_noisy_case_is_told_so():
    random = np.random.default_rng(1)
    (only,) = judge(side(random, 3, 0.6, keys=CASES[:1]), side(random, 3, 0.6, keys=CASES[:1]))
    assert only.more is None
    assert only.reason.startswith("too noisy: processes vary by ")
    assert "quieter machine" in only.advice


def pairs(random, count, factor=1.0, spread=0.02, neighbour=0.2):
    """Both of a pair meet the same machine, but now and then a neighbour comes in between."""
    seen = Sequential(count, 0.05)
    verdicts = []
    for _ in range(count):
        drift = np.exp(random.normal(0, 0.1))
        base, new = ({}, {})
        for run in (base, new):
            busy = 2.0 if random.random() < neighbour / 2 else 1.0
            for key in CASES:
                slow = factor if run is new and key == CASES[0] else 1.0
                time = drift * busy * slow * np.exp(random.normal(0, spread))
                run[key] = observed([time], late=0.2 if busy > 1 else 0.0)
        seen.add(base, new)
        if seen.due:
            verdicts = seen.look()
    return words(verdicts), seen


def test_looking_again_and_again_raises_no_false_alarms():
    random = np.random.default_rng(3)
    alarms = sum(SLOWER in pairs(random, 20)[0].values() for _ in range(80))
    assert alarms <= 2


def test_pairs_see_ten_percent_through_a_busy_neighbour():
    random = np.random.default_rng(4)
    assert sum(pairs(random, 20, 1.1)[0][CASES[0]] == SLOWER for _ in range(20)) >= 18


def test_what_is_proven_stays_proven_and_the_level_is_spent_once():
    seen = Sequential(20, 0.05)
    for _ in range(9):
        seen.add({CASES[0]: observed([1.0])}, {CASES[0]: observed([1.2 + 0.001 * seen.count])})
    assert words(seen.look())[CASES[0]] == SLOWER
    for _ in range(11):
        seen.add({CASES[0]: observed([1.0])}, {CASES[0]: observed([0.8])})
    assert words(seen.look())[CASES[0]] == SLOWER


def test_when_time_is_up_the_last_look_may_spend_the_rest():
    def after(last):
        seen = Sequential(40, 0.05)
        for i in range(8):
            seen.add({CASES[0]: observed([1.0])}, {CASES[0]: observed([1.2 + 0.001 * i])})
        return words(seen.look(last))[CASES[0]]

    assert after(last=False) == INCONCLUSIVE
    assert after(last=True) == SLOWER


def test_looks_that_can_prove_nothing_are_left_out_and_spend_nothing():
    assert (least_pairs(1), least_pairs(10), least_pairs(300)) == (7, 10, 15)
    seen = Sequential(20, 0.05)
    due = []
    for i in range(20):
        seen.add(
            {key: observed([1.0]) for key in CASES},
            {key: observed([1.2 + 0.001 * i if key == CASES[0] else 1 + 0.001 * (-1) ** i]) for key in CASES},
        )
        if seen.due:
            due.append(seen.count)
            found = words(seen.look())
            if len(due) == 1:
                assert found[CASES[0]] == SLOWER
    assert due == [12, 16, 20]


def test_advice_names_no_fewer_pairs_than_can_prove_anything():
    seen = Sequential(20, 0.05)
    for i in range(2):
        seen.add(*({key: observed([1.0 + 0.0001 * i]) for key in CASES} for _ in range(2)))
    assert {each.more for each in seen.look(last=True)} == {least_pairs(len(CASES)) - 2}


def test_advice_is_for_the_change_that_was_measured():
    seen = Sequential(20, 0.05)
    for i in range(6):
        noise = 0.05 * (-1) ** i
        seen.add({CASES[0]: observed([1.0])}, {CASES[0]: observed([1.5 * math.exp(noise)]), CASES[1]: observed([1.0])})
    (only,) = seen.look(last=True)
    assert (only.verdict, only.more) == (INCONCLUSIVE, 1)
    assert only.advice == "about 1 more pair would detect a change of +50.0 %"


@pytest.mark.parametrize(
    ("outlier", "reason"),
    [(0.5, "too few pairs: 1 of 8 says the opposite"), (1.5, "too few pairs: 8, which all agree")],
)
def test_pairs_that_hardly_vary_are_not_called_noisy(outlier, reason):
    """What is in the way is one pair, or that there are eight."""
    seen = Sequential(40, 0.05)
    for i in range(8):
        factor = outlier if i == 4 else 1.5 + 0.01 * i
        seen.add({CASES[0]: observed([1.0])}, {CASES[0]: observed([factor])})
    (only,) = seen.look()
    assert (only.verdict, only.reason) == (INCONCLUSIVE, reason)


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.203, "+20.3 %"), (0.9, "-10.0 %"), (3.2, "3.2× slower"), (0.00344, "291× faster")]
)
def test_a_change_in_words(ratio, text):
    assert change_text(ratio) == text


def test_a_case_of_which_every_pair_was_disturbed_is_inconclusive_and_told_why():
    seen = Sequential(20, 0.05)
    for _ in range(8):
        seen.add({key: observed([1.0]) for key in CASES}, {key: observed([1.1], late=0.5) for key in CASES})
    found = seen.look(last=True)
    assert set(words(found)) == set(CASES)
    assert {each.verdict for each in found} == {INCONCLUSIVE}
    assert "one side of every pair" in found[0].advice
    assert found[0].p is None


def test_base_and_new_say_what_the_change_says():
    """One pair that something held up moves a mean, and must not make a table contradict itself."""
    seen = Sequential(20, 0.05)
    for i in range(11):
        held = 400.0 if i == 3 else 1.0
        seen.add({CASES[0]: observed([1.0 + 0.01 * i])}, {CASES[0]: observed([held * (1.08 + 0.01 * i)])})
    (only,) = seen.look()
    assert only.new_s / only.base_s == pytest.approx(only.ratio.value)
    assert only.ratio.value == pytest.approx(1.08, rel=0.01)
    assert only.base_s == pytest.approx(1.05, rel=0.03)


def test_processes_that_do_not_count_are_in_no_column():
    random = np.random.default_rng(8)
    new = side(random, 3, 0.01)
    new = {key: [*seen[:2], replace(seen[2], median_s=9.0, contended=True)] for key, seen in new.items()}
    for each in judge(side(random, 3, 0.01), new):
        assert each.processes == (3, 2)
        assert each.new_s / each.base_s == pytest.approx(each.ratio.value)
        assert each.new_s < 2


def test_pairs_of_smoke_runs_prove_nothing():
    seen = Sequential(20, 0.05)
    for _ in range(20):
        new = {key: [replace(one, smoke=True) for one in observed([1.5])] for key in CASES}
        seen.add({key: observed([1.0]) for key in CASES}, new)
        assert not seen.due
    found = seen.look(last=True)
    assert {(each.verdict, each.p) for each in found} == {(INCONCLUSIVE, None)}
    assert "--preset quick" in found[0].advice


def test_a_pair_in_which_one_sides_threads_were_slow_is_left_out():
    seen = Sequential(20, 0.05)
    for i in range(12):
        busy = [replace(one, contended=i % 2 > 0) for one in observed([30.0 if i % 2 else 1.0])]
        seen.add({CASES[0]: observed([1.0])}, {CASES[0]: busy})
    (only,) = seen.look(last=True)
    assert only.processes == (6, 6)
    assert only.ratio.value == pytest.approx(1.0)


def agrees(verdict, threshold=0.05):
    """Whether the printed interval says what the verdict says."""
    low, value, high = verdict.ratio.low, verdict.ratio.value, verdict.ratio.high
    if verdict.verdict == SLOWER:
        return 1 < low <= value <= high and value >= 1 + threshold - 1e-9
    if verdict.verdict == FASTER:
        return low <= value <= high < 1 and value <= 1 / (1 + threshold) + 1e-9
    if verdict.verdict == SAME:
        return 1 / (1 + threshold) < low <= high < 1 + threshold
    straddled = [bound for bound in (1.0, 1 + threshold, 1 / (1 + threshold)) if low - 1e-9 <= bound <= high + 1e-9]
    return low <= value <= high and bool(straddled)


@pytest.mark.parametrize("shared", [1.0, 1.03, 1.166, 0.9])
@pytest.mark.parametrize(("runs", "keys"), [(1, CASES), (4, CASES), (1, CASES[:3]), (4, CASES[:3])])
def test_an_interval_says_what_its_verdict_says(shared, runs, keys):
    """Of drift that all cases share, of cases that change by a little or much, and of busy neighbours."""
    random = np.random.default_rng(4)
    words_found = set()
    for round_ in range(40):
        base, new = (drifting(random, keys, runs, drift=0.02, factor=factor) for factor in (1.0, shared))
        for i, key in enumerate(keys):
            factor = np.exp(0.5 * i / len(keys) * random.choice([-1, 1]))
            fast = factor if round_ % 3 else 1.0  # of some only the medians change
            new[key] = [replace(one, median_s=one.median_s * factor, fast_s=one.fast_s * fast) for one in new[key]]
        for verdict in judge(base, new):
            words_found.add(verdict.verdict)
            assert agrees(verdict), verdict
            assert bool(verdict.reason) == (verdict.verdict == INCONCLUSIVE)
    assert {SLOWER, INCONCLUSIVE} <= words_found
    assert len(words_found) == 4 or not 0.95 < shared < 1.05 or len(keys) < 10


@pytest.mark.parametrize("most", [8, 20, 40])
def test_an_interval_of_pairs_says_what_its_verdict_says(most):
    random = np.random.default_rng(most)
    words_found = set()
    for _ in range(30):
        seen = Sequential(most, 0.05)
        for _ in range(most):
            drift = np.exp(random.normal(0, 0.1))
            base, new = (
                {key: observed([drift * factor**i * np.exp(random.normal(0, 0.02))]) for i, key in enumerate(CASES[:6])}
                for factor in (1.0, 1.03)
            )
            seen.add(base, new)
            if seen.due:
                seen.look()
        for verdict in seen.look(last=True):
            words_found.add(verdict.verdict)
            assert agrees(verdict), verdict
    assert SLOWER in words_found or most == 8


def beside_others(cases, *processes):
    """The same, with other programs that used the cores of these processes."""
    return {key: [replace(one, busy=one.process[0] in processes) for one in seen] for key, seen in cases.items()}


def test_a_process_beside_other_programs_is_no_evidence_against_one_alone():
    random = np.random.default_rng(8)
    base, new = side(random, 3, 0.01), side(random, 3, 0.01, slower=CASES[0], factor=1.5)
    assert words(judge(base, new))[CASES[0]] == SLOWER
    (first, *_) = judge(base, beside_others(new, 0, 2))
    assert (first.verdict, first.p) == (INCONCLUSIVE, None)
    assert first.reason == "machine busy: in 0 of 3 processes of base and 2 of 3 of new"
    assert "measure again" in first.advice
    (first, *_) = judge(beside_others(base, 0, 1, 2), beside_others(new, 0, 1, 2))
    assert (first.verdict, first.processes) == (SLOWER, (3, 3))
    (first, *_) = judge(base, beside_others(new, 1))
    assert (first.verdict, first.processes) == (SLOWER, (3, 2))


def test_what_other_programs_slowed_in_all_cases_is_no_slowdown():
    """Twice as slow as a whole, no round late and no self-check slow: the flags alone show it."""
    random = np.random.default_rng(8)
    base, new = side(random, 3, 0.01), side(random, 3, 0.01)
    slow = {key: [replace(one, median_s=2 * one.median_s, fast_s=2 * one.fast_s) for one in seen]
            for key, seen in new.items()}  # fmt: skip
    assert set(words(judge(base, slow)).values()) == {SLOWER}
    assert set(words(judge(base, beside_others(slow, 1, 2))).values()) == {INCONCLUSIVE}


MEASURED = """
products[float32]: 952.2 914.2 870.5 0.01, 872.7 829.1 806.6 0, 892.7 855.5 831.6 0.18 |
    1631 994.5 849.9 0.18, 1370 957.2 922.4 0.07, 877.4 849.6 839.6 0.03
product[float32-n=32]: 3.943 3.861 3.802 0, 3.539 3.366 3.263 0, 3.486 3.281 2.887 0.03 |
    3.754 2.088 1.93 0.02, 3.595 3.442 3.376 0, 2.26 1.922 1.878 0.07
product[float32-n=384]: 620 591.4 585.9 0.05, 588.6 563.3 554.5 0, 614.8 586 559 0.03 |
    832.7 619.8 570.2 0.06, 664 606.3 591.5 0.12, 930.2 629.3 612.5 0.28
batched[float32]: 59.91 55.07 51.68 0.04, 56.54 55.45 55.01 0, 7551 4454 4454 0 |
    56.47 54.09 52.61 0, 57.82 53.21 50.21 0.02, 58.03 56.54 55.88 0.02
add[float32-n=10000]: 4.822 4.698 4.57 0, 4.525 3.109 2.864 0, 3.71 3.007 2.918 0 |
    4.695 3.937 3.62 0, 4.852 4.773 4.75 0.05, 6.131 4.753 3.829 0.01
add[float32-n=1000000]: 354.4 329.8 320.4 0, 421 387.5 332.5 0.15, 634.7 620.7 600.2 0 |
    357.5 345.9 345.1 0, 536.5 385.3 371.4 0.4, 351.8 333.2 323.1 0.01
exp[float32]: 24.86 21.21 19.02 0.09, 23.19 21.16 20.82 0, 20.93 20.26 19.6 0.07 |
    20.89 20.08 19.33 0, 29.25 25.97 23.45 0, 22.68 21.27 21.17 0.04
softmax[float32]: 75.77 70.53 58.23 0.05, 74.96 69.92 68.01 0.01, 73.03 64.54 58.95 0 |
    73.75 69.96 66.56 0.01, 76 71.34 69.85 0.07, 78.47 73.96 72 0.04
convolution[float32]: 234.7 222.3 214.2 0.03, 221 205 191 0.14, 237.1 226.8 217.8 0 |
    210.1 202.8 195.6 0, 222.5 175.4 171.8 0.36, 228.6 212.3 180.4 0
mlp[float32]: 305.2 226.7 208.1 0.16, 221.9 209.5 202.2 0.02, 260.2 233.9 231 0.12 |
    269.3 252.3 242.8 0.08, 236.8 223.8 214.4 0, 240.8 225.5 223.3 0
"""
"""Unchanged code on two cores while other programs came and went: three processes of base | and of new, for each the
median, fastest tenth and fastest of its rounds in microseconds, and the share of late rounds. In the second process of
new the self-check was slower on two threads than on one."""


def measured():
    sides = {}, {}
    for line in MEASURED.replace("|\n", "|").strip().splitlines():
        name, _, numbers = line.partition(": ")
        for i, text in enumerate(numbers.split("|")):
            values = [list(map(float, cell.split())) for cell in text.split(",")]
            sides[i][CaseKey(name, "cpu", "torch")] = [
                Observation(*each, process=(0, j), contended=(i, j) == (1, 1)) for j, each in enumerate(values)
            ]
    return sides


def test_processes_beside_a_disturbed_one_take_more_to_prove_a_slowdown():
    """Two of them were slower by half in the median, and 6 % in the fastest tenth, but not in the fastest round."""
    found = {each.key.name: each for each in judge(*measured())}
    case = found["product[float32-n=384]"]
    assert (case.verdict, case.processes) == (INCONCLUSIVE, (3, 2))
    assert case.reason == "machine busy: in 0 of 3 processes of base and 1 of 3 of new"
    assert case.ratio.low < 1 < case.ratio.value
    assert SLOWER not in words(found.values()).values()


def test_beside_a_disturbed_process_a_change_of_every_round_is_still_proven():
    random = np.random.default_rng(8)
    base, new = side(random, 3, 0.01), side(random, 3, 0.01, slower=CASES[0], factor=1.2)
    one_disturbed = {key: [*seen[:2], replace(seen[2], contended=True)] for key, seen in new.items()}
    (first, *_) = judge(base, one_disturbed)
    assert (first.verdict, first.processes) == (SLOWER, (3, 2))
    assert agrees(first)
    some_rounds = {key: [replace(one, least_s=1.0) for one in seen] for key, seen in one_disturbed.items()}
    (first, *_) = judge(base, some_rounds)
    assert first.verdict == INCONCLUSIVE
    assert agrees(first)
    equally = {key: [*seen[:2], replace(seen[2], contended=True)] for key, seen in base.items()}
    (first, *_) = judge(equally, some_rounds)
    assert (first.verdict, first.processes) == (SLOWER, (2, 2))


TURNS = [(i, i) for i in range(LEAST_PAIRS)]


def drifting_pairs(random, keys, slower, processes=3, count=LEAST_PAIRS):
    """Runs in turn on a machine whose speed wanders; ``slower`` are the factors of the cases."""
    walk, sides = 0.0, ({key: [] for key in keys}, {key: [] for key in keys})
    for run in range(count):
        for side, factors in zip(sides, ([1.0] * len(keys), slower), strict=True):
            walk += random.normal(0, 0.04)
            for key, factor in zip(keys, factors, strict=True):
                for i in range(processes):
                    time = factor * np.exp(walk + random.normal(0, 0.02))
                    side[key].append(Observation(time, 0.97 * time, 0.96 * time, 0.0, (run, i)))
    return sides


def judged_in_pairs(base, new, turns):
    return {each.key: each for each in judge(base, new, conditions=Conditions(base, new, pairs=turns))}


@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("processes", [1, 3])
def test_a_drift_is_no_change_and_a_change_of_all_cases_is_no_drift(count, processes):
    random = np.random.default_rng(count)
    keys = CASES[:count]
    alarms = named = 0
    for _ in range(60):
        base, new = drifting_pairs(random, keys, [1.0] * count, processes)
        alarms += any(each.verdict == SLOWER for each in judged_in_pairs(base, new, TURNS).values())
        base, new = drifting_pairs(random, keys, [1.2] * count, processes)
        named += all(each.verdict == SLOWER for each in judged_in_pairs(base, new, TURNS).values())
    assert alarms <= 3
    assert named >= 54 if count == 10 else named > 30


def test_one_case_that_is_slower_is_named_alone():
    random = np.random.default_rng(1)
    named = 0
    for _ in range(40):
        base, new = drifting_pairs(random, CASES, [1.13, *[1.0] * 9])
        named += [key for key, each in judged_in_pairs(base, new, TURNS).items() if each.verdict == SLOWER] == [
            CASES[0]
        ]
    assert named >= 36


def test_times_say_what_the_change_says():
    random = np.random.default_rng(1)
    for each in judged_in_pairs(*drifting_pairs(random, CASES, [1.13] * 10), TURNS).values():
        assert each.new_s / each.base_s == pytest.approx(each.ratio.value)
        assert each.processes == (15, 15)
        assert each.ratio.low < each.ratio.value < each.ratio.high


def test_of_disturbed_runs_too_few_pairs_are_left():
    random = np.random.default_rng(1)
    base, new = drifting_pairs(random, CASES[:2], [1.2, 1.2])
    new = {key: [replace(one, contended=one.process[0] > 0) for one in seen] for key, seen in new.items()}
    found = judged_in_pairs(base, new, TURNS)
    assert {each.verdict for each in found.values()} == {INCONCLUSIVE}
    assert found[CASES[0]].reason == "machine busy: too few undisturbed pairs of runs"


def test_of_pairs_nothing_changed_is_the_same():
    random = np.random.default_rng(3)
    base, new = drifting_pairs(random, CASES, [1.0] * 10)
    quiet = [{key: [replace(one, median_s=1 + 1e-3 * one.process[0], fast_s=1.0) for one in seen]
              for key, seen in each.items()} for each in (base, new)]  # fmt: skip
    assert {each.verdict for each in judged_in_pairs(*quiet, TURNS).values()} == {SAME}
