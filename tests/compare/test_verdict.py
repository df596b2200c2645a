"""Verdicts on simulated processes: false alarms counted, slowdowns found, and the evidence for each word."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gpubench.compare.comparison import Comparison, change_text
from gpubench.compare.evidence import Cause, Reason, Terms
from gpubench.compare.samples import CONFIRM, SCREEN, CaseKey, Observation
from gpubench.compare.verdict import FASTER, INCONCLUSIVE, NO_SIGN, SAME, SLOWER, judge, percent

CASES = [CaseKey(f"a.b[n={n}]", "cpu", "torch") for n in range(10)]


IN_TURN = Terms(in_turn=(True, True))


def observed(times, fast=0.97):
    """A run of one process for each time."""
    return [Observation(time, time * fast, time * fast * 0.99, (i, 0)) for i, time in enumerate(times)]


def scaled(one, factor):
    times = {name: factor * getattr(one, name) for name in ("median_s", "quartile_s", "least_s")}
    return replace(one, **times)


def times(cases, factor):
    return {key: [scaled(one, factor) for one in seen] for key, seen in cases.items()}


def side(random, processes, spread=0.03, slower=None, factor=1.0, keys=CASES):
    return {
        key: observed((factor if key == slower else 1.0) * np.exp(random.normal(0, spread, processes))) for key in keys
    }


def words(verdicts):
    return {each.key: each.verdict for each in verdicts}


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
    assert found[3].more is None
    assert found[3].reason.startswith("too noisy: processes vary by ")
    assert "quieter machine" in found[3].advice
    parts = found, found[1:], found[1:3], found[2:3]
    worst = [Comparison(tuple(part), (), (), 0.05).verdict for part in parts]
    assert worst == [SLOWER, INCONCLUSIVE, FASTER, SAME]


QUIET = [1.0, 1.001, 0.999]


@pytest.mark.parametrize(
    ("base", "new", "terms", "word"),
    [
        (QUIET * 3, [1.04, 1.041, 1.039] * 3, Terms(), SAME),
        (QUIET * 3, [1.04, 1.041, 1.039] * 3, Terms(0.03), SLOWER),
        (QUIET, [1.05, 1.05105, 1.04895], Terms(), SLOWER),  # the threshold itself is reached
        ([1.0] * 2, [1.0001] * 2, Terms(), SAME),  # identical values are no proof of perfect repeatability
        ([1.0], [1.5], Terms(), INCONCLUSIVE),
        ([1.0], [5.0], Terms(), SLOWER),
        ([5.0], [1.0], Terms(), FASTER),
    ],
)
def test_what_a_change_takes(base, new, terms, word):
    (only,) = judge({CASES[0]: observed(base)}, {CASES[0]: observed(new)}, terms)
    assert only.verdict == word
    assert word != SAME or terms != Terms() or only.p > 0.1


@pytest.mark.parametrize("medians", [(3.0, 3.1, 2.9), (500.0,)])
def test_a_neighbour_that_leaves_the_fastest_rounds_alone_is_no_slowdown(medians):
    base = {CASES[0]: observed([1.0, 1.01, 0.99][: len(medians)])}
    disturbed = {CASES[0]: [Observation(time, 2.0 if len(medians) == 1 else 0.97, 0.96) for time in medians]}
    assert words(judge(base, disturbed))[CASES[0]] == INCONCLUSIVE


def test_a_machine_that_was_slower_for_a_while_proves_nothing_but_a_case_that_stands_out_does():
    random = np.random.default_rng(9)
    base, later = side(random, 3, 0.01), side(random, 3, 0.01, slower=CASES[2], factor=1.3)
    found = words(judge(base, times(later, 1.12)))
    assert [key for key, word in found.items() if word == SLOWER] == [CASES[2]]


def mixed(random, slower=None):
    """Five cases that wait, and five on a machine with another speed in each process and run."""
    speeds = np.exp(random.normal(0, 0.05) + random.normal(0, 0.1, 3))
    sides = {key: np.exp(random.normal(0, 0.002, 3)) for key in CASES[:5]}
    sides |= {key: speeds * np.exp(random.normal(0, 0.05, 3)) for key in CASES[5:]}
    seen = {key: observed((1.2 if key == slower else 1.0) * each) for key, each in sides.items()}
    return {key: [replace(one, process=(0, i)) for i, one in enumerate(each)] for key, each in seen.items()}


def test_what_waits_does_not_drift_with_what_computes():
    random = np.random.default_rng(15)
    found = [words(judge(mixed(random), mixed(random, slower=CASES[0]))) for _ in range(100)]
    assert sum(each[CASES[0]] == SLOWER for each in found) >= 95  # 47 of them if all drift alike
    assert sum(each[key] != SAME for each in found for key in CASES[1:5]) <= 4


def drifting(random, keys, runs=1, processes=3, drift=0.05, factor=1.0):
    """Runs of several processes, each run faster or slower than the last as a whole."""
    found = {key: [] for key in keys}
    for run in range(runs):
        speed = factor * np.exp(random.normal(0, drift))
        for key in keys:
            for i, one in enumerate(observed(speed * np.exp(random.normal(0, 0.01, processes)))):
                found[key].append(replace(one, process=(run, i)))
    return found


UNCHANGED = {
    **{f"{n} processes": (n, lambda random, n=n: side(random, n, 0.1), 8) for n in (2, 3, 9)},
    **{f"{n} cases that drift in {runs} runs": (n, lambda random, n=n, r=runs: drifting(random, CASES[:n], r), 10)
       for n in (1, 4) for runs in (1, 3)},
    "some follow the machine": (15, mixed, 10),
}  # fmt: skip


@pytest.mark.parametrize("what", UNCHANGED)
def test_unchanged_code_is_called_slower_in_at_most_one_comparison_of_forty(what):
    seed, made, most = UNCHANGED[what]  # of 5 expected at most
    random = np.random.default_rng(seed)
    assert sum(SLOWER in words(judge(made(random), made(random))).values() for _ in range(200)) <= most


def test_where_runs_drift_more_processes_do_not_help_but_runs_do():
    random = np.random.default_rng(2)
    (only,) = judge(drifting(random, CASES[:1], 4), drifting(random, CASES[:1], 4, factor=1.3))
    assert only.verdict == SLOWER
    (only,) = judge(drifting(random, CASES[:1]), drifting(random, CASES[:1], drift=0))
    assert only.verdict == INCONCLUSIVE
    assert 10 < only.more < 30
    assert only.reason == "too noisy: that whole runs drifted by about 5 % can't be ruled out"
    assert re.match("use --interleave, or about .* more runs per side would detect a change of 5 %", only.advice)
    random = np.random.default_rng(2)
    (only,) = judge(drifting(random, CASES[:1], 4), drifting(random, CASES[:1], factor=1.03))
    assert 18 < only.more < 25  # the side with fewer runs counts
    (only,) = judge(*(drifting(random, CASES[:1], drift=0, factor=factor) for factor in (1, 1.12)), Terms(moved=True))
    assert (only.verdict, only.why) == (INCONCLUSIVE, Reason(Cause.DRIFT, ("5 %",)))  # two machines drift as well


@pytest.mark.parametrize(
    ("factor", "terms", "busy", "word"),
    [
        (1.12, Terms(), (), None),
        (1.08, Terms(moved=True), (), SLOWER),  # the answer, between machines
        (1.12, IN_TURN, (), SLOWER),
        (1.4, Terms(), (), SLOWER),  # more than a machine drifts
        (2.0, Terms(), (1, 2), None),  # but not one that is busy most of the time
    ],
)
def test_what_all_cases_share_may_be_drift(factor, terms, busy, word):
    random = np.random.default_rng(9)
    base, new = side(random, 6 if terms.moved else 3, 0.01), side(random, 6 if terms.moved else 3, 0.01)
    found = judge(base, beside_others(times(new, factor), *busy), terms)
    assert set(words(found).values()) == {word or INCONCLUSIVE}
    assert word or {each.why for each in found} == {Reason(Cause.SHARED)}


def test_changes_and_shares_in_words():
    changes = [change_text(ratio) for ratio in (1.203, 0.9, 3.2, 0.00344)]
    assert changes == ["+20.3 %", "-10.0 %", "3.2× slower", "291× faster"]
    assert [percent(share) for share in (0.05, 0.042, 0.995, 1.3)] == ["5 %", "4.2 %", "100 %", "130 %"]


def agrees(verdict, threshold=0.05):
    """Whether the printed interval agrees with the verdict."""
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
            slower = [scaled(one, factor) for one in new[key]]
            new[key] = [replace(one, quartile_s=one.quartile_s * fast / factor) for one in slower]
        for verdict in judge(base, new):
            words_found.add(verdict.verdict)
            assert agrees(verdict), verdict
            assert bool(verdict.reason) == (verdict.verdict == INCONCLUSIVE)
    assert {SLOWER, INCONCLUSIVE} <= words_found
    assert len(words_found) == 4 or not 0.95 < shared < 1.05 or len(keys) < 10


def beside_others(cases, *processes):
    """The same, with other programs that used the cores of these processes."""
    return {key: [replace(one, busy=one.process[0] in processes) for one in seen] for key, seen in cases.items()}


def test_a_side_beside_other_programs_is_no_evidence_against_one_that_was_alone():
    """Recorded: neighbours slowed all of a suite by a third, with no round late."""
    random = np.random.default_rng(8)
    base, new = side(random, 3, 0.01), side(random, 3, 0.01, slower=CASES[0], factor=1.5)
    busy = [beside_others(each, 0, 1, 2) for each in (base, new)]
    for sides, name in (((base, busy[1]), "new"), ((busy[0], new), "base")):
        (first, *_) = judge(*sides)
        assert (first.verdict, first.p, first.why) == (INCONCLUSIVE, None, Reason(Cause.BESIDE, (name,)))
        assert "measure again" in first.advice
    for one, other in ((base, new), busy, (base, beside_others(new, 1))):
        assert words(judge(one, other))[CASES[0]] == SLOWER
    assert words(judge(base, busy[1], IN_TURN))[CASES[0]] == SLOWER


def test_a_process_all_of_whose_rounds_waited_for_a_tick_does_not_count():
    """Recorded: 30 µs of work on all cores took 20 ms in every round of one process in eight."""
    random = np.random.default_rng(8)
    base, new = side(random, 4, 0.02), side(random, 4, 0.02, slower=CASES[0], factor=1.3)
    for cases, place in ((base, 0), (new, 2)):
        cases[CASES[0]][place] = scaled(cases[CASES[0]][place], 600)
    first, *others = judge(base, new)
    assert (first.verdict, first.processes) == (SLOWER, (3, 3))
    assert first.ratio.value == pytest.approx(1.3, rel=0.05)
    assert SLOWER not in words(others).values()
    new[CASES[0]][:2] = [scaled(one, 600) for one in new[CASES[0]][:2]]
    (first, *_) = judge(base, new)
    assert first.why == Reason(Cause.HELD_UP, ("1 of 4", "3 of 4"))
    assert first.verdict == INCONCLUSIVE
    assert first.held_up
    all_slower = {**new, CASES[0]: [scaled(one, 4) for one in side(random, 4, 0.02)[CASES[0]]]}
    assert words(judge(base, all_slower))[CASES[0]] == SLOWER


@pytest.mark.parametrize(
    ("count", "slow", "uneven", "why"),
    [
        (3, 1, 0, Cause.HELD_UP),  # all three processes of a side waited, and none of the other
        (6, 1, 0, None),
        (1, 2, 0, Cause.WAITED),  # beside others that waited by their rounds, all rounds of 23 µs took 28 to 40 ms
        (3, 2, 1, Cause.HELD_UP),  # beside such, 181 µs of work took 34 ms in the new processes
        (6, 2, 1, None),
    ],
)
def test_what_waiting_explains_is_no_change_unless_many_processes_say_so(count, slow, uneven, why):
    """Recorded beside other programs, of ``slow`` benchmarks in which the rounds of one are ``uneven``."""
    random = np.random.default_rng(8)
    base, new = (side(random, count, 0.02, keys=CASES[:6]) for _ in range(2))
    new |= {key: [scaled(one, 200) for one in new[key]] for key in CASES[:slow]}
    for waits in (False, True):
        new[CASES[uneven]] = [replace(one, uneven=waits) for one in new[CASES[uneven]]]
        found = judge(base, new, IN_TURN)
        assert [each.verdict for each in found[:slow]] == [INCONCLUSIVE if waits and why else SLOWER] * slow
        assert not [each for each in found[slow:] if each.verdict == SLOWER or each.held_up]
    assert [each.why and each.why.cause for each in found[:slow]] == [why] * slow


def test_times_of_which_nothing_is_tested_are_times_that_a_process_measured():
    """Recorded: two of three processes held up, and a geometric mean of 0.92 ms that none of them took."""
    base, new = ({CASES[0]: observed([1.0, 1.01, 1.02])}, {CASES[0]: observed([6.0, 1.0, 6.1])})
    (only,) = judge(base, new)
    assert (only.held_up, only.base_s, only.new_s) == (True, 1.01, 6.0)
    assert only.ratio.value == pytest.approx(6.0 / 1.01)


def staged(cases, stage, start=0):
    """Runs of that stage, numbered from ``start``."""
    return {
        key: [replace(one, stage=stage, process=(start + one.process[0], 0)) for one in seen]
        for key, seen in cases.items()
    }


def joined(*parts):
    return {key: [one for part in parts for one in part.get(key, [])] for key in parts[0]}


@pytest.mark.parametrize("unit", [1.0, 1.7, 19 / 7, 7.0])
def test_a_change_as_large_as_a_threshold_reaches_it_however_logarithms_are_rounded(unit):
    base, shaky = ({CASES[0]: observed([unit * x for x in each])} for each in (QUIET, [1.0, 1.016, 0.984]))
    assert words(judge(base, times(base, 1.05))) == {CASES[0]: SLOWER}
    (screened,) = judge(staged(shaky, SCREEN), staged(times(shaky, 1.05**0.5), SCREEN), IN_TURN)
    assert screened.suspect


def test_a_screening_proves_nothing_and_says_what_it_would_have_seen():
    random = np.random.default_rng(5)
    base, new = side(random, 3, 0.03), side(random, 3, 0.03, slower=CASES[3], factor=1.5)
    assert words(judge(base, new, IN_TURN))[CASES[3]] == SLOWER
    found = {each.key: each for each in judge(staged(base, SCREEN), staged(new, SCREEN), IN_TURN)}
    assert found[CASES[3]].suspect
    assert (found[CASES[3]].verdict, found[CASES[3]].reason) == (INCONCLUSIVE, "may have changed, not confirmed")
    others = [each for key, each in found.items() if key != CASES[3]]
    assert sum(each.verdict in (NO_SIGN, SAME) for each in others) >= 6
    assert any("would have been noticed 4 times out of 5" in each.reason for each in others)


@pytest.mark.parametrize(
    ("base", "new", "quiet", "word", "says"),
    [
        ([1.0, 1.5, 0.8], [1.1, 1.7, 0.9], True, INCONCLUSIVE, "too noisy: even "),
        ([1.0, 1.03, 0.97], [1.03, 1.07, 0.99], True, NO_SIGN, "would have been noticed"),
        ([1.0, 1.01, 0.99], [0.8, 1.3, 1.0], False, INCONCLUSIVE, "too noisy: even a change of "),
    ],
)
def test_what_screening_would_have_seen_is_more_than_what_it_saw_and_below_what_noise_hides(
    base, new, quiet, word, says
):
    """Of ``quiet`` ones the fastest rounds vary less than the medians."""
    sides = observed(base), observed(new)
    if quiet:
        sides = tuple([replace(one, least_s=0.7 + i / 1000) for i, one in enumerate(each)] for each in sides)
    (found,) = judge(*(staged({CASES[0]: each}, SCREEN) for each in sides), IN_TURN)
    assert (found.verdict, found.suspect, says in found.reason) == (word, False, True)
    assert found.seen > abs(found.ratio.value - 1)
    assert (found.seen < 0.2) == (word == NO_SIGN)
    ended = Comparison((found,), (), (), 0.05)
    assert (ended.exit_code, replace(ended, fail_inconclusive=True).exit_code) == (0, word == INCONCLUSIVE)
    undecided = replace(found, verdict=INCONCLUSIVE, why=None, need="--budget 99")
    several = replace(ended, verdicts=(*[undecided] * 3, replace(undecided, need="a quieter machine")))
    line = "no slowdown proven at a threshold of 5 %: 4 inconclusive; 3 need --budget 99, 1 needs a quieter machine"
    assert (several.exit_code, several.line) == (0, line)
    slower = replace(several, verdicts=(*several.verdicts, replace(found, verdict=SLOWER)), ended="gone")
    assert (slower.exit_code, slower.line[:16]) == (1, "slowdown proven ")
    assert (replace(several, ended="gone").exit_code, replace(several, ended="gone").line[:10]) == (2, "no verdict")


def test_only_fresh_runs_judge_a_suspect():
    random = np.random.default_rng(5)
    base = staged(side(random, 3, 0.03), SCREEN)
    new = staged(side(random, 3, 0.03, slower=CASES[3], factor=1.5), SCREEN)
    for factor, word in ((1.0, SAME), (1.5, SLOWER)):
        fresh = [staged({CASES[3]: observed(each)}, CONFIRM, 3) for each in ([1.0, 1.01, 0.99], [factor] * 3)]
        found = judge(joined(base, fresh[0]), joined(new, fresh[1]), Terms(in_turn=(False, True)))
        (only,) = (each for each in found if each.key == CASES[3])
        assert (only.verdict, only.processes) == (word, (3, 3))
        assert not only.suspect
    fresh = [staged({CASES[3]: observed([each])}, CONFIRM, 3) for each in (1.0, 9.0)]  # one pair confirms nothing
    found = judge(joined(base, fresh[0]), joined(new, fresh[1]), IN_TURN)
    assert [each.suspect for each in found if each.key == CASES[3]] == [True]


@pytest.mark.parametrize("slower", [None, CASES[3]])
def test_screening_and_confirming_raise_no_more_false_alarms_than_one_test(slower):
    """Ten benchmarks that vary by 5 %; half of the suspects are there by chance alone."""
    random = np.random.default_rng(11)
    alarms = named = 0
    for _ in range(200):
        sides = [staged(side(random, 3, 0.05, each, 1.25), SCREEN) for each in (None, slower)]
        suspects = [each.key for each in judge(*sides, IN_TURN) if each.suspect]
        fresh = [staged(side(random, 6, 0.05, each, 1.25, suspects), CONFIRM, 3) for each in (None, slower)]
        found = words(judge(*(joined(*each) for each in zip(sides, fresh, strict=True)), IN_TURN))
        named += found[CASES[3]] == SLOWER
        alarms += any(word == SLOWER for key, word in found.items() if key != slower)
    assert alarms <= 8  # of 5 expected at most
    assert named >= 190 or slower is None


def test_of_many_processes_those_whose_median_waited_are_left_out():
    """Recorded: in one process in twelve all rounds waited but the fastest, which is as fast as any."""
    random = np.random.default_rng(5)
    base, new = side(random, 8), side(random, 8, slower=CASES[0], factor=1.2)
    waited = [replace(one, median_s=600.0) if i in (2, 5) else one for i, one in enumerate(new[CASES[0]])]
    (found,) = (each for each in judge(base, new | {CASES[0]: waited}, IN_TURN) if each.key == CASES[0])
    assert (found.verdict, found.processes) == (SLOWER, (8, 6))
    for count, left in ((4, 4), (5, 8)):  # most of a side are no exceptions
        late = [replace(one, median_s=600.0) if i < count else one for i, one in enumerate(new[CASES[0]])]
        (found,) = (each for each in judge(base, new | {CASES[0]: late}, IN_TURN) if each.key == CASES[0])
        assert found.processes == (8, left)
    few = judge({key: seen[:5] for key, seen in base.items()}, {**new, CASES[0]: waited[:5]}, IN_TURN)
    assert next(each for each in few if each.key == CASES[0]).processes == (5, 5)


def test_screening_suspects_what_only_the_fastest_rounds_show():
    random = np.random.default_rng(6)
    base, new = staged(side(random, 3, 0.01), SCREEN), staged(side(random, 3, 0.01), SCREEN)
    for cases, factor in ((base, 1.0), (new, 1.2)):
        waits = zip(cases[CASES[0]], random.permutation([1.3, 30.0, 200.0]), strict=True)
        cases[CASES[0]] = [replace(one, median_s=one.median_s * s, least_s=factor * one.least_s) for one, s in waits]
    found = {each.key: each for each in judge(base, new, IN_TURN)}
    assert [key for key, each in found.items() if each.suspect] == [CASES[0]]
    assert found[CASES[0]].spread < 0.1  # that of the fastest rounds: more screening wouldn't tell more


def test_one_screening_pair_claims_nothing_about_what_it_would_have_seen():
    """It was "no sign of a change: a change of 5 % would have been noticed", by one process a side."""
    sides = [staged({CASES[0]: observed([time])}, SCREEN) for time in (1.0, 1.004)]
    (only,) = judge(*sides, IN_TURN)
    assert (only.verdict, only.cause, only.suspect) == (INCONCLUSIVE, Cause.ONE_PROCESS, False)
