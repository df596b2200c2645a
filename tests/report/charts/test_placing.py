"""Words beside points: never on each other, and near what they name."""

from __future__ import annotations

import itertools
import random

import pytest

from gpubench.report.charts.roofline_chart import Box, beside, spread

ROOM = Box(0.0, 0.0, 6.0, 3.0)


def test_what_has_room_stays() -> None:
    assert spread([0.5, 2.0, 1.0], 0.2, 0.0, 3.0) == [0.5, 2.0, 1.0]


def test_what_is_too_close_moves_apart_evenly() -> None:
    assert spread([1.0, 1.0], 0.2, 0.0, 3.0) == pytest.approx([0.9, 1.1])
    assert spread([1.1, 1.0, 1.05], 0.2, 0.0, 3.0) == pytest.approx([1.25, 0.85, 1.05])


def test_the_edges_hold() -> None:
    assert spread([0.0, 0.0], 0.2, 0.0, 3.0) == pytest.approx([0.0, 0.2])
    assert spread([5.0], 0.2, 0.0, 3.0) == [3.0]
    assert spread([0.1] * 5, 1.0, 0.0, 3.0) == pytest.approx([0.0, 0.75, 1.5, 2.25, 3.0])
    assert spread([], 0.2, 0.0, 3.0) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_places_end_up_apart_and_in_order(seed: int) -> None:
    drawn = random.Random(seed)
    places = [drawn.uniform(0, 3) for _ in range(10)]
    moved = spread(places, 0.2, 0.0, 3.0)
    assert sorted(range(10), key=places.__getitem__) == sorted(range(10), key=moved.__getitem__)
    assert all(b - a >= 0.2 - 1e-9 for a, b in itertools.pairwise(sorted(moved)))
    assert -1e-9 <= min(moved) <= max(moved) <= 3 + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_words_never_lie_on_each_other(seed: int) -> None:
    drawn = random.Random(seed)
    points = [(drawn.uniform(0, 6), drawn.uniform(0, 3), drawn.uniform(0.2, 1.0)) for _ in range(40)]
    obstacle = Box(2.0, 1.0, 1.0, 0.5)
    boxes = [box for box in beside(points, 0.13, ROOM, [obstacle], []) if box]
    assert len(boxes) > 20
    assert all(box.within(ROOM) and not box.meets(obstacle) for box in boxes)
    assert not any(a.meets(b) for a, b in itertools.combinations(boxes, 2))


def test_words_avoid_marks_where_they_can() -> None:
    above = Box(2.5, 1.05, 1.0, 0.3)
    (box,) = beside([(3.0, 1.0, 0.4)], 0.13, ROOM, [], [above])
    assert box
    assert not box.meets(above)


def test_words_without_a_place_are_left_out() -> None:
    assert beside([(3.0, 1.0, 0.4)], 0.13, ROOM, [Box(-1, -1, 9, 9)], []) == [None]
    assert beside([(3.0, 1.0, 9.0)], 0.13, ROOM, [], []) == [None]
