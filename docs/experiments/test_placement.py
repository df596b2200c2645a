"""The experiment counts what it says; two runs of each expression are made for real."""

import sys

import placement
import pytest
from placement import Printed, outcome


def test_a_range_that_misses_the_median_of_its_runs_is_not_counted():
    found = outcome([Printed(1.0, 0.9, 1.1), Printed(1.2, 1.15, 1.3), Printed(1.1, 1.05, 1.15)])
    assert (found.held, found.runs, found.median_s) == (2, 3, 1.1)
    assert (found.width, found.spread) == (pytest.approx(0.15 / 1.1), pytest.approx(0.2 / 1.1))


def test_expressions_are_timed_and_counted(monkeypatch, capsys):
    kept = {name: placement.EXPRESSIONS[name] for name in ("addition of 10⁵", "product of 256")}
    monkeypatch.setattr(placement, "EXPRESSIONS", kept)
    monkeypatch.setattr(sys, "argv", ["placement", "--runs=1", "--", "--preset=smoke", "--threads=1"])
    placement.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0].strip() for line in lines[:2]] == [*kept]
    assert " of 2 ranges hold the median" in lines[2]
