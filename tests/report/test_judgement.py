"""What is said of a number, and what isn't."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpubench.report import judgement, labels
from gpubench.report.crossover import Crossing
from gpubench.report.judgement import IF_IT_STAYS, NOT_WORTH_IT, TOO_NOISY, UNSURE, WORTH_IT
from gpubench.report.sweep import Line, Point
from gpubench.runfile.schema import DeviceFacts, Machine, Run
from gpubench.statistics import ABSENT, ALWAYS, CROSSES, NEVER, Crossover

MACHINE = Machine("m", (DeviceFacts("cpu", "cpu", ""), DeviceFacts("cuda:0", "cuda", "")))


def pair(low: float, high: float, shot: tuple[float, float] | None, **more: Any) -> dict[str, Any]:
    run = Run(path=None, machine=MACHINE, results=())  # type: ignore[arg-type]
    shot_value = math.sqrt(shot[0] * shot[1]) if shot else None
    return {
        "device": "cuda:0", "baseline_device": "cpu", "low": low, "high": high, "speedup": math.sqrt(low * high),
        "one_shot_speedup": shot_value, "one_shot_low": shot and shot[0], "one_shot_high": shot and shot[1],
        "_run": run, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "shot", "verdict"),
    [
        (9.0, 11.0, (1.5, 1.7), WORTH_IT),
        (9.0, 11.0, (1.4, 1.7), IF_IT_STAYS),
        (9.0, 11.0, (0.2, 0.3), IF_IT_STAYS),
        (9.0, 11.0, None, IF_IT_STAYS),
        (1.4, 1.6, (1.0, 1.1), UNSURE),
        (1.1, 1.4, (1.0, 1.1), NOT_WORTH_IT),
        (0.1, 0.2, (0.1, 0.2), NOT_WORTH_IT),
        (2.0, 8.1, (2.0, 3.0), UNSURE),  # wider than a factor of four
    ],
)
def test_verdicts_are_made_at_the_low_end(
    low: float, high: float, shot: tuple[float, float] | None, verdict: str
) -> None:
    assert judgement.verdict(pair(low, high, shot)) == verdict


def test_between_equals_no_copies_are_asked_for() -> None:
    assert judgement.verdict(pair(2.0, 3.0, None, device="cpu")) == WORTH_IT
    assert judgement.verdict(pair(2.0, 3.0, None, baseline_device="cuda:0")) == WORTH_IT


def test_an_interval_beyond_a_factor_of_four_is_no_number() -> None:
    assert judgement.speedup_words(pair(2.0, 8.0, None)) == "4.0× (2.0× to 8.0×)"
    assert judgement.speedup_words(pair(2.0, 8.1, None)) == TOO_NOISY
    assert judgement.copies_text(pair(2.0, 3.0, (0.1, 0.5))) == TOO_NOISY
    assert judgement.copies_text(pair(2.0, 3.0, (0.2, 0.2))) == "5.0× slower"
    assert judgement.copies_text(pair(2.0, 3.0, None)) == "—"


@pytest.mark.parametrize(("share", "words"), [(0.73, "73%"), (1.0, "100%"), (1.01, "—"), (0.001, "<1%"), (None, "—")])
def test_nothing_is_above_its_peak(share: float | None, words: str) -> None:
    assert judgement.peak_text(share) == words


UP = (0.5, 2.0, 4.0)


@pytest.mark.parametrize(
    ("known", "ratios", "words"),
    [
        (Crossover(72.4, CROSSES, 65.0, 79.0), UP, "n ≈ 72"),
        (Crossover(72.4, CROSSES, 0.0, 79.0), UP, UNSURE),
        (Crossover(72.4, CROSSES, 65.0, math.inf), UP, UNSURE),
        (Crossover(72.4, CROSSES), UP, "n between 64 and 128"),
        (Crossover(None, ALWAYS, 0.0, 0.0), UP, "every size measured"),
        (Crossover(None, ALWAYS), UP, "every size measured"),
        (Crossover(None, ALWAYS, 0.0, 70.0), UP, UNSURE),
        (Crossover(None, NEVER), (0.5, 0.4, 0.3), "not up to n = 256"),
        (Crossover(None, ABSENT), (0.5, 2.0, 0.5), "only up to n = 128"),
        (Crossover(72.4, CROSSES, 60.0, 256.0), UP, UNSURE),
    ],
)
def test_a_crossover_is_stated_only_as_far_as_it_is_known(
    known: Crossover, ratios: tuple[float, ...], words: str
) -> None:
    points = tuple(Point(x, y, y, y) for x, y in zip((64, 128, 256), ratios, strict=True))
    assert judgement.crossover_text(Crossing(known, 3), Line({}, points, {}, ()), "n") == words


def test_one_size_has_no_crossover() -> None:
    line = Line({}, (Point(64, 2.0, 2.0, 2.0),), {}, ())
    assert judgement.crossover_text(Crossing(Crossover(None, ALWAYS), 3), line, "n") == UNSURE


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (132.4, "132×"), (1412.0, "1,410×"), (99.6, "100×"), (8.64, "8.6×"), (9.96, "10×"), (1.0, "1.0×"),
        (0.98, "1.0×"), (0.00793, "126× slower"), (0.24, "4.2× slower"), (3.2e7, "3.2e+07×"),
    ],
)  # fmt: skip
def test_numbers_for_people(value: float, words: str) -> None:
    assert labels.times_text(value) == words


def test_ranges_for_people() -> None:
    assert labels.times_range(48, 113) == "48× to 113×"
    assert labels.times_range(132.1, 132.4) == "132×"
    assert labels.times_range(0.3, 0.45) == "2.2× to 3.3× slower"
    assert labels.times_range(0.5, 2) == "2.0× slower to 2.0×"


@pytest.mark.parametrize(("size", "words"), [(72.4, "72"), (34_300, "34k"), (1.07, "1"), (0.4, "1"), (1e7, "10⁷")])
def test_estimated_sizes_have_two_digits(size: float, words: str) -> None:
    assert labels.rounded_size(size) == words
